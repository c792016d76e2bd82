#!/bin/sh
# table.sh: prints the table of kernels of docs/platforms.md, made of the newest file of results for each machine
# (results/kernels/DATE/KERNEL-PROCESSORS.txt, and aarch64-KERNEL-PROCESSORS.txt, with -MODEL for another model of
# processors than max), and that of C libraries, of those for each name in ci/libc/list.txt (results/libc/DATE/NAME.txt).
# `table.sh write` writes it into the document, and `table.sh check` fails
# if the document has another one. RESULTS, LIBC_RESULTS and DOCUMENT name other files.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
results=${RESULTS:-$root/results/kernels} libraries=${LIBC_RESULTS:-$root/results/libc} document=${DOCUMENT:-$root/docs/platforms.md}
begin="<!-- The table of kernels -->" end="<!-- The end of the table -->"

# One machine's cell.
cell() {
    newest=$(find "$results" -name "$1-$2.txt" 2>/dev/null | sort | tail -n 1)
    if [ -z "$newest" ]; then
        echo "not run"
    else
        echo "$("$here/outcome.sh" "$newest") ($(sed -n 's/^date //p' "$newest"))"
    fi
}
table() {
    echo "$begin"
    echo "| kernel | 2 processors | 8 processors |"
    echo "| --- | --- | --- |"
    sed '/^#/d; /ARCH/!d; s/ .*//' "$here/list.txt" | while read -r kernel; do
        release=$(find "$results" -name "$kernel-[28].txt" 2>/dev/null | sort | tail -n 1 | xargs -r sed -n 's/^release //p')
        echo "| ${release:-$kernel} | $(cell "$kernel" 2) | $(cell "$kernel" 8) |"
    done
    aarch64
    c_libraries
    echo "$end"
}

# A row for each C library.
c_libraries() {
    echo
    echo "| C library | linked | system | |"
    echo "| --- | --- | --- | --- |"
    sed '/^#/d; s/  */ /g' "$here/../libc/list.txt" | while read -r name kind suite; do
        newest=$(find "$libraries" -name "$name.txt" 2>/dev/null | sort | tail -n 1)
        library=${kind%%-*} says="not run"
        if [ -n "$newest" ]; then
            library=$(sed -n 's/^release \([a-z]*\)-/\1 /p' "$newest")
            says="$("$here/outcome.sh" "$newest") ($(sed -n 's/^date //p' "$newest"))"
        fi
        [ "$kind" != gnu ] || library=$(echo "$library" | sed 's/^gnu$/glibc/')
        [ "$kind" = musl-static ] && linked=static library="musl of Rust's target" || linked=dynamic
        echo "| $library | $linked | $suite | $says |"
    done
}

# The machines with aarch64 that have results.
aarch64() {
    files=$(find "$results" -name 'aarch64-*.txt' 2>/dev/null | sort)
    [ -n "$files" ] || return 0
    echo
    echo "| kernel for aarch64 | model of QEMU's processors | processors | |"
    echo "| --- | --- | --- | --- |"
    for name in $(echo "$files" | sed 's/.*\///' | sort -u); do
        newest=$(echo "$files" | grep "/$name\$" | tail -n 1)
        of() { sed -n "s/^$1 //p" "$newest"; }
        model=$(of cpu)
        echo "| $(of release) | ${model:-max} | $(of processors) | $("$here/outcome.sh" "$newest") ($(of date)) |"
    done
}
stands() { sed -n "/^$begin\$/,/^$end\$/p" "$document"; }

case ${1:-print} in
    print) table ;;
    check)
        if [ "$(stands)" != "$(table)" ]; then
            echo "$document has not the table of $results (ci/kernels/table.sh write)" >&2
            exit 1
        fi
        ;;
    write)
        made=$(mktemp)
        trap 'rm -f "$made"' EXIT
        table >"$made"
        awk -v begin="$begin" -v end="$end" -v made="$made" '
            $0 == begin { while ((getline line < made) > 0) print line; inside = 1; next }
            $0 == end { inside = 0; next }
            !inside' "$document" >"$document.new"
        mv "$document.new" "$document"
        ;;
    *) echo "table.sh [print|check|write]" >&2; exit 2 ;;
esac
