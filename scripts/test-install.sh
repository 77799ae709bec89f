#!/usr/bin/env bash
# Installs Visavis in bare Debian systems as a new user would, and holds a call in each. A long test;
# it needs root, debootstrap, systemd-container, flite (for the speech of the caller) and the Rust
# toolchain, which is bound into the systems. Ubuntu and other processors are untried.
#
#   scripts/test-install.sh [PART ...]   without a part: those that have not passed at this commit
#
#   source-12, source-13   from source: the packages that README names, make run with a call,
#                          make test-fast, the packages of make test (installed on Debian 13)
#   deb-12, deb-13         the package: install, unit, call, upgrade with data, remove, purge
#   archive-12, archive-13 the archive: no environment, another user and folder, a read-only system
#   image                  the image's root: read-only, its user, no capabilities
#
# The last three need the files of `make dist`. $CARGO_TARGET_DIR/install (target/install) keeps
# systems, downloads and what is compiled, so a repetition is quicker than the first run.
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."
root=$PWD
all_parts=(deb-12 deb-13 archive-12 archive-13 image source-12 source-13)
say() { printf 'test-install: %s\n' "$*"; }
fail() { printf 'test-install: %s\n' "$*" >&2; exit 1; }

target=$(realpath -m "${CARGO_TARGET_DIR:-target}")
work=$target/install
dist=$root/dist
version=$(sed -n 's/^version = "\(.*\)"$/\1/p' Cargo.toml | head -n 1)
name=visavis-$version-linux-amd64
[ "$(id -u)" = 0 ] || fail "only root can make bare systems"
mkdir -p "$work/passed" "$work/speech" "$work/pip"

suite_of() {
  case $1 in
  *-12 | image) echo bookworm ;;
  *-13) echo trixie ;;
  esac
}

# A new bare system for a part, with packages.
new_system() {
  local part=$1
  shift
  system=$work/system-$part
  rm -rf "$system"
  scripts/debian-root.sh create "$(suite_of "$part")" "$system" "$@"
}
packages_of() { echo "${VISAVIS_ROOTS:-$root/.cache/roots}/$(suite_of "$1")-packages"; }
# Runs a command in it; options of debian-root.sh come before `--`.
in_system() {
  scripts/debian-root.sh run "$system" --read "$work/speech:/speech" \
    --read "$root/scripts/test-install:/test-install" "$@"
}
# The speech of the caller, by flite.
make_speech() {
  [ -s "$work/speech/speech.wav" ] && return
  command -v flite >/dev/null || fail "flite is missing; install its package"
  python3 benches/load/speech_workload.py "$work/speech/speech.json" "$work/speech/speech.wav"
}
artifact() {
  [ -e "$dist/$1" ] || fail "$dist/$1 is missing: run make dist"
  echo "$dist/$1"
}

# --- From source ----------------------------------------------------------------------------------

source_part() {
  local part=$1 toolchain cargo_home
  toolchain=$("${RUSTC:-rustc}" --print sysroot)
  cargo_home=${CARGO_HOME:-$HOME/.cargo}
  "${CARGO:-cargo}" fetch --locked --offline --quiet 2>/dev/null || "${CARGO:-cargo}" fetch --locked
  make_speech
  new_system "$part"
  # A new user has no models and no virtual environment; what is compiled is kept.
  rm -rf "$work/$part-cache"
  # A checkout: the files that are under version control.
  mkdir -p "$system/root/visavis" "$work/$part-target" "$work/$part-cache"
  git ls-files -z | tar --null -T - -cf - | tar -C "$system/root/visavis" -xf -
  local options=(--read "$toolchain:/opt/rust" --bind "$cargo_home/registry:/root/.cargo/registry"
    --bind "$work/$part-target:/root/visavis/target" --bind "$work/$part-cache:/root/visavis/.cache"
    --bind "$work/pip:/root/.cache/pip" --bind "$(packages_of "$part"):/var/cache/apt/archives"
    --at /root/visavis --env PATH=/opt/rust/bin:/usr/sbin:/usr/bin:/sbin:/bin
    --env CARGO_INCREMENTAL=0 --env CARGO_NET_OFFLINE=true)
  [ ! -e "$cargo_home/config.toml" ] ||
    options+=(--read "$cargo_home/config.toml:/root/.cargo/config.toml")
  # README's line for a build, which ends with rustup, installs what a bare system lacks; root needs
  # no sudo.
  local prerequisites
  prerequisites=$(sed -n \
    's/^sudo apt-get update && sudo apt-get install -y \([a-z0-9 +-]*\) && curl .*rustup.*/\1/p' \
    README.md)
  [ -n "$prerequisites" ] || fail "README has no line of prerequisites"
  say "$part: the packages of README: $prerequisites"
  in_system "${options[@]}" -- sh -ceu \
    "apt-get update -qq; DEBIAN_FRONTEND=noninteractive apt-get install -y -qq $prerequisites </dev/null" \
    >"$work/$part.log" 2>&1 || fail "$part: see $work/$part.log"
  say "$part: make build"
  in_system "${options[@]}" -- make build build-load 2>&1 | tee "$work/$part-build.log"
  grep -q 'setup: will install: ' "$work/$part-build.log" ||
    fail "$part: make does not say what it installs"
  say "$part: make run, without a network"
  in_system "${options[@]}" --no-network -- /test-install/call.sh \
    --load target/release/visavis-load -- make run
  say "$part: make test-fast"
  in_system "${options[@]}" -- make test-fast
  say "$part: the packages of make test"
  in_system "${options[@]}" -- sh -ceu '
    apt-get -s install --no-install-recommends $(scripts/setup.sh tests --list) >/tmp/plan
    grep -c "^Inst " /tmp/plan'
  [ "$part" = source-13 ] || return 0
  in_system "${options[@]}" -- sh -ceu '
    scripts/setup.sh tests
    [ -z "$(scripts/setup.sh tests --list)" ]'
}

