#!/bin/sh
# Checks the workspace with the oldest compiler that Cargo.toml promises, if it is installed. (Clippy's lint
# `incompatible_msrv` finds newer functions of the standard library in any case, but no newer language.)
. "$(dirname "$0")/lib.sh"
say "oldest compiler"
oldest=$(sed -n 's/^rust-version = "\(.*\)"/\1/p' Cargo.toml)
if rustc --version | grep -q "^rustc $oldest\."; then
    cargo check --workspace --all-targets --locked
elif command -v rustup >/dev/null && rustup toolchain list | grep -q "^$oldest[.-]"; then
    cargo "+$oldest" check --workspace --all-targets --locked --target-dir target/oldest
else
    echo "skipped: Rust $oldest is not installed (rustup toolchain install $oldest)"
fi
