#!/bin/sh
# fetch.sh ARCH CACHE KERNEL: fetches a kernel of list.txt for ARCH (Debian's name: amd64, arm64) as a Debian package.
# Nothing is installed: apt's lists and state lie in CACHE. The mirror is the one of this machine's apt configuration;
# only the suite differs. Prints the path of the kernel's image, beside which lie the files `release` and `config` (the
# latter where Debian has it in the same package). A kernel that is in the cache is not fetched again; remove CACHE to
# get newer ones.
set -eu
arch=$1 cache=$2 kernel=$3
here=$(cd "$(dirname "$0")" && pwd)

line=$(sed -n "/^#/d; s/  */ /g; /^$kernel /p" "$here/list.txt")
[ -n "$line" ] || { echo "no kernel $kernel in $here/list.txt" >&2; exit 2; }
# shellcheck disable=SC2086 # words of the line
set -- $line
suite=$2 meta=$(echo "$3" | sed "s/ARCH/$arch/")

folder=$cache/$arch/$kernel
if [ -f "$folder/image" ] && [ -f "$folder/release" ]; then
    echo "$folder/image"
    exit
fi

apt=$cache/apt/$arch-$suite
mkdir -p "$apt/lists/partial" "$apt/archives/partial" "$apt/packages"
# The keyring has the keys of all suites, so the suites need no keys of their own.
mirror=$("$here/mirror.sh")
keyring=/usr/share/keyrings/debian-archive-keyring.gpg
{
    echo "deb [arch=$arch signed-by=$keyring] $mirror $suite main"
    # Experimental is incomplete without sid.
    if [ "$suite" = experimental ]; then echo "deb [arch=$arch signed-by=$keyring] $mirror sid main"; fi
} >"$apt/sources.list"
: >"$apt/status"
with_lists() {
    command=$1
    shift
    "$command" -o "APT::Architecture=$arch" -o "APT::Architectures::=$arch" -o "Dir::State=$apt" \
        -o "Dir::State::Lists=$apt/lists" -o "Dir::State::status=$apt/status" -o "Dir::Cache=$apt" \
        -o "Dir::Etc::SourceList=$apt/sources.list" -o Dir::Etc::SourceParts=/dev/null -o Dir::Etc::Preferences=/dev/null \
        -o Dir::Etc::PreferencesParts=/dev/null -o APT::Sandbox::User=root -o Acquire::Languages=none "$@"
}
[ -f "$apt/updated" ] || { with_lists apt-get update >&2 && touch "$apt/updated"; }

download() { (cd "$apt/packages" && with_lists apt-get download "$1" >&2); }
if [ "$meta" = user-mode-linux ]; then
    # A program, and the C library of its suite, which may be newer than this machine's.
    package=$meta libraries="libc6 libgcc-s1"
else
    # The metapackage names the image of one version; that image is a package, or in newer versions depends on one whose
    # name begins with linux-binary.
    version=$(with_lists apt-cache policy "$meta" | sed -n "s/^ *Version table:.*//; s/^ [ *]* \([0-9][^ ]*\) [0-9-]*$/\1/p" | head -n 1)
    [ -n "$version" ] || { echo "$suite has no $meta" >&2; exit 1; }
    depends() {
        with_lists apt-cache show --no-all-versions "$1" | sed -n 's/^\(Pre-\)\{0,1\}Depends: //p' | tr ',|' '\n\n' |
            sed 's/^ *//; s/ .*//'
    }
    image=$(with_lists apt-cache show "$meta=$version" | sed -n 's/^Depends: //p' | tr ',|' '\n\n' | sed 's/^ *//; s/ .*//' |
        grep '^linux-image-' | head -n 1)
    binary=$(depends "$image" | grep '^linux-binary-' | head -n 1 || true)
    package=${binary:-$image} libraries=
fi
rm -rf "$folder" "$folder.new"
mkdir -p "$folder.new"
unpack() { download "$1" && dpkg-deb -x "$apt"/packages/"$1"_*.deb "$folder.new/x"; }
unpack "$package"
found=$(find "$folder.new/x" -type f \( -name 'vmlinuz*' -o -name 'vmlinux*' -o -name linux.uml \) | head -n 1)
[ -n "$found" ] || { echo "$package has no kernel image" >&2; exit 1; }
mv "$found" "$folder.new/image"
config=$(find "$folder.new/x" -type f -name 'config-*' | head -n 1)
[ -z "$config" ] || mv "$config" "$folder.new/config"
echo "$package" >"$folder.new/release"
rm -rf "$folder.new/x"
if [ -n "$libraries" ]; then
    for library in $libraries; do unpack "$library"; done
    system=$folder.new/system
    mkdir -p "$system/proc" "$system/dev" "$system/root" "$system/tmp" "$system/usr"
    : >"$system/initrd"
    for name in lib lib64; do
        mv "$folder.new/x/usr/$name" "$system/usr/"
        ln -s "usr/$name" "$system/$name"
    done
    ln "$folder.new/image" "$system/image"
fi
rm -rf "$folder.new/x" "$apt"/packages/*.deb
mv "$folder.new" "$folder"
echo "$folder/image"
