#!/bin/sh
# The models of larger bounds: visits all their states, and writes how many they are to results/models/DAY.json (or to the
# file that the first argument names). LATCHWORK_MODEL_STATES is the most states of a model (10^9); the largest ones have
# some 6.5·10^8, and take 14 GB. No part of the other checks.
. "$(dirname "$0")/lib.sh"
result=${1:-results/models/$(date -u +%F).json}
mkdir -p "$(dirname "$result")"
lines=$(mktemp)
trap 'rm -f "$lines"' EXIT
LATCHWORK_MODEL_STATES=${LATCHWORK_MODEL_STATES:-1000000000} LATCHWORK_MODEL_REPORT=$lines \
    cargo test --release --locked -p latchwork-testkit --test models -- --nocapture --test-threads=1
{
    echo '{"schema": "latchwork-models/1",'
    echo " \"day\": \"$(date -u +%F)\", \"version\": \"$(git describe --always --dirty --abbrev=12)\","
    echo ' "models": ['
    sed 's/^/  /; $!s/$/,/' "$lines"
    echo ' ]}'
} > "$result"
cat "$result"
