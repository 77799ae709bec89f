#!/usr/bin/env bash
# End-to-end tests: the one release binary, a real browser, clients that are not ours. Reports go to target/e2e/.
#
#   scripts/test-e2e.sh [pytest arguments]        --part PART = the long tests of a part instead of those of `make test`
#
#   VISAVIS_BIN = the binary, else $CARGO_TARGET_DIR or target, release/visavis
#   E2E_WORKERS = tests at a time, each with a server and a browser of its own; 4, but 0 (one at a time, in this process) with --part
#   E2E_SEED = the seed of what long tests draw, to repeat one
#   E2E_OUT = where reports go, for two runs at the same time
set -euo pipefail
cd "$(dirname "$0")/.."
root=$PWD

missing=()
for program in chromium flite node npm; do
    command -v "$program" > /dev/null || missing+=("${program/#node/nodejs}")
done
python3 -c 'import ensurepip' 2> /dev/null || missing+=(python3-venv)
if [ ${#missing[@]} -gt 0 ]; then
    echo "installing ${missing[*]}" >&2
    sudo=; [ "$(id -u)" = 0 ] || sudo=sudo
    $sudo apt-get update -qq
    DEBIAN_FRONTEND=noninteractive $sudo apt-get install -y -qq --no-install-recommends "${missing[@]}" > /dev/null
fi

venv=$root/.cache/venv
if ! cmp -s tests/e2e/requirements.txt "$venv/requirements.txt"; then
    python3 -m venv "$venv"
    "$venv/bin/pip" install --quiet --disable-pip-version-check -r tests/e2e/requirements.txt
    cp tests/e2e/requirements.txt "$venv/requirements.txt"
fi

# The public RTVI client, bundled once for the page that uses it.
rtvi=$root/.cache/rtvi
if ! cmp -s tests/e2e/rtvi/package.json "$rtvi/package.json" || ! cmp -s tests/e2e/rtvi/client.mjs "$rtvi/client.mjs" || [ ! -f "$rtvi/bundle.js" ]; then
    mkdir -p "$rtvi"
    cp tests/e2e/rtvi/package.json tests/e2e/rtvi/client.mjs "$rtvi/"
    (cd "$rtvi" && npm install --silent --no-audit --no-fund && npx --no-install esbuild client.mjs --bundle --format=iife --outfile=bundle.js --log-level=error)
fi

node --test tests/js/
mkdir -p "${E2E_OUT:-target/e2e}"
# The servers under test run in folders of their own.
export VISAVIS_MODELS_DIR=${VISAVIS_MODELS_DIR:-$root/.cache/models}
# Tests wait for states most of their time, so several run at once. Long tests judge times: one at a time.
workers=4 files=(tests/e2e)
for argument in "$@"; do
    case $argument in
    --part | --part=*) workers=0 ;;
    tests/e2e/*) files=() ;;
    esac
done
exec "$venv/bin/python" -m pytest -n "${E2E_WORKERS:-$workers}" --dist loadfile "${files[@]}" "$@"
