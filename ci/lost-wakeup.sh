#!/bin/sh
# shellcheck disable=SC2016 # no expansions in what is printed
# Runs `examples/robust-lost-wakeup` again and again: `ci/lost-wakeup.sh [RUNS]` (20) for each kind of mutex. Prints how many
# runs hang, and writes the table to `results/lost-wakeup.md`. Fails if a run of Latchwork's mutexes, or one under
# `latchwork run --heal`, hangs. No part of the other checks.
. "$(dirname "$0")/lib.sh"
runs=${1:-20}
results=results/lost-wakeup.md
command -v cc >/dev/null 2>&1 || { echo "skipped: no C compiler is installed"; exit 0; }
cargo build --locked -p latchwork-c -p latchwork-cli -p latchwork-preload -p latchwork-examples
target=${CARGO_TARGET_DIR:-target}
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
build() {
    name=$1
    shift
    cc -std=c11 -O2 "$@" -Icrates/latchwork-c/include examples/robust-lost-wakeup/robust-lost-wakeup.c \
        "$target/debug/liblatchwork_c.a" -lpthread -ldl -lm -o "$folder/$name"
}
build glibc
build timed -DTIMED
build inherit -DINHERIT
for kind in lw_robust_mutex lw_robust_tp_mutex lw_robust_pi_mutex; do build $kind -DLATCHWORK=$kind; done
failed=0
{
    echo '# Waiters that are killed as they are woken'
    echo
    echo "Made by \`ci/lost-wakeup.sh $runs\`, $(date -u +%F), $(uname -sr), $(ldd --version | sed -n '1s/.* //p' | sed 's/^/glibc /'), $(git describe --always --dirty --abbrev=12), $(nproc) processors."
    echo
    echo '| mutex | waiters to kill in each run | runs | runs that hang | kills in all | longest wait |'
    echo '| --- | --- | --- | --- | --- | --- |'
} | tee "$results"
# row MUST_END TITLE KILLS COMMAND…
row() {
    must_end=$1
    title=$2
    kills=$3
    shift 3
    hangs=0
    : >"$folder/lines"
    for _ in $(seq "$runs"); do
        status=0
        "$@" >"$folder/said" 2>&1 || status=$?
        case $status in
        0) ;;
        3) hangs=$((hangs + 1)) ;;
        *)
            cat "$folder/said"
            echo "$title: exit status $status" >&2
            exit 1
            ;;
        esac
        grep 'longest wait' "$folder/said" >>"$folder/lines"
    done
    [ "$must_end" = no ] || [ "$hangs" -eq 0 ] || failed=1
    all=$(sed -n 's/.* kills \([0-9]*\),.*/\1/p' "$folder/lines" | awk '{ sum += $1 } END { print sum }')
    longest=$(sed -n 's/^no hang.*longest wait \([0-9.]*\) s.*/\1/p' "$folder/lines" | sort -n | tail -n 1)
    echo "| $title | $kills | $runs | $hangs | $all | ${longest:+$longest s} |" | tee -a "$results"
}
row no 'glibc, robust' 20 "$folder/glibc" 20 4
row no 'glibc, robust, all on one processor' 20 "$folder/glibc" 20 4 one
row yes 'glibc, robust, waits of a second that are repeated' 20 "$folder/timed" 20 4
heal="$target/debug/latchwork run --heal --"
# shellcheck disable=SC2086 # several words
row yes 'glibc, robust, under `latchwork run --heal`' 50 $heal "$folder/glibc" 50 4
# shellcheck disable=SC2086 # several words
row yes 'glibc, robust, under `latchwork run --heal`, all on one processor' 50 $heal "$folder/glibc" 50 4 one
row yes 'glibc, robust, `PTHREAD_PRIO_INHERIT`' 50 "$folder/inherit" 50 4
row yes '`lw_robust_mutex_t`' 20 "$folder/lw_robust_mutex" 20 4
row yes '`lw_robust_tp_mutex_t`' 20 "$folder/lw_robust_tp_mutex" 20 4
row yes '`lw_robust_pi_mutex_t`' 50 "$folder/lw_robust_pi_mutex" 50 4
row yes '`Mutex::in_region`, the program in Rust' 50 "$target/debug/lost_wakeup"
row yes '`Mutex::in_region_throughput`, the program in Rust' 50 "$target/debug/lost_wakeup" throughput
exit "$failed"
