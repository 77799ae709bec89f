"""Previews of drawn people without drawing: a real one takes a second of a processor, with a low priority."""

import hashlib
import json
import struct
import zlib


class Painter:
    """Answers the previews that a console asks for. Equal orders get equal pictures, others get others. The
    server judges each order by all but its size, and draws nothing."""

    def __init__(self, console):
        self.console = console
        self.orders: list[dict] = []
        console.context.route("**/v2/character/preview", self._answer)

    def _answer(self, route):
        order = route.request.post_data_json
        refused = self.console.server.call("POST", "/v2/character/preview", {**order, "size": 1})
        wrong = [fault["field"] for fault in refused.json()["details"]]
        assert (refused.status, wrong) == (400, ["size"]), refused
        self.orders.append(order)
        route.fulfill(body=picture(order), content_type="image/png")


def picture(order: dict) -> bytes:
    """A PNG of the order's size, in the colour of everything else in it."""
    what = {field: value for field, value in order.items() if field != "size"}
    colour = hashlib.sha256(json.dumps(what, sort_keys=True).encode()).digest()[:3]
    side = order["size"]

    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head = struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0)
    rows = zlib.compress((b"\0" + colour * side) * side)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", rows) + chunk(b"IEND", b"")
