"""Faulty networks and devices: no UDP, a stopped server, a microphone whose audio gets lost,
another microphone."""

import os
import signal

import pytest

from kit import audio_match

CLOCK = "Who built the oldest clock in the museum?"
FIRST_ROOM = "What do visitors see in the first room?"


@pytest.fixture(scope="module")
def make_join_link(server):
    agent = server.create_agent(greeting="Hello, and welcome to the museum.")
    return lambda: server.create_conversation(agent["id"])["join_link"]


# The page's policy forbids Playwright's own wait for a condition.
WAIT_SCRIPT = """() => new Promise((done, fail) => {{
    const late = performance.now() + 60_000;
    const look = () => {{
      if ({0}) done();
      else if (performance.now() > late) fail(new Error(`timed out while waiting for {0}`));
      else requestAnimationFrame(look);
    }};
    look(); }})"""
# The protocols of the candidate pair that the call uses, as soon as the browser reports one.
SELECTED_PAIR_SCRIPT = """async () => {
  for (let pair, stats; ; await new Promise(requestAnimationFrame)) {
    stats = [...(await e2e.peer.getStats()).values()];
    pair = stats.find((s) => s.type === 'candidate-pair' && s.nominated && s.state === 'succeeded');
    if (!pair) continue;
    const candidate = (id) => stats.find((s) => s.id === id);
    const [local, remote] = [pair.localCandidateId, pair.remoteCandidateId].map(candidate);
    return { local: local.protocol, remote: remote.protocol }; } }"""


def test_without_udp_the_call_goes_by_tcp(server, call):
    """The answer's UDP candidates lead nowhere, as behind a firewall without UDP. Everything uses
    ICE-TCP: audio, video and captions."""
    agent = server.create_agent(
        greeting="Hello, and welcome to the museum.",
        knowledge="The oldest clock in the museum was built by Tompion.",
        transcripts=[CLOCK],
        tap=True,
    )
    conversation = server.create_conversation(agent["id"])
    page = call(options={"packets": True})
    page.context.add_init_script("""
        const set = RTCPeerConnection.prototype.setRemoteDescription;
        RTCPeerConnection.prototype.setRemoteDescription = function (about) {
          const udp = /(a=candidate:\\S+ 1 udp \\d+) \\S+ \\d+ /gi;
          const sdp = about.sdp.replace(udp, '$1 192.0.2.1 9 ');
          return set.call(this, { type: about.type, sdp });
        };""")
    page.open(conversation["join_link"])
    page.join()
    assert page.page.evaluate(SELECTED_PAIR_SCRIPT) == {"local": "tcp", "remote": "tcp"}
    page.wait_for_event("agent.stopped_speaking")
    page.wait_for_silence(lasting=1.0)
    mark, before = page.message_count(), page.audio_clock()
    user_speech = page.speak(CLOCK)
    page.wait_for_event("utterance_committed", mark)
    assert page.wait_for_sound(user_speech.end)["from"] > user_speech.end
    answer = page.wait_for_event("agent.stopped_speaking", mark)
    page.wait_for_silence(after=answer["t"])
    user_audio, agent_audio = page.rtp_audio(before, page.audio_clock())
    arrival = audio_match.match_stt_audio(user_audio, server.stt_audio(agent))
    audio_match.expect_arrival(arrival, "the question")
    arrival = audio_match.match_page_audio([answer["payload"]["text"]], "rms", agent_audio)[0]
    audio_match.expect_arrival(arrival, "the answer")
    page.page.click("#hang-up")
    record = server.wait_for(conversation["id"], "ENDED")
    assert [turn["role"] for turn in record["transcript"]][:2] == ["assistant", "user"], record[
        "transcript"
    ]


