#!/bin/sh
# Runs a part of the tests under a checker of memory or of races: `ci/sanitize.sh address|thread|miri|valgrind`. Each part
# says what it leaves out, and why. The result is one table, `results/sanitizers/NAME.md`.
. "$(dirname "$0")/lib.sh"
kind=${1:?"address, thread, miri or valgrind"}
host=$(rustc -vV | sed -n 's/^host: //p')
target=${CARGO_TARGET_DIR:-target}/$kind
case $target in /*) ;; *) target=$PWD/$target ;; esac
results=results/sanitizers
failed=0

skip() {
    echo "skipped: $*"
    exit 0
}

# Prints a row of the table, and keeps it.
row() {
    printf '| %s | %s | %s |\n' "$1" "$2" "$3" | tee -a "$results/$kind.md"
}

begin() {
    say "$1"
    mkdir -p "$results" "$target"
    printf '# %s\n\n%s\n\nMade by `ci/sanitize.sh %s`, %s, %s.\n\n| what | result | left out |\n| --- | --- | --- |\n' "$1" "$2" "$kind" "$(date -u +%F)" "$(git describe --always --dirty --abbrev=12)" >"$results/$kind.md"
}

# Runs the tests of a binary, or those that are not left out: tests CRATE NAME [TEST…]
tests() {
    crate=$1
    name=$2
    shift 2
    # The newest of that name is the one that was just built.
    program=$(ls -t "$target/$host/debug/deps/$name"-* | grep -v '\.d$' | head -n 1)
    skips=
    for test; do skips="$skips --skip $test"; done
    log=$target/$name.log
    # A debugger's pace: the watchdog of a test is for other builds.
    # shellcheck disable=SC2086 # one word for each test
    if (cd "crates/$crate" && LATCHWORK_WATCHDOG=${LATCHWORK_WATCHDOG:-900} timeout 1200 "$program" --test-threads 1 $skips) \
        >"$log" 2>&1; then
        result=$(sed -n 's/^test result: ok\. \([0-9]*\) passed.*/\1 passed/p' "$log" | head -n 1)
    else
        result="**failed**: $(grep -c 'FAILED$' "$log" || true) tests, see $name.log"
        failed=1
    fi
    if grep -q 'ERROR: AddressSanitizer\|WARNING: ThreadSanitizer' "$log"; then
        result="$result; **reports**"
        failed=1
    fi
    row "\`$name\` of $crate" "$result" "${*:-–}"
}

nightly() {
    cargo +nightly --version >/dev/null 2>&1 ||
        skip "no nightly toolchain is installed (rustup toolchain install nightly)"
}

case $kind in
address)
    nightly
    begin "Tests under AddressSanitizer" "The standard library is not instrumented; the library's own code is. Leaks are not \
looked for: threads that last as long as their process are none. Left out as a whole: tests that single-step a task (\`kill_*\`: \
the sanitizer's own instructions are stepped, too, and are not async-signal-safe), tests of machine code (\`fast_path\`), of coprocs \
(a copy of a process by a raw \`clone\`, with stacks of its own, is not known to the sanitizer), of other programs, and the files in \
which a thread ends by the bare system call \`exit\` (\`condvar\`, \`in_region\`, \`lock_errors\`, \`queue\`, \`robust\` and others: the sanitizer \
then finds its record of the ended thread, and aborts)."
    export RUSTFLAGS="${RUSTFLAGS:-} -Zsanitizer=address"
    # Tests expect these signals of their children.
    export ASAN_OPTIONS="detect_leaks=0:detect_stack_use_after_return=0:handle_segv=0:handle_sigbus=0${ASAN_OPTIONS:+:$ASAN_OPTIONS}"
    integration="containers contract cycles event hostile_queue hostile_region keeper mutex primitives queue_ring queue_rules recursive \
region region_deaths region_many region_objects region_observer region_rwlock region_slots region_uses rwlock semaphore"
    arguments=
    for name in $integration; do arguments="$arguments --test $name"; done
    # shellcheck disable=SC2086 # one word for each argument
    cargo +nightly test --no-run --locked --target "$host" --target-dir "$target" -p latchwork $arguments
    cargo +nightly test --no-run --locked --target "$host" --target-dir "$target" --lib \
        -p latchwork-sys -p latchwork-sync -p latchwork-region -p latchwork-check
    for crate in sys sync region check; do tests "latchwork-$crate" "latchwork_$crate"; done
    for name in $integration; do
        case $name in
        # A thread of it ends by the bare system call.
        region_deaths) tests latchwork "$name" vanished_in_another_namespace ;;
        *) tests latchwork "$name" ;;
        esac
    done
    ;;
