#!/bin/sh
# ci/kernels.sh [OPTION…] [KERNEL…]: runs test programs on other kernels, each in a machine under QEMU (without KVM, so
# that it works in a container; times inside mean nothing, order and correctness do), or in a user-mode kernel. KERNEL is a name of
# kernels/list.txt; without one, all of them. Kernels are fetched as Debian packages into a cache, and nothing is
# installed. Results go to results/kernels/DATE, and docs/platforms.md has a table of the newest (kernels/table.sh).
#
#   --quick            two kernels, two processors, the tests that kernels/tests.txt calls quick; no download, no file of
#                      results, and status 0 with a message where the machine lacks what this needs. All of it, building
#                      included, ends after its limit: the machines are stopped, and what has run counts
#   --missing          only the test programs that have no result of the machine yet
#   --long             the test programs that tests.txt calls long, instead of the others
#   --storm, --sweep   instead of the tests of kernels/tests.txt those of kernels/kills.txt, with many kills: at random
#                      moments, or at each instruction. They count apart from the others
#   --within SECONDS   with --sweep: repeats the sweep with new seeds for so long. A user-mode kernel runs in one machine for
#                      each processor, which needs 4 GiB. If no test fails, the counts and seeds are added to
#                      results/killsweep/KERNEL.json, as by ci/killsweep.sh, and to no other results
#   --arch aarch64     machines of another processor (x86_64): kernels/build-aarch64.sh builds for it
#   --cpu MODEL        a model of QEMU's processors (max); aarch64's cortex-a57, for one, has no atomic instructions but
#                      exclusive loads and stores
#   --processors LIST  the machines of each kernel by their processors ("2 8"; a user-mode kernel has one)
#   --only PATTERN     only the test programs whose name matches this basic regular expression
#   --fault NAME       with the fault of kernels/faults/NAME.patch in the code: the tests that the patch names must fail in
#                      a machine of this run in which they have passed without it (kernels/found.sh). What each machine
#                      found goes to results/kernels/faults/NAME.txt
#   --results FOLDER   another folder for the results
#
# Variables: LATCHWORK_KERNELS, the cache (~/.cache/latchwork-kernels); LATCHWORK_KERNELS_LIMIT, the seconds that a
# machine may run (7200), or with --quick all of it (600); LATCHWORK_KERNELS_TEST_LIMIT, those of one test program, after
# which it counts as hung (600; with many kills or --long 7200); LATCHWORK_KERNELS_BUILD, the arguments of `cargo test` that
# say what is built (--workspace; -p, --test and --bin for less); LATCHWORK_KILLS (0.05; with --storm 17) and
# LATCHWORK_POINTS (as LATCHWORK_KILLS; with --sweep 2, and with --within 14), LATCHWORK_RECOVERIES, LATCHWORK_MESSAGES (2000),
# LATCHWORK_STRESS_SECONDS, LATCHWORK_WATCHDOG (300) and LATCHWORK_SEED, which the tests in the
# machine see; LATCHWORK_KERNELS_MESSAGES, a file with cargo's messages of an earlier build of the same sources
# (`--no-run --message-format=json`): nothing is built then. CARGO_PROFILE_DEV_OPT_LEVEL=1 builds optimised tests: a kill at
# each instruction then has fewer to step through.
. "$(dirname "$0")/lib.sh"

begin=$(date +%s)
quick='' long='' kind='' within='' missing='' processors='' only='' fault='' results='' kernels='' arch=x86_64 cpu=max
while [ $# != 0 ]; do
    case $1 in
        --quick) quick=1 ;;
        --missing) missing=1 ;;
        --long) long=1 ;;
        --storm | --sweep) kind=${1#--} ;;
        --within) within=$2; shift ;;
        --arch) arch=$2; shift ;;
        --cpu) cpu=$2; shift ;;
        --processors) processors=$2; shift ;;
        --only) only=$2; shift ;;
        --fault) fault=$2; shift ;;
        --results) results=$2; shift ;;
        -*) echo "ci/kernels.sh: $1 is not an option" >&2; exit 2 ;;
        *) kernels="$kernels $1" ;;
    esac
    shift
done
say "other kernels"

