#!/bin/sh
# cargo-deny checks the licences, sources and duplicates of the dependencies (`cargo install cargo-deny`).
. "$(dirname "$0")/lib.sh"
say "dependencies"
if command -v cargo-deny >/dev/null 2>&1; then
    cargo deny --all-features check bans licenses sources
else
    echo "skipped: cargo-deny is not installed (cargo install cargo-deny)"
fi