# --- The package ----------------------------------------------------------------------------------

deb_part() {
  local part=$1 package
  package=$(artifact "visavis_$version-1_amd64.deb")
  make_speech
  new_system "$part"
  local options=(--bind "$(packages_of "$part"):/var/cache/apt/archives" --read "$dist:/dist")
  apt() {
    in_system "${options[@]}" -- env DEBIAN_FRONTEND=noninteractive apt-get -y -qq "$@" \
      </dev/null >>"$work/$part.log" 2>&1 || {
      tail -n 5 "$work/$part.log" >&2
      fail "$part: apt-get $* failed"
    }
  }
  : >"$work/$part.log"
  say "$part: install"
  apt update
  apt install "/dist/$(basename "$package")"
  in_system -- sh -ceu '
    getent passwd visavis >/dev/null
    [ "$(stat -c "%U %a" /var/lib/visavis)" = "visavis 700" ]
    for file in /usr/share/doc/visavis/THIRD-PARTY.txt /usr/share/doc/visavis/docs/deploy.md \
      /etc/visavis/visavis.toml; do [ -s $file ]; done
    [ -e /etc/systemd/system/multi-user.target.wants/visavis.service ]
    ldd /usr/bin/visavis | grep -q "not found" && exit 1
    visavis --version'
  say "$part: a call"
  packaged_call() {
    in_system --no-network --env VISAVIS_SERVER_PRINT_KEY=false -- /test-install/call.sh \
      --user visavis --data /var/lib/visavis --key-hidden -- \
      visavis serve --config /etc/visavis/visavis.toml
  }
  packaged_call
  say "$part: upgrade with data and a changed configuration"
  in_system -- sh -ceu '
    echo "# changed" >>/etc/visavis/visavis.toml
    sha256sum /var/lib/visavis/secrets.key >/root/before'
  next_package "$package" "$work/$part-next"
  options+=(--read "$work/$part-next:/next")
  apt install /next/visavis.deb
  in_system -- sh -ceu '
    dpkg-query -W -f "\${Version}\n" visavis | grep -q "+next"
    grep -q "^# changed" /etc/visavis/visavis.toml
    sha256sum --quiet -c /root/before'
  packaged_call
  say "$part: the unit"
  apt install --no-install-recommends systemd systemd-sysv dbus curl iproute2
  in_system -- sh -ceu '
    systemd-analyze verify --man=no visavis.service
    systemd-analyze security --offline=true --threshold=15 visavis.service | tail -n 1'
  [ "$part" != deb-12 ] || booted_service "$part"
  say "$part: remove, then purge"
  apt remove visavis
  in_system -- sh -ceu '
    [ ! -e /usr/bin/visavis ] && [ -e /var/lib/visavis/visavis.db ]
    [ -e /etc/visavis/visavis.toml ]'
  apt purge visavis
  in_system -- sh -ceu '
    [ ! -e /var/lib/visavis ] && [ ! -e /etc/visavis ] && ! getent passwd visavis'
}

