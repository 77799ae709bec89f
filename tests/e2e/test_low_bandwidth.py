"""A link with the bandwidth of a bad mobile network: the video starts and continues, and the audio
is complete.

`make test` checks what is sent. The long tier checks when it is displayed, and what arrives of the
audio.
"""

import itertools

import pytest

from kit.relay import UdpRelay
from kit.report import percentiles

SPEECH = (
    "The first room shows the old clocks, and the oldest of them was built by Thomas Tompion in "
    "sixteen seventy six. Five of its wheels are made of pear wood. "
    "Behind the house there is a garden with apple trees, a pond and a bench, where visitors may "
    "rest before they move on to the paintings."
)
#: Seconds until the server has estimated the bandwidth.
ESTIMATION_SECONDS = 6


@pytest.mark.long("network")
@pytest.mark.parametrize(("kbits", "max_seconds"), [(400, 3), (200, ESTIMATION_SECONDS)])
def test_a_call_works_at_low_bandwidth(server, call, report, kbits, max_seconds):
    relay = UdpRelay(rate=kbits * 1000)
    page = call()
    relay.intercept(page)
    relay.start()
    try:
        conversation = server.create_conversation(
            server.create_agent(name="Talker", greeting="")["id"]
        )
        page.open(conversation["join_link"])
        started_at = page.audio_clock()
        page.join()
        mark = page.message_count()
        assert (
            server.request(
                "PUT", f"/v1/conversation/{conversation['id']}/speak", {"text": SPEECH}
            ).status
            == 200
        )
        started = page.wait_for_event("agent.started_speaking", mark, timeout=20)["t"]
        page.wait_until_time(started_at + ESTIMATION_SECONDS)
        lost = relay.downlink_counts["lost"]
        stopped = page.wait_for_event("agent.stopped_speaking", mark, timeout=60)["t"]
        first = page.displayed_frames(0, page.audio_clock())[0][0] - started_at
        steps = page.displayed_frames(max(started, started_at + ESTIMATION_SECONDS), stopped)
        gaps = [then - at for (at, _), (then, _) in itertools.pairwise(steps)]
        voice, video, lost = (
            page.audio_stats(),
            page.video_stats(),
            relay.downlink_counts["lost"] - lost,
        )
    finally:
        relay.close()
    received_share = voice["packetsReceived"] / (voice["packetsReceived"] + voice["packetsLost"])
    found = {
        "the first picture after": round(first, 2),
        "between two": percentiles(gaps),
        "pli": video["pliCount"],
        "lost later on": lost,
        "of the voice": round(received_share, 3),
        "concealed": round(voice["concealedSamples"] / voice["totalSamplesReceived"], 3),
    }
    report.add(f"a line of {kbits} kbit/s", found)
    assert first < max_seconds, found
    # On such a link the server does not resend an unchanged picture.
    assert len(gaps) > 100 and found["between two"]["p95"] < 0.25 and max(gaps) < 1, found
    assert received_share > 0.95 and lost < 120, found


def test_a_silent_agent_is_visible_at_low_bandwidth(server, call, report):
    """The avatar leans soon. The frames that the leaning head needs must not be sent again for each
    key frame that is requested meanwhile."""
    relay = UdpRelay(rate=200_000)
    page = call()
    relay.intercept(page)
    relay.start()
    try:
        page.open(
            server.create_conversation(
                server.create_agent(name="Listener", greeting="", transcripts=[])["id"]
            )["join_link"]
        )
        page.join()
        relay.wait_for(lambda: relay.reference_frames() > 0, "the leaning head")
        page.wait_for("frames", {"more": 20}, timeout=60)
        # In order: each frame follows the one that requested it.
        reference_frames, key_frames, video = (
            relay.reference_frames(),
            relay.key_frames(),
            page.video_stats(),
        )
    finally:
        relay.close()
    found = {
        "pli": video["pliCount"],
        "fir": video["firCount"],
        "keys": key_frames,
        "anchors": reference_frames,
    }
    report.add("a silent agent on a line of 200 kbit/s", found)
    # Every key frame but the first was requested. The frames of the leaning head are sent once
    # after a key frame.
    assert 1 <= reference_frames <= key_frames <= 1 + video["pliCount"] + video["firCount"], found


@pytest.mark.long("network")
def test_a_silent_agent_is_visible_soon_at_low_bandwidth(server, call, report):
    relay = UdpRelay(rate=200_000)
    page = call()
    relay.intercept(page)
    relay.start()
    try:
        page.open(
            server.create_conversation(server.create_agent(name="Listener", greeting="")["id"])[
                "join_link"
            ]
        )
        started_at = page.audio_clock()
        page.join()
        page.wait_until_time(started_at + 12)
        shown = page.displayed_frames(0, page.audio_clock())
    finally:
        relay.close()
    found = {"the first picture after": round(shown[0][0] - started_at, 2), "pictures": len(shown)}
    report.add("pictures of a silent agent on a line of 200 kbit/s", found)
    assert shown[0][0] - started_at < ESTIMATION_SECONDS and len(shown) > 20, found
