#!/bin/sh
# Runs for some minutes what kills tasks at random moments, several programs at once: `ci/soak.sh [MINUTES]` (5). Four
# things run side by side:
#   - `kill_mixed`: all kinds of locks, used by threads and coprocs that are killed, stopped, signalled, and given other
#     priorities and processors;
#   - `kill_full`: a region that is nearly always full, with forks, kills, stops, and a process that takes memory from the
#     system and gives it back. All of this has less memory than it asks for, where this script can make a control group
#     (version 1 or 2) for it: then allocations wait, and the kernel kills that process;
#   - the storms of kills of the other tests, one after the other, again and again;
#   - `latchwork ps`, `locks` and `gc --dry-run`, which look at all of them.
# Each checks its invariants as it goes, and at its end. The result is a table in `results/soak/latest.md`.
# LATCHWORK_STEP_CLOCK=1 lets `kill_mixed` set the wall clock, which all programs of the machine see.
# LATCHWORK_SEED repeats the random decisions of a run; the moments of kills remain the system's.
. "$(dirname "$0")/lib.sh"
minutes=${1:-5}
seconds=$((minutes * 60))
target=${CARGO_TARGET_DIR:-target}
case $target in /*) ;; *) target=$PWD/$target ;; esac
results=results/soak
scratch=$target/soak
mkdir -p "$results" "$scratch"
rm -f "$scratch"/*
say "soak, $minutes minutes"
# Before this script writes to the result, which is a file of the repository.
revision=$(git describe --always --dirty --abbrev=12)
names="kill_mixed kill_full kill_queue kill_semaphore kill_heap kill_robust kill_rwlock kill_in_region kill_containers kill_condvar \
kill_meetings kill_event kill_recovery kill_attach kill_check pid_namespaces"
arguments=
for name in $names; do arguments="$arguments --test $name"; done
# shellcheck disable=SC2086 # one word for each argument
cargo test --release --locked --no-run --target-dir "$target" -p latchwork $arguments 2>&1 | tee "$scratch/build.log"
cargo build --release --locked --target-dir "$target" -p latchwork-cli
command=$target/release/latchwork
# Seconds since the start of the machine: the wall clock may be set.
now() { cut -d. -f1 /proc/uptime; }
program() {
    sed -n "s/.*Executable tests\/$1[./].*(\(.*\))$/\1/p" "$scratch/build.log"
}
# The seed of this run: each program and each repetition has one of its own that follows from it.
first=$((${LATCHWORK_SEED:-$(od -An -N4 -tu4 /dev/urandom)}))
export LATCHWORK_STRESS_SECONDS=$seconds LATCHWORK_WATCHDOG="${LATCHWORK_WATCHDOG:-600}"
end=$(($(now) + seconds))

# run PROGRAM SEED [FILTER]: what it says goes to a file of its own. Tests find files by the folder of their crate.
run() {
    file=$(program "$1")
    case $file in /*) ;; *) file=$PWD/$file ;; esac
    log=$scratch/$1${3:+-$3}.log
    echo "seed $2" >>"$log"
    if (cd crates/latchwork && LATCHWORK_SEED=$2 ${in_group:-} "$file" ${3:+"$3"} --nocapture --test-threads 1) >>"$log" 2>&1; then
        echo "$1${3:+: $3}" >>"$scratch/passed"
    else
        echo "$1${3:+: $3}, LATCHWORK_SEED=$2" >>"$scratch/failed"
    fi
}

# A control group for `kill_full`: MiB of memory, and the folder. Without one, why not. (Its tasks need up to half of that.)
memory=128 group='' no_group=''
own=$(sed -n 's/^[0-9]*:\([^:]*,\)\{0,1\}memory\(,[^:]*\)\{0,1\}://p' /proc/self/cgroup)
if [ -n "$own" ]; then
    mount=$(awk '$3 == "cgroup" && $4 ~ /(^|,)memory(,|$)/ { print $2; exit }' /proc/mounts)
    limit=memory.limit_in_bytes
else
    # Beside the own one: a group with processes has no groups with controllers in it.
    own=$(dirname "$(sed -n 's/^0:://p' /proc/self/cgroup)")
    mount=$(awk '$3 == "cgroup2" { print $2; exit }' /proc/mounts)
    limit=memory.max
fi
group=$mount$own/latchwork-soak-$$
if [ -n "$mount" ] && mkdir "$group" 2>"$scratch/group" && echo $((memory << 20)) 2>"$scratch/group" >"$group/$limit"; then
    # Its last processes may be about to end.
    trap 'rmdir "$group" 2>/dev/null || { sleep 1; rmdir "$group" || :; }' EXIT
else
    reason=$(sed 's/.*: //' "$scratch/group" | tail -n 1)
    no_group="no control group of its own: ${reason:-its limit cannot be set}"
    [ ! -d "$group" ] || rmdir "$group"
    group=''
fi
# How often an allocation met the limit.
met() {
    if [ -f "$group/memory.failcnt" ]; then cat "$group/memory.failcnt"; else sed -n 's/^max //p' "$group/memory.events"; fi
}
# A command in the group.
# shellcheck disable=SC2317,SC2329 # called through a variable
limited() {
    # shellcheck disable=SC2016 # expanded by the inner shell
    sh -c 'echo $$ >"$0/cgroup.procs" && LATCHWORK_PRESS_MIB=$1 && export LATCHWORK_PRESS_MIB && shift && exec "$@"' "$group" $((2 * memory)) "$@"
}

inspect() {
    looks=0
    while [ "$(now)" -lt "$end" ]; do
        for what in ps 'locks --all' 'gc --dry-run'; do
            status=0
            # shellcheck disable=SC2086 # words
            timeout 300 "$command" $what >"$scratch/looked" 2>&1 || status=$?
            if [ "$status" = 0 ]; then
                looks=$((looks + 1))
            else
                echo "latchwork $what: status $status, $(tail -n 1 "$scratch/looked")" >>"$scratch/failed"
            fi
        done
        echo "$looks" >"$scratch/looks"
        sleep 0.2
    done
}

storms() {
    number=$first
    while [ "$(now)" -lt "$end" ]; do
        while read -r name filter; do
            [ "$(now)" -lt "$end" ] || break
            number=$((number + 1))
            run "$name" "$number" "$filter"
        done <<LIST
kill_queue of_many_messages
kill_queue held_messages
kill_queue killing_tasks_that_recover
kill_semaphore killed_owners
kill_semaphore killed_users
kill_heap nothing_that_dead
kill_heap killing_sweepers
kill_robust every_survivor
kill_rwlock every_survivor
kill_in_region every_survivor
kill_in_region recoverers_may
kill_containers what_was_committed
kill_condvar killed_waiters
kill_condvar killing_tasks
kill_meetings killed_completers
kill_event killed_senders
kill_recovery the_recoverers
kill_attach never_poisoned
kill_attach tasks_come_and_go
kill_attach the_last_orderly
kill_check killed_checked
pid_namespaces all_objects_hold
LIST
    done
}

# A process with all its children.
# shellcheck disable=SC2317,SC2329 # called by the trap
end_tree() {
    for child in $(pgrep -P "$1"); do end_tree "$child"; done
    kill "$1" 2>/dev/null || :
}
mixed='' full='' inspector=''
# shellcheck disable=SC2317,SC2329 # called by the trap
interrupted() {
    for job in $mixed $full $inspector; do end_tree "$job"; done
    exit 130
}
trap interrupted INT TERM
run kill_mixed "$first" all_kinds &
mixed=$!
in_group=${group:+limited} run kill_full "$first" &
full=$!
inspect &
inspector=$!
storms
wait "$mixed" "$full" "$inspector"

{
    printf '# Soak\n\n'
    printf '%s: %s minutes, seed %s, %s processors, Linux %s, release build of %s. Load average at the end: %s.\n\n' "$(date -u +%F)" "$minutes" "$first" \
        "$(nproc)" "$(uname -r | sed 's/-.*//')" "$revision" "$(cut -d ' ' -f 1 /proc/loadavg)"
    printf '| program | runs without a fault |\n| --- | --- |\n'
    sort "$scratch/passed" | uniq -c | while read -r count name; do
        printf '| %s | %s |\n' "$name" "$count"
    done
    # shellcheck disable=SC2016 # Markdown
    printf '\n`latchwork ps`, `locks --all` and `gc --dry-run` looked at them %s times.' "$(cat "$scratch/looks")"
    if [ -n "$group" ]; then
        # shellcheck disable=SC2016 # Markdown
        printf ' `kill_full` had %s MiB of memory, with all its processes; %s allocations met this limit.\n' "$memory" "$(met)"
    else
        # shellcheck disable=SC2016 # Markdown
        printf ' `kill_full` had as much memory as it asked for (skipped: %s).\n' "$no_group"
    fi
    printf '\nWhat each program printed at its end (of the storms at most the last three lines):\n\n```text\n'
    for log in "$scratch"/kill_mixed*.log "$scratch"/kill_full*.log; do
        sed -n 's/^test .*\.\.\. //; /LATCHWORK_SEED=/d; / kills/p; /longest wait for/p; /: waiting for /p; /^  seat /p; / done/p' "$log"
    done
    for log in "$scratch"/*.log; do
        case $log in *kill_mixed* | *kill_full* | *build.log) continue ;; esac
        sed -n 's/^test .*\.\.\. //; /LATCHWORK_SEED=/d; /[0-9] kills/p' "$log" | tail -n 3 | uniq
    done
    printf '```\n\n'
    if [ -s "$scratch/failed" ]; then
        printf 'Failed:\n\n'
        sed 's/^/- /' "$scratch/failed"
    else
        printf 'No run failed.\n'
    fi
} >"$results/latest.md"
cat "$results/latest.md"
[ ! -s "$scratch/failed" ]
