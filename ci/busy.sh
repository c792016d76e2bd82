#!/bin/sh
# Runs the whole suite on a busy machine: several test programs at a time, beside two spinning programs for each processor.
# `ci/busy.sh [PASSES [PROGRAMS [PATTERN]]]` (1; three for each processor; all). Each pass adds a row to
# `results/busy.md`, which names the tests that failed, and prints the first failure and the last 80 lines of each program
# that failed. The exit status is 1 if a pass failed.
# With PATTERN, a basic regular expression, only the programs whose names match it run, without the documentation tests, and
# no row is kept. `.ci/run` does not call it.
# If LATCHWORK_BESIDE is set, no spinning programs are started. Its text describes what else runs ("2 fuzz targets"), and
# stands in the column of the spinning programs.
. "$(dirname "$0")/lib.sh"
passes=${1:-1}
programs=${2:-$((3 * $(nproc)))}
pattern=${3:-}
spinners=$((2 * $(nproc)))
beside=${LATCHWORK_BESIDE:-$spinners}
[ -z "${LATCHWORK_BESIDE:-}" ] || spinners=0
results=results/busy.md
[ -z "$pattern" ] || results=/dev/null
folder=$(mktemp -d)
spinning=
# shellcheck disable=SC2086,SC2317,SC2329 # one word for each process; called by the trap
finish() {
    [ -z "$spinning" ] || kill $spinning 2>/dev/null || true
    rm -rf "$folder"
}
trap finish EXIT
trap 'exit 1' HUP INT TERM
revision=$(git rev-parse --short=8 HEAD)$(git diff --quiet HEAD -- crates || echo +)
# Cargo calls this in place of each test program: it records how the program is called, and each pass runs it. Cargo runs
# the documentation tests after the programs.
cat >"$folder/runner" <<'END'
#!/bin/sh
case $1 in */deps/*) ;; *) exec "$@" ;; esac
{
    echo "cd '$PWD'"
    export -p
    echo "exec '$1'"
} >"$LATCHWORK_LIST/$(basename "$1")"
END
chmod +x "$folder/runner"
mkdir "$folder/list"
export LATCHWORK_LIST="$folder/list"
cargo test --workspace --locked --lib --bins --tests --examples --config "target.'cfg(all())'.runner='$folder/runner'" >"$folder/log" 2>&1 || {
    cat "$folder/log" >&2
    exit 1
}
find "$folder/list" -type f -printf "%f\n" | grep -e "$pattern" | sort >"$folder/names"
[ -s "$folder/names" ] || { echo "no test program has such a name" >&2; exit 1; }
say "the suite $passes times, $(wc -l <"$folder/names") programs, $programs at a time, beside ${LATCHWORK_BESIDE:-$spinners that spin}"
for _ in $(seq "$spinners"); do
    sh -c 'while :; do :; done' &
    spinning="$spinning $!"
done
# One program: its output, its name if it fails, and the seconds that it took.
cat >"$folder/one" <<'END'
began=$(date +%s)
sh "$1/list/$2" >"$1/logs/$2" 2>&1 || echo "$2" >>"$1/failed"
echo "$(($(date +%s) - began)) $2" >>"$1/seconds"
END
# shellcheck disable=SC2016 # no expansions
[ -e "$results" ] || printf '%s\n' '# The suite on a busy machine' '' \
    'Each row is one pass of `ci/busy.sh`: all test programs, and the documentation tests. A revision with `+` had changes in `crates` that were not committed.' '' \
    '| date | revision | processors | spinning programs | test programs at a time | minutes | tests passed | programs failed | failed tests (programs) |' \
    '| --- | --- | --- | --- | --- | --- | --- | --- | --- |' >"$results"
worst=0
for _ in $(seq "$passes"); do
    rm -rf "$folder/logs" "$folder/failed"
    mkdir "$folder/logs"
    : >"$folder/failed"
    began=$(date +%s)
    xargs -P "$programs" -n 1 sh "$folder/one" "$folder" <"$folder/names"
    # The next pass begins with those that take longest: none of them then runs alone at its end.
    sort -rn "$folder/seconds" | cut -d' ' -f2 >"$folder/names"
    rm "$folder/seconds"
    [ -n "$pattern" ] || cargo test --workspace --locked --doc >"$folder/logs/documentation" 2>&1 || echo documentation >>"$folder/failed"
    minutes=$((($(date +%s) - began + 30) / 60))
    passed=$(cat "$folder/logs/"* | sed -n 's/^test result: .* \([0-9]*\) passed.*/\1/p' | awk '{ sum += $1 } END { print sum + 0 }')
    while read -r name; do
        worst=1
        printf '\n== %s\n' "$name"
        # The first failure, and the summary.
        grep -m 1 -n -B 4 -A 8 'panicked at\|expected no panic' "$folder/logs/$name" | cut -c1-400 || true
        echo '-- its end:'
        tail -n 80 "$folder/logs/$name"
    done <"$folder/failed"
    which=$(cd "$folder/logs" && xargs -r sed -n 's/^test \(.*\) \.\.\. FAILED$/\1/p' <"$folder/failed" | sort | tr '\n' ' ')
    failed=$(wc -l <"$folder/failed")
    printf '| %s | %s | %s | %s | %s | %s | %s | %s | %s |\n' "$(date -u +%F)" "$revision" "$(nproc)" "$beside" "$programs" \
        "$minutes" "$passed" "$failed" "$([ "$failed" -eq 0 ] || echo "$which($(tr '\n' ' ' <"$folder/failed"))")" | tee -a "$results"
done
exit "$worst"
