#!/usr/bin/env bash
# Runs the end-to-end tests: the release binary with a real browser and third-party clients. Reports
# are written to target/e2e/.
#
#   scripts/test-e2e.sh [pytest arguments]   --part PART runs the long tests of a part instead of
#                                            those of `make test`
#
#   VISAVIS_BIN = the binary; by default release/visavis in $CARGO_TARGET_DIR or target
#   E2E_WORKERS = number of parallel tests, each with its own server and browser; 4 by default, with
#                 --part 0 (one at a time, in this process)
#   E2E_SEED    = the seed of the random numbers in long tests, to repeat a run
#   E2E_OUT     = the folder of the reports, for parallel runs
set -euo pipefail
cd "$(dirname "$0")/.."
root=$PWD

# Says what it installs; if nothing is missing, it takes no time.
[ -z "$(scripts/setup.sh tests --list)" ] || scripts/setup.sh tests

venv=$root/.cache/venv
if ! cmp -s tests/e2e/requirements.txt "$venv/requirements.txt"; then
    echo "installing the Python packages of the tests into $venv (575 MB on disk)" >&2
    python3 -m venv "$venv"
    "$venv/bin/pip" install --quiet --disable-pip-version-check -r tests/e2e/requirements.txt
    cp tests/e2e/requirements.txt "$venv/requirements.txt"
fi

# The public RTVI client, bundled for a test page.
rtvi=$root/.cache/rtvi
if ! cmp -s tests/e2e/rtvi/package.json "$rtvi/package.json" ||
    ! cmp -s tests/e2e/rtvi/client.mjs "$rtvi/client.mjs" || [ ! -f "$rtvi/bundle.js" ]; then
    echo "installing the public RTVI client from the npm registry into $rtvi (50 MB)" >&2
    mkdir -p "$rtvi"
    cp tests/e2e/rtvi/package.json tests/e2e/rtvi/client.mjs "$rtvi/"
    (
        cd "$rtvi"
        npm install --silent --no-audit --no-fund
        npx --no-install esbuild client.mjs --bundle --format=iife --outfile=bundle.js \
            --log-level=error
    )
fi

# LiveKit's public clients, one of them bundled for a test page.
livekit=$root/.cache/livekit-pages livekit_pages=tests/e2e/kit/livekit_pages
if ! cmp -s "$livekit_pages/package.json" "$livekit/package.json" ||
    ! cmp -s "$livekit_pages/components.mjs" "$livekit/components.mjs" ||
    [ ! -f "$livekit/components.js" ]; then
    echo "installing LiveKit's clients from the npm registry into $livekit (95 MB)" >&2
    mkdir -p "$livekit"
    cp "$livekit_pages/package.json" "$livekit_pages/components.mjs" "$livekit/"
    (
        cd "$livekit"
        npm install --silent --no-audit --no-fund
        npx --no-install esbuild components.mjs --bundle --format=iife --outfile=components.js \
            --define:process.env.NODE_ENV='"production"' --log-level=error
    )
fi

node --test tests/js/
mkdir -p "${E2E_OUT:-target/e2e}"
# An absolute path: the servers under test run in other folders.
export VISAVIS_MODELS_DIR=${VISAVIS_MODELS_DIR:-$root/.cache/models}
# Tests mostly wait for states, so several run in parallel. Long tests measure times, so they run
# one at a time.
workers=4 files=(tests/e2e)
for argument in "$@"; do
    case $argument in
    --part | --part=*) workers=0 ;;
    tests/e2e/*) files=() ;;
    esac
done
exec "$venv/bin/python" -m pytest -n "${E2E_WORKERS:-$workers}" --dist loadfile "${files[@]}" "$@"
