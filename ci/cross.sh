#!/bin/sh
# The workspace compiles for aarch64, and for musl. Each needs its target (`rustup target add`), musl also Debian's
# musl-tools, and is skipped by name without it. (ci/libc.sh runs the tests for musl.)
. "$(dirname "$0")/lib.sh"
for target in aarch64-unknown-linux-gnu x86_64-unknown-linux-musl; do
    say "check for $target"
    if [ ! -d "$(rustc --print sysroot)/lib/rustlib/$target/lib" ]; then
        echo "skipped: the standard library for $target is not installed (rustup target add $target)"
    elif [ "${target%musl}" != "$target" ] && ! command -v musl-gcc >/dev/null; then
        echo "skipped: musl-gcc is not installed (Debian's package musl-tools)"
    else
        cargo check --workspace --locked --target "$target"
    fi
done
