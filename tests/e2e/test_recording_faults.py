"""Recorded calls whose page is reloaded, whose network loses packets, whose viewer receives no
video, and whose server is killed at random moments."""

import os
import statistics

import pytest

from kit import recorded_call, rtp
from kit.recorded_call import GREETING, QUESTIONS
from kit.recording_file import Recording, download, wait_for_recording
from kit.relay import JITTER_RANGE, UdpRelay
from kit.typed_call import TypedCall, create_typed_agent, run_call
from kit.webrtc_client import run_async

pytestmark = pytest.mark.long("recording")

KILLS = int(os.environ.get("RECORDING_KILLS", "100"))
#: Seconds of a call until its server is killed.
KILL_AFTER = (0.3, 4.0)
#: What may be lost, in seconds: packets wait up to 0.2 s for their batch (engine/src/call/
#: recording.rs) and 1 s for the next write (engine/src/recorder.rs).
MAX_LOSS = 1.2
#: Minimum share of a question at 10 % loss in bursts, which change most of its snippets. Other
#: speech of the same voice reaches .1.
DAMAGED_SHARE = 0.25
#: It takes six seconds.
LONG_GREETING = " ".join(f"The clock number {n} is as old as the hills." for n in range(100, 116))
#: Samples per second of the timestamps of packets, and the level above which there is sound.
CLOCK_RATE, SOUND_LEVEL = 48_000, 300


@pytest.fixture(scope="module")
def server(start_server):
    server = start_server("recorded-calls", env=recorded_call.ENVIRONMENT)
    return server.read_first_start().wait_ready()


def check_recording(server, conversation: str, report, name: str):
    """Checks the voices, the mouth and the pictures of the file. Returns it."""
    record = wait_for_recording(server, conversation)
    recording = download(server, record)
    measured = recorded_call.measure(record, recording)
    report.add(name, recorded_call.summary(measured))
    recorded_call.check(measured)
    return recording


def ask(page, question: str):
    """Asks, and waits for the end of the answer."""
    mark = page.message_count()
    page.speak(question)
    page.wait_for_event("utterance_committed", mark)
    answer = page.wait_for_event("agent.stopped_speaking", mark)
    page.wait_for_silence(after=answer["t"])


def test_a_reload_during_a_call_leaves_no_gap(server, call, scripted_llm, report):
    """The call goes on while the page is loaded again, and so do the video and the clock."""
    agent = recorded_call.create_agent(server, scripted_llm)
    conversation = server.create_conversation(agent["id"])
    page = call().open(conversation["join_link"])
    page.join()
    page.wait_for_event("agent.stopped_speaking")
    ask(page, QUESTIONS[0])
    page.page.reload()
    page.page.evaluate("e2e.ready")
    page.wait_for("frames", {"more": 1})
    ask(page, QUESTIONS[1])
    page.page.click("#hang-up")
    recording = check_recording(server, conversation["id"], report, "a recording with a reload")
    for question in QUESTIONS[:2]:
        recorded_call.expect_arrival(question, recording)


def test_packet_loss_affects_the_user_s_voice_only(server, call, scripted_llm, report):
    """One in ten packets is lost in both directions. The agent's voice and the video are recorded
    before they are lost."""
    relay = UdpRelay(0.1, burst=3, jitter=JITTER_RANGE, up_loss=0.1)
    page = call()
    relay.intercept(page)
    relay.start()
    try:
        agent = recorded_call.create_agent(server, scripted_llm)
        conversation = server.create_conversation(agent["id"])
        page.open(conversation["join_link"])
        page.join()
        page.wait_for_event("agent.stopped_speaking")
        for question in QUESTIONS[:3]:
            ask(page, question)
        page.page.click("#hang-up")
        server.wait_for(conversation["id"], "ENDED")
    finally:
        relay.close()
    assert relay.downlink_counts["lost"] > 50 and relay.uplink_counts["lost"] > 50, relay
    recording = check_recording(server, conversation["id"], report, "a recording at 10% loss")
    for question in QUESTIONS[:3]:
        recorded_call.expect_arrival(question, recording, DAMAGED_SHARE)