# Boots the system, whose service manager then runs the service. Debian 12's takes the cgroups of
# every kernel.
booted_service() {
  say "$1: a call with the service of a booted system"
  command -v systemd-nspawn >/dev/null || fail "systemd-nspawn is missing; install systemd-container"
  printf '[Service]\nType=oneshot\nExecStart=/test-install/booted.sh\n[Install]\nWantedBy=multi-user.target\n' \
    >"$system/etc/systemd/system/booted.service"
  ln -s ../booted.service "$system/etc/systemd/system/multi-user.target.wants/booted.service"
  # Data of the calls before have a key already, which is not written again.
  find "$system/var/lib/visavis" -mindepth 1 -delete
  rm -f "$system/passed"
  timeout 300 systemd-nspawn --quiet --directory "$system" --machine "visavis-$$" --register=no \
    --keep-unit --private-network --bind-ro "$work/speech:/speech" \
    --bind-ro "$root/scripts/test-install:/test-install" --boot >"$work/$1-boot.log" 2>&1 </dev/null || true
  [ -e "$system/passed" ] || {
    tail -n 30 "$system/booted.log" >&2
    fail "$1: the service of the booted system failed (see $work/$1-boot.log)"
  }
  # Packages are removed in a system that is not booted, with its data.
  rm -f "$system/etc/systemd/system/booted.service" \
    "$system/etc/systemd/system/multi-user.target.wants/booted.service"
}

# The same package with a higher version: FILE FOLDER.
next_package() {
  rm -rf "$2"
  mkdir -p "$2"
  dpkg-deb --raw-extract "$1" "$2/content"
  sed -i 's/^Version: .*/&+next/' "$2/content/DEBIAN/control"
  dpkg-deb --root-owner-group -Zgzip -z1 --build "$2/content" "$2/visavis.deb" >/dev/null
  rm -rf "$2/content"
}

# --- The archive ----------------------------------------------------------------------------------

archive_part() {
  local part=$1 archive
  archive=$(artifact "$name.tar.zst")
  make_speech
  # docs/deploy.md names these packages.
  new_system "$part" zstd libflite1 libstdc++6 ca-certificates
  in_system --read "$archive:/archive.tar.zst" -- tar --zstd -C /opt -xf /archive.tar.zst
  mkdir -p "$work/$part-data"
  find "$work/$part-data" -mindepth 1 -delete
  chown 4321:4321 "$work/$part-data"
  chmod 700 "$work/$part-data"
  say "$part: a call as another user, in another folder, without an environment, read-only"
  in_system --no-network --read-only --user 4321:4321 --bind "$work/$part-data:/srv/data" --at /usr \
    -- /test-install/call.sh --load "/opt/$name/bin/visavis-load" -- \
    env -i "/opt/$name/bin/visavis" serve --data /srv/data
  (cd "$dist" && sha256sum --quiet --check SHA256SUMS)
}

# --- The image ------------------------------------------------------------------------------------

image_part() {
  local part=$1 archive
  archive=$(artifact "visavis-$version-image.tar")
  make_speech
  system=$work/system-$part
  rm -rf "$system" "$work/data-$part"
  mkdir -p "$work/data-$part"
  local user options=() setting
  scripts/test-install/unpack-image.py "$archive" "$system" >"$work/image.env"
  user=$(sed -n 's/^USER=//p' "$work/image.env")
  while read -r setting; do options+=(--env "$setting"); done < <(grep -v '^USER=' "$work/image.env")
  chown "$user" "$work/data-$part"
  chmod 700 "$work/data-$part"
  mkdir -p "$system/speech" "$system/test-install"
  say "$part: a call and the health check as $user, read-only, without capabilities"
  in_system --no-network --read-only --user "$user" --bind "$work/data-$part:/data" --at /data \
    "${options[@]}" --env VISAVIS_SERVER_LOG_FORMAT=text --env VISAVIS_MEDIA_PUBLIC_IP=127.0.0.1 \
    -- /test-install/call.sh --data /data --key-hidden --health /usr/bin/visavis \
    -- /usr/bin/visavis serve
}

# --- Parts ----------------------------------------------------------------------------------------

run_part() {
  case $1 in
  source-*) source_part "$1" ;;
  deb-*) deb_part "$1" ;;
  archive-*) archive_part "$1" ;;
  image) image_part "$1" ;;
  esac
}

parts=("$@")
for part in "${parts[@]}"; do
  [[ " ${all_parts[*]} " == *" $part "* ]] || { sed -n '2,18s/^# \?//p' "$0" >&2; exit 2; }
done
commit=$(git rev-parse HEAD)
if [ ${#parts[@]} = 0 ]; then
  for part in "${all_parts[@]}"; do
    [ "$(cat "$work/passed/$part" 2>/dev/null)" = "$commit" ] || parts+=("$part")
  done
fi
for part in "${parts[@]}"; do
  started=$SECONDS
  rm -f "$work/passed/$part"
  run_part "$part"
  echo "$commit" >"$work/passed/$part"
  say "$part: passed, $((SECONDS - started)) s"
done
