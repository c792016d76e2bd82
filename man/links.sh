#!/bin/sh
# Prints the manual page of each function, one `FUNCTION PAGE` a line: for each name in the NAME and SYNOPSIS sections
# of the pages, and for each name on standard input.
#
# A function of one kind of lock is described under the generic name: lw_tp_mutex_lock and lw_spin_lock under
# lw_mutex_lock. If no page names a function, the function is described on the page that names others with the same first word: rtems_clock_get
# on the page that names rtems_….
#
#     nm -D --defined-only liblatchwork.so | sed -n 's/.* [TWi] \([^@]*\).*/\1/p' | man/links.sh
#
# Fails if a name has no page, and prints that name.
set -eu
cd "$(dirname "$0")"
exec awk '
function page_of(name,   parts, count, from, shorter, at) {
    if (name in page) return page[name]
    count = split(name, parts, "_")
    # Without the words that name the kind: lw_robust_pi_mutex_lock, lw_pi_mutex_lock, lw_mutex_lock.
    for (from = 3; from < count; from++) {
        shorter = parts[1]
        for (at = from; at <= count; at++) shorter = shorter "_" parts[at]
        if (shorter in page) return page[shorter]
    }
    # A lock whose type is not called a mutex.
    shorter = "lw_mutex"
    for (at = 3; at <= count; at++) shorter = shorter "_" parts[at]
    if (parts[1] == "lw" && shorter in page) return page[shorter]
    if (parts[1] != "lw" && parts[1] in family) return family[parts[1]]
    return ""
}
function learn(name, where,   parts) {
    if (name in page) return
    page[name] = where
    split(name, parts, "_")
    if (!(parts[1] in family)) family[parts[1]] = where
    print name, where
}
FILENAME == "-" {
    # The library still exports these, but no header declares them.
    if ($1 ~ /_cond_has_waiters$/) next
    if ($1 == "" || $1 ~ /^lw__/ || $1 in page) next
    where = page_of($1)
    if (where == "") { print "links.sh: no page describes " $1 | "cat >&2"; failed = 1; next }
    print $1, where
    next
}
FNR == 1 { section = "" }
/^\.SH/ { section = $2; next }
section == "NAME" {
    line = $0
    is_last = sub(/ *\\-.*/, "", line)
    count = split(line, names, /[, ]+/)
    for (at = 1; at <= count; at++) if (names[at] != "") learn(names[at], FILENAME)
    if (is_last) section = ""
}
section == "SYNOPSIS" {
    line = $0
    while (match(line, /[A-Za-z_][A-Za-z_0-9]*\(/)) {
        learn(substr(line, RSTART, RLENGTH - 1), FILENAME)
        line = substr(line, RSTART + RLENGTH)
    }
}
END { exit failed }
' *.3 -
