#!/usr/bin/env bash
# Runs as a service of a booted Debian system (scripts/test-install.sh): the package's own service
# starts, holds a call and stops. Writes the file /passed, and turns the system off.
set -euo pipefail

trap 'systemctl poweroff --no-block' EXIT
exec >/booted.log 2>&1
set -x
url=http://127.0.0.1:8080
# The callers join a multicast group, for mDNS.
ip route add 224.0.0.0/4 dev lo
systemctl start visavis
# The start returned, so the server is there: no waiting.
[ "$(systemctl is-active visavis)" = active ]
[ "$(systemctl show --property Type --value visavis)" = notify ]
curl -sSf "$url/readyz"
visavis health

[ "$(stat -c '%U %a' /var/lib/visavis/first.key)" = 'visavis 600' ]
key=$(cat /var/lib/visavis/first.key)
if journalctl -u visavis | grep -qF "$key"; then exit 1; fi
agent=$(journalctl -u visavis -o cat | sed -n 's|^Demo: .*/embed/\([^?#/]*\).*|\1|p')
visavis-load --server "$url" --key "$key" --agent "$agent" --calls 1 --duration 40 \
  --workload /speech/speech.json --speech /speech/speech.wav \
  --require 'failed == 0' --require 'n(voice_to_voice) >= 2' --require 'video.decoded >= 100'

# A child process reads the document; it confines itself.
echo '<html><body><p>We open at nine.</p></body></html>' >/tmp/hours.html
curl -sSf "$url/v1/ext/kb" -H "x-api-key: $key" -F name=Hours -F description=Hours \
  -F input=@/tmp/hours.html

systemctl stop visavis
[ "$(systemctl show --property Result --value visavis)" = success ]
[ "$(systemctl show --property ExecMainStatus --value visavis)" = 0 ]
journalctl -u visavis -o cat | tail -n 30
touch /passed
