#!/bin/sh
# The Debian packages in two fresh Debians, without network: a minimal one, which shows that the dependencies suffice, and
# one with compilers. In each the packages are installed, used, and removed, and the files before and after are compared.
. "$(dirname "$0")/../lib.sh"
cd ..
: "${out:?ci/release.sh calls this script}" "${work:?}" "${version:?}"
ls "$out"/debian/*.deb > /dev/null || { echo "no packages in $out/debian: run the step debian first" >&2; exit 1; }
release=$(. /etc/os-release && echo "${VERSION_CODENAME:?}")
mirror=$(ci/kernels/mirror.sh)
root=
end() {
    [ -z "$root" ] || rm -rf --one-file-system "$root"
}
trap end EXIT

# A fresh Debian with these packages, in $root.
fresh() { # package,…
    end
    root=$(mktemp -d)
    mmdebstrap --quiet --variant=minbase --include="$1" "$release" "$root" "$mirror"
    mkdir "$root/packages"
    cp "$out"/debian/*.deb "$root/packages"
    cp ci/release/use-*.sh "$root/packages"
}

# Runs a command in it: processes, mounts, shared memory and network of its own.
inside() {
    # shellcheck disable=SC2016
    unshare --mount --pid --ipc --net --fork sh -eu -c '
        root=$1; shift
        mount -t proc proc "$root/proc"
        mount -t tmpfs tmpfs "$root/dev"
        for node in null zero full random urandom tty; do
            : > "$root/dev/$node"
            mount --bind "/dev/$node" "$root/dev/$node"
        done
        mkdir "$root/dev/shm"
        mount -t tmpfs tmpfs "$root/dev/shm"
        ln -s /proc/self/fd "$root/dev/fd"
        cd "$root"
        exec env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LC_ALL=C.UTF-8 DEBIAN_FRONTEND=noninteractive \
            chroot "$root" "$@"' sh "$root" "$@"
}

# The files of the system, without the records of the package manager itself, its log and caches.
files() {
    (cd "$root" && find . -xdev \( -path ./packages -o -path ./proc -o -path ./dev -o -path ./tmp -o -path ./var/log \
        -o -path ./var/cache -o -path ./var/lib/dpkg \) -prune -o -print | sort)
}

check() { # script, package…
    script=$1; shift
    files > "$work/files-before"
    # shellcheck disable=SC2016
    inside sh -eu -c 'for name; do set -- "$@" "/packages/${name}_"*.deb; shift; done; dpkg -i "$@"' sh "$@"
    inside "/packages/$script" "$version"
    inside dpkg --purge "$@"
    files > "$work/files-after"
    diff "$work/files-before" "$work/files-after" || { echo "the removal left (>) or took (<) these files" >&2; exit 1; }
    if grep -l latchwork "$root"/var/lib/dpkg/status "$root"/var/lib/dpkg/info/* 2> /dev/null; then
        echo "the package manager still knows the packages" >&2
        exit 1
    fi
    echo "removed: nothing is left"
}

say "a minimal Debian $release: the command"
fresh man-db
check use-command.sh latchwork liblatchwork0.1
say "a Debian $release with compilers: the library"
fresh man-db,gcc,g++,libc6-dev,pkg-config,binutils
check use-library.sh liblatchwork0.1 liblatchwork-dev latchwork latchwork-dbgsym liblatchwork0.1-dbgsym
