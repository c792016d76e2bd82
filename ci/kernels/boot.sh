#!/bin/sh
# boot.sh ARCH IMAGE PROCESSORS LIMIT INITRAMFS…: runs a machine under QEMU, without KVM, until it switches itself off, and
# at most for LIMIT seconds; the status is 124 if it was stopped then. Its console is standard output. ARCH is what `uname -m` says. The archives of INITRAMFS are
# one after another, and the later ones win. MEMORY is the machine's memory (3G), CPU the model of its processors (max).
#
# A user-mode kernel is a program that needs no QEMU. It runs in a chroot, the folder `system` beside the image, which has
# its C library. PROCESSOR is the one of this machine that it runs on (any): its processes wait for each other at each
# system call, which takes twice as long between two processors.
set -eu
arch=$1 image=$2 processors=$3 limit=$4
shift 4
joined=$(mktemp)
trap 'rm -f "$joined"' EXIT
# With this script its machine ends.
machine=
trap '[ -z "$machine" ] || kill "$machine"; exit 143' INT TERM
cat "$@" >"$joined"
memory=${MEMORY:-3G}
status=0 begin=$(date +%s)
system=$(dirname "$image")/system
if [ -d "$system" ]; then
    user=
    [ "$(id -u)" = 0 ] || user=--map-root-user
    # In a process namespace of its own, so that each of its processes ends with it. It is not the first process there: a
    # kernel that panics aborts, which a first process cannot. Its memory is a file in TMPDIR.
    # shellcheck disable=SC2016 # expanded by the inner shell
    # shellcheck disable=SC2086 # a command, or nothing
    timeout -k 5 "$limit" ${PROCESSOR:+taskset -c "$PROCESSOR"} env -i HOME=/root TMPDIR=/dev/shm PATH=/usr/sbin:/usr/bin:/sbin:/bin \
        unshare $user --mount --pid --fork --kill-child sh -euc '
        mount -t proc proc "$1/proc"
        mount -t tmpfs tmpfs "$1/root"
        mount --rbind /dev "$1/dev"
        mount --bind "$2" "$1/initrd"
        status=0
        chroot "$1" /image "mem=$3" initrd=/initrd seccomp=auto con=null con0=null,fd:1 panic=-1 loglevel=4 log_buf_len=4M || status=$?
        exit "$status"
    ' sh "$system" "$joined" "$memory" </dev/null &
else
    # On x86-64 the kernel changes its own code when it begins or ends to trust the processors' counters, at which QEMU's
    # threads may fail: they execute an int3 of the change that is gone again. With two processors that did not happen where
    # it trusts them from the beginning; with eight it may trust them at no time, and reads clocks by system calls.
    tsc=reliable
    [ "$processors" -le 2 ] || tsc=unstable
    case $arch in
        # A host that lends QEMU little time delivers the timer's interrupts so late that the kernel takes the timer for broken.
        x86_64) console="ttyS0 tsc=$tsc no_timer_check" board=q35 ;;
        aarch64) console=ttyAMA0 board=virt,gic-version=3 ;;
        *) echo "no machine for $arch" >&2; exit 2 ;;
    esac
    model=${CPU:-max}
    # The signatures of pointers by the architecture's own algorithm take most of the time of a kernel under QEMU.
    [ "$arch-$model" != aarch64-max ] || model=max,pauth-impdef=on
    timeout -k 5 "$limit" "qemu-system-$arch" -machine "$board" -accel tcg,thread=multi -cpu "$model" -smp "$processors" \
        -m "$memory" -nographic -nodefaults -serial stdio -no-reboot -kernel "$image" -initrd "$joined" \
        -append "console=$console panic=-1 loglevel=4 mitigations=off random.trust_cpu=on" </dev/null &
fi
machine=$!
wait "$machine" || status=$?
# A machine that ignores SIGTERM is killed.
if [ "$status" = 137 ] && [ $(($(date +%s) - begin)) -ge "$limit" ]; then status=124; fi
[ "$status" != 124 ] || printf '\n@@ late\n'
exit "$status"
