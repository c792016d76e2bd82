#!/bin/sh
# The kill sweep: runs the tests that kill an operation at each of its instructions, optimised, and makes one table of
# what they tried: operation, kind of lock, instructions, points, kills, outcomes. The table goes to standard output, and
# the data to results/killsweep/DAY.json (or to the file that the first argument names). No part of the other checks.
#
#     LATCHWORK_KILLS=8 ci/killsweep.sh     more points of each operation: 8 times 300
. "$(dirname "$0")/lib.sh"
result=${1:-results/killsweep/$(date -u +%F).json}
mkdir -p "$(dirname "$result")"
LATCHWORK_KILL_REPORT=$(mktemp)
export LATCHWORK_KILL_REPORT
trap 'rm -f "$LATCHWORK_KILL_REPORT"' EXIT
# A test without a kill at each instruction adds nothing, so whole programs are run. Each prints what it does, which is of
# interest only if it fails.
log=$(mktemp)
trap 'rm -f "$LATCHWORK_KILL_REPORT" "$log"' EXIT
if ! cargo test --release --locked -p latchwork --test 'kill_*' --test cycles --test classic --test region_slots \
    --test pid_namespaces -- --nocapture > "$log" 2>&1; then
    tail -n 100 "$log"
    echo "the kill sweep failed" >&2
    exit 1
fi
if [ ! -s "$LATCHWORK_KILL_REPORT" ]; then
    echo "no operation was killed at its instructions: is tracing forbidden?" >&2
    exit 1
fi
cargo run --quiet --release --locked -p latchwork-testkit --bin killsweep -- "$LATCHWORK_KILL_REPORT" "$result"
