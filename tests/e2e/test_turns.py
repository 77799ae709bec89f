"""Barge-in as a person hears it: a sound without words, a listener's "okay", and "stop". A script
says how the server recognizes each of them; the VAD is the real one. engine/tests/media_thread.rs
and engine/conversation/tests have the exact times, in simulated time."""

import dataclasses

import numpy as np
import pytest

from kit import audio_match, speech
from kit.filler_sounds import filler_sound

TEXT = "The garden behind the house has red roses and a small river and a bridge made of stone."
#: A sound of three tenths of a second, and one of a second and a half.
SHORT_SOUND, LONG_SOUND = ("slt", "um", 1, 1, 0), ("awb", "uh", 2.2, 5, 0.05)
#: Longer than the short sound and its silence, shorter than the long one. What the VAD adds or
#: misses makes no difference.
MIN_INTERRUPTION = 0.8


@dataclasses.dataclass
class AgentReply:
    """What a page heard of the text, and its events."""

    arrival: audio_match.Arrival
    #: How much louder each snippet is than flite's own, relative to their median.
    gains: np.ndarray
    #: Seconds by which each found snippet is later than the one before.
    delays: np.ndarray
    events: list[dict]

    def names(self) -> list[str]:
        return [event["name"] for event in self.events]

    def text(self) -> str:
        """What the user heard, as the server reports it."""
        return next(event for event in self.events if event["name"] == "agent.stopped_speaking")[
            "payload"
        ]["text"]


@pytest.fixture
def interrupted_reply(server, call):
    """Makes an agent speak the text, and plays a sound (a WAV) after a second of it:
    `interrupted_reply(wav, transcript)`."""

    def make(wav: str | None, transcript: dict | None = None, text: str = TEXT) -> AgentReply:
        agent = server.create_agent(
            turn={"min_interruption_duration": MIN_INTERRUPTION},
            avatar={"idle_timeout": {"timeout": 0}},
            transcripts=[transcript or {}],
        )
        conversation = server.create_conversation(agent["id"])
        page = call(options={"packets": True}).open(conversation["join_link"])
        page.join()
        mark, started_at = page.message_count(), page.audio_clock()
        reply = server.request(
            "PUT", f"/v1/conversation/{conversation['id']}/speak", {"text": text}
        )
        assert reply.status == 200, reply
        if wav:
            page.page.evaluate("(wav) => e2e.speakOver(wav, 1.0, 60_000)", wav)
            page.wait_for_message("user-stopped-speaking", mark)
        page.wait_for_silence(
            lasting=0.8, after=page.wait_for_event("agent.stopped_speaking", mark)["t"]
        )
        _, agent_sound = page.rtp_audio(started_at, page.audio_clock())
        messages = page.page.evaluate(f"e2e.messages.slice({mark}).filter((m) => m.data?.event)")
        return analyze_reply(
            agent_sound, [m["data"]["event"].get("event") or m["data"]["event"] for m in messages]
        )

    return make


def analyze_reply(recording: np.ndarray, events: list[dict]) -> AgentReply:
    reference = audio_match.synthesize([TEXT], "rms")[0]
    received = audio_match.resample(recording, speech.SAMPLE_RATE)
    found = [
        snippet
        for snippet in audio_match.locate_snippets(reference, received)
        if snippet.fit >= audio_match.MATCH_THRESHOLD
    ]
    gains = np.array([snippet.gain for snippet in found])
    late = np.diff([snippet.place - snippet.at for snippet in found]) if found else np.zeros(0)
    return AgentReply(
        audio_match.match(reference, received), gains / np.median(gains), late, events
    )


def test_a_short_sound_lets_the_agent_go_on(interrupted_reply):
    short = interrupted_reply(filler_sound(*SHORT_SOUND), {"sound_s": 0.3})
    assert short.text() == TEXT and "agent.interrupted" not in short.names(), short.events
    audio_match.expect_arrival(short.arrival, "the text")


@pytest.mark.long("network")
def test_a_short_sound_makes_the_agent_quieter(interrupted_reply):
    """A sound that arrives in one burst, because the browser had no CPU time, begins and ends at
    once, and does not lower the volume."""
    plain = interrupted_reply(None)
    assert plain.text() == TEXT, plain.events
    audio_match.expect_arrival(plain.arrival, "the text")
    assert plain.gains.min() > 0.6, f"the agent got quieter without a reason: {plain.gains}"
    short = interrupted_reply(filler_sound(*SHORT_SOUND), {"sound_s": 0.3})
    assert short.gains.min() < 0.6, f"the agent got no quieter: {short.gains}"


def test_a_backchannel_does_not_interrupt_the_agent(interrupted_reply):
    okay = interrupted_reply(
        speech.speak_wav("Okay.", "rms")[0], {"transcript": "Okay.", "sound_s": 0.4}
    )
    assert okay.text() == TEXT and "agent.interrupted" not in okay.names(), okay.events
    audio_match.expect_arrival(okay.arrival, "the text")


def test_stop_stops_the_agent(interrupted_reply):
    # Long enough for a page without CPU time to say it before the end.
    text = " ".join([TEXT] * 4)
    stop = interrupted_reply(
        speech.speak_wav("Stop.", "rms")[0], {"transcript": "Stop.", "sound_s": 0.4}, text
    )
    assert "agent.interrupted" in stop.names(), stop.events
    assert text.startswith(stop.text().rstrip(" .")) and 1 <= len(stop.text().split()) < len(
        text.split()
    ), stop.text()


@pytest.mark.long("network")
def test_a_longer_sound_without_words_holds_and_resumes_the_agent(
    interrupted_reply,
):
    """As above, a sound in one burst is a short one. engine/tests/media_thread.rs tests it in
    virtual time (`a_false_interruption_resumes_at_the_sample_it_was_held_at`)."""
    long = interrupted_reply(filler_sound(*LONG_SOUND), {"sound_s": 1.5})
    assert long.text() == TEXT, long.events
    # One silent gap. The audio after it continues where it stopped.
    assert long.delays.max() > 0.5, f"the agent never paused: {long.delays}"
    assert (long.delays > -0.5).all(), f"the agent went back: {long.delays}"
