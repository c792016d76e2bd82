#!/bin/sh
# collect.sh LOG STATUS < NAMES: makes the lines of a result from a machine's console (see init) and the status of
# boot.sh. Standard input has the names of the test programs that the machine was to run. The lines are
#   release, version, processors: the machine's own words
#   doctor: the status of `latchwork doctor`, where it is not 0 with the features that it misses
#   outcome: passed, failed or refused (the kernel lacks what Latchwork requires), with totals
#   test NAME OUTCOME …: passed, failed, hung or "not run: REASON"; then how many of its tests passed and failed
#   skip NAME …: what a test says that it skipped;  fault NAME TEST: a test that failed
set -eu
log=$1 status=$2
names=$(mktemp)
trap 'rm -f "$names"' EXIT
cat >"$names"
tr -d '\r' <"$log" | awk -v status="$status" '
    FNR == NR { order[++tests] = $1; next }
    $1 != "@@" { if (in_doctor && /missing/) lacks = lacks "; " $0; next }
    { in_doctor = 0 }
    $2 == "kernel" { release = $3 }
    $2 == "version" { version = $0; sub(/^@@ version /, "", version) }
    $2 == "processors" { processors = $3 }
    $2 == "doctor" { doctor = $3; in_doctor = 1 }
    $2 == "begin" { begun[$3] = 1 }
    $2 == "end" {
        line = $0; sub(/^@@ end [^ ]* /, "", line); sub(/ status=0/, "", line)
        ended[$3] = line; outcome[$3] = $4
        split($0, field, "passed="); split(field[2], number, " "); passed += number[1]
    }
    $2 == "skip" { line = $0; sub(/^@@ skip /, "", line); sub(/skipped: /, "", line); rest[++rests] = "skip " line }
    $2 == "fault" { line = $0; sub(/^@@ fault /, "", line); rest[++rests] = "fault " line }
    $2 == "all" { all = 1 }
    $2 == "late" { late = 1 }
    END {
        print "release " (release == "" ? "?" : release)
        print "version " version
        print "processors " processors
        print "doctor " doctor lacks
        why = release == "" ? "the machine did not start" : late ? "the time of the machine was over" : "the machine stopped (status " status ")"
        for (i = 1; i <= tests; i++) {
            name = order[i]
            if (outcome[name] == "passed") good++
            else if (name in ended || name in begun && !late) bad++
            else missed++
            if (!(name in ended)) ended[name] = name in begun && !late ? "failed: " why : "not run: " why
        }
        if (release == "" ) result = "failed: " why
        else if (doctor + 0 != 0) result = "refused: " substr(lacks, 3)
        else if (bad) result = "failed: " bad " of " tests " programs"
        else if (missed) result = "incomplete: " missed " of " tests " programs not run"
        else result = "passed: " good " programs, " passed " tests"
        print "outcome " result
        for (i = 1; i <= tests; i++) print "test " order[i] " " ended[order[i]]
        for (i = 1; i <= rests; i++) print rest[i]
    }' "$names" -
