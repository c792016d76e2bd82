#!/bin/sh
# The kill sweep: runs the tests that kill an operation at each of its instructions, and tasks that recover from that,
# optimised, and makes one table of what they tried: operation, kind of lock, instructions, points, kills, outcomes. The
# table goes to standard output, and the data to results/killsweep/DAY.json (or to the file that is named). If the file
# exists, this run's counts and seeds are added to it. No part of the other checks.
#
#     ci/killsweep.sh [--within SECONDS] [RESULT]
#
# With --within, sweeps with new seeds follow each other until the time is over; the sweep that it ends counts as far as it
# came. LATCHWORK_POINTS multiplies the points of each operation (4: 240 kills of an operation, and as many of its
# recoverers), LATCHWORK_KILLS the kills at random moments, of which there are few here (0).
. "$(dirname "$0")/lib.sh"
within=
if [ "${1:-}" = --within ]; then
    within=${2:?"how many seconds?"}
    shift 2
fi
result=${1:-results/killsweep/$(date -u +%F).json}
mkdir -p "$(dirname "$result")"
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
LATCHWORK_KILL_REPORT=$folder/report
LATCHWORK_POINTS=${LATCHWORK_POINTS:-4}
LATCHWORK_KILLS=${LATCHWORK_KILLS:-0}
export LATCHWORK_KILL_REPORT LATCHWORK_POINTS LATCHWORK_KILLS
set -- --release --locked -p latchwork -p latchwork-c --test 'kill_*' --test cycles --test classic --test region_slots --test pid_namespaces
cargo test "$@" --no-run 2>"$folder/built" || {
    cat "$folder/built" >&2
    exit 1
}
# Cargo names each program that it has built: "Executable tests/cycles.rs (target/release/deps/cycles-1a2b)".
sed -n 's/^ *Executable .*(\(.*\))$/\1/p' "$folder/built" | sed "s|^[^/]|$PWD/&|" >"$folder/programs"
[ -s "$folder/programs" ]
LATCHWORK_END=$(($(date +%s) + ${within:-1000000}))
export LATCHWORK_END
# One program, as long as there is time: what it prints is of interest only if it fails.
cat >"$folder/one" <<'END'
left=$((LATCHWORK_END - $(date +%s)))
[ "$left" -gt 0 ] || exit 0
log=$1/$(basename "$2").log
cd crates/latchwork
timeout "$left" "$2" --nocapture >"$log" 2>&1 && exit 0
[ $? -eq 124 ] && exit 0
tail -n 100 "$log"
echo "the kill sweep failed: $2" >&2
exit 255
END
LATCHWORK_SWEEPS=0
export LATCHWORK_SWEEPS
while [ "$LATCHWORK_SWEEPS" -eq 0 ] || [ -n "$within" ] && [ "$(date +%s)" -lt "$LATCHWORK_END" ]; do
    LATCHWORK_SWEEPS=$((LATCHWORK_SWEEPS + 1))
    xargs -P "$(nproc)" -n 1 sh "$folder/one" "$folder" <"$folder/programs"
done
if [ ! -s "$LATCHWORK_KILL_REPORT" ]; then
    echo "no operation was killed at its instructions: is tracing forbidden?" >&2
    exit 1
fi
cargo run --quiet --release --locked -p latchwork-testkit --bin killsweep -- "$LATCHWORK_KILL_REPORT" "$result"
