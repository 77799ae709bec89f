"""What a call in a browser notices of an avatar that is drawn meanwhile."""

import base64
import re

import pytest

from kit.polling import wait_until
from kit.server import ROOT

PICTURE = (ROOT / "assets" / "avatars" / "mei.512.webp").read_bytes()
PHOTO = f"data:image/webp;base64,{base64.b64encode(PICTURE).decode()}"
#: Spoken for about 90 s.
GREETING = " ".join(
    f"This is sentence number {number}, and while I say it, another avatar is drawn."
    for number in range(1, 25)
)
#: Seconds of the call before the drawing starts, for comparison.
SECONDS_BEFORE = 15
#: Seconds of a drawing beside a browser.
MAX_DRAWING = 60
#: By how much a tick may start later during a drawing, in ms, for 99 % of the ticks.
MAX_RISE_MS = 2
METRIC = "visavis_media_tick_lateness_seconds_bucket"


def ticks_by_bound(server):
    """How many ticks of all media threads started at most this much too late: by ms."""
    text = server.request("GET", "/metrics").body.decode()
    counts = {}
    for labels, count in re.findall(rf"^{METRIC}{{(.*)}} (\d+)$", text, re.MULTILINE):
        bound = float(re.search(r'le="([^"]+)"', labels)[1]) * 1000
        counts[bound] = counts.get(bound, 0) + int(count)
    assert counts, text[:500]
    return counts


def p99_between(before, after):
    """99th percentile of the lateness in ms, interpolated within its bucket."""
    ticks = {bound: after[bound] - before[bound] for bound in sorted(after)}
    wanted = max(ticks.values()) * 0.99
    low, below = 0, 0
    for bound, count in ticks.items():
        if count >= wanted:
            return low + (bound - low) * (wanted - below) / max(1, count - below)
        low, below = bound, count
    raise AssertionError(ticks)


@pytest.mark.long("faces")
def test_a_drawing_takes_no_picture_from_a_call(start_server, call, report):
    server = start_server("drawing").read_first_start().wait_ready()
    agent = server.create_agent(greeting=GREETING, transcripts=[])
    page = call()
    page.open(server.create_conversation(agent["id"])["join_link"])
    page.join()
    page.wait_for_event("agent.started_speaking")
    spoken = page.wait_for_sound(0)
    start = ticks_by_bound(server)
    page.wait_until_time(spoken["from"] + SECONDS_BEFORE)
    before, seen = ticks_by_bound(server), page.video_stats()

    body = {"avatar_name": "Mia", "gender": "female", "input_image": PHOTO}
    created = server.request("POST", "/v2/custom-avatar", body)
    assert created.status == 200, created
    path = f"/v2/custom-avatar/{created.json()['id']}"

    def finished():
        record = server.request("GET", path).json()
        assert record["status"] != "FAILED", record
        return record["status"] == "COMPLETED"

    wait_until(finished, "the drawing", MAX_DRAWING)
    after, stats = ticks_by_bound(server), page.video_stats()
    assert not page.event_texts("agent.stopped_speaking"), "the drawing outlasted the speech"
    found = {
        "p99 before": p99_between(start, before),
        "p99 during": p99_between(before, after),
        "freezes": stats["freezeCount"] - seen["freezeCount"],
        "pictures": stats["framesDecoded"] - seen["framesDecoded"],
    }
    report.add("a drawing beside a call", found)
    assert found["freezes"] == 0 and found["pictures"] > 100, found
    assert found["p99 during"] <= found["p99 before"] + MAX_RISE_MS, found
