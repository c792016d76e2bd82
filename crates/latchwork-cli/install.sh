#!/bin/sh
# Installs the command with the libraries that `latchwork run` loads into programs, which `cargo install` leaves out.
#
#     crates/latchwork-cli/install.sh [--prefix DIR] [--destdir DIR] [--built DIR]
#     crates/latchwork-cli/install.sh --uninstall [--prefix DIR] [--destdir DIR]
#
# The command goes to PREFIX/bin, the libraries to PREFIX/lib/latchwork, where it looks for them. (So a command from
# `cargo install` finds them if PREFIX is ~/.cargo.) PREFIX is /usr/local unless given. Without --built, a directory
# such as target/release, they are built, with `cargo build --release`.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
prefix=/usr/local destdir= built= uninstall=
while [ $# -gt 0 ]; do
    case $1 in
        --prefix) prefix=$2; shift 2 ;;
        --destdir) destdir=$2; shift 2 ;;
        --built) built=$2; shift 2 ;;
        --uninstall) uninstall=yes; shift ;;
        *) sed -n '2,9p' "$0" | sed 's/^# \{0,1\}//'; exit 2 ;;
    esac
done
libraries="liblatchwork_preload.so liblatchwork_preload_check.so"
if [ -n "$uninstall" ]; then
    rm -f "$destdir$prefix/bin/latchwork"
    for library in $libraries; do rm -f "$destdir$prefix/lib/latchwork/$library"; done
    rmdir "$destdir$prefix/lib/latchwork" 2>/dev/null || true
    exit 0
fi
if [ -z "$built" ]; then
    (cd "$here/../.." && cargo build --release --locked -p latchwork-cli)
    built=${CARGO_TARGET_DIR:-$here/../../target}/release
fi
mkdir -p "$destdir$prefix/bin" "$destdir$prefix/lib/latchwork"
# Removed first: what runs, or is loaded, stays as it is.
put() { # mode, from, to
    rm -f "$3"
    install -m "$1" "$2" "$3"
}
put 755 "$built/latchwork" "$destdir$prefix/bin/latchwork"
# As dependencies of the command they lie in `deps`; beside it may be an earlier build.
for library in $libraries; do
    for from in "$built/deps/$library" "$built/$library"; do [ -f "$from" ] && break; done
    put 644 "$from" "$destdir$prefix/lib/latchwork/$library"
done
