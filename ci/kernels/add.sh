#!/bin/sh
# add.sh RESULT…: adds up the results of one machine, the oldest first, and prints them as one result: the newest of each
# test program that ci/kernels/tests.txt runs. Results of another kernel than the newest file's do not count. A program
# that has never run there is "not run", unless it runs only with --long. What has run with many kills (ci/kernels.sh --storm and --sweep) follows, under
# names with a slash.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
for newest; do :; done
awk -v list="${LIST:-$here/tests.txt}" -v release="$(sed -n 's/^release //p' "$newest")" '
    BEGIN {
        while ((getline line < list) > 0) {
            split(line, word, " ")
            if (word[2] ~ /^(quick|run|long)$/) { asked[++count] = word[1]; how[word[1]] = word[2] }
        }
    }
    $1 == "kernel" { counts = 1; date = "" }
    $1 == "date" { date = $2 }
    $1 == "release" { counts = $2 == release }
    !counts { next }
    $1 == "processors" || $1 == "version" || $1 == "arch" || $1 == "cpu" { head[$1] = $0 }
    $1 == "doctor" && NF > 1 { doctor = $0 }
    $1 == "test" && $3 $4 != "notrun:" { result[$2] = $0 (/ date=/ ? "" : " date=" date) }
    END {
        print "release " release
        print "date " date
        for (name in head) print head[name]
        print doctor == "" ? "doctor " : doctor
        for (i = 1; i <= count; i++) {
            name = asked[i]
            if (name in result) print result[name]
            else if (how[name] != "long") print "test " name " not run: never asked, or no time"
        }
        for (name in result) if (name ~ "/") print result[name] | "sort"
    }' "$@"
