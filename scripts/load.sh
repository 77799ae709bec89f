#!/usr/bin/env bash
# Calls a server of its own, which it starts and stops: the server on all processors but the last, the callers on the last.
#
#   scripts/load.sh [arguments of visavis load]      as --calls 20 --out docs/results/calls.json
#   scripts/load.sh soak N [arguments]               N short calls with hang-ups at random moments
#
# VISAVIS_BIN = the binary, else $CARGO_TARGET_DIR or target, release/visavis
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
bin=${VISAVIS_BIN:-${CARGO_TARGET_DIR:-$root/target}/release/visavis}
export VISAVIS_MODELS_DIR=${VISAVIS_MODELS_DIR:-$root/.cache/models}

last=$(($(nproc) - 1))
rest=0
[ "$last" -lt 2 ] || rest=0-$((last - 1))

arguments=("$@")
if [ "${1:-}" = soak ]; then
  calls=${2:?how many calls}
  [[ $calls =~ ^[1-9][0-9]*$ ]] || { echo "soak: \"$calls\" is no number of calls" >&2; exit 2; }
  # Few calls come one after the other: a minute at least, or memory says nothing.
  at_once=$((calls < 40 ? 1 : calls < 400 ? calls / 20 : 20))
  # A call lasts 3 s on average, by chance more, and half a second to connect.
  arguments=(--calls "$at_once" --ramp 10/s --cycle 6 --duration $((calls * 38 / at_once / 10 + 20)) "${@:3}")
fi

data=$(mktemp -d)
server=
stop() {
  [ -z "$server" ] || { kill "$server" 2>/dev/null; kill "$server" 2>/dev/null; wait "$server" 2>/dev/null; } || true
  rm -rf "$data"
}
trap stop EXIT

: >"$data/said"
taskset -c "$rest" "$bin" serve --listen 127.0.0.1:0 --data "$data" --allow-scripted >"$data/said" 2>"$data/log" &
server=$!
until url=$(sed -n 's/^Visavis is listening on //p' "$data/said") && [ -n "$url" ] &&
  key=$(sed -n 's/^API key: //p' "$data/said") && [ -n "$key" ] && curl -sf "$url/readyz" >/dev/null; do
  kill -0 "$server" 2>/dev/null || { cat "$data/log" >&2; exit 1; }
  [ $SECONDS -lt 60 ] || { echo "the server is not ready after a minute: $(curl -s "$url/readyz")" >&2; exit 1; }
  sleep 0.05
done
"$bin" load --server "$url" --key "$key" --scripted --cpu "$last" "${arguments[@]}"
