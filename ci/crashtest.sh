#!/bin/sh
# ci/crashtest.sh: `latchwork crashtest` on other libraries, as docs/crashtest.md tells of them: glibc's robust mutexes,
# LMDB and Boost.Interprocess. What it says of each program goes to results/crashtest.md. A program whose headers are not
# installed (liblmdb-dev, libboost1.81-dev) is skipped by name, and then the result is only shown. No part of the other checks.
. "$(dirname "$0")/lib.sh"
say "kills at each instruction of other libraries"
target=${CARGO_TARGET_DIR:-target}
case $target in /*) ;; *) target=$PWD/$target ;; esac
cargo build --release --locked -p latchwork-cli --target-dir "$target"
command=$target/release/latchwork
result=$PWD/results/crashtest.md
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# A library's version, by its package.
version() { dpkg-query -f '${source:Package} ${Version}' -W "$1" 2>/dev/null || echo "$1, version unknown"; }
# has COMPILER LANGUAGE HEADER NAME: whether the program has its header.
has() {
    printf '#include <%s>\n' "$3" | "$1" -E -x "$2" - >/dev/null 2>&1 && return
    echo "skipped: $4: there is no header $3" | tee -a "$work/skipped"
    return 1
}
# build NAME COMPILER ARGUMENT…: a program of examples/crashtest.
build() {
    name=$1 compiler=$2
    shift 2
    source=$(find examples/crashtest -name "$name.c*")
    # What is recorded names no folder of this machine.
    "$compiler" -g "-ffile-prefix-map=$PWD/=" "-I$PWD/crates/latchwork-c/include" "$PWD/$source" -o "$work/$name" "$@"
}
# run LIBRARY ARGUMENT… -- PROGRAM…: one row.
run() {
    library=$1
    shift
    # The part that a reader would type.
    printf '\n## %s\n\n```console\n$ latchwork crashtest %s\n' "$library" "$*"
    status=0
    (cd "$work" && "$command" crashtest "$@") 2>&1 || status=$?
    printf '```\n\nExit status %s.\n' "$status"
    # 0: each check held; 1: one did not, which is a result.
    [ "$status" -le 1 ] || echo "$* ended with status $status" >>"$work/failed"
}

{
    printf '# Kills at each instruction of other libraries\n\n'
    # shellcheck disable=SC2016 # Markdown
    printf 'Made by `ci/crashtest.sh`, %s, Linux %s, %s, revision %s. The programs are in `examples/crashtest`; [docs/crashtest.md](../docs/crashtest.md#what-it-finds-in-other-libraries) explains the results.\n' \
        "$(date -u +%F)" "$(uname -r | sed 's/-.*//')" "$(sed -n 's/^PRETTY_NAME="\(.*\)"/\1/p' /etc/os-release)" "$(git describe --always --dirty --abbrev=12)"
    build robust-mutex cc -lpthread
    library=$(version libc6)
    run "$library" -- ./robust-mutex owner
    run "$library" -- ./robust-mutex waiter
    if has cc c lmdb.h lmdb; then
        build lmdb cc -llmdb
        library=$(version liblmdb0)
        run "$library" -- ./lmdb
        run "$library" -- ./lmdb survivor
        run "$library" --points 300 --seed 1 -- ./lmdb open
    fi
    if has c++ c++ boost/interprocess/managed_mapped_file.hpp boost-segment; then
        build boost-segment c++ -lpthread
        library="Boost $(printf '#include <boost/version.hpp>\nBOOST_LIB_VERSION\n' | c++ -E -x c++ - | tail -n 1)"
        run "$library" --every 150 --timeout 2 -- ./boost-segment open
        run "$library" --points 400 --seed 1 -- ./boost-segment construct
    fi
} >"$work/result"
cat "$work/result"
[ -s "$work/skipped" ] || cp "$work/result" "$result"
[ ! -s "$work/failed" ] || { cat "$work/failed" >&2; exit 1; }
