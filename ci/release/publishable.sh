#!/bin/sh
# publishable.sh VERSION: fails, and says why, if the last commit is not yet a version to publish.
. "$(dirname "$0")/../lib.sh"
cd ..
version=$1 reasons=
because() { reasons="$reasons
  $*"; }
if grep -q '^repository = ".*\.example/' Cargo.toml; then
    because "Cargo.toml: repository is a placeholder"
fi
if grep -q '@[^ >]*\.example>' install/debian/control; then
    because "install/debian/control: the maintainer's address is a placeholder"
fi
grep -q "^## $version - [0-9]\{4\}-[0-9][0-9]-[0-9][0-9]\$" CHANGELOG.md \
    || because "CHANGELOG.md has no section \"## $version - DATE\""
head -n 1 install/debian/changelog | grep -q "^latchwork ($version-[0-9]*) [a-z]*;" \
    || because "install/debian/changelog does not begin with version $version"
if git rev-parse -q --verify "refs/tags/v$version" > /dev/null \
    && [ "$(git rev-parse "v$version^{commit}")" != "$(git rev-parse HEAD)" ]; then
    because "the tag v$version is another commit"
fi
[ -z "$reasons" ] || { echo "not to be published yet:$reasons" >&2; exit 1; }
