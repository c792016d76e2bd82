# Sourced by the `install.sh` of the command and of the C library, which have set: prefix, destdir, list (a file with
# the names of the installed files), keep_debug (not empty: put_stripped strips nothing).

# Installs a file, and adds it to the list.
put() { # mode, from, to
    mkdir -p "$destdir$(dirname "$3")"
    # Removed first, so that a program that runs, or a loaded library, is not changed.
    rm -f "$destdir$3"
    install -m "$1" "$2" "$destdir$3"
    echo "$3" >> "$list"
}

# Installs a program or library without its debug information, which goes to `.debug` in the same directory: debuggers
# search it there, by the link that the file keeps (.gnu_debuglink).
put_stripped() { # mode, from, to
    put "$1" "$2" "$3"
    [ -z "$keep_debug" ] || return 0
    objcopy=${OBJCOPY:-objcopy}
    if ! command -v "$objcopy" > /dev/null; then
        echo "install.sh: $objcopy not found: $3 keeps its debug information" >&2
        return 0
    fi
    directory=$(dirname "$3")/.debug
    debug=$directory/$(basename "$3").debug
    mkdir -p "$destdir$directory"
    rm -f "$destdir$debug"
    "$objcopy" --only-keep-debug "$2" "$destdir$debug"
    chmod 644 "$destdir$debug"
    echo "$debug" >> "$list"
    rm -f "$destdir$3"
    # The link holds a checksum of the file that it names.
    "$objcopy" --strip-unneeded --add-gnu-debuglink="$destdir$debug" "$2" "$destdir$3"
    chmod "$1" "$destdir$3"
}

# Installs a page that refers to another one, unless a page of another package has that name.
put_link() { # section, name, page
    link=$prefix/share/man/man$1/$2.$1
    if [ -e "$destdir$link" ]; then
        case $(head -c 200 "$destdir$link") in
            ".so man$1/"*) ;;
            *) echo "install.sh: $link exists already, and was not replaced" >&2; return 0 ;;
        esac
    fi
    mkdir -p "$destdir$prefix/share/man/man$1"
    rm -f "$destdir$link"
    echo ".so man$1/$3" > "$destdir$link"
    chmod 644 "$destdir$link"
    echo "$link" >> "$list"
}

# Removes the listed files, and the directories that are then empty.
remove_installed() {
    [ -f "$list" ] || { echo "nothing is installed in $destdir$prefix" >&2; exit 1; }
    while IFS= read -r file; do rm -f "$destdir$file"; done < "$list"
    while IFS= read -r file; do
        case $file in
            */.debug/*) rmdir "$destdir$(dirname "$file")" 2> /dev/null || true ;;
        esac
    done < "$list"
    rm -f "$list"
}

# Whether a list of directories, separated by colons, contains this one.
has_path() { # list, directory
    case ":$1:" in
        *":$2:"*) return 0 ;;
    esac
    return 1
}

# Prints a required setting, after a heading before the first one.
has_heading=
must() { # line
    [ -n "$has_heading" ] || echo "Installed in $prefix. These settings are required for the system to find all of it:"
    has_heading=yes
    printf '  %s\n' "$1"
}

# Prints the setting by which `man` finds the pages, if it needs one.
must_find_manual() {
    command -v manpath > /dev/null || return 0
    has_path "$(manpath -q 2> /dev/null)" "$prefix/share/man" \
        || must "export MANPATH=\"$prefix/share/man:\${MANPATH:-}\""
}
