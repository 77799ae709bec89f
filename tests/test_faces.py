"""Faces on lines that lose packets, the key's among them: the picture goes on, and the server is not asked for keys again and again."""

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
PERIOD = 0.04


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
        begun, freezes, gaps = page.now(), [], []
        while page.now() < begun + SECONDS:
            mark = page.mark()
            assert server.call("PUT", f"/v1/conversation/{conversation['id']}/speak", {"text": SPEECH}).status == 200
            started = page.event("agent.started_speaking", mark, timeout=20)
            stopped = page.event("agent.stopped_speaking", mark, timeout=60)
            # While it speaks a picture comes every 40 ms; in silence only what changes.
            shown = page.shown(started["t"] + 0.5, stopped["t"] - 0.5)
            assert len(shown) > 100
            steps = [(later[0], later[0] - earlier[0]) for earlier, later in zip(shown, shown[1:])]
            gaps += [length for _, length in steps]
            freezes += [(round(at, 2), round(length, 3)) for at, length in steps if length > PERIOD + FREEZE]
        video = page.video()
        (formats,) = re.findall(r"m=video \d+ UDP/TLS/RTP/SAVPF (.*)", page.page.evaluate("e2e.peer.remoteDescription.sdp"))
        assert formats.split()[0] == str(VP8), formats
    finally:
        relay.close()
    found = {
        "seconds": round(page.now() - begun), "pictures": len(gaps) + 1, "between two": spread(gaps), "freezes": freezes,
        "packets": relay.counts, "pli": video["pliCount"], "nack": video["nackCount"], "decoded": video["framesDecoded"],
    }  # fmt: skip
    report.add(f"a face at {loss:.0%} loss", found)
    if FOUND:
        path = pathlib.Path(FOUND)
        known = json.loads(path.read_text()) if path.exists() else {}
        path.write_text(json.dumps({**known, f"{loss:.0%}": found}, indent=1) + "\n")
    if loss:
        assert relay.counts["lost"] > 100 and relay.counts["of the key"] > 4, relay.counts
    assert not freezes, found
    # Once a key whose packets were lost may be asked for anew; a storm asks for each loss.
    assert video["pliCount"] <= 2 + SECONDS / 60, found
