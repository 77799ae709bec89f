#!/usr/bin/env bash
# Bare Debian systems in folders, for `make dist` and `make test-install`. Needs root, and the
# package debootstrap.
#
#   scripts/debian-root.sh create SUITE FOLDER [PACKAGE ...]
#                              a minimal system of a suite (bookworm, trixie), as a container has it,
#                              and these packages; nothing happens if it is complete
#   scripts/debian-root.sh run FOLDER [OPTIONS] -- COMMAND [ARGUMENTS]
#                              runs a command in it, with its own processes and mounts, and an
#                              environment of nothing but PATH, HOME and the system's certificates
#     --bind HOST:FOLDER       a folder or file of this system, or --read HOST:FOLDER: read-only
#     --env NAME=VALUE         a variable
#     --at FOLDER              the working folder
#     --user UID:GID           another user, without capabilities and without the means to gain any
#     --read-only              nothing but the folders of --bind and /tmp can be written
#     --no-network             no network but loopback
#
#   VISAVIS_DEBIAN_MIRROR = the address of Debian's packages
#   VISAVIS_ROOTS         = folder of the downloads, to use them again; default: .cache/roots
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
mirror=${VISAVIS_DEBIAN_MIRROR:-http://deb.debian.org/debian}
downloads=${VISAVIS_ROOTS:-$root/.cache/roots}

fail() { printf 'debian-root: %s\n' "$*" >&2; exit 1; }
usage() { sed -n '2,20s/^# \?//p' "$0" >&2; exit 2; }

[ "$(id -u)" = 0 ] || fail "only root can make and enter the root folder of another system"

# Downloaded packages of a suite, shared by all of its systems.
packages_of() { printf '%s/%s-packages' "$downloads" "$1"; }

create() {
  local suite=$1 folder=$2
  shift 2
  command -v debootstrap >/dev/null || fail "debootstrap is missing; install its package"
  local packages
  packages=$(packages_of "$suite")
  mkdir -p "$packages/partial"
  local bare=$downloads/$suite.tar
  if [ ! -e "$bare" ]; then
    local scratch
    scratch=$(mktemp -d "$downloads/.$suite-XXXXXX")
    chmod 755 "$scratch"
    debootstrap --variant=minbase --cache-dir="$(realpath "$packages")" "$suite" "$scratch" \
      "$mirror" >"$downloads/$suite.log" 2>&1 || {
      tail -n 5 "$downloads/$suite.log" >&2
      rm -rf "$scratch"
      fail "debootstrap could not make a system of $suite (see $downloads/$suite.log)"
    }
    # The security updates, as every installed Debian has them.
    printf 'deb %s %s-updates main\ndeb %s-security %s-security main\n' \
      "$mirror" "$suite" "$mirror" "$suite" >>"$scratch/etc/apt/sources.list"
    rm -rf "$scratch"/var/cache/apt/archives/*.deb
    tar -C "$scratch" -cf "$bare.new" . && mv "$bare.new" "$bare"
    rm -rf "$scratch"
  fi
  if [ ! -e "$folder/.created" ]; then
    rm -rf "$folder"
    mkdir -p "$folder"
    tar -C "$folder" -xpf "$bare"
    touch "$folder/.created"
  fi
  [ $# -gt 0 ] || return 0
  # Installed packages need no network.
  chroot "$folder" dpkg-query -W "$@" >/dev/null 2>&1 || {
    run "$folder" --bind "$packages:/var/cache/apt/archives" -- sh -c \
      'apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -qq -y \
        --no-install-recommends "$@" </dev/null' install "$@" >"$folder.log" 2>&1 || {
      tail -n 5 "$folder.log" >&2
      fail "apt-get could not install $* (see $folder.log)"
    }
  }
}

run() {
  local folder binds=() variables=() at=/ user='' read_only='' network=()
  [ $# -ge 1 ] || usage
  folder=$(realpath "$1")
  shift
  while [ "${1:-}" != -- ]; do
    case ${1:-} in
    --bind | --read) binds+=("$1" "${2%%:*}" "${2#*:}"); shift 2 ;;
    --env) variables+=("$2"); shift 2 ;;
    --at) at=$2; shift 2 ;;
    --user) user=$2; shift 2 ;;
    --read-only) read_only=1; shift ;;
    --no-network) network=(--net); shift ;;
    *) usage ;;
    esac
  done
  shift
  [ $# -ge 1 ] || usage
  [ -d "$folder/usr" ] || fail "$folder contains no system"
  # Certificates of this system, for networks whose proxy has its own.
  local certificates=/etc/ssl/certs/ca-certificates.crt
  if [ -r "$certificates" ]; then
    binds+=(--read "$(realpath "$certificates")" /run/ca-certificates.crt)
    local name
    for name in SSL_CERT_FILE PIP_CERT CURL_CA_BUNDLE NODE_EXTRA_CA_CERTS CARGO_HTTP_CAINFO; do
      variables+=("$name=/run/ca-certificates.crt")
    done
  fi
  local enter=(env -i "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin" HOME=/root
    LANG=C.UTF-8 "${variables[@]}")
  if [ -n "$user" ]; then
    enter=(setpriv --reuid "${user%%:*}" --regid "${user#*:}" --clear-groups --no-new-privs
      --inh-caps=-all --bounding-set=-all "${enter[@]}" HOME=/)
  fi
  ENTER_ROOT=$folder ENTER_AT=$at ENTER_READ_ONLY=$read_only ENTER_NETWORK=${network[*]} \
    ENTER_BINDS=${#binds[@]} \
    unshare --mount --pid --fork --kill-child "${network[@]}" \
    bash "${BASH_SOURCE[0]}" inside "${binds[@]}" "${enter[@]}" "$@"
}

# Runs as the first process of the new namespaces.
inside() {
  local folder=$ENTER_ROOT count=$ENTER_BINDS
  mount --make-rprivate /
  mount --bind "$folder" "$folder"
  mount -t proc proc "$folder/proc"
  mount -t tmpfs -o mode=755 dev "$folder/dev"
  mkdir "$folder/dev/pts" "$folder/dev/shm"
  mount -t devpts -o newinstance,ptmxmode=0666,mode=620 devpts "$folder/dev/pts" 2>/dev/null || true
  mount -t tmpfs -o mode=1777 shm "$folder/dev/shm"
  ln -s pts/ptmx "$folder/dev/ptmx"
  ln -s /proc/self/fd "$folder/dev/fd"
  ln -s /proc/self/fd/0 "$folder/dev/stdin"
  ln -s /proc/self/fd/1 "$folder/dev/stdout"
  ln -s /proc/self/fd/2 "$folder/dev/stderr"
  local device
  for device in null zero full random urandom tty; do
    touch "$folder/dev/$device"
    mount --bind "/dev/$device" "$folder/dev/$device"
  done
  mount -t tmpfs -o mode=1777 tmp "$folder/tmp"
  mount -t tmpfs -o mode=755 run "$folder/run"
  [ -n "$ENTER_NETWORK" ] || [ ! -d "$folder/etc" ] || cp -L /etc/resolv.conf "$folder/etc/resolv.conf"
  # Programs that join a multicast group, as for mDNS, need a route to it.
  [ -z "$ENTER_NETWORK" ] || { ip link set lo up && ip route add 224.0.0.0/4 dev lo; }
  # The targets of binds exist before the rest becomes read-only.
  local at=1
  while [ "$at" -le "$count" ]; do
    local kind=${*:at:1} from=${*:at+1:1} to=$folder${*:at+2:1}
    if [ -d "$from" ]; then
      mkdir -p "$to"
    else
      mkdir -p "$(dirname "$to")"
      [ -e "$to" ] || touch "$to"
    fi
    mount --bind "$from" "$to"
    [ "$kind" = --bind ] || mount -o remount,bind,ro "$to"
    at=$((at + 3))
  done
  shift "$count"
  [ -z "$ENTER_READ_ONLY" ] || mount -o remount,bind,ro "$folder"
  local working=$ENTER_AT
  unset ENTER_ROOT ENTER_AT ENTER_READ_ONLY ENTER_NETWORK ENTER_BINDS
  exec chroot "$folder" /usr/bin/env --chdir="$working" "$@"
}

command=${1:-}
shift || usage
case $command in
create) [ $# -ge 2 ] || usage; create "$@" ;;
run) run "$@" ;;
inside) inside "$@" ;;
*) usage ;;
esac
