#!/bin/sh
# collect.sh LOG STATUS < NAMES: makes the lines of a result from a machine's console (see init) and the status of
# boot.sh. Standard input has the names of the test programs that the machine was to run. The lines are
#   release, version, processors   what the machine says of itself
#   doctor                         the status of `latchwork doctor`, and if it is not 0 the required features that are missing
#   test NAME OUTCOME …            passed, failed, hung or "not run: REASON"; how many of its tests passed and failed
#   skip NAME REASON               what a test says that it skipped
#   fault NAME TEST                a test that failed
#   said NAME …                    how a storm of kills sums itself up
set -eu
log=$1 status=$2
names=$(mktemp)
trap 'rm -f "$names"' EXIT
cat >"$names"
tr -d '\r' <"$log" | awk -v status="$status" '
    FNR == NR { order[++tests] = $1; next }
    # Only what is required counts: the first part of the report.
    $1 != "@@" {
        if (in_doctor && /^[A-Z]/) required = $1 == "Required"
        if (in_doctor && required && ($1 == "no" || $1 == "denied")) lacks = lacks " " $2
        next
    }
    { in_doctor = required = 0 }
    $2 == "kernel" { release = $3 }
    $2 == "version" { version = $0; sub(/^@@ version /, "", version) }
    $2 == "processors" { processors = $3 }
    $2 == "doctor" { doctor = $3; in_doctor = 1 }
    $2 == "begin" { begun[$3] = 1 }
    $2 == "end" { line = $0; sub(/^@@ end [^ ]* /, "", line); sub(/ status=0/, "", line); ended[$3] = line }
    $2 == "skip" { line = $0; sub(/^@@ skip /, "", line); sub(/skipped: /, "", line); rest[++rests] = "skip " line }
    $2 == "fault" { line = $0; sub(/^@@ fault /, "", line); rest[++rests] = "fault " line }
    $2 == "said" { line = $0; sub(/^@@ said /, "", line); rest[++rests] = "said " line }
    $2 == "late" { late = 1 }
    END {
        print "release " (release == "" ? "?" : release)
        print "version " version
        print "processors " processors
        print "doctor " doctor (doctor == "0" ? "" : lacks)
        why = release == "" ? "the machine did not start" : doctor + 0 != 0 ? "the kernel is refused" : late ? "the time of the machine was over" : "the machine stopped (status " status ")"
        for (i = 1; i <= tests; i++) {
            name = order[i]
            if (name in ended) print "test " name " " ended[name]
            else print "test " name ((name in begun) && !late ? " failed: " : " not run: ") why
        }
        for (i = 1; i <= rests; i++) print rest[i]
    }' "$names" -
