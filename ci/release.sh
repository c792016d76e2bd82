#!/bin/sh
# Makes a release of the last commit, and checks each part of it where nothing else of the project is:
#
#     ci/release.sh [--out DIR] [--publishable] [STEP…]
#
#   crates    each public crate as it would be published; the command, installed from these packages alone
#   licences  the licences of all crates in the programs and libraries (THIRD-PARTY), against the list in deny.toml
#   sbom      the crates of which the command and the C library consist, in CycloneDX's format
#   semver    the public interfaces against the last version's
#   debian    the Debian packages, and lintian
#   root      the Debian packages in a fresh Debian: installed, used, removed (as root)
#
# Without a STEP it makes all of them. DIR is target/release-VERSION by default. Nothing is published. --publishable
# also requires what a version needs that is published: a date in the changelogs, and the repository's address.
# ci/setup.sh release installs the tools. BASELINE, a git revision, is the version that `semver` compares with (by
# default the last tag v…).
. "$(dirname "$0")/lib.sh"
version=$(sed -n '/^\[workspace.package\]/,/^\[/s/^version = "\(.*\)"/\1/p' Cargo.toml)
out=target/release-$version publishable='' steps=''
while [ $# -gt 0 ]; do
    case $1 in
        --out) out=$2; shift 2 ;;
        --publishable) publishable=yes; shift ;;
        crates | licences | sbom | semver | debian | root) steps="$steps $1"; shift ;;
        *) sed -n '2,18p' "$0" | sed 's/^# \{0,1\}//'; exit 2 ;;
    esac
done
steps=${steps:-crates licences sbom semver debian root}

# What a step needs that the machine lacks, by name.
missing=
need() { # step, command, …
    step=$1; shift
    case " $steps " in *" $step "*) ;; *) return 0 ;; esac
    for tool; do
        command -v "$tool" > /dev/null || missing="$missing
  $step: $tool"
    done
}
need licences cargo-about cargo-deny
need sbom cargo-cyclonedx jq
need semver cargo-semver-checks
# The Debian packages contain the licences.
need debian cargo-about dpkg-buildpackage dh lintian
need root mmdebstrap unshare
case " $steps " in
    *" root "*) [ "$(id -u)" = 0 ] || missing="$missing
  root: run it as root" ;;
esac
if [ -n "$missing" ]; then
    echo "missing (ci/setup.sh release installs the tools):$missing" >&2
    exit 1
fi
if [ -n "$(git status --porcelain)" ]; then
    echo "The release is made of the last commit, and these changes are not in it:" >&2
    git status --short >&2
    exit 1
fi
if [ -n "$publishable" ]; then ci/release/publishable.sh "$version"; fi

mkdir -p "$out"
out=$(cd "$out" && pwd)
work=$out/work
# The sources, and nothing that a build has left.
rm -rf "$work/source"
mkdir -p "$work/source"
git archive HEAD | tar -x -C "$work/source"
export out work version
export CARGO_TARGET_DIR="$work/target"
for step in $steps; do
    say "$step"
    "ci/release/$step.sh"
done
say "the release is in $out"
(cd "$out" && find . -path ./work -prune -o -type f ! -name SHA256SUMS -print | sort | xargs -r sha256sum > SHA256SUMS)
cat "$out/SHA256SUMS"
