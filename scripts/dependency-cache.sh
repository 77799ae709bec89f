#!/usr/bin/env bash
# Keeps compiled dependencies and downloaded crates in the user's cache folder. Own packages are not kept: they change.
#
#   scripts/dependency-cache.sh restore     unpacks what fits the lock file, the toolchain and the profile; nothing if there is none
#   scripts/dependency-cache.sh discard     removes what was restored, and the archive; exit code 1 if nothing was restored
#   scripts/dependency-cache.sh save        keeps what was compiled, unless it is kept already or larger than 4 GB
#
# The folder is ${XDG_CACHE_HOME:-~/.cache}/visavis-ci; it holds one archive. A cache that cannot be read or written is no error.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
shopt -s nullglob

say() { echo "dependency cache: $*"; }
nothing() { say "$*"; exit 0; }

case ${1:-} in restore | discard | save) ;; *) sed -n '2,9s/^# \?//p' "$0" >&2; exit 2 ;; esac

[ -n "${HOME:-}" ] || { [ "$1" != discard ] || exit 1; nothing "there is no home folder: not used"; }
target=${CARGO_TARGET_DIR:-target}
home=${CARGO_HOME:-$HOME/.cargo}
cache=${XDG_CACHE_HOME:-$HOME/.cache}/visavis-ci
largest=$((4 * 1024 * 1024 * 1024))
mark=$target/restored-from-cache

# Profiles, features, flags and the place of the checkout decide what a dependency is compiled to.
toolchain=$(${RUSTC:-rustc} -vV) || { [ "$1" != discard ] || exit 1; nothing "there is no Rust compiler: not used"; }
key=$({
  echo "$toolchain"
  cat Cargo.lock Cargo.toml scripts/workspace-hack/Cargo.toml .cargo/config.toml
  echo "${RUSTFLAGS:-} ${CARGO_INCREMENTAL:-} $PWD"
} | sha256sum | cut -c -32)
archive=$cache/$key.tar

case $1 in
restore)
  rm -f "$mark"
  [ -e "$archive" ] || nothing "no dependencies are kept for this lock file"
  [ ! -e "$target/release" ] || nothing "$target has artifacts already: not used"
  mkdir -p "$target" "$home"
  if tar -xf "$archive" -C "$target" release 2> /dev/null && tar -xf "$archive" -C "$home" registry 2> /dev/null; then
    touch "$mark"
    say "dependencies restored from $archive"
  else
    rm -rf "${target:?}/release"
    rm -f "$archive" || true
    say "the archive is damaged: not used"
  fi
  ;;
discard)
  [ -e "$mark" ] || exit 1
  say "the build failed with restored dependencies: it is tried without them"
  # Crates are unpacked and downloaded anew, too.
  rm -rf "${target:?}/release" "$mark" "$home/registry/src" "$home/registry/cache"
  rm -f "$archive" || true
  ;;
save)
  rm -f "$mark"
  [ ! -e "$archive" ] || exit 0
  fingerprints=("$target"/release/.fingerprint/*)
  [ ${#fingerprints[@]} -gt 0 ] && [ -d "$home/registry/cache" ] && [ -d "$home/registry/index" ] || nothing "nothing to keep"
  mkdir -p "$cache" 2> /dev/null && new=$(mktemp "$cache/new-XXXXXX" 2> /dev/null) || nothing "$cache cannot be written: nothing is kept"
  # A fingerprint has the name of its package; what was built has names of its own, and the fingerprint's hash.
  exclude=()
  for fingerprint in "$target"/release/.fingerprint/{visavis,workspace-hack}*-????????????????; do
    exclude+=(--exclude="*-${fingerprint##*-}" --exclude="*-${fingerprint##*-}.*")
  done
  if ! tar -cf "$new" "${exclude[@]}" -C "$target" release/deps release/build release/.fingerprint -C "$home" registry/cache registry/index 2> /dev/null; then
    rm -f "$new"
    nothing "the archive cannot be written: nothing is kept"
  fi
  size=$(stat -c %s "$new")
  if [ "$size" -gt "$largest" ]; then
    rm -f "$new"
    nothing "dependencies take $size bytes: more than 4 GB are not kept"
  fi
  rm -f "$cache"/*.tar
  mv "$new" "$archive"
  say "dependencies kept in $archive: $((size / 1024 / 1024)) MB"
  ;;
esac
