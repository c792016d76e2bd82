# Sourced by the checks: they stop at the first failure, and run in the root of the repository.
set -eu
cd "$(dirname "$0")/.."
say() { printf '\n== %s\n' "$*"; }
