#!/bin/sh
# The workspace compiles for the other architecture, aarch64. This needs `rustup target add aarch64-unknown-linux-gnu`.
. "$(dirname "$0")/lib.sh"
target=aarch64-unknown-linux-gnu
say "check for $target"
if [ -d "$(rustc --print sysroot)/lib/rustlib/$target/lib" ]; then
    cargo check --workspace --locked --target "$target"
else
    echo "skipped: the standard library for $target is not installed (rustup target add $target)"
fi
