#!/bin/sh
# The code is formatted as rustfmt does it.
. "$(dirname "$0")/lib.sh"
say "rustfmt"
cargo fmt --all --check
