"""A stub for avatar previews that draws nothing. A real preview takes a second of CPU time at a low
priority."""

import hashlib
import json
import struct
import zlib


class PreviewStub:
    """Answers the preview requests of a console. Equal requests get equal pictures; different
    requests get different ones. The server validates each request except for its size, and draws
    nothing."""

    def __init__(self, console):
        self.console = console
        self.requests: list[dict] = []
        console.context.route("**/v2/character/preview", self._answer)

    def _answer(self, route):
        request = route.request.post_data_json
        reply = self.console.server.request("POST", "/v2/character/preview", {**request, "size": 1})
        invalid_fields = [fault["field"] for fault in reply.json()["details"]]
        assert (reply.status, invalid_fields) == (400, ["size"]), reply
        self.requests.append(request)
        route.fulfill(body=solid_png(request), content_type="image/png")


def solid_png(request: dict) -> bytes:
    """A PNG of the requested size. Its colour is derived from all other fields of the request."""
    what = {field: value for field, value in request.items() if field != "size"}
    colour = hashlib.sha256(json.dumps(what, sort_keys=True).encode()).digest()[:3]
    side = request["size"]

    def chunk(kind, data):
        return (
            struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        )

    head = struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0)
    rows = zlib.compress((b"\0" + colour * side) * side)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", rows) + chunk(b"IEND", b"")
