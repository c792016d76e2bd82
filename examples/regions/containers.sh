#!/bin/sh
# Two PID namespaces share a region, as two containers do. One is killed as a whole while it holds the region's lock; the
# other learns of that from the lock.
#
#     examples/regions/containers.sh [PROGRAM]
#
# PROGRAM is containers.c, compiled. Without it, the script compiles it with $CC, or cc, against the library that pkg-config
# finds. unshare(1) takes the place of a container engine. Each namespace has a /proc of its own, and a directory of a tmpfs
# that both share at /dev/shm.
# Exit status: 0: it worked. 77: namespaces cannot be made here. Otherwise it failed.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
scratch=$(mktemp -d)
shared=$(mktemp -d /dev/shm/containers-XXXXXX)
holder= taker=
end() {
    # With the process of unshare, its namespace ends.
    [ -z "$holder" ] || kill -KILL "$holder" 2>/dev/null || true
    [ -z "$taker" ] || kill -KILL "$taker" 2>/dev/null || true
    rm -rf "$scratch" "$shared"
}
trap end EXIT
trap 'exit 1' HUP INT TERM

# Runs a command as the first process of a container that sees the shared directory at /dev/shm.
container() {
    exec unshare $user --pid --mount --mount-proc --kill-child \
        sh -c 'mount --bind "$0" /dev/shm && exec "$@"' "$shared" "$@"
}

# Waits for a line in a file, at most 60 seconds.
wait_for() {
    tries=600
    until grep -q "$1" "$2"; do
        tries=$((tries - 1))
        if [ $tries -eq 0 ] || ! kill -0 "$3" 2>/dev/null; then
            cat "$2" >&2
            echo "containers.sh: no process said that it $1" >&2
            exit 1
        fi
        sleep 0.1
    done
}

user=
[ "$(id -u)" -eq 0 ] || user=--map-root-user
if ! (container true) 2>"$scratch/refused"; then
    echo "containers.sh: skipped: unshare cannot make PID and mount namespaces here: $(cat "$scratch/refused")"
    exit 77
fi
if [ $# -gt 0 ]; then
    program=$1
else
    program=$scratch/containers
    # The flags are words.
    # shellcheck disable=SC2046
    ${CC:-cc} -std=c11 "$here/containers.c" $(pkg-config --cflags --libs latchwork) \
        -Wl,-rpath,"$(pkg-config --variable=libdir latchwork)" -lpthread -o "$program"
fi

: >"$scratch/one"
: >"$scratch/two"
(container "$program" hold example) >"$scratch/one" 2>&1 &
holder=$!
wait_for "holds the lock" "$scratch/one" "$holder"
(container "$program" take example) >"$scratch/two" 2>&1 &
taker=$!
wait_for "waits for the lock" "$scratch/two" "$taker"
kill -KILL "$holder"
wait "$holder" 2>/dev/null || true
holder=
status=0
wait "$taker" || status=$?
taker=
sed 's/^/container one: /' "$scratch/one"
echo "container one is killed"
sed 's/^/container two: /' "$scratch/two"
exit $status
