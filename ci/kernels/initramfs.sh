#!/bin/sh
# initramfs.sh ARCH FOLDER OUT < PROGRAMS: makes an initramfs for ARCH (as `uname -m` says it) of programs of this
# repository. Standard input has one path in each line. A program, an interposer and the command get the path that they
# have here, so that paths which are compiled into tests are right. With them come the libraries that they need, the
# repository's sources, busybox, and a C compiler where one is installed. FOLDER is a working directory.
#
# Variables for another processor than this machine's: SYSROOT, where its libraries lie (with usr/lib/TRIPLET or
# lib/TRIPLET in it), BUSYBOX, its static busybox, STRIP, a strip for its programs, and COMPILER, a file with the
# paths that its compiler consists of (empty: none).
set -eu
arch=$1 folder=$2 out=$3
here=$(cd "$(dirname "$0")" && pwd)
repository=$(cd "$here/../.." && pwd)
sysroot=${SYSROOT:-} strip=${STRIP:-strip} busybox=${BUSYBOX:-$(command -v busybox)}
tree=$folder/tree
rm -rf "$tree"
mkdir -p "$tree"

# The folders are those of a system with a merged /usr.
for name in bin sbin lib lib64; do
    mkdir -p "$tree/usr/$name"
    ln -s "usr/$name" "$tree/$name"
done
mkdir -p "$tree/dev" "$tree/proc" "$tree/sys" "$tree/tmp" "$tree/etc" "$tree/root" "$tree/run" "$tree/var/tmp"
chmod 1777 "$tree/tmp" "$tree/var/tmp"
printf 'root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/false\n' >"$tree/etc/passwd"
printf 'root:x:0:\nnogroup:x:65534:\n' >"$tree/etc/group"
cp "$busybox" "$tree/usr/bin/busybox"

# Copies a file to the path that it has here; links in the path of its folder are followed.
add() {
    to=$(dirname "$1")
    case $to in
        /bin* | /sbin* | /lib*) to=/usr$to ;;
    esac
    mkdir -p "$tree$to"
    cp -P "$sysroot$1" "$tree$to/"
    if [ -L "$sysroot$1" ]; then
        target=$(readlink "$sysroot$1")
        case $target in
            /*) add_once "$target" ;;
            *) add_once "$(realpath -ms "$(dirname "$1")/$target")" ;;
        esac
    fi
}
added=$folder/added
: >"$added"
add_once() {
    grep -qxF "$1" "$added" && return
    echo "$1" >>"$added"
    if [ -e "$sysroot$1" ]; then add "$1"; fi
}

# Adds what a program is linked with: its loader, its libraries, and theirs.
libraries_of() {
    loader=$(readelf -lW "$1" 2>/dev/null | sed -n 's/.*program interpreter: \(.*\)]/\1/p')
    [ -z "$loader" ] || add_library "$loader"
    for needed in $(readelf -dW "$1" 2>/dev/null | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p'); do
        for directory in "/lib/$arch-linux-gnu" "/usr/lib/$arch-linux-gnu" /lib64 /lib /usr/lib; do
            if [ -e "$sysroot$directory/$needed" ]; then
                add_library "$directory/$needed"
                break
            fi
        done
    done
}
add_library() {
    grep -qxF "$1" "$added" && return
    add_once "$1"
    libraries_of "$sysroot$1"
}

# The programs, without what only a debugger needs.
while read -r program; do
    mkdir -p "$tree$(dirname "$program")"
    "$strip" -g -o "$tree$program" "$program"
    libraries_of "$program"
done

# Gives the kernel's threads priorities (see init).
if [ -e "$sysroot/usr/bin/chrt" ]; then
    add_once /usr/bin/chrt
    libraries_of "$sysroot/usr/bin/chrt"
fi

# Where tests look for the sources.
mkdir -p "$tree$repository"
git -C "$repository" ls-files crates examples install man Cargo.toml |
    (cd "$repository" && cpio -pdm --quiet "$tree$repository")

# The compiler: what its packages consist of, but for what recompiles whole programs at link time and for sanitizers.
compiler=${COMPILER-$folder/compiler}
if [ -z "${COMPILER+set}" ]; then
    : >"$compiler"
    if command -v cc >/dev/null && command -v dpkg >/dev/null; then
        "$here/compiler.sh" >"$compiler"
    fi
fi
if [ -n "$compiler" ]; then
    # (busybox need not have the program by which the C library is installed.)
    if [ -e "$sysroot/usr/bin/install" ]; then
        add_once /usr/bin/install
        libraries_of "$sysroot/usr/bin/install"
    fi
    # Links one by one, since what they point to is added, too; all others at once, which takes seconds, not minutes.
    while read -r file; do
        if [ -L "$sysroot$file" ]; then add_once "$file"; elif [ -f "$sysroot$file" ]; then echo "${file#/}"; fi
    done <"$compiler" >"$folder/plain"
    tar -c -C "$sysroot/" -T "$folder/plain" --transform 's#^\(bin\|sbin\|lib[^/]*\)/#usr/\1/#' | tar -x -C "$tree"
    sed -n 's/^\(.*\/\(cc1\|cc1plus\|collect2\|as\|ld\|ld.bfd\|gcc\|g++\)\)$/\1/p' "$compiler" |
        while read -r file; do libraries_of "$sysroot$file"; done
fi

cp "$here/init" "$tree/init"
chmod +x "$tree/init"
(cd "$tree" && find . | cpio -o -H newc --quiet) >"$out.new"
mv "$out.new" "$out"
