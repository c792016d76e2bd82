#!/bin/sh
# Lints are errors, in all targets.
. "$(dirname "$0")/lib.sh"
say "clippy"
cargo clippy --workspace --all-targets --locked -- -D warnings
# The workspace's programs enable all features, so the library is checked once more without them.
cargo clippy -p latchwork -p latchwork-check -p latchwork-region -p latchwork-sync -p latchwork-sys --locked -- -D warnings
