#!/usr/bin/env bash
# Runs a command beside a PostgreSQL server of its own: in a scratch folder, on a free port of loopback, gone afterwards. The command finds
# it in VISAVIS_TEST_POSTGRES, an URL without a database.
# Needs Debian's package postgresql (scripts/setup.sh tests installs it where it may).
#
#   scripts/with-postgres.sh COMMAND [ARGUMENTS]
set -euo pipefail

bin=$(ls -d /usr/lib/postgresql/*/bin 2>/dev/null | sort -V | tail -1)
[ -x "${bin:-/nonexistent}/initdb" ] || { echo "with-postgres: PostgreSQL is not installed (apt-get install postgresql)" >&2; exit 1; }

scratch=$(mktemp -d)
as=()
if [ "$(id -u)" = 0 ]; then
  # PostgreSQL refuses to run as root; its package makes this user.
  chown postgres "$scratch"
  as=(setpriv --reuid=postgres --regid=postgres --clear-groups)
fi
cleanup() {
  (cd / && "${as[@]}" "$bin/pg_ctl" -D "$scratch/db" -m immediate -s stop) || true
  rm -rf "$scratch"
}
trap cleanup EXIT
port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
(
  cd "$scratch"
  "${as[@]}" "$bin/initdb" -D "$scratch/db" -U postgres -A trust -E UTF8 --locale=C.UTF-8 >/dev/null
  # Nothing here must outlive a power cut.
  "${as[@]}" "$bin/pg_ctl" -D "$scratch/db" -s -w -l "$scratch/log" \
    -o "-c listen_addresses=127.0.0.1 -p $port -k $scratch -c fsync=off -c max_connections=400" start || { cat "$scratch/log" >&2; exit 1; }
)
VISAVIS_TEST_POSTGRES="postgres://postgres@127.0.0.1:$port" "$@"
