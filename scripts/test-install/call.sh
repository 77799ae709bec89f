#!/usr/bin/env bash
# Runs in a bare Debian system: starts a server, holds a call with its demo agent, and stops it. The
# server is ready when /readyz says so, and it must end within a minute of SIGTERM.
#
#   call.sh OPTIONS -- COMMAND [ARGUMENTS]     the command that starts the server
#     --load PROGRAM    the load generator
#     --url URL         where the server listens
#     --data FOLDER     its data folder, which contains first.key if the key is not printed
#     --key-hidden      the key must not be printed
#     --health PROGRAM  its command `health` must succeed
#     --user NAME       runs the server as this user
set -euo pipefail

load=visavis-load url=http://127.0.0.1:8080 data='' hidden='' health='' user=()
while [ "$1" != -- ]; do
  case $1 in
  --load) load=$2; shift 2 ;;
  --url) url=$2; shift 2 ;;
  --data) data=$2; shift 2 ;;
  --health) health=$2; shift 2 ;;
  --key-hidden) hidden=1; shift ;;
  --user) user=(setpriv --reuid "$2" --regid "$2" --clear-groups --no-new-privs); shift 2 ;;
  *) echo "call: unknown option $1" >&2; exit 2 ;;
  esac
done
shift

out=/tmp/server.out log=/tmp/server.log
fail() {
  printf 'call: %s\n' "$*" >&2
  tail -n 20 "$out" "$log" >&2
  exit 1
}
# Seconds without a program of their own: a read that nothing answers.
pause() { read -rt "$1" <> <(:) || true; }
# The status of /readyz; nothing while nobody listens.
readiness() {
  local host=${url#http://}
  (
    exec 3<>"/dev/tcp/${host%:*}/${host##*:}"
    printf 'GET /readyz HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n\r\n' "$host" >&3
    read -r _ status _ <&3
    echo "$status"
  ) 2>/dev/null || true
}

"${user[@]}" "$@" >"$out" 2>"$log" &
server=$!
trap 'kill $server 2>/dev/null || true' EXIT
until [ "$(readiness)" = 200 ] && grep -q '^Demo: ' "$out"; do
  kill -0 "$server" 2>/dev/null || fail "the server ended"
  [ "$SECONDS" -lt 120 ] || fail "the server is not ready after two minutes"
  pause 0.2
done
[ -z "$health" ] || "$health" health || fail "the health check fails"
key=$(sed -n 's/^API key: \(vv_.*\)$/\1/p' "$out")
[ -z "$hidden" ] || [ -z "$key" ] || fail "the key is printed"
[ -n "$key" ] || key=$(cat "$data/first.key") || fail "there is no key"
agent=$(sed -n 's|^Demo: .*/embed/\([^?#/]*\).*|\1|p' "$out")

# Eight spoken questions; the answers come from the built-in models, with a face.
"$load" --server "$url" --key "$key" --agent "$agent" --calls 1 --duration 40 \
  --workload /speech/speech.json --speech /speech/speech.wav --out /tmp/call.json \
  --require 'failed == 0' --require 'n(voice_to_voice) >= 2' --require 'video.decoded >= 100' \
  >/tmp/load.log 2>&1 || {
  cat /tmp/load.log >&2
  fail "the call failed"
}
kill -TERM "$server"
code=0
wait "$server" || code=$?
# make itself ends with the signal that it passes on.
[ "$code" = 0 ] || [ "$1/$code" = make/143 ] || fail "the server ended with $code"
trap - EXIT
echo "call: held, $(grep -c '' "$log") lines in the log"