if [ -n "$within" ]; then
    [ "$within" -gt 0 ] && [ "$kind" = sweep ] && [ -z "$quick$missing$fault$results" ] ||
        { echo "ci/kernels.sh: --within is a number of seconds for --sweep, without --quick, --missing, --fault and --results" >&2; exit 2; }
fi

# What is missing: with --quick a message, otherwise an error.
missing() {
    [ -z "$quick" ] || { echo "skipped: $*"; exit 0; }
    echo "ci/kernels.sh: $*" >&2
    exit 1
}
case $arch in
    x86_64) debian=amd64 tools="busybox strip cc" own="amd64\|user-mode-linux" ;;
    aarch64) debian=arm64 tools="mmdebstrap" own=arm64 ;;
    *) missing "the tests have no machine for $arch" ;;
esac
case "$kernels " in
    *[!m]' '* | ' ') tools="$tools qemu-system-$arch" ;;
    # User-mode kernels alone.
    *) tools="$tools unshare taskset" ;;
esac
for tool in cpio readelf $tools; do
    command -v "$tool" >/dev/null || missing "$tool is not installed"
done
[ "$(uname -m)" = x86_64 ] || missing "the tests of this processor ($(uname -m)) have no machine yet"
[ "$arch" = x86_64 ] || [ -z "$quick$fault" ] || missing "--quick and --fault are for x86_64"
cache=${LATCHWORK_KERNELS:-${XDG_CACHE_HOME:-$HOME/.cache}/latchwork-kernels}
if [ -n "$quick" ]; then
    kernels=${kernels:- 7.2 7.2-rt} processors=${processors:-2}
    for kernel in $kernels; do
        [ -f "$cache/$debian/$kernel/image" ] || missing "kernel $kernel is not in $cache (ci/kernels.sh $kernel fetches it)"
    done
else
    for tool in apt-get dpkg-deb; do command -v $tool >/dev/null || missing "$tool is not installed"; done
    kernels=${kernels:-$(sed "/^#/d; /ARCH\|$own/!d; s/ .*//" ci/kernels/list.txt)} processors=${processors:-2 8}
fi
machine_limit=${LATCHWORK_KERNELS_LIMIT:-$([ -n "$quick" ] && echo 600 || echo 7200)}
test_limit=${LATCHWORK_KERNELS_TEST_LIMIT:-$([ -n "$kind$long" ] && echo 7200 || echo 600)}
# Runs a command; with --quick no longer than there is time.
left() { echo $((begin + machine_limit - $(date +%s))); }
in_time() {
    [ -n "$quick" ] || { "$@"; return; }
    time=$(left)
    # (`timeout 0` would have no limit.)
    [ "$time" -gt 0 ] || return 124
    timeout -k 5 "$time" "$@"
}
date=$(date -u +%F)
commit=$(git rev-parse --short HEAD)$([ -z "$(git status --porcelain -uno -- . ':!results' ':!docs/platforms.md')" ] || echo +)
# What identifies the library and its tests.
tree=$(git ls-tree -r HEAD crates | grep -v crates/latchwork-testkit/tests | git hash-object --stdin | cut -c1-12)
[ -z "$(git status --porcelain -uno crates)" ] || tree=$tree+
kills=${LATCHWORK_KILLS:-$([ "$kind" = storm ] && echo 17 || echo 0.05)}
points=$kills
[ "$kind" != sweep ] || points=2
# To step through an operation once takes as long as hundreds of kills.
[ -z "$within" ] || points=14
points=${LATCHWORK_POINTS:-$points}
record=
if [ -z "$quick$fault" ]; then record=1; fi
results=${results:-results/kernels/$date}

work=$(mktemp -d)
# (A machine does not get an interrupt from the terminal.)
machines_run=
# shellcheck disable=SC2086,SC2317,SC2329 # one word for each process; called by the trap
finish() {
    [ -z "$machines_run" ] || kill $machines_run 2>/dev/null || true
    rm -rf "$work"
}
trap finish EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
list=$PWD/ci/kernels/tests.txt
ask='\(quick\|run\)'
[ -z "$quick" ] || ask=quick
[ -z "$long" ] || ask=long
sed '/^#/d; /^$/d' "$list" >"$work/list"
if [ -n "$kind" ]; then
    # One line for a program; those of the other kind, and programs without one, do not run.
    sed "/^#/d; /^$/d; /^[^ ]* $kind/!d" ci/kernels/kills.txt >"$work/kind"
    sed 's/^\([^ ]*\) .*/\1 no/' "$work/list" | while read -r name no; do
        grep "^$name " "$work/kind" || echo "$name $no"
    done >"$work/list.new"
    mv "$work/list.new" "$work/list"
    ask=$kind
