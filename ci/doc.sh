#!/bin/sh
# The documentation builds without a warning.
. "$(dirname "$0")/lib.sh"
say "rustdoc"
RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps --locked
