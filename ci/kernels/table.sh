#!/bin/sh
# table.sh: prints the table of kernels of docs/platforms.md, made of the newest file of results for each machine
# (results/kernels/DATE/KERNEL-PROCESSORS.txt, and aarch64-KERNEL-PROCESSORS.txt, with -MODEL for another model of
# processors than max). `table.sh write` writes it into the document, and `table.sh check` fails
# if the document has another one. RESULTS and DOCUMENT name other files.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
results=${RESULTS:-$root/results/kernels} document=${DOCUMENT:-$root/docs/platforms.md}
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
    echo "$end"
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
