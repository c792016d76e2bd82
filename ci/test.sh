#!/bin/sh
# Runs all tests, by the command of the README. The tests of the feature `check`, which changes all locks, come before
# them: tests inspect the newest build of the library, which must be the usual one. (`--workspace` in both commands
# makes Cargo build their common dependencies once.)
. "$(dirname "$0")/lib.sh"
say "tests"
cargo test --workspace --features latchwork/check --test check_feature --locked
cargo test --workspace --locked
say "tests of deaths in regions, without futex_waitv"
"${CARGO_TARGET_DIR:-target}/debug/without_waitv" cargo test --workspace --locked --test region_scale --test region_deaths \
    --test unmarked_deaths --test kill_event
