#!/usr/bin/env bash
# Checks the dependencies, before a release, against deny.toml: bans, licences and sources; and known advisories where their database, a
# repository, can be fetched. At the end it says what was checked and what could not be. Exit status 1: a check failed, or the tool is missing.
#
# cargo-deny is installed into .cache on first use, which takes minutes.
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."
cargo=${CARGO:-cargo}
version=0.20.2
folder=.cache/cargo-deny-$version
deny=$folder/bin/cargo-deny

say() { printf 'audit: %s\n' "$*"; }

if [ ! -x "$deny" ]; then
  say "installing cargo-deny $version into $folder"
  # Its own profile optimises over all crates, which takes longer than all checks that it will ever do.
  CARGO_PROFILE_RELEASE_LTO=off CARGO_PROFILE_RELEASE_CODEGEN_UNITS=16 "$cargo" install --locked --root "$folder" --version "$version" cargo-deny || {
    say "not checked: bans, licenses, sources, advisories, because cargo-deny cannot be installed" >&2
    exit 1
  }
fi

failed=()
passed=()
for check in bans licenses sources; do
  if "$deny" --locked check "$check"; then passed+=("$check"); else failed+=("$check"); fi
done

skipped=
if "$deny" --locked fetch db; then
  if "$deny" --locked --offline check advisories; then passed+=(advisories); else failed+=(advisories); fi
else
  skipped=advisories
fi

[ "${#passed[@]}" = 0 ] || say "passed: ${passed[*]}"
[ -z "$skipped" ] || say "not checked: $skipped, because the advisory database cannot be fetched"
if [ "${#failed[@]}" -gt 0 ]; then
  say "failed: ${failed[*]}" >&2
  exit 1
fi
