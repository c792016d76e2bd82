#!/bin/sh
# All licences against the list in deny.toml, and the file THIRD-PARTY: who wrote which crate of the programs and
# libraries, under which licence.
. "$(dirname "$0")/../lib.sh"
cd ..
: "${out:?ci/release.sh calls this script}" "${work:?}"
ci/deps.sh
ci/release/third-party.sh "$out/THIRD-PARTY"
cargo deny --all-features list --format json --layout crate > "$out/licences.json"
# Each crate that the command is built from is in the file.
cargo tree --locked -p latchwork-cli -e normal --prefix none --format '{p}' | sed -n 's/^\([^ ]*\) v\([^ ]*\).*/\1 \2/p' \
    | grep -v '^latchwork' | sort -u > "$work/crates"
while read -r name version; do
    grep -q "^- $name $version\$" "$out/THIRD-PARTY" \
        || { echo "THIRD-PARTY does not name $name $version" >&2; exit 1; }
done < "$work/crates"
echo "THIRD-PARTY: $(wc -l < "$work/crates") crates"
