#!/bin/sh
# The public interfaces of the libraries against those of an earlier version: BASELINE, a git revision; by default the
# last tag v…. A change that breaks programs needs a new minor version (0.x), or a new major version.
. "$(dirname "$0")/../lib.sh"
cd ..
baseline=${BASELINE:-$(git describe --tags --abbrev=0 --match 'v[0-9]*' HEAD^ 2> /dev/null || true)}
if [ -z "$baseline" ]; then
    echo "skipped: no baseline: no tag v… before this commit (BASELINE names a git revision)"
    exit 0
fi
git rev-parse -q --verify "$baseline^{commit}" > /dev/null \
    || { echo "the baseline $baseline is no revision of this repository" >&2; exit 1; }
# Programs use these. The other crates are parts of the command, or hidden behind `latchwork`.
cargo semver-checks --baseline-rev "$baseline" -p latchwork -p latchwork-sync