thread)
    nightly
    begin "Tests under ThreadSanitizer" "Only threads of one process: the sanitizer knows neither other processes nor memory at \
the addresses of regions. The standard library has to be instrumented, too (\`-Zbuild-std\`, component rust-src): without that, each \
lock and channel of std that orders two accesses is unknown, and they are reported. It does not know what the kernel does, either: \
it releases inheriting mutexes (\`inherit\`; \`by_kernel\` and \`by_relay_to_shared\` of \`condvar\`), and robust throughput \
mutexes with waiters (\`to_robust_throughput\`; the gate of robust reader/writer locks, \`robust\` of \`rwlock\`), whose \
data is then reported; and it unmaps the record of a thread, so that the next thread's is reported (\`ci/tsan.txt\` suppresses that). \
Fences (\`atomic::fence\`) are unknown to it in any case."
    src=$(rustc +nightly --print sysroot)/lib/rustlib/src/rust/library
    [ -d "$src" ] || { row "all" "skipped: rust-src of the nightly toolchain is not installed" "–"; skip "rust-src of the nightly toolchain is not installed (rustup component add rust-src --toolchain nightly)"; }
    export RUSTFLAGS="${RUSTFLAGS:-} -Zsanitizer=thread"
    cargo +nightly test --no-run --locked --target "$host" --target-dir "$target" -Zbuild-std -p latchwork --test mutex --test rwlock \
        --test condvar --test recursive
    export TSAN_OPTIONS="suppressions=$PWD/ci/tsan.txt${TSAN_OPTIONS:+:$TSAN_OPTIONS}"
    left_out="processes two_processes region inherit"
    # shellcheck disable=SC2086 # one word for each test
    for name in mutex rwlock condvar recursive; do
        case $name in
        rwlock) tests latchwork "$name" $left_out robust ;;
        # In the first two a thread ends by the bare system call, which the sanitizer does not see: it waits for ever.
        condvar) tests latchwork "$name" $left_out a_wait_with_a_robust_mutex a_waiter_learns_that_a_holder \
            by_kernel by_relay_to_shared to_robust_throughput ;;
        *) tests latchwork "$name" $left_out ;;
        esac
    done
    ;;
miri)
    nightly
    begin "Tests under Miri" "Miri runs no system call but some of libc's, so only what makes none: the unit tests of pure code."
    cargo +nightly miri --version >/dev/null 2>&1 || { row "all" "skipped: the component miri is not installed" "–"; skip "the component miri is not installed (rustup component add miri --toolchain nightly)"; }
    export MIRIFLAGS="${MIRIFLAGS:-} -Zmiri-disable-isolation"
    for crate in latchwork-region latchwork; do
        log=$target/$crate.log
        if cargo +nightly miri test --locked --target-dir "$target" -p "$crate" --lib -- fingerprints keys_order \
            class_is waste_is >"$log" 2>&1; then
            row "unit tests of $crate without system calls" "$(sed -n 's/^test result: ok\. \([0-9]*\) passed.*/\1 passed/p' "$log" | head -n 1)" "all others"
        else
            row "unit tests of $crate without system calls" "**failed**, see $crate.log" "all others"
            failed=1
        fi
    done
    ;;
valgrind)
    command -v valgrind >/dev/null 2>&1 || skip "valgrind is not installed"
    command -v cc >/dev/null 2>&1 || skip "no C compiler is installed"
    begin "Examples in C under valgrind" "\`memcheck\`. Valgrind has no \`futex_waitv\`, so that tasks of a region sleep as on an old kernel; \
and no \`pidfd_open\`, without which a coproc cannot be started: the examples of \`coproc\` are left out. One \
suppression: \`memcheck\` takes the descriptor that rustix's system calls return for uninitialised."
    printf '{\n   rustix\n   Memcheck:Cond\n   fun:new\n   fun:from_raw_fd\n   ...\n}\n' >"$target/suppressions"
    cargo build --locked -p latchwork-c --target-dir "$target"
    for source in examples/locks/*.c examples/locks/*.cpp examples/migrate/*.c examples/regions/ledger.c \
        examples/regions/jobs.c examples/regions/board.cpp examples/classic/*.c; do
        name=$(basename "$source")
        program=$target/${name%.*}
        case $source in
        *.cpp) compiler="c++ -std=c++17" ;;
        *) compiler="cc -std=c11" ;;
        esac
        # Those of the migration take a duration, in seconds.
        case $source in
        examples/migrate/*) arguments="V 4 1" ;;
        *) arguments= ;;
        esac
        # shellcheck disable=SC2086 # one word for each argument
        if ! $compiler -g -O1 -D_GNU_SOURCE -Icrates/latchwork-c/include "$source" "$target/debug/liblatchwork_c.a" \
            -lpthread -ldl -lm -o "$program" 2>"$target/$name.log"; then
            row "\`$source\`" "**does not compile**" "–"
            failed=1
        elif (cd "$target" && timeout 300 valgrind --quiet --error-exitcode=99 --leak-check=no --trace-children=yes \
            --suppressions="$target/suppressions" "$program" $arguments) >"$target/$name.log" 2>&1 </dev/null; then
            row "\`$source\`" "no error" "–"
        else
            row "\`$source\`" "**errors**, see $name.log" "–"
            failed=1
        fi
    done
    ;;
*)
    echo "address, thread, miri or valgrind?" >&2
    exit 2
    ;;
esac
exit "$failed"
