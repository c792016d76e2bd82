#!/bin/sh
# counted.sh COMPILER ARGUMENT…: the compiler as `ci/fuzz.sh` runs it. What is built of this repository for the machine that is
# fuzzed gets the fuzzer's counters at each edge, and comparisons. Other packages go without: their counters took
# most of the time of a run, and most of the inputs that were kept were kept for their edges.
case "${CARGO_MANIFEST_DIR:-}/ $* " in
    "${LATCHWORK_ROOT:?}"/*" --target "*)
        set -- "$@" -Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
            -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
            -Cllvm-args=-sanitizer-coverage-trace-compares
        ;;
esac
exec "$@"
