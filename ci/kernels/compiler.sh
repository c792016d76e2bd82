#!/bin/sh
# compiler.sh: prints the paths of the files that the C and C++ compilers of this machine consist of, as far as Debian's
# packages say: without documents, sanitizers, and what recompiles whole programs at link time.
set -eu
gcc=$(realpath "$(command -v cc)")
version=$(basename "$gcc" | sed 's/.*-//')
gnu=$(uname -m | tr _ -)-linux-gnu
installed() { dpkg -L "$1" 2>/dev/null || true; }
for package in gcc "gcc-$version" cpp "cpp-$version" g++ "g++-$version" "libgcc-$version-dev" \
    "libstdc++-$version-dev" binutils "binutils-$gnu" libbinutils libctf0 libc6-dev linux-libc-dev libcrypt-dev \
    "gcc-$version-$gnu" "cpp-$version-$gnu" "g++-$version-$gnu"; do
    installed "$package"
done | grep -v -e '^/usr/share/' -e '/lto1$' -e 'san\(_preinit\)\?\.\(a\|o\|so\)' -e 'lto-dump' -e 'gold$' -e 'dwp$' -e 'gcov' |
    sort -u | while read -r file; do
    if [ -f "$file" ] || { [ -L "$file" ] && [ ! -d "$file" ]; }; then echo "$file"; fi
done
readlink -f /usr/bin/cc /etc/alternatives/cc | sort -u
echo /usr/bin/cc
if [ -e /usr/bin/c++ ]; then echo /usr/bin/c++; fi
