#!/bin/sh
# record.sh NEW RESULT: puts the results of a run into a file of results. If RESULT has those of the same kernel, and of
# the same sources of library and tests, the tests of NEW replace those of RESULT, and the others stay.
set -eu
new=$1 result=$2
mkdir -p "$(dirname "$result")"
same() { sed -n "s/^$1 //p" "$new" | grep -qxF "$(sed -n "s/^$1 //p" "$result")"; }
if [ -f "$result" ] && same release && same tree; then
    # A test that has run stays, if it has not run this time.
    awk '
        FNR == NR && $1 == "test" && $3 $4 != "notrun:" { has[$2] = 1 }
        FNR == NR { if ($1 == "test" && $3 $4 == "notrun:") other[$2] = $0; else line[++lines] = $0; next }
        ($1 == "test" || $1 == "skip" || $1 == "fault") && !($2 in has) { line[++lines] = $0; delete other[$2] }
        END {
            for (i = 1; i <= lines; i++) print line[i]
            for (name in other) print other[name]
        }' "$new" "$result" >"$result.new"
    { grep -v -e '^test ' -e '^skip ' -e '^fault ' "$result.new"; grep '^test ' "$result.new" | sort -u
      grep -e '^skip ' -e '^fault ' "$result.new" | sort -u || true; } >"$result.sorted"
    mv "$result.sorted" "$result"
    rm "$result.new"
else
    cp "$new" "$result"
fi
