#!/usr/bin/env bash
# Keeps compiled dependencies and downloaded crates in the user's cache folder. Own packages are not kept: they change.
#
#   scripts/dependency-cache.sh restore     unpacks what fits the lock file, the toolchain and the profile; nothing where there is none
#   scripts/dependency-cache.sh discard     removes what was restored, and the cache; exit code 1 if nothing was restored
#   scripts/dependency-cache.sh save        keeps what was compiled, unless it is kept already or larger than 4 GB
#
# The folder is ${XDG_CACHE_HOME:-~/.cache}/visavis-ci; one archive is kept.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

target=${CARGO_TARGET_DIR:-target}
home=${CARGO_HOME:-$HOME/.cargo}
cache=${XDG_CACHE_HOME:-$HOME/.cache}/visavis-ci
largest=$((4 * 1024 * 1024 * 1024))
mark=$target/restored-from-cache

# Profiles, features and flags decide what a dependency is compiled to.
key=$({
  ${RUSTC:-rustc} -vV
  cat Cargo.lock Cargo.toml scripts/workspace-hack/Cargo.toml .cargo/config.toml
  echo "${RUSTFLAGS:-} ${CARGO_INCREMENTAL:-} $PWD"
} | sha256sum | cut -c -32)
archive=$cache/$key.tar

case ${1:-} in
restore)
  [ -e "$archive" ] || { echo "no compiled dependencies are cached for this lock file"; exit 0; }
  [ ! -e "$target/release" ] || { echo "$target has artifacts already: the cache is not used"; exit 0; }
  mkdir -p "$target" "$home"
  if tar -xf "$archive" -C "$target" release 2> /dev/null && tar -xf "$archive" -C "$home" registry 2> /dev/null; then
    touch "$mark"
    echo "compiled dependencies restored from $archive"
  else
    rm -rf "${target:?}/release" "$archive"
    echo "the cache of compiled dependencies is damaged: it is not used"
  fi
  ;;
discard)
  [ -e "$mark" ] || exit 1
  echo "the build failed with restored dependencies: it is tried without them"
  rm -rf "${target:?}/release" "$archive" "$mark"
  ;;
save)
  [ ! -e "$archive" ] || exit 0
  [ -d "$target/release/deps" ] && [ -d "$home/registry/cache" ] || exit 0
  mkdir -p "$cache" || exit 0
  # A fingerprint has the name of its package; what was built has names of its own, and the fingerprint's hash.
  exclude=()
  for fingerprint in "$target"/release/.fingerprint/{visavis,workspace-hack}*-????????????????; do
    exclude+=(--exclude="*-${fingerprint##*-}" --exclude="*-${fingerprint##*-}.*")
  done
  rm -f "$cache"/*.tar "$cache"/*.tmp
  tar -cf "$cache/new.tmp" "${exclude[@]}" -C "$target" release/deps release/build release/.fingerprint -C "$home" registry/cache registry/index
  size=$(stat -c %s "$cache/new.tmp")
  if [ "$size" -gt "$largest" ]; then
    rm -f "$cache/new.tmp"
    echo "compiled dependencies take $size bytes: more than 4 GB are not kept"
  else
    mv "$cache/new.tmp" "$archive"
    echo "compiled dependencies kept in $archive: $((size / 1024 / 1024)) MB"
  fi
  ;;
*)
  sed -n '2,9s/^# \?//p' "$0" >&2
  exit 2
  ;;
esac
