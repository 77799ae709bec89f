"""A line that is as narrow as a bad mobile one: the picture comes, and goes on, and the voice is whole.

`make test` judges what is sent. The long tier judges when it is shown, and what arrives of the voice.
"""

import itertools

import pytest

from kit.relay import Relay
from kit.report import spread

SPEECH = (
    "The first room shows the old clocks, and the oldest of them was built by Thomas Tompion in sixteen seventy six. Five of its wheels are made of pear wood. "
    "Behind the house there is a garden with apple trees, a pond and a bench, where visitors may rest before they move on to the paintings."
)
#: Seconds until the line is known for what it is.
LEARNS = 6


@pytest.mark.long("network")
@pytest.mark.parametrize(("kbits", "soon"), [(400, 3), (200, LEARNS)])
def test_a_narrow_line_carries_a_call(server, call, report, kbits, soon):
    relay = Relay(rate=kbits * 1000)
    page = call()
    relay.lead(page)
    relay.start()
    try:
        conversation = server.conversation(server.agent(name="Talker", greeting="")["id"])
        page.open(conversation["join_link"])
        begun = page.now()
        page.join()
        mark = page.mark()
        assert server.call("PUT", f"/v1/conversation/{conversation['id']}/speak", {"text": SPEECH}).status == 200
        started = page.event("agent.started_speaking", mark, timeout=20)["t"]
        page.pass_to(begun + LEARNS)
        lost = relay.counts["lost"]
        stopped = page.event("agent.stopped_speaking", mark, timeout=60)["t"]
        first = page.shown(0, page.now())[0][0] - begun
        steps = page.shown(max(started, begun + LEARNS), stopped)
        gaps = [then - at for (at, _), (then, _) in itertools.pairwise(steps)]
        voice, video, lost = page.audio(), page.video(), relay.counts["lost"] - lost
    finally:
        relay.close()
    heard = voice["packetsReceived"] / (voice["packetsReceived"] + voice["packetsLost"])
    found = {
        "the first picture after": round(first, 2), "between two": spread(gaps), "pli": video["pliCount"], "lost later on": lost,
        "of the voice": round(heard, 3), "concealed": round(voice["concealedSamples"] / voice["totalSamplesReceived"], 3),
    }  # fmt: skip
    report.add(f"a line of {kbits} kbit/s", found)
    assert first < soon, found
    # A picture that shows the same as the one before is not sent on such a line.
    assert len(gaps) > 100 and found["between two"]["p95"] < 0.25 and max(gaps) < 1, found
    assert heard > 0.95 and lost < 120, found


def test_a_silent_agent_is_seen_on_a_narrow_line_too(server, call, report):
    """It leans soon, and what the leaning head needs must not be sent again for each key that is asked for meanwhile."""
    relay = Relay(rate=200_000)
    page = call()
    relay.lead(page)
    relay.start()
    try:
        page.open(
            server.conversation(server.agent(name="Listener", greeting="", hears=[])["id"])["join_link"]
        )
        page.join()
        relay.until(lambda: relay.anchors() > 0, "the leaning head")
        page.until("frames", {"more": 20}, timeout=60)
        # In this order: each stands behind what asked for it.
        anchors, keys, video = relay.anchors(), relay.keys(), page.video()
    finally:
        relay.close()
    found = {"pli": video["pliCount"], "fir": video["firCount"], "keys": keys, "anchors": anchors}
    report.add("a silent agent on a line of 200 kbit/s", found)
    # Each key was asked for, but the first. What the leaning head needs goes out once behind a key.
    assert 1 <= anchors <= keys <= 1 + video["pliCount"] + video["firCount"], found


@pytest.mark.long("network")
def test_a_silent_agent_is_seen_soon_on_a_narrow_line(server, call, report):
    relay = Relay(rate=200_000)
    page = call()
    relay.lead(page)
    relay.start()
    try:
        page.open(server.conversation(server.agent(name="Listener", greeting="")["id"])["join_link"])
        begun = page.now()
        page.join()
        page.pass_to(begun + 12)
        shown = page.shown(0, page.now())
    finally:
        relay.close()
    found = {"the first picture after": round(shown[0][0] - begun, 2), "pictures": len(shown)}
    report.add("pictures of a silent agent on a line of 200 kbit/s", found)
    assert shown[0][0] - begun < LEARNS and len(shown) > 20, found
