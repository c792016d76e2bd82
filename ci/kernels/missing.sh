#!/bin/sh
# missing.sh LIST RESULT…: prints the lines of LIST (of test programs, named by their first word) that have no result in any
# of these results of one machine, the oldest first: those that were not run there, or only on another kernel than the newest.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
list=$1
shift
[ $# != 0 ] || { cat "$list"; exit; }
"$here/add.sh" "$@" | awk '
    FNR == NR { if ($1 == "test" && $3 $4 != "notrun:") has[$2] = 1; next }
    !($1 in has)' - "$list"
