#!/bin/sh
# use-library.sh VERSION: compiles programs with the installed library, runs them, and finds the manual and the debug
# information.
set -eu
[ "$(pkg-config --modversion latchwork)" = "$1" ]
examples=/usr/share/doc/liblatchwork-dev/examples
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
cd "$scratch"
flags=$(pkg-config --cflags --libs latchwork)
# The flags are words. shellcheck disable=SC2086
build() { # compiler, source, program, flag…
    compiler=$1 source=$2 program=$3; shift 3
    "$compiler" -Wall -Werror -O2 -o "$program" "$source" "$@"
    echo "$program: $("./$program" | tail -n 1)"
}
build gcc "$examples/locks/queue.c" queue $flags
ldd queue | grep liblatchwork.so
build g++ "$examples/locks/accounts.cpp" accounts $flags
build gcc "$examples/classic/plant.c" plant $flags
build gcc "$examples/regions/ledger.c" ledger $flags
build gcc "$examples/locks/queue.c" static -Wl,-Bstatic $flags -Wl,-Bdynamic $(pkg-config --static --libs-only-l latchwork \
    | sed 's/-llatchwork//')
if ldd static | grep -q liblatchwork; then
    echo "linked with the shared library" >&2
    exit 1
fi
for page in lw_mutex lw_mutex_lock coproc_create rtems_semaphore_create; do man -w 3 "$page"; done
man 3 lw_robust_mutex_lock | grep -q EOWNERDEAD
# A program that is not recompiled, and the checker.
latchwork run --check -- ./queue > /dev/null
# The debug information that belongs to each file.
for file in /usr/bin/latchwork /usr/lib/latchwork/*.so /usr/lib/*/liblatchwork.so.[0-9]*.[0-9]*.[0-9]*; do
    id=$(readelf -n "$file" | sed -n 's/.*Build ID: //p')
    debug=/usr/lib/debug/.build-id/$(echo "$id" | cut -c 1-2)/$(echo "$id" | cut -c 3-).debug
    # It complains about what only the stripped file has.
    readelf -S "$debug" 2> /dev/null | grep -q debug_line
    if readelf -S "$file" | grep -q debug_line; then echo "$file is not stripped" >&2; exit 1; fi
done
