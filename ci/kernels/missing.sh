#!/bin/sh
# missing.sh LIST RESULT…: prints the lines of LIST whose first word names a test program that has no result on the newest
# kernel among the RESULTs. The RESULTs are files of one machine, the oldest first. Without a RESULT it prints all of LIST.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
list=$1
shift
[ $# != 0 ] || { cat "$list"; exit; }
"$here/add.sh" "$@" | awk '
    FNR == NR { if ($1 == "test" && $3 $4 != "notrun:") has[$2] = 1; next }
    !($1 in has)' - "$list"
