#!/bin/sh
# All tests: the command of the README.
. "$(dirname "$0")/lib.sh"
say "tests"
cargo test --workspace --locked
