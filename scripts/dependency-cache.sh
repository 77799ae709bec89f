#!/usr/bin/env bash
# Caches compiled dependencies and downloaded crates in the user's cache folder. Packages of the
# workspace are not cached, because they change.
#
#   scripts/dependency-cache.sh restore   unpacks the archive for this lock file, toolchain and
#                                         profile, if there is one
#   scripts/dependency-cache.sh discard   deletes the restored files and the archive; exit code 1 if
#                                         nothing was restored
#   scripts/dependency-cache.sh save      stores the compiled dependencies, unless they are stored
#                                         already or larger than 4 GB
#
# The folder is ${XDG_CACHE_HOME:-~/.cache}/visavis-ci. It contains one archive. A cache that cannot
# be read or written is not an error.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
shopt -s nullglob

say() { echo "dependency cache: $*"; }
# Reports why there is nothing to do, and ends the script.
skip() { say "$*"; exit 0; }

case ${1:-} in restore | discard | save) ;; *) sed -n '2,13s/^# \?//p' "$0" >&2; exit 2 ;; esac

[ -n "${HOME:-}" ] || { [ "$1" != discard ] || exit 1; skip "there is no home folder: not used"; }
target=${CARGO_TARGET_DIR:-target}
home=${CARGO_HOME:-$HOME/.cargo}
cache=${XDG_CACHE_HOME:-$HOME/.cache}/visavis-ci
max_size=$((4 * 1024 * 1024 * 1024))
marker=$target/restored-from-cache

# The compiled dependencies depend on profiles, features, flags and the path of the checkout.
toolchain=$(${RUSTC:-rustc} -vV) || {
  [ "$1" != discard ] || exit 1
  skip "there is no Rust compiler: not used"
}
key=$({
  echo "$toolchain"
  cat Cargo.lock Cargo.toml scripts/workspace-hack/Cargo.toml .cargo/config.toml
  echo "${RUSTFLAGS:-} ${CARGO_INCREMENTAL:-} $PWD"
} | sha256sum | cut -c -32)
archive=$cache/$key.tar

case $1 in
restore)
  rm -f "$marker"
  [ -e "$archive" ] || skip "no dependencies are stored for this lock file"
  [ ! -e "$target/release" ] || skip "$target has artifacts already: not used"
  mkdir -p "$target" "$home"
  if tar -xf "$archive" -C "$target" release 2> /dev/null &&
    tar -xf "$archive" -C "$home" registry 2> /dev/null; then
    touch "$marker"
    say "dependencies restored from $archive"
  else
    rm -rf "${target:?}/release"
    rm -f "$archive" || true
    say "the archive is damaged: not used"
  fi
  ;;
discard)
  [ -e "$marker" ] || exit 1
  say "the build failed with restored dependencies: the next build does not use them"
  # Crates are downloaded and unpacked again, too.
  rm -rf "${target:?}/release" "$marker" "$home/registry/src" "$home/registry/cache"
  rm -f "$archive" || true
  ;;
save)
  rm -f "$marker"
  [ ! -e "$archive" ] || exit 0
  fingerprints=("$target"/release/.fingerprint/*)
  [ ${#fingerprints[@]} -gt 0 ] && [ -d "$home/registry/cache" ] && [ -d "$home/registry/index" ] ||
    skip "nothing to store"
  mkdir -p "$cache" 2> /dev/null && new=$(mktemp "$cache/new-XXXXXX" 2> /dev/null) ||
    skip "$cache cannot be written: nothing is stored"
  # The name of a fingerprint contains its package and a hash. Build artifacts of the package have
  # other names, but the same hash.
  exclude=()
  for fingerprint in "$target"/release/.fingerprint/{visavis,workspace-hack}*-????????????????; do
    exclude+=(--exclude="*-${fingerprint##*-}" --exclude="*-${fingerprint##*-}.*")
  done
  if ! tar -cf "$new" "${exclude[@]}" -C "$target" release/deps release/build release/.fingerprint \
    -C "$home" registry/cache registry/index 2> /dev/null; then
    rm -f "$new"
    skip "the archive cannot be written: nothing is stored"
  fi
  size=$(stat -c %s "$new")
  if [ "$size" -gt "$max_size" ]; then
    rm -f "$new"
    skip "the dependencies have $size bytes, the maximum is 4 GB: nothing is stored"
  fi
  rm -f "$cache"/*.tar
  mv "$new" "$archive"
  say "dependencies stored in $archive: $((size / 1024 / 1024)) MB"
  ;;
esac
