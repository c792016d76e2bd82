#!/bin/sh
# Two containers of an engine share a region, in each of the ways that docs/containers.md shows. One is killed while it holds
# the region's lock; the other learns of that from the lock.
#
#     examples/regions/engine.sh docker|podman PROGRAM
#
# PROGRAM is containers.c, linked statically: it is all that the image contains. Podman also runs the manifest pod.yaml.
# Exit status: 0: it worked. 77: the engine can run no container here. Otherwise it failed.
set -eu
engine=$1
program=$2
here=$(cd "$(dirname "$0")" && pwd)
scratch=$(mktemp -d)
shared=$(mktemp -d /dev/shm/engine-XXXXXX)
tag=latchwork-$$
# (The first one's memory may be what the second one depends on.)
remove() {
    "$engine" rm -f "$tag-two" && "$engine" rm -f "$tag-one"
}
end() {
    remove >/dev/null 2>&1 || true
    [ ! -e "$scratch/pod.yaml" ] || "$engine" kube down "$scratch/pod.yaml" >/dev/null 2>&1 || true
    "$engine" rmi -f "$tag" >/dev/null 2>&1 || true
    rm -rf "$scratch" "$shared"
}
trap end EXIT
trap 'exit 1' HUP INT TERM

# Waits for a line in the output of a container, at most 60 seconds.
wait_for() {
    tries=600
    until "$engine" logs "$2" 2>&1 | grep -q "$1"; do
        tries=$((tries - 1))
        if [ $tries -eq 0 ]; then
            "$engine" logs "$2" >&2
            echo "engine.sh: no process of $2 said that it $1" >&2
            exit 1
        fi
        sleep 0.1
    done
}

# Kills the container that holds the lock, and shows what the other one says.
kill_one() {
    wait_for "holds the lock" "$1"
    wait_for "waits for the lock" "$2"
    "$engine" kill "$1" >/dev/null
    wait_for "has repaired" "$2"
    "$engine" logs "$2" 2>&1 | sed "s|^|$3: |"
}

# Runs both containers with options of their own.
both() {
    "$engine" run -d --name "$tag-one" --network none "$2" "$tag" hold plant >/dev/null
    wait_for "holds the lock" "$tag-one"
    "$engine" run -d --name "$tag-two" --network none "$3" "$tag" take plant >/dev/null
    kill_one "$tag-one" "$tag-two" "$1"
    remove >/dev/null
}

cp "$program" "$scratch/containers"
printf 'FROM scratch\nCOPY containers /containers\nENTRYPOINT ["/containers"]\n' >"$scratch/Dockerfile"
"$engine" build -q -t "$tag" "$scratch" >"$scratch/said" 2>&1 || {
    echo "engine.sh: skipped: $engine cannot make an image here: $(tail -n 1 "$scratch/said")"
    exit 77
}
# Without arguments the program says how it is used, and returns 2.
status=0
"$engine" run --rm --network none "$tag" >"$scratch/said" 2>&1 || status=$?
if [ $status -ne 2 ]; then
    echo "engine.sh: skipped: $engine cannot run a container here: $(tail -n 1 "$scratch/said")"
    exit 77
fi

both "the /dev/shm of container one" --ipc=shareable "--ipc=container:$tag-one"
chmod 1777 "$shared"
both "a directory of the host" "--volume=$shared:/dev/shm" "--volume=$shared:/dev/shm"
if [ "$(basename "$engine")" = podman ]; then
    sed "s/name: plant$/name: $tag-pod/; s/image: containers/image: localhost\/$tag/" "$here/pod.yaml" >"$scratch/pod.yaml"
    # (From another directory than the program's: Podman takes a directory of the image's name for what it is to be built of.)
    (cd / && "$engine" kube play --network none "$scratch/pod.yaml") >"$scratch/said" 2>&1 || {
        echo "engine.sh: skipped: $engine cannot run a pod here: $(tail -n 1 "$scratch/said")"
        exit
    }
    kill_one "$tag-pod-one" "$tag-pod-two" "a pod"
fi
