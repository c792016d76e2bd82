#!/bin/sh
# Runs the loom models: every interleaving within the bounds that each model names. Each model has negative twins, which
# must fail. LOOM_MAX_PREEMPTIONS sets one bound for all models, for a longer search.
. "$(dirname "$0")/lib.sh"
say "loom"
# Of the dependencies only loom and its generators take time, so only they are optimised.
RUSTFLAGS="${RUSTFLAGS:-} --cfg loom" cargo test -p latchwork --release --locked --target-dir target/loom \
    --config 'profile.release.package."*".opt-level=0' \
    --config 'profile.release.package.loom.opt-level=3' --config 'profile.release.package.generator.opt-level=3' \
    --test 'loom_*'
