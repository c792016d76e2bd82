#!/bin/sh
# build-aarch64.sh OUT [ARGUMENT…]: builds the command and all test programs for aarch64, or what the arguments for
# `cargo test` name, and prints cargo's messages as JSON. Then it runs the test that reads the machine code for aarch64.
#
# The compiler, the standard library for aarch64 and the linker are those of Debian's suite sid: the packages have one
# version, and no other toolchain is needed. They lie in OUT/chroot, from a mirror of this machine's apt configuration;
# OUT/sysroot has what a machine with aarch64 needs: libc, and a C compiler for the tests that compile programs. Both are
# made once; remove them to get newer ones. The repository and OUT/target (or CARGO_TARGET_DIR) have the same paths inside
# the chroot as outside, since paths are compiled into tests. The crates come from cargo's own registry, fetched
# before, and the build makes no connection.
#
# OUT/settings then has the variables that initramfs.sh needs.
set -eu
out=$1
shift
[ $# != 0 ] || set -- --workspace
here=$(cd "$(dirname "$0")" && pwd)
repository=$(cd "$here/../.." && pwd)
target=aarch64-unknown-linux-gnu

for tool in mmdebstrap unshare chroot cargo apt-get; do
    command -v $tool >/dev/null || { echo "build-aarch64.sh: $tool is not installed" >&2; exit 1; }
done
[ "$(uname -m)" = x86_64 ] || { echo "build-aarch64.sh: it builds on x86-64" >&2; exit 1; }
[ "$(id -u)" = 0 ] || { echo "build-aarch64.sh: only root can mount in a chroot" >&2; exit 1; }
mkdir -p "$out"
out=$(cd "$out" && pwd)

# A system of sid, under a name that it gets when it is complete.
system() { # name, option…
    name=$1
    shift
    [ ! -d "$out/$name" ] || return 0
    # What this machine's apt is told of its mirror holds here, too.
    apt-config dump | grep -i -e '^Acquire::Check-Valid-Until ' -e '^Acquire::[a-z]*::Proxy ' >"$out/apt.conf" || true
    rm -rf "$out/$name.new"
    mmdebstrap --mode=root --aptopt="$out/apt.conf" --aptopt='Acquire::Languages "none"' \
        --dpkgopt='path-exclude=/usr/share/doc/*' --dpkgopt='path-exclude=/usr/share/man/*' \
        --dpkgopt='path-exclude=/usr/share/locale/*' "$@" sid "$out/$name.new" "$("$here/mirror.sh")" >&2
    mv "$out/$name.new" "$out/$name"
}
system chroot --variant=apt --architectures="$(dpkg --print-architecture),arm64" \
    --include=rustc,cargo,gcc,libc6-dev,gcc-aarch64-linux-gnu,g++-aarch64-linux-gnu,libstd-rust-dev:arm64
# Its programs are not run here: they are unpacked, and not configured.
system sysroot --variant=extract --architectures=arm64 \
    --include=base-files,dash,busybox-static,util-linux,gcc,g++,libc6-dev,libc-bin
ln -sf gcc "$out/sysroot/usr/bin/cc"
ln -sf g++ "$out/sysroot/usr/bin/c++"

# All of it goes into the machine but for what nothing uses there.
(cd "$out/sysroot" && find usr \( -type f -o -type l \)) | sed 's/^/\//' |
    grep -v -e '^/usr/share/' -e '^/usr/sbin/' -e '/gconv/' -e '/lto1$' -e 'lto-dump' -e 'gcov' -e 'gprof' -e 'san\.so' \
        -e 'san\(_preinit\)\{0,1\}\.[ao]$' -e '/perl' -e '/libbabeltrace' -e '/debconf' >"$out/compiler"
cat >"$out/settings" <<EOF
export SYSROOT=$out/sysroot BUSYBOX=$out/sysroot/usr/bin/busybox COMPILER=$out/compiler
export STRIP=$out/strip
EOF

# A command in the chroot, in the repository.
inside() {
    PROFILE="$(env | grep '^CARGO_PROFILE_DEV_\(DEBUG\|OPT_LEVEL\)=[a-z0-9-]*$' | tr '\n' ' ')" \
        ROOT=$out/chroot REPOSITORY=$repository TARGET=${CARGO_TARGET_DIR:-$out/target} \
        REGISTRY=${CARGO_HOME:-$HOME/.cargo}/registry unshare -m sh -euc '
        mkdir -p "$TARGET" "$ROOT$TARGET" "$ROOT$REPOSITORY" "$ROOT/cargo/registry"
        mount --make-rprivate /
        mount --bind "$REPOSITORY" "$ROOT$REPOSITORY"
        mount --bind "$TARGET" "$ROOT$TARGET"
        mount --bind "$REGISTRY" "$ROOT/cargo/registry"
        mount --bind /dev "$ROOT/dev"
        mount -t proc proc "$ROOT/proc"
        exec chroot "$ROOT" /usr/bin/env -i -C "$REPOSITORY" PATH=/usr/bin:/usr/sbin HOME=/root CARGO_HOME=/cargo \
            CARGO_NET_OFFLINE=true CARGO_INCREMENTAL=0 CARGO_TARGET_DIR="$TARGET" $PROFILE \
            CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER=aarch64-linux-gnu-gcc "$@"' inside "$@"
}
cat >"$out/strip" <<EOF
#!/bin/sh
# The chroot's strip for aarch64, with the chroot's libraries.
exec "$out/chroot/lib64/ld-linux-x86-64.so.2" --library-path "$out/chroot/usr/lib/x86_64-linux-gnu" \\
    "$out/chroot/usr/bin/aarch64-linux-gnu-strip" "\$@"
EOF
chmod +x "$out/strip"

(cd "$repository" && cargo fetch --locked >&2)
inside cargo test "$@" --locked --no-run --message-format=json --target "$target"
# The machine code of the fast paths is read here, where the compiler is.
inside cargo test -p latchwork --locked --test fast_path -- --nocapture >&2
