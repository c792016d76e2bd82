#!/bin/sh
# All tests: the command of the README. And before it, so that the library's newest build is the usual one,
# which tests look at, those of the feature that changes all locks. (Of the workspace, so that what both stand on is
# built once.)
. "$(dirname "$0")/lib.sh"
say "tests"
cargo test --workspace --features latchwork/check --test check_feature --locked
cargo test --workspace --locked