@pytest.mark.long("network")
def test_a_client_reconnects_to_a_server_that_was_stopped_for_seconds(start_server, call):
    """No packet for four seconds. The page reports the interruption and tries again, and the same
    call continues."""
    server = start_server("standstill").read_first_start().wait_ready()
    agent = server.create_agent(
        greeting="Hello, and welcome to the museum.", transcripts=[FIRST_ROOM]
    )
    conversation = server.create_conversation(agent["id"])
    page = call().open(conversation["join_link"])
    page.join()
    page.wait_for_event("agent.stopped_speaking")
    page.wait_for_silence(lasting=1.0)
    offers = page.page.evaluate("e2e.offers.length")
    os.kill(server.process.pid, signal.SIGSTOP)
    try:
        page.page.wait_for_selector(
            "#notice:has-text('The connection is interrupted')", timeout=60_000
        )
    finally:
        os.kill(server.process.pid, signal.SIGCONT)
    page.page.wait_for_selector("#notice", state="hidden", timeout=60_000)
    assert page.page.evaluate("e2e.offers.length") > offers
    mark = page.message_count()
    page.speak(FIRST_ROOM)
    page.wait_for_event("utterance_committed", mark)
    assert server.get_conversation(conversation["id"])["status"] == "IN_PROGRESS"


def test_a_microphone_whose_audio_is_lost_is_reported(make_join_link, call):
    """The level of the microphone moves and nothing arrives. The page says so, and offers the
    devices."""
    page = call().open(make_join_link())
    page.join()
    page.wait_for_silence(lasting=1.0)
    sender = "e2e.peer.getTransceivers().find((t) => t.receiver.track.kind === 'audio').sender"
    page.page.evaluate(f"(e2e.removedTrack = {sender}.track, {sender}.replaceTrack(null))")
    notice = "#notice:has-text('does not reach the agent')"

    def talk_until_noticed():
        """A user who is not heard continues to talk. A page without CPU time samples its microphone
        too rarely, and earlier speech is still answered. So one sentence may not be enough
        (tests/js/unheard-microphone.test.mjs tests the exact time)."""
        for _ in range(12):
            user_speech = page.speak(
                "Hello? Can you hear me? I have been talking for quite a while now, and nothing "
                "happens at all."
            )
            page.wait_until_time(user_speech.end)
            if page.page.is_visible(notice):
                return
        raise AssertionError("the page never said that the sound does not arrive")

    talk_until_noticed()
    # The notice disappears when it is no longer true.
    page.page.evaluate(f"{sender}.replaceTrack(e2e.removedTrack)")
    page.speak("Can you hear me now?")
    page.page.wait_for_selector("#notice", state="hidden", timeout=60_000)
    page.page.evaluate(f"{sender}.replaceTrack(null)")
    talk_until_noticed()
    page.page.click("#notice-action")
    page.page.wait_for_selector("#microphone:focus")


def test_another_microphone_is_chosen_in_mid_call(make_join_link, call):
    """Chromium's fake devices, each of which beeps. The chosen one is opened, sent, and heard by
    the server."""
    page = call(options={"ownMicrophone": True}).open(make_join_link())
    page.join()
    page.page.click("#devices")
    page.page.wait_for_selector("#microphone option:nth-child(3)", state="attached")
    choices = page.page.eval_on_selector_all(
        "#microphone option", "(all) => all.map((o) => o.value)"
    )
    current = page.page.input_value("#microphone")
    other = next(choice for choice in choices if choice not in (current, "default"))
    page.page.select_option("#microphone", other)
    sent = (
        "e2e.peer.getSenders().find((s) => s.track?.kind === 'audio')?.track.getSettings().deviceId"
    )
    page.page.evaluate(WAIT_SCRIPT.format(f"{sent} === {other!r}"))
    page.page.evaluate(
        WAIT_SCRIPT.format(f"document.getElementById('microphone').value === {other!r}")
    )
    mark = page.message_count()
    page.page.evaluate(
        WAIT_SCRIPT.format(f"e2e.messages.slice({mark}).some((m) => m.data?.level > 0.2)")
    )
