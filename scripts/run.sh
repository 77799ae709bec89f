#!/usr/bin/env bash
# Runs the server for `make run`. If another program uses its address, says how to choose another
# one.
#
#   scripts/run.sh PROGRAM [arguments of visavis serve]
set -euo pipefail

program=${1:?which program}
shift

# The address by flag, variable or default; a configuration file may name another one.
address=${VISAVIS_SERVER_LISTEN:-}
[ -n "$address" ] || [[ -n ${VISAVIS_CONFIG:-} || " $* " == *" --config"* ]] ||
  address=127.0.0.1:8080
flags=("$@")
while [ ${#flags[@]} -gt 0 ]; do
  case ${flags[0]} in
  --listen=*) address=${flags[0]#*=} ;;
  --listen) address=${flags[1]:-} ;;
  esac
  flags=("${flags[@]:1}")
done

# A host and a port, of "127.0.0.1:8080", "[::]:8080", ":8080" and "8080".
host='' port=${address##*:}
[[ $address != *:* ]] || host=${address%:*}
host=${host//[\[\]]/}
if [[ $port =~ ^[1-9][0-9]*$ ]] && (exec 3<>"/dev/tcp/${host:-127.0.0.1}/$port") 2>/dev/null; then
  echo "another program uses $address; choose another address with" \
    "make run ARGS=\"--listen 127.0.0.1:8081\", or VISAVIS_SERVER_LISTEN=127.0.0.1:8081 make run" >&2
  exit 1
fi
echo "$program serve${*:+ $*}"
exec "$program" serve "$@"
