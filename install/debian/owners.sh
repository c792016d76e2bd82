#!/bin/sh
# owners.sh FOLDER: for each file that an install.sh has put into FOLDER/debian/tmp (with --prefix /usr), prints the file
# and the Debian packages whose list (*.install) names it, or `not-installed`.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
cd "$1"
{
    for list in "$here"/*.install "$here/not-installed"; do
        echo "list $(basename "$list" .install)"
        # As debhelper does: a list that is a program prints the list.
        if [ -x "$list" ]; then "$list"; else cat "$list"; fi
    done
    echo files
    cat debian/tmp/usr/share/latchwork/installed*
    find debian/tmp/usr/share/latchwork -type f | sed 's|^debian/tmp||'
} | awk '
$1 == "list" { list = $2; next }
$1 == "files" { list = ""; next }
list != "" {
    # A pattern of the shell as a regular expression. A directory stands for what is in it.
    gsub(/[.]/, "[.]"); gsub(/[*]/, ".*")
    count++; pattern[count] = "^/" $0 "(/.*)?$"; owner[count] = list
    next
}
{
    line = $0
    for (at = 1; at <= count; at++) if ($0 ~ pattern[at]) line = line " " owner[at]
    print line
}'
