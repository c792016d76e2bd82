#!/bin/sh
# Runs each fuzz target of `fuzz/` for some seconds: `ci/fuzz.sh [SECONDS [TARGET…]]` (60; all). An input that crashes or
# hangs is kept below `fuzz/artifacts`, and the script fails. It needs a nightly toolchain, and a C++ compiler for the
# fuzzer's runtime. `cargo fuzz run TARGET` does the same, where cargo-fuzz is installed.
#
# The inputs in `fuzz/corpus` come first. What a run finds in addition goes to a folder in the build directory.
. "$(dirname "$0")/lib.sh"
seconds=${1:-60}
[ $# -eq 0 ] || shift
say "fuzzing, $seconds s for each target"
host=$(rustc -vV | sed -n 's/^host: //p')
if ! cargo +nightly --version >/dev/null 2>&1; then
    echo "skipped: no nightly toolchain is installed (rustup toolchain install nightly)"
    exit 0
fi
if ! command -v c++ >/dev/null 2>&1; then
    echo "skipped: no C++ compiler is installed"
    exit 0
fi
# What cargo-fuzz passes: counters at each edge, comparisons, and AddressSanitizer.
flags="-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4"
flags="$flags -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table"
flags="$flags -Cllvm-args=-sanitizer-coverage-trace-compares --cfg fuzzing -Zsanitizer=address -Ccodegen-units=1"
target=${CARGO_TARGET_DIR:-target}/fuzz
RUSTFLAGS="${RUSTFLAGS:-} $flags" cargo +nightly build --manifest-path fuzz/Cargo.toml --release --locked \
    --target "$host" --target-dir "$target"
[ $# -gt 0 ] || set -- images operations c_interface
for name; do
    mkdir -p "$target/found/$name" "fuzz/artifacts/$name"
    log=$target/found/$name.log
    # Threads that live as long as the process are no leaks.
    if ! "$target/$host/release/$name" "$target/found/$name" "fuzz/corpus/$name" -max_total_time="$seconds" \
        -timeout=60 -rss_limit_mb=4096 -detect_leaks=0 -len_control=0 -max_len=400 -print_final_stats=1 \
        -artifact_prefix="fuzz/artifacts/$name/" >"$log" 2>&1; then
        tail -n 60 "$log"
        echo "$name failed; the input is below fuzz/artifacts/$name"
        exit 1
    fi
    # The line of a target's own tally, if it has one, says how deep the inputs came.
    runs=$(sed -n 's/^stat::number_of_executed_units: *//p' "$log")
    echo "$name: $runs runs$(sed -n 's/^[0-9]* runs: /; of the last count: /p' "$log" | tail -n 1)"
done
