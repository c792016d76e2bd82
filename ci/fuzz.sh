#!/bin/sh
# Runs each fuzz target of `fuzz/` for some seconds: `ci/fuzz.sh [SECONDS [TARGET…]]` (60; all); or as often as is asked:
# `ci/fuzz.sh --runs COUNT [--within SECONDS] [TARGET…]`, which adds a row for each target to `results/fuzz/runs.md`. An input that crashes or
# hangs is kept below `fuzz/artifacts`, and the script fails. It needs a nightly toolchain, and a C++ compiler for the
# fuzzer's runtime. `cargo fuzz run TARGET` does it, too, where cargo-fuzz is installed
# (`shown` with `--features command`), with counters in all packages, which is slower.
#
# The inputs of `fuzz/corpus` come first; if the folder does not exist, it is unpacked from `fuzz/corpus.tar.gz`. What a run
# finds in addition goes to a folder in the build directory. `ci/fuzz.sh --keep [TARGET…]` unpacks the archive, too, reduces
# all of them to the inputs that reach different code, and writes these to the archive.
#
# `ci/fuzz.sh --kept` runs the inputs of the archive, and as many that are changed at random, as ordinary tests, which
# need no nightly toolchain.
. "$(dirname "$0")/lib.sh"
if [ "${1:-}" = --kept ]; then
    say "kept inputs of the fuzz targets"
    if ! said=$(cargo fetch --quiet --manifest-path fuzz/Cargo.toml --locked 2>&1); then
        echo "$said" >&2
        # Cargo names the option where the lock file is out of date.
        case $said in *--locked*) exit 1 ;; esac
        echo "skipped: the dependencies of fuzz/ cannot be fetched"
        exit 0
    fi
    cargo test --manifest-path fuzz/Cargo.toml --locked --no-default-features --test corpus \
        --target-dir "${CARGO_TARGET_DIR:-target}/kept" -- --nocapture
    exit
fi
[ -d fuzz/corpus ] || tar -C fuzz -xzf fuzz/corpus.tar.gz
keep=
if [ "${1:-}" = --keep ]; then
    keep=1
    shift
    # An older folder may lack inputs of a newer archive.
    tar -C fuzz -xzf fuzz/corpus.tar.gz
    count=
    limit=
    say "fuzzing, choice of inputs to keep"
elif [ "${1:-}" = --runs ]; then
    count=${2:?"how often?"}
    shift 2
    limit="-runs=$count"
    if [ "${1:-}" = --within ]; then
        limit="$limit -max_total_time=${2:?"how many seconds?"}"
        shift 2
    fi
    say "fuzzing, $count runs of each target"
else
    count=
    limit="-max_total_time=${1:-60}"
    [ $# -eq 0 ] || shift
    say "fuzzing, ${limit#*=} s for each target"
fi
host=$(rustc -vV | sed -n 's/^host: //p')
if ! cargo +nightly --version >/dev/null 2>&1; then
    echo "skipped: no nightly toolchain is installed (rustup toolchain install nightly)"
    exit 0
fi
if ! command -v c++ >/dev/null 2>&1; then
    echo "skipped: no C++ compiler is installed"
    exit 0
fi
# What cargo-fuzz passes, but for the counters: counted.sh adds them.
flags="--cfg fuzzing -Zsanitizer=address -Ccodegen-units=1"
# Cargo does not see what the wrapper of its compiler does.
flags="$flags --cfg counted_by_$(cksum <ci/counted.sh | cut -d' ' -f1)"
target=${CARGO_TARGET_DIR:-target}/fuzz
# As it is built: a long run goes on while others commit.
revision=$(git rev-parse --short=8 HEAD)$(git diff --quiet HEAD -- crates fuzz || echo +)
[ $# -gt 0 ] || set -- images operations c_interface shown
case " $* " in *" shown "*) command="--features command" ;; *) command= ;; esac
# shellcheck disable=SC2086 # no word, or two
LATCHWORK_ROOT=$(pwd -P) RUSTC_WRAPPER=$PWD/ci/counted.sh RUSTFLAGS="${RUSTFLAGS:-} $flags" cargo +nightly build --manifest-path fuzz/Cargo.toml --release --locked $command \
    --target "$host" --target-dir "$target"
results=results/fuzz/runs.md
# A row of the results: keep TARGET EXECUTIONS FAILURES
keep() {
    [ -n "$count" ] || return 0
    mkdir -p "$(dirname "$results")"
    [ -e "$results" ] || printf '# Runs of the fuzz targets\n\n%s\n\n%s\n%s\n' \
        'Each row is one run of `ci/fuzz.sh --runs`. A revision with `+` had changes that were not committed.' \
        '| date | revision | target | executions | failures | counts at the last multiple of 16,384 runs |' '| --- | --- | --- | --- | --- | --- |' >"$results"
    printf '| %s | %s | `%s` | %s | %s | %s |\n' "$(date -u +%Y-%m-%d)" "$revision" "$1" "$2" "$3" "$4" >>"$results"
}
for name; do
    # What is shown are images.
    [ "$name" = shown ] && inputs=fuzz/corpus/images || inputs=fuzz/corpus/$name
    mkdir -p "$target/found/$name" "$inputs" "fuzz/artifacts/$name"
    log=$target/found/$name.log
    if [ -n "$keep" ]; then
        [ "$name" != shown ] || continue
        rm -rf "$target/kept"
        mkdir "$target/kept"
        "$target/$host/release/$name" -merge=1 -max_len=400 -timeout=300 -detect_leaks=0 \
            "$target/kept" "fuzz/corpus/$name" "$target/found/$name" >"$log" 2>&1 || {
            tail -n 60 "$log"
            exit 1
        }
        rm -rf "fuzz/corpus/${name:?}"
        mv "$target/kept" "fuzz/corpus/$name"
        echo "$name: $(find "fuzz/corpus/$name" -type f | wc -l) inputs"
        continue
    fi
    # Threads that live as long as the process are no leaks. The machine may stand still for some minutes during a long run.
    # shellcheck disable=SC2086 # one word for each option
    if ! "$target/$host/release/$name" "$target/found/$name" "$inputs" $limit \
        -timeout=300 -rss_limit_mb=4096 -detect_leaks=0 -len_control=0 -max_len=400 -print_final_stats=1 \
        -artifact_prefix="fuzz/artifacts/$name/" >"$log" 2>&1; then
        tail -n 60 "$log"
        keep "$name" "$(sed -n 's/^#\([0-9]*\).*/\1/p' "$log" | tail -n 1)" "1: $(sed -n 's/^SUMMARY: //p' "$log" | head -n 1)" ""
        echo "$name failed; the input is below fuzz/artifacts/$name"
        exit 1
    fi
    # The line of a target's own tally, if it has one, says how deep the inputs came.
    runs=$(sed -n 's/^stat::number_of_executed_units: *//p' "$log")
    tally=$(sed -n 's/^[0-9]* runs: //p' "$log" | tail -n 1)
    keep "$name" "$runs" 0 "$tally"
    echo "$name: $runs runs${tally:+; of the last count: $tally}"
done
# The same inputs make the same archive.
[ -z "$keep" ] || tar -C fuzz --sort=name --owner=0 --group=0 --numeric-owner --mtime=@0 --mode=a+r -cf - corpus | gzip -9n >fuzz/corpus.tar.gz
