#!/bin/sh
# Formatting is rustfmt's.
. "$(dirname "$0")/lib.sh"
say "rustfmt"
cargo fmt --all --check
