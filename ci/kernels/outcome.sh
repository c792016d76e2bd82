#!/bin/sh
# outcome.sh RESULT: sums up a file of results in one line, whose first word says it: passed, failed, refused (the
# kernel lacks what Latchwork requires; the tests' outcomes do not count) or "not run". Programs are counted once, however
# many kills they have run with (names with a slash).
set -eu
awk '
    $1 == "release" { release = $2 }
    $1 == "doctor" { doctor = $2; lacks = $0; sub(/^doctor [^ ]* ?/, "", lacks) }
    $1 == "test" && $3 == "passed" && $2 ~ "/" { many++ }
    $1 == "test" && $3 == "passed" && $2 !~ "/" { good++; split($4, number, "="); tests += number[2] }
    $1 == "test" && $3 ~ /^(failed|hung)/ { bad++; names = names " " $2 }
    $1 == "test" && $3 $4 == "notrun:" { left++ }
    END {
        if (release == "?") print "failed: the machine did not start"
        else if (doctor != "0" && doctor != "") print "refused: " lacks
        else if (bad) print "failed:" names
        else if (good) print "passed: " good " programs, " tests " tests" (left ? "; " left " not run" : "")
        else if (many) print "passed: " many " with many kills"
        else print "not run"
    }' "$1"
