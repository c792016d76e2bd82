#!/bin/sh
# Installs the command with the libraries that `latchwork run` loads into programs, which `cargo install` does not install.
#
#     crates/latchwork-cli/install.sh [--prefix DIR] [--destdir DIR] [--built DIR] [--no-man]
#                                    [--keep-debug]     # debug information stays in the files
#     crates/latchwork-cli/install.sh --uninstall [--prefix DIR] [--destdir DIR]
#
# The command goes to PREFIX/bin, the libraries to PREFIX/lib/latchwork, where the command searches them, and the debug
# information of each to `.debug` in the same directory. (So a command from `cargo install` finds them if PREFIX is
# ~/.cargo.) The completions of bash, fish and zsh go to PREFIX/share. PREFIX is /usr/local by default. --built names a directory such as target/release; without it, all is built
# with `cargo build --release`. At the end the script prints the settings that a PREFIX outside the search paths needs.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
prefix=/usr/local destdir= built= uninstall= man=yes keep_debug=
while [ $# -gt 0 ]; do
    case $1 in
        --prefix) prefix=$2; shift 2 ;;
        --destdir) destdir=$2; shift 2 ;;
        --built) built=$2; shift 2 ;;
        --no-man) man=; shift ;;
        --keep-debug) keep_debug=yes; shift ;;
        --uninstall) uninstall=yes; shift ;;
        *) sed -n '2,11p' "$0" | sed 's/^# \{0,1\}//'; exit 2 ;;
    esac
done
case $prefix in
    /*) ;;
    *) echo "install.sh: --prefix $prefix: not an absolute path" >&2; exit 2 ;;
esac
. "$here/../../install/lib.sh"
list=$destdir$prefix/share/latchwork/installed-command
if [ -n "$uninstall" ]; then
    remove_installed
    rmdir "$destdir$prefix/lib/latchwork" "$destdir$prefix/share/latchwork" 2> /dev/null || true
    exit 0
fi
if [ -z "$built" ]; then
    (cd "$here/../.." && cargo build --release --locked -p latchwork-cli)
    built=${CARGO_TARGET_DIR:-$here/../../target}/release
fi
mkdir -p "$(dirname "$list")"
: > "$list"
put_stripped 755 "$built/latchwork" "$prefix/bin/latchwork"
# As dependencies of the command they are in `deps`; in its own directory may be an earlier build.
for library in liblatchwork_preload.so liblatchwork_preload_check.so; do
    for from in "$built/deps/$library" "$built/$library"; do [ -f "$from" ] && break; done
    put_stripped 644 "$from" "$prefix/lib/latchwork/$library"
done
if [ -n "$man" ]; then
    put 644 "$here/../../man/latchwork.1" "$prefix/share/man/man1/latchwork.1"
    for verb in $(sed -n 's/^\.SH "LATCHWORK \(.*\)"/\1/p' "$here/../../man/latchwork.1"); do
        put_link 1 "latchwork-$(echo "$verb" | tr '[:upper:]' '[:lower:]')" latchwork.1
    done
fi
# Shells search these directories, in /usr and /usr/local.
script=$(mktemp)
for shell in bash fish zsh; do
    case $shell in
        bash) to=bash-completion/completions/latchwork ;;
        fish) to=fish/vendor_completions.d/latchwork.fish ;;
        zsh) to=zsh/site-functions/_latchwork ;;
    esac
    if "$built/latchwork" completions $shell > "$script"; then
        put 644 "$script" "$prefix/share/$to"
    else
        echo "install.sh: $built/latchwork does not run here: no completions for $shell" >&2
    fi
done
rm -f "$script"
# Settings for a staged package depend on where it is installed.
[ -z "$destdir" ] || exit 0
has_path "$PATH" "$prefix/bin" || must "export PATH=\"$prefix/bin:\$PATH\""
[ -z "$man" ] || must_find_manual
case $prefix in
    /usr | /usr/local) ;;
    *) ! command -v zsh > /dev/null || must "fpath+=(\"$prefix/share/zsh/site-functions\")  # in ~/.zshrc, before compinit" ;;
esac
exit 0
