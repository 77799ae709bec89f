#!/bin/sh
# Chromium, with `CHROMIUM_NICE` before other programs where that is allowed.
if [ -n "$CHROMIUM_NICE" ] && nice -n "$CHROMIUM_NICE" true 2> /dev/null; then
    exec nice -n "$CHROMIUM_NICE" /usr/bin/chromium "$@"
fi
exec /usr/bin/chromium "$@"
