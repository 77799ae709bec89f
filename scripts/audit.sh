#!/usr/bin/env bash
# Checks the dependencies against deny.toml before a release: bans, licenses and sources, and known
# advisories if their database, a repository, can be fetched. At the end the script prints which
# checks ran and which could not. Exit status 1: a check failed, or cargo-deny cannot be installed.
#
# The first run installs cargo-deny into .cache, which takes minutes.
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."
cargo=${CARGO:-cargo}
version=0.20.2
folder=.cache/cargo-deny-$version
deny=$folder/bin/cargo-deny

say() { printf 'audit: %s\n' "$*"; }

if [ ! -x "$deny" ]; then
  say "installing cargo-deny $version into $folder"
  # The release profile of cargo-deny uses link-time optimization. The build would take longer than
  # all checks together.
  CARGO_PROFILE_RELEASE_LTO=off CARGO_PROFILE_RELEASE_CODEGEN_UNITS=16 \
    "$cargo" install --locked --root "$folder" --version "$version" cargo-deny || {
    say "not checked (cargo-deny cannot be installed): bans, licenses, sources, advisories" >&2
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
  if "$deny" --locked --offline check advisories; then
    passed+=(advisories)
  else
    failed+=(advisories)
  fi
else
  skipped=advisories
fi

[ "${#passed[@]}" = 0 ] || say "passed: ${passed[*]}"
[ -z "$skipped" ] || say "not checked: $skipped, because the advisory database cannot be fetched"
if [ "${#failed[@]}" -gt 0 ]; then
  say "failed: ${failed[*]}" >&2
  exit 1
fi
