#!/bin/sh
# found.sh REPORT [CONTROL]: says whether the machine of REPORT has found the fault that was planted in its programs. It has
# if a program ended there with a failed test, or hung, which has passed in CONTROL, the same machine's results without
# the fault. A machine that did not start, or a program that did not begin or fails without the fault, shows nothing. The
# first word is found (status 0), missed or "not shown".
set -eu
report=$1 control=${2:-/dev/null}
awk '
    $1 == "test" && $3 == "passed" && FILENAME == control { passed[$2] = 1 }
    FILENAME == control { next }
    $1 == "release" { release = $2 }
    $1 == "doctor" && $2 != "0" && NF > 1 { refused = 1 }
    # (One that did not come to its end has no counts.)
    $1 == "test" && ($3 == "failed" || $3 == "hung") && $4 ~ /^passed=/ {
        if ($2 in passed) found = found " " $2
        else unknown = unknown " " $2
    }
    $1 == "test" && $3 == "passed" { missed = missed " " $2 }
    $1 == "fault" { failed = failed " " $3 }
    END {
        if (release == "?" || release == "") print "not shown: the machine did not start"
        else if (refused) print "not shown: the kernel is refused"
        else if (found != "") print "found by" found (failed == "" ? "" : " (failed:" failed ")")
        else if (unknown != "") print "not shown: no result without the fault of" unknown
        else if (missed != "") print "missed by" missed
        else print "not shown: no program came to its end"
        exit !(found != "" && !refused && release != "?" && release != "")
    }' control="$control" "$control" "$report"
