"""Barge-in as a person hears it: a sound without words, a listener's "okay", and "stop". What each of them is to the server, a script says; the
detector is the real one. engine/tests/media_thread.rs and engine/conversation/tests have the exact times, in simulated time."""

import dataclasses

import numpy as np
import pytest

from kit import sound, voice
from kit.hum import hum

TEXT = "The garden behind the house has red roses and a small river and a bridge made of stone."
#: A sound of three tenths of a second, and one of a second and a half.
SHORT, LONG = ("slt", "um", 1, 1, 0), ("awb", "uh", 2.2, 5, 0.05)
#: Longer than the short sound and its silence, shorter than the long one: what the detector adds or misses is no matter.
HOLD = 0.8


@dataclasses.dataclass
class Heard:
    """What a page heard of the text, and was told."""

    arrival: sound.Arrival
    #: How much louder each piece is than as flite speaks it, as a factor of their median.
    gains: np.ndarray
    #: Seconds by which each found piece is late against the one before.
    delays: np.ndarray
    events: list[dict]

    def names(self) -> list[str]:
        return [event["name"] for event in self.events]

    def text(self) -> str:
        """What the user heard, as the server tells it."""
        return next(event for event in self.events if event["name"] == "agent.stopped_speaking")["payload"]["text"]


@pytest.fixture
def talk(server, call):
    """Lets an agent say the text, and plays a sound (a WAV) when it has spoken for a second: `talk(wav, understood)`."""

    def make(wav: str | None, understood: dict | None = None, text: str = TEXT) -> Heard:
        agent = server.agent(turn={"min_interruption_duration": HOLD}, avatar={"idle_timeout": {"timeout": 0}}, hears=[understood or {}])
        conversation = server.conversation(agent["id"])
        page = call(options={"packets": True}).open(conversation["join_link"])
        page.join()
        mark, begun = page.mark(), page.now()
        reply = server.call("PUT", f"/v1/conversation/{conversation['id']}/speak", {"text": text})
        assert reply.status == 200, reply
        if wav:
            page.page.evaluate("(wav) => e2e.speakOver(wav, 1.0, 60_000)", wav)
            page.message("user-stopped-speaking", mark)
        page.quiet(lasting=0.8, after=page.event("agent.stopped_speaking", mark)["t"])
        _, agent_sound = page.packets(begun, page.now())
        messages = page.page.evaluate(f"e2e.messages.slice({mark}).filter((m) => m.data?.event)")
        return heard(agent_sound, [m["data"]["event"].get("event") or m["data"]["event"] for m in messages])

    return make


def heard(recording: np.ndarray, events: list[dict]) -> Heard:
    said = sound.spoken([TEXT], "rms")[0]
    came = sound.resample(recording, voice.RATE)
    found = [piece for piece in sound.places(said, came) if piece.fit >= sound.ALIKE]
    gains = np.array([piece.gain for piece in found])
    late = np.diff([piece.place - piece.at for piece in found]) if found else np.zeros(0)
    return Heard(sound.arrived(said, came), gains / np.median(gains), late, events)


def test_a_short_sound_lets_the_agent_go_on(talk):
    short = talk(hum(*SHORT), {"sound_s": 0.3})
    assert short.text() == TEXT and "agent.interrupted" not in short.names(), short.events
    sound.expect(short.arrival, "the text")


@pytest.mark.long("network")
def test_a_short_sound_makes_the_agent_quieter(talk):
    """A sound that comes in one burst, because the browser had no processor, begins and ends at one instant, and makes nothing quieter."""
    plain = talk(None)
    assert plain.text() == TEXT, plain.events
    sound.expect(plain.arrival, "the text")
    assert plain.gains.min() > 0.6, f"the agent got quieter without a reason: {plain.gains}"
    short = talk(hum(*SHORT), {"sound_s": 0.3})
    assert short.gains.min() < 0.6, f"the agent got no quieter: {short.gains}"


def test_okay_lets_the_agent_go_on(talk):
    okay = talk(voice.say("Okay.", "rms")[0], {"transcript": "Okay.", "sound_s": 0.4})
    assert okay.text() == TEXT and "agent.interrupted" not in okay.names(), okay.events
    sound.expect(okay.arrival, "the text")


def test_stop_stops_the_agent(talk):
    # So long that a page without processor says it before the end.
    text = " ".join([TEXT] * 4)
    stop = talk(voice.say("Stop.", "rms")[0], {"transcript": "Stop.", "sound_s": 0.4}, text)
    assert "agent.interrupted" in stop.names(), stop.events
    assert text.startswith(stop.text().rstrip(" .")) and 1 <= len(stop.text().split()) < len(text.split()), stop.text()


@pytest.mark.long("network")
def test_a_longer_sound_without_words_holds_the_agent_and_it_goes_on_where_it_was(talk):
    """As above, a sound in one burst is a short one. engine/tests/media_thread.rs holds it in virtual time
    (`a_false_interruption_resumes_at_the_sample_it_was_held_at`)."""
    long = talk(hum(*LONG), {"sound_s": 1.5})
    assert long.text() == TEXT, long.events
    # One gap, in which it was silent; what sounds after it is what would have followed.
    assert long.delays.max() > 0.5, f"the agent never paused: {long.delays}"
    assert (long.delays > -0.5).all(), f"the agent went back: {long.delays}"
