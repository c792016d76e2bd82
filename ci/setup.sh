#!/bin/sh
# Installs the optional peers of the full benchmark (Debian packages). Nothing else needs them.
. "$(dirname "$0")/lib.sh"
say "optional peers of the benchmark"
sudo=
[ "$(id -u)" = 0 ] || sudo=sudo
$sudo apt-get update
$sudo apt-get install -y --no-install-recommends libnsync1 libabsl20220623 g++ libboost-dev
