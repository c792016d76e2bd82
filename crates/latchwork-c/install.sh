#!/bin/sh
# Installs the C library: headers, a static and a shared library, pkg-config's file, manual pages.
#
#     crates/latchwork-c/install.sh [--prefix DIR] [--destdir DIR] [--static-library FILE] [--no-man]
#                                  [--libdir DIR] [--keep-debug] [--static-only]
#     crates/latchwork-c/install.sh --uninstall [--prefix DIR] [--destdir DIR]
#
# Without --static-library the static library is built, with `cargo build --release`. The shared library is linked from
# it with $CC, or cc; its debug information goes to `.debug` in the same directory, or stays in the library with
# --keep-debug. With --static-only there is none: musl does not load libraries like this one. Libraries go to PREFIX/lib, or to the directory that --libdir names. At the end the script prints the
# settings that a PREFIX outside the search paths needs. PREFIX/share/latchwork/installed lists the installed files, for
# --uninstall. PREFIX may contain spaces: pkg-config then prints flags for a makefile, or for a shell's eval.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
prefix=/usr/local destdir= libdir= library= uninstall= man=yes keep_debug= static_only=
while [ $# -gt 0 ]; do
    case $1 in
        --prefix) prefix=$2; shift 2 ;;
        --destdir) destdir=$2; shift 2 ;;
        --libdir) libdir=$2; shift 2 ;;
        --static-library) library=$2; shift 2 ;;
        --keep-debug) keep_debug=yes; shift ;;
        --static-only) static_only=yes; shift ;;
        --no-man) man=; shift ;;
        --uninstall) uninstall=yes; shift ;;
        *) sed -n '2,12p' "$0" | sed 's/^# \{0,1\}//'; exit 2 ;;
    esac
done
libdir=${libdir:-$prefix/lib}
case $prefix in
    /*) ;;
    *) echo "install.sh: --prefix $prefix: not an absolute path" >&2; exit 2 ;;
esac
case $libdir in
    /*) ;;
    *) echo "install.sh: --libdir $libdir: not an absolute path" >&2; exit 2 ;;
esac
case $prefix$libdir in
    *[\"\'\$\\\`\#\|\&]* | *"
"*) echo "install.sh: --prefix $prefix, --libdir $libdir: pkg-config's file cannot contain this path, because of its special characters" >&2
        exit 2 ;;
esac
. "$here/../../install/lib.sh"
list=$destdir$prefix/share/latchwork/installed
if [ -n "$uninstall" ]; then
    remove_installed
    rmdir "$destdir$prefix/include/latchwork" "$destdir$prefix/share/latchwork" 2>/dev/null || true
    exit 0
fi
version=$(sed -n '/^\[workspace.package\]/,/^\[/s/^version = "\(.*\)"/\1/p' "$here/../../Cargo.toml")
soversion=${version%.*}
if [ -z "$library" ]; then
    (cd "$here/../.." && cargo build --release --locked -p latchwork-c)
    library=${CARGO_TARGET_DIR:-$here/../../target}/release/liblatchwork_c.a
fi
mkdir -p "$(dirname "$list")"
: > "$list"
for header in "$here"/include/*.h "$here"/include/*.hpp; do
    put 644 "$header" "$prefix/include/$(basename "$header")"
done
for header in "$here"/include/latchwork/*; do
    put 644 "$header" "$prefix/include/latchwork/$(basename "$header")"
done
put 644 "$library" "$libdir/liblatchwork.a"
shared=$(mktemp)
trap 'rm -f "$shared" "$shared.all" "$shared.names"' EXIT
if [ -n "$static_only" ]; then
    "${NM:-nm}" --defined-only "$library" 2> /dev/null
else
    # -Bsymbolic: a function of the same name in the program does not replace the library's own calls.
    ${CC:-cc} -shared -o "$shared" \
        -Wl,--whole-archive "$library" -Wl,--no-whole-archive \
        -Wl,--version-script="$here/latchwork.map" -Wl,-soname,"liblatchwork.so.$soversion" \
        -Wl,--build-id -Wl,--gc-sections -Wl,-Bsymbolic -Wl,-z,relro,-z,now -Wl,--no-undefined \
        -lpthread -ldl -lrt -lm -lgcc_s -lc
    put_stripped 755 "$shared" "$libdir/liblatchwork.so.$version"
    for link in "liblatchwork.so.$soversion" liblatchwork.so; do
        ln -sf "liblatchwork.so.$version" "$destdir$libdir/$link"
        echo "$libdir/$link" >> "$list"
    done
    "${NM:-nm}" -D --defined-only "$shared"
fi > "$shared.all"
sed -n 's/.* [TWi] \([^@]*\).*/\1/p' "$shared.all" > "$shared.names"
sed -e "s|@PREFIX@|$prefix|; s|@LIBDIR@|$libdir|; s|@INCLUDEDIR@|$prefix/include|; s|@VERSION@|$version|" \
    "$here/latchwork.pc.in" > "$shared"
put 644 "$shared" "$libdir/pkgconfig/latchwork.pc"
if [ -n "$man" ]; then
    for page in "$here"/../../man/*.3; do
        [ -f "$page" ] && put 644 "$page" "$prefix/share/man/man3/$(basename "$page")"
    done
    "$here/../../man/links.sh" < "$shared.names" > "$shared" || true
    while read -r name page; do
        [ "$name.3" = "$page" ] || put_link 3 "$name" "$page"
    done < "$shared"
fi
# Settings for a staged package depend on where it is installed.
[ -z "$destdir" ] || exit 0
if command -v pkg-config > /dev/null; then
    has_path "$(pkg-config --variable pc_path pkg-config):${PKG_CONFIG_PATH:-}" "$libdir/pkgconfig" \
        || must "export PKG_CONFIG_PATH=\"$libdir/pkgconfig:\${PKG_CONFIG_PATH:-}\""
fi
directories=$(PATH=$PATH:/sbin:/usr/sbin ldconfig -N -v 2> /dev/null | sed -n 's/^\(\/[^:]*\):.*/\1/p' | tr '\n' ':') || true
if has_path "$directories" "$libdir"; then
    must "ldconfig        # as root: the dynamic linker's cache"
elif ! has_path "${LD_LIBRARY_PATH:-}" "$libdir"; then
    must "export LD_LIBRARY_PATH=\"$libdir:\${LD_LIBRARY_PATH:-}\""
    must "    # or link programs with -Wl,-rpath,'$libdir'"
fi
[ -z "$man" ] || must_find_manual
exit 0