def test_a_viewer_without_video_is_recorded_with_video(server, scripted_llm, report):
    agent = recorded_call.create_agent(server, scripted_llm)

    async def listen(client):
        assert not any(one.kind == "video" for one in client.peer.getTransceivers())
        await client.wait_for_utterance(GREETING)

    ended = run_call(server, agent, listen)
    check_recording(server, ended["id"], report, "a recording without a viewer")


class KilledCall:
    """A call whose server is killed while the agent speaks."""

    def __init__(self, server, agent):
        self.conversation = server.create_conversation(agent["id"])
        self.id = self.conversation["id"]
        self.server = server

    async def run(self, seconds: float):
        client = TypedCall(self.server, self.conversation)
        self.track = rtp.TrackRecorder(client, "audio")
        await client.join()
        await client.wait_for(lambda: self.sent_seconds() >= seconds, what=f"{seconds} s of sound")
        self.server.kill()
        self.seconds = self.sent_seconds()
        await client.peer.close()

    def sent_seconds(self) -> float:
        """Seconds from the first packet of the agent's voice to the end of the last one."""
        packets = self.track.packets
        if not packets:
            return 0.0
        (first, _), (last, _) = packets[min(packets)], packets[max(packets)]
        return rtp.counter_distance(last, first, 32) / CLOCK_RATE + 0.02

    def lost_seconds(self, recording) -> float:
        """How much of the call's end is missing in the file. Both clocks are aligned by the first
        sound of the agent."""
        packets = [self.track.packets[n] for n in sorted(self.track.packets)]
        samples = rtp.decode_opus(packets)
        loud = [n for n, sample in enumerate(samples) if abs(int(sample)) > SOUND_LEVEL]
        first_sound = recording.first_sound(recording.agent, 0)
        return first_sound - loud[0] / CLOCK_RATE + self.seconds - recording.duration


def test_a_hundred_killed_servers_lose_the_last_second_only(start_server, tmp_path, rng, report):
    """Each start finishes the file of the call before, unless it is killed before that, too. The
    last one finishes all."""
    server = start_server("killed", data=tmp_path, env=recorded_call.ENVIRONMENT)
    server.read_first_start().wait_ready()
    key = server.key
    agent = create_typed_agent(
        server,
        greeting=LONG_GREETING,
        avatar={"avatar_key_id": "flash"},
        config={"recording": {"channels": "split"}},
        extra={"record": True},
    )
    calls = []
    for _ in range(KILLS):
        calls.append(KilledCall(server, agent))
        run_async(calls[-1].run(rng.uniform(*KILL_AFTER)))
        server = start_server("killed", data=tmp_path, env=recorded_call.ENVIRONMENT)
        server.key = key
        server.wait_ready()
        assert server.wait_for(calls[-1].id, "ENDED")["id"] == calls[-1].id
    lost, empty, failures = [], [], []
    for one in calls:
        recording = read(server, one)
        if recording is None:
            empty.append(one.seconds)
            continue
        lost.append(one.lost_seconds(recording))
        complete = (
            lost[-1] <= MAX_LOSS
            and not recording.is_silent(recording.agent, 0, recording.duration)
            and recording.pictures[-1] > recording.duration - 0.5
        )
        if not complete:
            failures.append((one.id, one.seconds, lost[-1], recording.pictures[-1:]))
    found = {
        "calls": len(calls),
        "calls without a file": sorted(empty),
        "lost seconds": [min(lost), statistics.median(lost), max(lost)],
    }
    report.add("recordings of killed servers", found)
    assert failures == [], found
    assert max(empty, default=0) <= MAX_LOSS and len(lost) > KILLS / 2, found


def read(server, call: KilledCall) -> Recording | None:
    """The recording; `None` if nothing of a short call was written."""
    record = server.get_conversation(call.id)
    if not record["is_recorded"] and call.seconds <= MAX_LOSS:
        return None
    record = server.wait_for_record(
        call.id, lambda record: record["recording_url"] or record.get("recording_error"), 60
    )
    if record["recording_url"]:
        return download(server, record)
    assert record["recording_error"] == "nothing was recorded", record
    assert call.seconds <= MAX_LOSS, call.seconds
    return None
