# Sourced by the checks: stop at the first failure, run from the root of the repository.
set -eu
cd "$(dirname "$0")/.."
say() { printf '\n== %s\n' "$*"; }
