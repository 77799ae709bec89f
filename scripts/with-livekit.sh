#!/usr/bin/env bash
# Runs a command with a temporary livekit-server, which uses free loopback ports and a random key.
# It is stopped at the end. LIVEKIT_URL, LIVEKIT_API_KEY and LIVEKIT_API_SECRET contain its address
# and key. Needs Go the first time (scripts/install-livekit.sh).
#
#   scripts/with-livekit.sh COMMAND [ARGUMENTS]
#
#   LIVEKIT_LOG = a file for the log of the server, which is otherwise only shown if it does not
#                 start
set -euo pipefail

[ $# -gt 0 ] || { sed -n '2,10s/^# \?//p' "$0" >&2; exit 2; }
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
binary=$("$root/scripts/install-livekit.sh")

scratch=$(mktemp -d)
pid=
cleanup() {
  # SIGTERM would wait for the participants to leave.
  [ -z "$pid" ] || { kill -9 "$pid" && wait "$pid"; } 2>/dev/null || true
  rm -rf "$scratch"
}
trap cleanup EXIT
log=${LIVEKIT_LOG:-$scratch/log}
LIVEKIT_API_KEY=API$(python3 -c 'import secrets; print(secrets.token_hex(6))')
LIVEKIT_API_SECRET=$(python3 -c 'import secrets; print(secrets.token_hex(32))')
# Clients use ports from 32768 on, and could take the port of a server that is being restarted.
read -r port udp_port < <(python3 -c '
import secrets, socket
found = []
while len(found) < 2:
    port = 10_000 + secrets.randbelow(22_000)
    try:
        for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
            with socket.socket(socket.AF_INET, kind) as free:
                free.bind(("127.0.0.1", port))
        found.append(port)
    except OSError:
        pass
print(*found)')
# JSON is valid YAML. A port for media over TCP would listen on all interfaces.
(umask 077 && cat >"$scratch/config.json") <<END
{
  "port": $port,
  "bind_addresses": ["127.0.0.1"],
  "rtc": {
    "tcp_port": 0,
    "udp_port": $udp_port,
    "use_external_ip": false,
    "enable_loopback_candidate": true,
    "interfaces": { "includes": ["lo"] }
  },
  "keys": { "$LIVEKIT_API_KEY": "$LIVEKIT_API_SECRET" }
}
END
"$binary" --config "$scratch/config.json" >>"$log" 2>&1 &
pid=$!
LIVEKIT_URL=ws://127.0.0.1:$port
is_ready() {
  python3 -c '
import sys, urllib.request
try:
    ready = urllib.request.urlopen(sys.argv[1], timeout=5).read() == b"OK"
except OSError:
    ready = False
sys.exit(not ready)' "http://127.0.0.1:$port/"
}
until is_ready; do
  kill -0 "$pid" 2>/dev/null || {
    cat "$log" >&2
    echo "with-livekit: livekit-server did not start (see its log above)" >&2
    exit 1
  }
  sleep 0.05
done
export LIVEKIT_URL LIVEKIT_API_KEY LIVEKIT_API_SECRET
"$@"
