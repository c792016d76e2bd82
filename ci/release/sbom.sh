#!/bin/sh
# The list of components (SBOM) of the command and of the C library, as CycloneDX's JSON.
. "$(dirname "$0")/../lib.sh"
cd ..
: "${out:?ci/release.sh calls this script}" "${work:?}" "${version:?}"
rm -rf "$out/sbom"
mkdir -p "$out/sbom"
# It writes beside each Cargo.toml.
cargo cyclonedx --manifest-path "$work/source/Cargo.toml" --format json --spec-version 1.5 \
    --target x86_64-unknown-linux-gnu --no-build-deps
for package in latchwork-cli latchwork-c latchwork; do
    bom=$out/sbom/$package-$version.cdx.json
    # Without the directory of this machine.
    sed "s|$work/source/||g" "$work/source/crates/$package/$package.cdx.json" > "$bom"
    if grep -F "$work" "$bom"; then exit 1; fi
    # The same components as Cargo links, each with a licence.
    jq -r '.components[] | .name + " " + .version' "$bom" | sort -u > "$work/listed"
    cargo tree --locked -p "$package" -e normal,no-proc-macro --target x86_64-unknown-linux-gnu --prefix none --format '{p}' \
        | sed -n 's/^\([^ ]*\) v\([^ ]*\).*/\1 \2/p' | grep -v "^$package " | sort -u > "$work/linked"
    missing=$(comm -13 "$work/listed" "$work/linked")
    [ -z "$missing" ] || { echo "$bom does not list: $missing" >&2; exit 1; }
    unlicensed=$(jq -r '.components[] | select((.licenses // []) | length == 0) | .name' "$bom")
    [ -z "$unlicensed" ] || { echo "$bom: no licence: $unlicensed" >&2; exit 1; }
    echo "$package: $(wc -l < "$work/listed") components"
done