fi

say "building the tests"
source=$PWD
if [ -n "$fault" ]; then
    # The code with the fault is a copy of the last commit, with a target directory of its own.
    patch=$PWD/ci/kernels/faults/$fault.patch
    [ -f "$patch" ] || { echo "ci/kernels.sh: there is no fault $fault" >&2; exit 2; }
    source=$cache/fault
    export CARGO_TARGET_DIR="$cache/target"
    rm -rf "$source"
    mkdir -p "$source"
    git archive HEAD | tar -x -C "$source"
    cp -r ci/kernels "$source/ci/"
    (cd "$source" && git init -q . && git apply "$patch" && git add -A)
    only=$(sed -n 's/^Tests: //p' "$patch")
    package=$(sed -n 's/^Build: //p' "$patch")
    # shellcheck disable=SC2086 # arguments of cargo
    set -- $package
else
    # shellcheck disable=SC2086 # arguments of cargo
    set -- ${LATCHWORK_KERNELS_BUILD:---workspace}
fi
status=0
if [ -n "${LATCHWORK_KERNELS_MESSAGES:-}" ]; then
    cp "$LATCHWORK_KERNELS_MESSAGES" "$work/messages"
    [ "$arch" = x86_64 ] || . "$cache/$arch/settings"
elif [ "$arch" = aarch64 ]; then
    ci/kernels/build-aarch64.sh "$cache/aarch64" "$@" >"$work/messages"
    . "$cache/aarch64/settings"
else
    (cd "$source" && in_time cargo test "$@" --locked --no-run --message-format=json) >"$work/messages" || status=$?
fi
late() { echo "skipped: $* took the $machine_limit seconds of --quick"; exit 0; }
[ -z "$quick" ] || [ "$(left)" -gt 0 ] || late "building the tests"
[ "$status" = 0 ] || exit "$status"
"$source/ci/kernels/programs.sh" <"$work/messages" | sort -u >"$work/programs"

# The tests of this run: what the list says of each program that was built.
grep -v -e '^- ' -e ':loom_' "$work/programs" | while read -r name program; do
    line=$(grep "^$name " "$work/list") || { echo "ci/kernels/tests.txt does not name $name" >&2; exit 1; }
    if [ -n "$only" ]; then echo "$name" | grep -q "$only" || continue; fi
    echo "$line" | grep -q "^$name $ask" || continue
    echo "$line" | sed "s|^\([^ ]*\) [a-z]*|\1 $test_limit $program|"
done >"$work/found"
# They run in the list's order, but the quick ones first: a machine may have too little time for all.
{ grep '^[^ ]* quick' "$work/list" || true; grep -v '^[^ ]* quick' "$work/list"; } | cut -d' ' -f1 | while read -r name; do grep "^$name " "$work/found" || true; done >"$work/chosen"
[ -s "$work/chosen" ] || { echo "ci/kernels.sh: no test program was chosen" >&2; exit 2; }
say "$(wc -l <"$work/chosen") test programs"
sed "s/\$/ --test-threads=2 --show-output/${kind:+; s|^[^ ]*|&/$kind|}" "$work/chosen" >"$work/all.list"
latchwork=$(sed -n 's/^- \(.*\/latchwork\)$/\1/p' "$work/programs" | tail -n 1)
{
    # (A fault's build has no command.)
    echo "LATCHWORK=$latchwork CRATES=$source/crates"
    echo "export LATCHWORK_KILLS=$kills LATCHWORK_POINTS=$points LATCHWORK_MESSAGES=${LATCHWORK_MESSAGES:-2000}"
    [ -z "${LATCHWORK_RECOVERIES:-}" ] || echo "export LATCHWORK_RECOVERIES=$LATCHWORK_RECOVERIES"
    echo "export LATCHWORK_WATCHDOG=${LATCHWORK_WATCHDOG:-300} LATCHWORK_STRESS_SECONDS=${LATCHWORK_STRESS_SECONDS:-3}"
    # Nothing else runs there.
    echo "export LATCHWORK_STEP_CLOCK=1"
} >"$work/common.conf"
{ cut -d' ' -f3 "$work/chosen"; sed -n 's/^- //p' "$work/programs"; } >"$work/files"
in_time "$source/ci/kernels/initramfs.sh" "$arch" "$work" "$work/base.cpio" <"$work/files" || status=$?
[ -z "$quick" ] || [ "$(left)" -gt 0 ] || late "making the machines' memory file"
[ "$status" = 0 ] || exit "$status"
say "the machines' memory file has $(du -m "$work/base.cpio" | cut -f1) MiB"

