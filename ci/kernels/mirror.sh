#!/bin/sh
# mirror.sh: prints the Debian mirror of this machine's apt configuration.
set -eu
mirror=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' | grep -v -e security -e updates |
    sort -u | grep '/debian/$' | head -n 1)
[ -n "$mirror" ] || { echo "apt's configuration names no Debian mirror" >&2; exit 1; }
echo "$mirror"
