# Sourced by the `install.sh` of the command and of the C library. They have set: prefix, destdir, list (a file that
# names what is installed).

# Installs a file, and notes it.
put() { # mode, from, to
    mkdir -p "$destdir$(dirname "$3")"
    # Removed first: what runs, or is loaded, stays as it is.
    rm -f "$destdir$3"
    install -m "$1" "$2" "$destdir$3"
    echo "$3" >> "$list"
}

# Installs a program or library without its debug information. That goes into `.debug` beside it, where debuggers
# look for it by the link that stays (.gnu_debuglink).
put_stripped() { # mode, from, to
    put "$1" "$2" "$3"
    objcopy=${OBJCOPY:-objcopy}
    if ! command -v "$objcopy" > /dev/null; then
        echo "install.sh: $objcopy is not there: $3 keeps its debug information" >&2
        return 0
    fi
    folder=$(dirname "$3")/.debug
    debug=$folder/$(basename "$3").debug
    mkdir -p "$destdir$folder"
    rm -f "$destdir$debug"
    "$objcopy" --only-keep-debug "$2" "$destdir$debug"
    chmod 644 "$destdir$debug"
    echo "$debug" >> "$list"
    rm -f "$destdir$3"
    # The link holds a checksum of the file that it names.
    "$objcopy" --strip-unneeded --add-gnu-debuglink="$destdir$debug" "$2" "$destdir$3"
    chmod "$1" "$destdir$3"
}

# Installs a page that stands for another one, unless somebody else's page has that name.
put_link() { # section, name, page
    link=$prefix/share/man/man$1/$2.$1
    if [ -e "$destdir$link" ]; then
        case $(head -c 200 "$destdir$link") in
            ".so man$1/"*) ;;
            *) echo "install.sh: $link is there already, and stays" >&2; return 0 ;;
        esac
    fi
    mkdir -p "$destdir$prefix/share/man/man$1"
    rm -f "$destdir$link"
    echo ".so man$1/$3" > "$destdir$link"
    chmod 644 "$destdir$link"
    echo "$link" >> "$list"
}

# Removes what the list names, and the folders that are empty then.
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

# Whether a list of directories, separated by colons, has this one.
has_path() { # list, directory
    case ":$1:" in
        *":$2:"*) return 0 ;;
    esac
    return 1
}

# Says, once, that there is something to set.
told=
must() { # line
    [ -n "$told" ] || echo "Installed in $prefix, where it is not all found without these settings:"
    told=yes
    printf '  %s\n' "$1"
}

# What `man` needs to find the pages.
must_find_manual() {
    command -v manpath > /dev/null || return 0
    has_path "$(manpath -q 2> /dev/null)" "$prefix/share/man" \
        || must "export MANPATH=\"$prefix/share/man:\${MANPATH:-}\""
}