bad=0 found=0
# The numbers of the processors that this process may use.
own_processors() {
    awk -F '[:,\t]+' '/^Cpus_allowed_list/ {
        for (part = 2; part <= NF; part++) {
            split($part, ends, "-")
            for (one = ends[1]; one <= (ends[2] == "" ? ends[1] : ends[2]); one++) print one
        }
    }' /proc/self/status
}
# Sweeps of a kernel for as long as there is time: in one machine, or if it is a user-mode kernel in one on each processor.
sweeps() { # kernel, image, processors
    run_on=any
    case $1 in *-um) run_on=$(own_processors) ;; esac
    at_once=$(echo "$run_on" | wc -l)
    programs=$(wc -l <"$work/all.list")
    rm -f "$work"/sweep-*.log
    turn=$(od -A n -N 2 -t u2 /dev/urandom)
    number=0
    for processor in $run_on; do
        number=$((number + 1))
        mkdir -p "$work/$number"
        { cat "$work/common.conf"; echo "WITHIN=$within"; } >"$work/$number/run.conf"
        # Each machine begins with another program, and with another one each time.
        first=$(((turn + (number - 1) * programs / at_once) % programs + 1))
        { sed -n "$first,\$p" "$work/all.list"; for _ in $(seq 100); do cat "$work/all.list"; done; } >"$work/$number/run.list"
        (cd "$work/$number" && printf 'run.list\nrun.conf\n' | cpio -o -H newc --quiet) >"$work/$number.cpio"
        PROCESSOR=$([ "$processor" = any ] || echo "$processor") CPU=$cpu ci/kernels/boot.sh "$arch" "$2" "$3" "$((within + 120))" "$work/base.cpio" "$work/$number.cpio" >"$work/sweep-$number.log" 2>&1 &
        machines_run="$machines_run $!"
    done
    wait
    machines_run=
    console=$cache/logs/$1-$3-sweeps.log
    cat "$work"/sweep-*.log | tr -d '\r' >"$console"
    say "$1: $(grep -c '^@@ end .* passed ' "$console") programs passed (consoles: $console)"
    if grep '^@@ \(fault \|doctor [^0]\|end [^ ]* \(failed\|hung\) \)' "$console" || [ "$(grep -c '^@@ all' "$console")" != "$at_once" ]; then
        echo "a test failed, or a machine did not come to its end: nothing is added to the results" >&2
        bad=1
        return
    fi
    sed -n 's/^@@ row \({.*}\)$/\1/p' "$console" >"$work/rows"
    release=$(sed -n 's/^@@ kernel //p' "$console" | head -n 1)
    sum=results/killsweep/$1.json
    [ "$arch" = x86_64 ] || sum=results/killsweep/$arch-$1.json
    mkdir -p "$(dirname "$sum")"
    if LATCHWORK_KERNEL="Linux $release" LATCHWORK_POINTS=$points \
        cargo run --quiet --release --locked -p latchwork-testkit --bin killsweep -- "$work/rows" "$sum" >"$work/table"; then
        tail -n 1 "$work/table"
    else
        bad=1
    fi
}
# shellcheck disable=SC2086 # words
machines=$(($(set -- $kernels; echo $#) * $(set -- $processors; echo $#)))
for kernel in $kernels; do
    case $kernel in *-um) counts=1 ;; *) counts=$processors ;; esac
    image=$(ci/kernels/fetch.sh "$debian" "$cache" "$kernel") || { echo "not run: kernel $kernel could not be fetched"; bad=1; continue; }
    for count in $counts; do
        say "$kernel, $count processors"
        logs=$cache/logs
        mkdir -p "$logs"
        [ -z "$within" ] || { sweeps "$kernel" "$image" "$count"; continue; }
        machine=$kernel-$count
        [ "$arch" = x86_64 ] || machine=$arch-$machine
        case $kernel in *-um) ;; *) [ "$cpu" = max ] || machine=$machine-$cpu ;; esac
        # With many kills the seed is recorded in the results.
        seed=${LATCHWORK_SEED:-$([ -z "$kind" ] || od -A n -N 8 -t x8 /dev/urandom | sed 's/^ */0x/')}
        { cat "$work/common.conf"; [ -z "$seed" ] || echo "export LATCHWORK_SEED=$seed"; } >"$work/run.conf"
        cp "$work/all.list" "$work/run.list"
        if [ -n "$missing" ]; then
            # shellcheck disable=SC2046 # names without spaces
            ci/kernels/missing.sh "$work/all.list" $(find results/kernels -name "$machine.txt" | sort) >"$work/run.list"
            [ -s "$work/run.list" ] || { echo "all test programs have run"; continue; }
        fi
        (cd "$work" && printf 'run.list\nrun.conf\n' | cpio -o -H newc --quiet) >"$work/run.cpio"
        limit=$machine_limit
        if [ -n "$quick" ]; then
            # The machines that are left share the time that is left.
            limit=$(($(left) / machines))
            machines=$((machines - 1))
            [ "$limit" -gt 0 ] || { echo "not run: $kernel: the time is over"; continue; }
        fi
        log=$logs/$machine${quick:+-quick}${kind:+-$kind}${fault:+-$fault}.log
        # QEMU's threads may fail as the kernel changes its own code (boot.sh): a machine that has not started is started again.
        for attempt in 1 2 3; do
            status=0
            CPU=$cpu ci/kernels/boot.sh "$arch" "$image" "$count" "$limit" "$work/base.cpio" "$work/run.cpio" >"$log" 2>&1 || status=$?
            if grep -q '^@@ kernel ' "$log" || [ "$status" = 124 ] || [ -n "$quick" ]; then break; fi
            echo "the machine did not start (attempt $attempt)"
        done
        report=$work/$machine.txt
        {
            echo "kernel $kernel"
            echo "arch $arch"
            [ "$cpu" = max ] || echo "cpu $cpu"
            echo "date $date"
            echo "commit $commit"
            echo "tree $tree"
            if [ "$kind" = sweep ]; then echo "kills $points"; else echo "kills $kills"; fi
            [ -z "$seed" ] || echo "seed $seed"
            sed 's/ .*//' "$work/run.list" | ci/kernels/collect.sh "$log" "$status"
        } >"$report"
        cat "$report"
        if [ -n "$fault" ]; then
            # shellcheck disable=SC2046 # names without spaces
            set -- $(find results/kernels -name "$machine.txt" | sort)
            [ $# = 0 ] || ci/kernels/add.sh "$@" >"$work/control"
            [ $# != 0 ] || : >"$work/control"
            if verdict=$(ci/kernels/found.sh "$report" "$work/control"); then found=1; fi
            echo "$machine, $(sed -n 's/^release //p' "$report"): $verdict" | tee -a "$work/verdicts"
            continue
        fi
        outcome=$(ci/kernels/outcome.sh "$report")
        say "$machine: $outcome (console: $log)"
        case $outcome in
            passed* | refused*) ;;
            # A busy machine starts no kernel in the time that it has.
            *) [ -n "$quick" ] && [ "$status" = 124 ] && ! grep -q '^test .* \(failed\|hung\)' "$report" || bad=1 ;;
        esac
        [ -z "$record" ] || ci/kernels/record.sh "$report" "$results/$machine.txt"
    done
done
if [ -n "$fault" ]; then
    [ -s "$work/verdicts" ] || { echo "ci/kernels.sh: no machine ran" >&2; exit 1; }
    mkdir -p results/kernels/faults
    { echo "$date, $commit: $(sed '/^$/q' "$patch" | tr '\n' ' ')"; cat "$work/verdicts"; } >"results/kernels/faults/$fault.txt"
    [ $found = 1 ] || { echo "the fault $fault was not found"; exit 1; }
    echo "the fault $fault was found"
    exit 0
fi
[ -z "$record" ] || [ "$results" != "results/kernels/$date" ] || ci/kernels/table.sh write
exit $bad
