#!/bin/sh
# inside.sh ROOT KIND LIST LOG: runs the test programs of LIST (name, limit in seconds, program, arguments) in the system at
# ROOT, in which the repository and the programs have the paths that they have here, and prints the lines of a result
# (see kernels/collect.sh). All output goes to LOG. The system is the root of a mount namespace and of a PID namespace, with
# a /tmp and a /dev/shm of its own.
set -eu
root=$1 kind=$2 list=$3 log=$4
here=$(cd "$(dirname "$0")" && pwd)
repository=$(cd "$here/../.." && pwd)
programs=$(cut -d' ' -f3 "$list" | sed 's/\/[^/]*$//' | sort -u)

export root kind list repository programs
export LATCHWORK_KILLS="${LATCHWORK_KILLS:-0.05}" LATCHWORK_MESSAGES="${LATCHWORK_MESSAGES:-2000}"
export LATCHWORK_WATCHDOG="${LATCHWORK_WATCHDOG:-300}" LATCHWORK_STRESS_SECONDS="${LATCHWORK_STRESS_SECONDS:-3}"
unshare --mount --pid --fork --kill-child sh -euc '
    mount --make-rprivate /
    mount --bind "$root" "$root"
    # The tests write files beside their programs.
    for folder in "$repository" $programs; do
        mkdir -p "$root$folder"
        mount --bind "$folder" "$root$folder"
        # (The tests make their folders in "tmp" beside that of the programs.)
        scratch=$(dirname "$(dirname "$folder")")/tmp
        if [ "$folder" != "$repository" ]; then
            mkdir -p "$scratch" "$root$scratch"
            mount --bind "$scratch" "$root$scratch"
        fi
    done
    mount -t proc proc "$root/proc"
    mount --bind /sys "$root/sys"
    mount --rbind /dev "$root/dev"
    mount -t tmpfs -o mode=1777 tmpfs "$root/dev/shm"
    mount -t tmpfs -o mode=1777 tmpfs "$root/tmp"
    mkdir -p "$root/tmp/run"
    cp "$list" "$root/tmp/run/list"
    cp "'"$here"'/init" "$root/tmp/run/init"
    # As in the first process of a machine: not only a chroot, in which no user namespace can be made.
    cd "$root"
    mount --move . /
    exec chroot . /usr/bin/env -i PATH=/usr/bin:/usr/sbin:/bin HOME=/root TMPDIR=/tmp LANG=C.UTF-8 KIND="$kind" \
        REPOSITORY="$repository" LATCHWORK_KILLS="$LATCHWORK_KILLS" LATCHWORK_MESSAGES="$LATCHWORK_MESSAGES" \
        LATCHWORK_WATCHDOG="$LATCHWORK_WATCHDOG" LATCHWORK_STRESS_SECONDS="$LATCHWORK_STRESS_SECONDS" /bin/sh /tmp/run/init
' >"$log" 2>&1 || true
"$here/../kernels/collect.sh" "$log" 0 <<END
$(cut -d' ' -f1 "$list")
END
