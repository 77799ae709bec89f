"""Sends the text bodies of the WHIP endpoint unchanged."""

import schemathesis


@schemathesis.serializer("application/sdp", "application/trickle-ice-sdpfrag")
def text(_context, value):
    return value.encode("utf-8", "surrogatepass") if isinstance(value, str) else str(value).encode()
