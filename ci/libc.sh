#!/bin/sh
# ci/libc.sh [OPTION…] [NAME…]: runs test programs with other C libraries, each in a system of the Debian suite that has it,
# on this machine's kernel. NAME is a name of libc/list.txt; without one, all of them. For glibc the tests are built once,
# here, and run in newer systems, as programs of users are. For musl they are built for the target
# x86_64-unknown-linux-musl: `rustup target add` installs it, and Debian's musl-tools the compiler for C.
#
# The systems lie in a cache, and nothing is installed. Results go to results/libc/DATE, and docs/platforms.md has a
# table of the newest (kernels/table.sh).
#
#   --long             the test programs that kernels/tests.txt calls long, instead of the others
#   --only PATTERN     only the test programs whose name matches this basic regular expression
#   --results FOLDER   another folder for the results
#
# A NAME whose tools are not installed is skipped with a message. Variables: LATCHWORK_LIBC, the cache
# (~/.cache/latchwork-libc); LATCHWORK_LIBC_BUILD, the arguments of `cargo test` that say what is built (-p latchwork
# -p latchwork-sys); LATCHWORK_LIBC_MESSAGES, a file with cargo's messages of an earlier build of the same sources for the
# one NAME that is given: nothing is built then; LATCHWORK_LIBC_LIMIT, the seconds after which a test program counts as hung (600);
# LATCHWORK_KILLS (0.05), LATCHWORK_MESSAGES (2000), LATCHWORK_STRESS_SECONDS (3), LATCHWORK_WATCHDOG (300), for the tests.
. "$(dirname "$0")/lib.sh"

only='' results='' names='' ask='\(quick\|run\)'
while [ $# != 0 ]; do
    case $1 in
        --long) ask=long ;;
        --only) only=$2; shift ;;
        --results) results=$2; shift ;;
        -*) echo "ci/libc.sh: $1 is not an option" >&2; exit 2 ;;
        *) names="$names $1" ;;
    esac
    shift
done
say "other C libraries"
[ "$(uname -m)" = x86_64 ] || { echo "skipped: the tests of this processor ($(uname -m)) have no system yet"; exit 0; }
for tool in mmdebstrap unshare apt-get; do
    command -v $tool >/dev/null || { echo "skipped: $tool is not installed"; exit 0; }
done
[ "$(id -u)" = 0 ] || { echo "skipped: only root can mount a system"; exit 0; }
cache=${LATCHWORK_LIBC:-${XDG_CACHE_HOME:-$HOME/.cache}/latchwork-libc}
mkdir -p "$cache"
list=$PWD/ci/libc/list.txt
names=${names:-$(sed '/^#/d; s/ .*//' "$list")}
date=$(date -u +%F)
commit=$(git rev-parse --short HEAD)$([ -z "$(git status --porcelain -uno)" ] || echo +)
tree=$(git ls-tree -r HEAD crates | grep -v crates/latchwork-testkit/tests | git hash-object --stdin | cut -c1-12)
[ -z "$(git status --porcelain -uno crates)" ] || tree=$tree+
results=${results:-results/libc/$date}
target=x86_64-unknown-linux-musl
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# What is missing for a kind of programs, in words; nothing if all is there.
lacking() {
    case $1 in
        musl*)
            if [ ! -d "$(rustc --print sysroot)/lib/rustlib/$target/lib" ]; then
                echo "the standard library for $target is not installed (rustup target add $target)"
            elif ! command -v musl-gcc >/dev/null; then
                echo "musl-gcc is not installed (Debian's package musl-tools)"
            fi
            ;;
    esac
}

# Builds the tests of a kind: prints lines of name and program.
build() {
    # shellcheck disable=SC2086 # arguments of cargo
    set -- ${LATCHWORK_LIBC_BUILD:--p latchwork -p latchwork-sys}
    folder=${CARGO_TARGET_DIR:-$PWD/target}
    case $kind${LATCHWORK_LIBC_MESSAGES:+-built} in
        *-built) cat "$LATCHWORK_LIBC_MESSAGES" ;;
        gnu) cargo test "$@" --locked --no-run --message-format=json ;;
        musl-static) cargo test "$@" --locked --no-run --message-format=json --target $target ;;
        musl)
            # Rust asks for GCC's shared library of stack unwinding, which is glibc's; its own archive has the same.
            mkdir -p "$cache/unwind"
            echo "INPUT($(rustc --print sysroot)/lib/rustlib/$target/lib/self-contained/libunwind.a)" >"$cache/unwind/libgcc_s.so"
            CARGO_TARGET_DIR=$folder/dynamic CC_x86_64_unknown_linux_musl=musl-gcc \
                RUSTFLAGS="-C target-feature=-crt-static -C linker=musl-gcc -L native=$cache/unwind" \
                cargo test "$@" --locked --no-run --message-format=json --target $target
            ;;
    esac >"$work/messages"
    ci/kernels/programs.sh <"$work/messages" | sort -u
}

bad=0
for name in $names; do
    line=$(sed -n "/^#/d; s/  */ /g; /^$name /p" "$list")
    [ -n "$line" ] || { echo "no C library $name in $list" >&2; exit 2; }
    kind=$(echo "$line" | cut -d' ' -f2) suite=$(echo "$line" | cut -d' ' -f3)
    why=$(lacking "$kind")
    [ -z "$why" ] || { echo "skipped: $name: $why"; continue; }
    say "$name"
    [ -f "$work/$kind" ] || build >"$work/$kind"
    grep -v -e '^- ' -e ':loom_' "$work/$kind" | while read -r test program; do
        known=$(sed -n "s/  */ /g; /^$test /p" ci/kernels/tests.txt)
        [ -n "$known" ] || { echo "ci/kernels/tests.txt does not name $test" >&2; exit 1; }
        if [ -n "$only" ]; then echo "$test" | grep -q "$only" || continue; fi
        echo "$known" | grep -q "^$test $ask" || continue
        echo "$known" | sed "s|^\([^ ]*\) [a-z]*|\1 ${LATCHWORK_LIBC_LIMIT:-600} $program|; s/\$/ --test-threads=2 --show-output/"
    done >"$work/list"
    [ -s "$work/list" ] || { echo "ci/libc.sh: no test program was chosen" >&2; exit 2; }
    ci/libc/root.sh "$cache" "$suite" || { echo "not run: $name: no system of $suite could be made"; bad=1; continue; }
    report=$work/$name.txt
    {
        echo "kernel $name"
        echo "date $date"
        echo "commit $commit"
        echo "tree $tree"
        echo "kills ${LATCHWORK_KILLS:-0.05}"
        ci/libc/inside.sh "$cache/$suite" "$kind" "$work/list" "$cache/$name.log"
    } >"$report"
    cat "$report"
    outcome=$(ci/kernels/outcome.sh "$report")
    say "$name: $outcome (output: $cache/$name.log)"
    case $outcome in passed*) ;; *) bad=1 ;; esac
    ci/kernels/record.sh "$report" "$results/$name.txt"
done
[ "$results" != "results/libc/$date" ] || ci/kernels/table.sh write
exit $bad
