#!/bin/sh
# record.sh NEW RESULT: puts the results of a run into a file of results. Each test program that has run gets the date, the
# commit, the factor of kills and the seed, if it has one, of its run (`date=`, `commit=`, `factor=`, `seed=`). If RESULT has those of the same kernel, the
# programs of NEW that have run replace those of RESULT, and the others stay. A machine that did not start replaces nothing.
set -eu
new=$1 result=$2
mkdir -p "$(dirname "$result")"
# Writes where the lines of a file come from, if they do not say it yet.
stamped() {
    awk '
        $1 == "date" || $1 == "commit" { head[$1] = $2 }
        $1 == "kills" { head["factor"] = $2 }
        $1 == "seed" { seed = " seed=" $2 }
        $1 == "test" && $3 $4 != "notrun:" && !/ date=/ { $0 = $0 " date=" head["date"] " commit=" head["commit"] " factor=" head["factor"] seed }
        { print }' "$1"
}
release() { sed -n "s/^release //p" "$1"; }
if [ -f "$result" ] && [ "$(release "$new")" = "?" ]; then exit 0; fi
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
stamped "$new" >"$folder/new"
if [ -f "$result" ] && [ "$(release "$new")" = "$(release "$result")" ]; then
    stamped "$result" >"$folder/old"
    # A test that has run stays, if it has not run this time. So does the verdict of `latchwork doctor`.
    awk '
        FNR == NR && $1 == "test" && $3 $4 != "notrun:" { has[$2] = 1 }
        FNR == NR { if ($1 == "test" && $3 $4 == "notrun:") other[$2] = $0; else line[++lines] = $0; next }
        $1 == "doctor" { doctor = $0 }
        ($1 == "test" || $1 == "skip" || $1 == "fault" || $1 == "said") && !($2 in has) { line[++lines] = $0; delete other[$2] }
        END {
            for (i = 1; i <= lines; i++) print line[i] == "doctor " ? doctor : line[i]
            for (name in other) print other[name]
        }' "$folder/new" "$folder/old" >"$folder/all"
else
    cp "$folder/new" "$folder/all"
fi
{
    grep -v -e '^seed ' -e '^test ' -e '^skip ' -e '^fault ' -e '^said ' "$folder/all"
    for kind in test skip fault said; do grep "^$kind " "$folder/all" | sort -u || true; done
} >"$result.new"
mv "$result.new" "$result"
