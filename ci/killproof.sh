#!/bin/sh
# The negative proof of the kill sweep: with each step of a recovery disabled in turn (`unless_disabled!` in the code), a kill
# test fails. ci/killproof.txt lists the steps, each with its test. Writes a table of what each test said: to the file that
# the first argument names, or results/killsweep/DAY-without.md. Fails if a step is missed by its test, or if a test fails
# although nothing is disabled. No part of the other checks: it builds the library once more, and takes half an hour or more.
#
#     ci/killproof.sh - SweepFreesBlocks QueueRecovers     these steps alone, to standard output
. "$(dirname "$0")/lib.sh"
result=${1:-results/killsweep/$(date -u +%F)-without.md}
[ $# -eq 0 ] || shift
export RUSTFLAGS="--cfg latchwork_disable"
export CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-target}/disable"
# A step without which a test hangs is found when its time is over.
export LATCHWORK_WATCHDOG="${LATCHWORK_WATCHDOG:-60}"
# Without a step only kills at a few instructions may do harm, so most of them are tried.
export LATCHWORK_POINTS="${LATCHWORK_POINTS:-8}" LATCHWORK_RECOVERIES="${LATCHWORK_RECOVERIES:-0}"
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

# Runs a test program; `name` is the step that is disabled.
run() {
    name=$1 program=$2 filter=$3
    [ "$program" = lib ] && target=--lib || target="--test $program"
    LATCHWORK_DISABLE=$name cargo test --quiet --release --locked -p latchwork $target -- \
        --test-threads=1 --nocapture $filter > "$folder/log" 2>&1
}

# Why it failed: the first panic's message, or the watchdog's.
reason() {
    said=$(grep -A1 -m1 'panicked at' "$folder/log" | tail -n 1)
    [ -n "$said" ] || said=$(grep -m1 -i 'watchdog\|no progress\|signal' "$folder/log" || echo "it did not end well")
    printf '%s' "$said" | tr '|\n' '/ ' | cut -c1-120
}

missed=0
table=$folder/table
{
    echo "| step that is disabled | test that fails | what it says |"
    echo "| --- | --- | --- |"
} > "$table"
grep -v '^#' ci/killproof.txt > "$folder/steps"
while read -r step program filter <&3; do
    case " $* " in "  " | *" $step "*) ;; *) continue ;; esac
    # Once for each test: it passes if nothing is disabled.
    if ! grep -qx "$program $filter" "$folder/sound" 2> /dev/null; then
        if ! run none "$program" "$filter"; then
            tail -n 30 "$folder/log"
            echo "$program $filter fails although nothing is disabled" >&2
            exit 1
        fi
        grep -q '^running [1-9]' "$folder/log" || { echo "$program has no test $filter" >&2; exit 1; }
        echo "$program $filter" >> "$folder/sound"
    fi
    if run "$step" "$program" "$filter"; then
        echo "| $step | **none** of \`$program $filter\` | |" | tee -a "$table"
        missed=$((missed + 1))
    else
        echo "| $step | \`$program\`: \`$filter…\` | $(reason) |" | tee -a "$table"
    fi
done 3< "$folder/steps"
{
    echo "# Without a step of a recovery"
    echo
    echo "Made by ci/killproof.sh, $(date -u +%F), $(uname -sr), $(git describe --always --dirty --abbrev=12). $missed steps are missed."
    echo
    cat "$table"
} > "$folder/result"
if [ "$result" = - ]; then cat "$folder/result"; else mkdir -p "$(dirname "$result")"; cp "$folder/result" "$result"; fi
[ "$missed" -eq 0 ]
