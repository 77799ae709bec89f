#!/usr/bin/env bash
# Runs a command with a temporary PostgreSQL server, which uses a scratch folder and a free loopback
# port. It is stopped and deleted at the end. VISAVIS_TEST_POSTGRES contains its URL, without a
# database.
# Needs Debian's package postgresql, which `scripts/setup.sh tests` installs.
#
#   scripts/with-postgres.sh COMMAND [ARGUMENTS]
set -euo pipefail

bin=$(ls -d /usr/lib/postgresql/*/bin 2>/dev/null | sort -V | tail -1)
[ -x "${bin:-/nonexistent}/initdb" ] || {
  echo "with-postgres: PostgreSQL is not installed (apt-get install postgresql)" >&2
  exit 1
}

scratch=$(mktemp -d)
as_user=()
if [ "$(id -u)" = 0 ]; then
  # PostgreSQL refuses to run as root. Its package creates this user.
  chown postgres "$scratch"
  as_user=(setpriv --reuid=postgres --regid=postgres --clear-groups)
fi
cleanup() {
  (cd / && "${as_user[@]}" "$bin/pg_ctl" -D "$scratch/db" -m immediate -s stop) || true
  rm -rf "$scratch"
}
trap cleanup EXIT
port=$(python3 -c '
import socket
s = socket.socket()
s.bind(("127.0.0.1", 0))
print(s.getsockname()[1])')
(
  cd "$scratch"
  "${as_user[@]}" "$bin/initdb" -D "$scratch/db" -U postgres -A trust -E UTF8 --locale=C.UTF-8 \
    >/dev/null
  # fsync is off: the data need not survive a power failure.
  "${as_user[@]}" "$bin/pg_ctl" -D "$scratch/db" -s -w -l "$scratch/log" \
    -o "-c listen_addresses=127.0.0.1 -p $port -k $scratch -c fsync=off -c max_connections=400" \
    start || {
    cat "$scratch/log" >&2
    exit 1
  }
)
VISAVIS_TEST_POSTGRES="postgres://postgres@127.0.0.1:$port" "$@"
