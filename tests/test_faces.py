"""Faces on lines that lose packets, the key's among them: the picture goes on, and the server is not asked for keys again and again."""

import bisect
import json
import os
import pathlib
import re

import pytest

from kit.relay import VP8, Relay
from kit.report import spread

# Longer outside of CI: `make soak-faces`, which keeps what it found.
SECONDS = int(os.environ.get("FACES_SECONDS", "60"))
FOUND = os.environ.get("FACES_OUT")
SPEECH = (
    "The first room shows the old clocks, and the oldest of them was built by Thomas Tompion in sixteen seventy six. Five of its wheels are made of pear wood. "
    "Behind the house there is a garden with apple trees, a pond and a bench, where visitors may rest before they move on to the paintings."
)
FREEZE = 0.2
#: It listens for so long after each speech: it leans, nods, smiles.
LISTENS = 6


def late(shown, relay):
    """Of the pictures that were shown one after the other: when, and how much longer than it should the one before stood. What is sent next
    is due as long after it as its time stamp says: 40 ms in speech, up to a second in silence, where only what changes is sent. A breath
    that is missed is half a pixel, and nobody waits for it."""
    sent = relay.moving()
    found = []
    for (at, stamp), (then, _) in zip(shown, shown[1:]):
        now = relay.since(round(stamp * 90_000))
        behind = bisect.bisect_right(sent, now)
        if behind == len(sent):
            # Nothing moved any more: nothing was due.
            break
        following = sent[behind]
        found.append((at, then - at - (following - now) / 90_000))
    return found


@pytest.fixture(scope="module")
def talker(server):
    # The last speech may begin just before the end.
    return server.agent(name="Talker", greeting="", config={"maxCallDuration": SECONDS + 60})


@pytest.mark.parametrize("loss", [0.0, 0.05, 0.1])
def test_the_picture_goes_on_whatever_is_lost(server, call, report, talker, loss):
    relay = Relay(loss)
    page = call()
    relay.lead(page)
    relay.start()
    try:
        conversation = server.conversation(talker["id"])
        page.open(conversation["join_link"])
        page.join()
        begun, speeches = page.now(), []
        while page.now() < begun + SECONDS:
            mark = page.mark()
            assert server.call("PUT", f"/v1/conversation/{conversation['id']}/speak", {"text": SPEECH}).status == 200
            started = page.event("agent.started_speaking", mark, timeout=20)
            stopped = page.event("agent.stopped_speaking", mark, timeout=60)
            speeches.append((started["t"], stopped["t"]))
            page.pass_to(stopped["t"] + LISTENS)
        # From the first second on, when whoever joins has the key.
        steps = late(page.shown(begun + 1, page.now() - 1), relay)
        stood = [(round(at, 2), round(length, 3)) for at, length in steps if length > FREEZE]
        freezes = [(at, length) for at, length in stood if any(start <= at <= end for start, end in speeches)]
        video = page.video()
        (formats,) = re.findall(r"m=video \d+ UDP/TLS/RTP/SAVPF (.*)", page.page.evaluate("e2e.peer.remoteDescription.sdp"))
        assert formats.split()[0] == str(VP8), formats
    finally:
        relay.close()
    found = {
        "seconds": round(page.now() - begun), "pictures": len(steps) + 1, "late": spread([length for _, length in steps]), "freezes": freezes,
        "missed in silence": [one for one in stood if one not in freezes],
        "packets": relay.counts, "pli": video["pliCount"], "nack": video["nackCount"], "decoded": video["framesDecoded"],
    }  # fmt: skip
    report.add(f"a face at {loss:.0%} loss", found)
    if FOUND:
        path = pathlib.Path(FOUND)
        known = json.loads(path.read_text()) if path.exists() else {}
        path.write_text(json.dumps({**known, f"{loss:.0%}": found}, indent=1) + "\n")
    if loss:
        # The key, and at least the anchor of the first lean.
        assert relay.counts["lost"] > 100 and relay.counts["of the key"] > 4 and relay.counts["anchors"] > 0, relay.counts
    assert len(steps) > 15 * SECONDS, found
    assert not freezes, found
    # In silence a movement may be missed: its picture goes out two to four times, and not at all if all of them are lost.
    assert len(stood) <= 4 * SECONDS / 60, found
    # Once a key whose packets were lost may be asked for anew; a storm asks for each loss.
    assert video["pliCount"] <= 2 + SECONDS / 60, found
