#!/bin/sh
# Installs what only some scripts need (Debian packages, and tools with `cargo install`). Nothing else needs it.
#
#     ci/setup.sh            the optional peers of the full benchmark
#     ci/setup.sh release    the tools of ci/release.sh
. "$(dirname "$0")/lib.sh"
sudo=
[ "$(id -u)" = 0 ] || sudo=sudo
packages() {
    $sudo apt-get update
    $sudo apt-get install -y --no-install-recommends "$@"
}
case ${1:-peers} in
    peers)
        say "optional peers of the benchmark"
        packages libnsync1 libabsl20220623 g++ libboost-dev
        ;;
    release)
        say "tools of the release"
        packages debhelper dpkg-dev jq lintian man-db mmdebstrap
        cargo install --locked cargo-cyclonedx cargo-deny cargo-semver-checks
        cargo install --locked --features cli cargo-about
        ;;
    *) sed -n '2,5p' "$0" | sed 's/^# \{0,1\}//'; exit 2 ;;
esac
