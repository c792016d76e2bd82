#!/bin/sh
# third-party.sh FILE: writes the licences of the crates that the command and the C library contain.
. "$(dirname "$0")/../lib.sh"
cd ..
config=$(mktemp -d)
trap 'rm -rf "$config"' EXIT
{
    # One list, for this and for cargo-deny.
    sed -n 's/^allow = /accepted = /p' deny.toml
    echo 'ignore-dev-dependencies = true'
    echo 'ignore-build-dependencies = true'
    echo 'targets = ["x86_64-unknown-linux-gnu"]'
} > "$config/about.toml"
# Offline it takes the texts that the crates themselves contain, and asks no service.
cargo fetch --locked --quiet
cargo about generate --frozen --fail -c "$config/about.toml" --manifest-path crates/latchwork-cli/Cargo.toml \
    -o "$1" ci/release/third-party.hbs
