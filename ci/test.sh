#!/bin/sh
# All tests: the command of the README. And before it, so that the library's newest build is the usual one,
# which tests look at, those of the feature that changes all locks.
. "$(dirname "$0")/lib.sh"
say "tests"
cargo test -p latchwork --features check --test check_feature --locked
cargo test --workspace --locked
