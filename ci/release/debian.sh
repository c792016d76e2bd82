#!/bin/sh
# The Debian packages, with what `install/debian` says of them, built in an export of the repository; and lintian.
. "$(dirname "$0")/../lib.sh"
cd ..
: "${out:?ci/release.sh calls this script}" "${work:?}"
[ -f "$out/THIRD-PARTY" ] || ci/release/third-party.sh "$out/THIRD-PARTY"
rm -rf "$out/debian" "$work/debian"
mkdir -p "$out/debian" "$work/debian"
cp -a "$work/source" "$work/debian/latchwork"
cp -a install/debian "$work/debian/latchwork/debian"
cp "$out/THIRD-PARTY" "$work/debian/latchwork"
(
    cd "$work/debian/latchwork"
    # -d: Rust is not from a Debian package.
    dpkg-buildpackage -b -uc -us -d
)
cp "$work"/debian/*.deb "$work"/debian/*.buildinfo "$work"/debian/*.changes "$out/debian"
# The suppressed tag is about uploads to Debian itself.
lintian --allow-root --fail-on error,warning --tag-display-limit 0 --suppress-tags initial-upload-closes-no-bugs "$out"/debian/*.changes
for package in "$out"/debian/*.deb; do
    dpkg-deb --show --showformat '${Package} ${Version} (${Installed-Size} KiB): ${Depends}\n' "$package"
done
