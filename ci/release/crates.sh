#!/bin/sh
# The crates as they would be published: Cargo builds each from its package, with the others as packages. Then the
# command is installed from the packages, in a directory outside of the repository, and used.
. "$(dirname "$0")/../lib.sh"
cd ..
: "${out:?ci/release.sh calls this script}" "${work:?}" "${version:?}"
rm -rf "$out/crates"
mkdir -p "$out/crates"
rm -rf "$CARGO_TARGET_DIR/package"
cargo publish --workspace --dry-run --locked
find "$CARGO_TARGET_DIR/package" -name '*.crate' -exec cp {} "$out/crates" \;

say "the command, from the packages"
elsewhere=$(mktemp -d)
trap 'rm -rf "$elsewhere"' EXIT
packages=
for package in "$out"/crates/*.crate; do
    tar -xf "$package" -C "$elsewhere"
    name=$(basename "$package" "-$version.crate")
    packages="$packages --config patch.crates-io.$name.path=\"$elsewhere/$name-$version\""
done
(
    cd "$elsewhere"
    # Not --locked: in the package's lock file the other crates of Latchwork come from a registry, where they are not yet.
    # The words of $packages have no spaces.
    # shellcheck disable=SC2086
    cargo install --path "latchwork-cli-$version" --root "$elsewhere/installed" $packages
    rm -rf ./*"-$version"
    # Neither Cargo's variables nor its directories lead anywhere.
    unset CARGO_TARGET_DIR
    PATH=$elsewhere/installed/bin:$PATH
    mkdir words
    seq 1 20000 | sed 's/$/ words for the tour/' > words/text
    [ "$(latchwork --version)" = "latchwork $version" ]
    latchwork tour --path words
    latchwork doctor > /dev/null
    latchwork ps > /dev/null
)
