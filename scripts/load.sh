#!/usr/bin/env bash
# Starts a server, runs a load test against it, and stops it. The callers run on the last processor,
# the server on all others.
#
#   scripts/load.sh [arguments of visavis load]   for example --calls 20 --out docs/results/new.json
#   scripts/load.sh soak N [arguments]            N short calls that hang up at random times
#
# VISAVIS_BIN = the binary; by default release/visavis in $CARGO_TARGET_DIR or target
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
bin=${VISAVIS_BIN:-${CARGO_TARGET_DIR:-$root/target}/release/visavis}
export VISAVIS_MODELS_DIR=${VISAVIS_MODELS_DIR:-$root/.cache/models}

last=$(($(nproc) - 1))
server_cpus=0
[ "$last" -lt 2 ] || server_cpus=0-$((last - 1))

arguments=("$@")
if [ "${1:-}" = soak ]; then
  calls=${2:?how many calls}
  [[ $calls =~ ^[1-9][0-9]*$ ]] || { echo "soak: \"$calls\" is not a number of calls" >&2; exit 2; }
  # A small number of calls runs in sequence, so that the run takes at least a minute. The growth of
  # memory in a shorter run means nothing.
  parallel=$((calls < 40 ? 1 : calls < 400 ? calls / 20 : 20))
  # A call lasts 3 s on average, with random deviations, and takes half a second to connect.
  duration=$((calls * 38 / parallel / 10 + 20))
  arguments=(--calls "$parallel" --ramp 10/s --cycle 6 --duration "$duration" "${@:3}")
fi

data=$(mktemp -d)
server=
stop() {
  [ -z "$server" ] || {
    kill "$server" 2>/dev/null
    kill "$server" 2>/dev/null
    wait "$server" 2>/dev/null
  } || true
  rm -rf "$data"
}
trap stop EXIT

: >"$data/output"
taskset -c "$server_cpus" "$bin" serve --listen 127.0.0.1:0 --data "$data" --allow-scripted \
  >"$data/output" 2>"$data/log" &
server=$!
until url=$(sed -n 's/^Visavis is listening on //p' "$data/output") && [ -n "$url" ] &&
  key=$(sed -n 's/^API key: //p' "$data/output") && [ -n "$key" ] &&
  curl -sf "$url/readyz" >/dev/null; do
  kill -0 "$server" 2>/dev/null || { cat "$data/log" >&2; exit 1; }
  [ $SECONDS -lt 60 ] || {
    echo "the server is not ready after a minute: $(curl -s "$url/readyz")" >&2
    exit 1
  }
  sleep 0.05
done
"$bin" load --server "$url" --key "$key" --scripted --cpu "$last" "${arguments[@]}"
