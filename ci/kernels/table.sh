#!/bin/sh
# table.sh: prints the tables of docs/platforms.md. Those of kernels add up all results of a machine, the newest of each test
# program (add.sh; results/kernels/DATE/KERNEL-PROCESSORS.txt, and aarch64-KERNEL-PROCESSORS.txt, with -MODEL for another
# model of processors than max); that of C libraries is made of the newest file for each name in ci/libc/list.txt
# (results/libc/DATE/NAME.txt). `table.sh write` writes them into the document, and `table.sh check` fails if the document
# has others. RESULTS, LIBC_RESULTS and DOCUMENT name other files.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
results=${RESULTS:-$root/results/kernels} libraries=${LIBC_RESULTS:-$root/results/libc} document=${DOCUMENT:-$root/docs/platforms.md}
begin="<!-- The table of kernels -->" end="<!-- The end of the table -->"

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# The files of results of a machine, the oldest first.
files_of() { find "$results" -name "$1.txt" 2>/dev/null | sort; }
# One result of all files of a machine, in a file whose name is printed; nothing if there is none.
added() {
    files=$(files_of "$1")
    [ -n "$files" ] || return 0
    # shellcheck disable=SC2086 # names without spaces
    "$here/add.sh" $files >"$work/$1"
    echo "$work/$1"
}
# The days of a result.
days() {
    dates=$(sed -n 's/^test .* date=\([^ ]*\).*/\1/p' "$1" | sort -u | sed -n '1p; $p' | uniq | paste -s -d: - | sed 's/:/ to /')
    echo "${dates:-$(sed -n 's/^date //p' "$1")}"
}
# A machine's cell.
cell() {
    sum=$(added "$1")
    if [ -z "$sum" ]; then
        echo "not run"
    else
        says=$("$here/outcome.sh" "$sum")
        case $says in
            failed*) says="$says; $(grep -c '^test [^/]* passed ' "$sum" || true) programs passed" ;;
        esac
        echo "$says ($(days "$sum"))"
    fi
}
# The sum of a number that passed programs report, over results.
number() {
    key=$1
    shift
    cat "$@" /dev/null | awk -v key=" $key=" '
        $1 == "test" && $3 == "passed" && (at = index($0, key)) { sum += substr($0, at + length(key)) + 0 }
        END {
            text = sum + 0 ""
            while (length(text) > 3) { rest = "," substr(text, length(text) - 2) rest; text = substr(text, 1, length(text) - 3) }
            print text rest
        }'
}
table() {
    echo "$begin"
    echo "| kernel | 2 processors | 8 processors | kills at random moments | stops and kills at chosen instructions |"
    echo "| --- | --- | --- | --- | --- |"
    sed '/^#/d; /ARCH/!d; s/ .*//' "$here/list.txt" | while read -r kernel; do
        two=$(cell "$kernel-2") eight=$(cell "$kernel-8")
        sums=$(find "$work" -name "$kernel-[28]")
        # shellcheck disable=SC2086 # names without spaces
        release=$(cat $sums /dev/null | sed -n 's/^release //p' | tail -n 1)
        # shellcheck disable=SC2086 # names without spaces
        echo "| ${release:-$kernel} | $two | $eight | $(number kills $sums) | $(number points $sums) |"
    done
    user_mode
    aarch64
    c_libraries
    echo "$end"
}

# The user-mode kernels that have results.
user_mode() {
    machines=$(files_of '*-um-1' | sed 's/.*\///; s/\.txt$//' | sort -u)
    [ -n "$machines" ] || return 0
    echo
    echo "| user-mode kernel | 1 processor | kills at random moments | stops and kills at chosen instructions | kills of tasks that were recovering from a kill |"
    echo "| --- | --- | --- | --- | --- |"
    for name in $machines; do
        says=$(cell "$name") sum=$work/$name
        echo "| $(sed -n 's/^release //p' "$sum") | $says | $(number kills "$sum") | $(number points "$sum") | $(number doubles "$sum") |"
    done
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
    machines=$(files_of 'aarch64-*' | sed 's/.*\///; s/\.txt$//' | sort -u)
    [ -n "$machines" ] || return 0
    echo
    echo "| kernel for aarch64 | model of QEMU's processors | processors | | kills at random moments | stops and kills at chosen instructions |"
    echo "| --- | --- | --- | --- | --- | --- |"
    for name in $machines; do
        says=$(cell "$name") sum=$work/$name
        of() { sed -n "s/^$1 //p" "$sum"; }
        model=$(of cpu)
        echo "| $(of release) | ${model:-max} | $(of processors) | $says | $(number kills "$sum") | $(number points "$sum") |"
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
        made=$work/made
        table >"$made"
        awk -v begin="$begin" -v end="$end" -v made="$made" '
            $0 == begin { while ((getline line < made) > 0) print line; inside = 1; next }
            $0 == end { inside = 0; next }
            !inside' "$document" >"$document.new"
        mv "$document.new" "$document"
        ;;
    *) echo "table.sh [print|check|write]" >&2; exit 2 ;;
esac
