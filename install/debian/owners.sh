#!/bin/sh
# owners.sh FOLDER: for each file that an install.sh has put into FOLDER/debian/tmp (with --prefix /usr), prints the file
# and the Debian packages whose list (*.install) names it, or `not-installed`.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
cd "$1"
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
patterns() { # list
    if [ -x "$1" ]; then "$1"; else cat "$1"; fi
}
names() { # list of patterns, file
    echo "$1" | while read -r pattern; do
        # A directory stands for what is in it. shellcheck disable=SC2254
        case $2 in
            $pattern | $pattern/*) echo yes; break ;;
        esac
    done
}
files=$(cat debian/tmp/usr/share/latchwork/installed* && cd debian/tmp && find usr/share/latchwork -type f | sed 's|^|/|')
for list in "$here"/*.install "$here/not-installed"; do
    patterns=$(patterns "$list")
    package=$(basename "$list" .install)
    echo "$files" | while read -r file; do
        [ -z "$(names "$patterns" "${file#/}")" ] || echo "$file $package"
    done
done | sort | awk '{ if ($1 != file) { if (NR > 1) print line; file = $1; line = $1 } line = line " " $2 } END { print line }' \
    > "$scratch/owned"
cat "$scratch/owned"
# Those that no list names.
echo "$files" | sort > "$scratch/files"
cut -d ' ' -f 1 "$scratch/owned" | comm -13 - "$scratch/files"
