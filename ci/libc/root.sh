#!/bin/sh
# root.sh CACHE SUITE: makes a Debian system of a suite in CACHE/SUITE, from the mirror of this machine's apt configuration,
# with a C compiler for the tests that compile programs, and with musl. One that is there stays; remove it to get a newer one.
set -eu
cache=$1 suite=$2
here=$(cd "$(dirname "$0")" && pwd)
[ ! -d "$cache/$suite" ] || exit 0
apt-config dump | grep -i -e '^Acquire::Check-Valid-Until ' -e '^Acquire::[a-z]*::Proxy ' >"$cache/apt.conf" || true
rm -rf "$cache/$suite.new"
# Without apt's package cache, manuals and translations; nothing of it must survive a power failure.
mmdebstrap --mode=root --variant=extract --aptopt="$cache/apt.conf" --aptopt='Acquire::Languages "none"' \
    --dpkgopt=force-unsafe-io --dpkgopt='path-exclude=/usr/share/*' \
    --include=base-files,base-passwd,dash,coreutils,grep,sed,util-linux,gcc,g++,libc6-dev,libc-bin,musl \
    "$suite" "$cache/$suite.new" "$("$here/../kernels/mirror.sh")" >&2
rm -rf "$cache/$suite.new/var/cache/apt" "$cache/$suite.new/var/lib/apt/lists"
# (Nothing is configured, since that would run programs of the system.)
[ -e "$cache/$suite.new/bin" ] || ln -s usr/bin "$cache/$suite.new/bin"
[ -e "$cache/$suite.new/bin/sh" ] || ln -s dash "$cache/$suite.new/bin/sh"
ln -sf gcc "$cache/$suite.new/usr/bin/cc"
ln -sf g++ "$cache/$suite.new/usr/bin/c++"
mkdir -p "$cache/$suite.new/proc" "$cache/$suite.new/sys" "$cache/$suite.new/dev" "$cache/$suite.new/tmp"
printf 'root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/false\n' >"$cache/$suite.new/etc/passwd"
printf 'root:x:0:\nnogroup:x:65534:\n' >"$cache/$suite.new/etc/group"
mv "$cache/$suite.new" "$cache/$suite"
