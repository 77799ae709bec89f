"""Barge-in as a person hears it, with the recogniser and not a script: a sound without words, "okay", and "stop"."""

import dataclasses

import numpy as np
import pytest

from kit import voice
from kit.hum import LONG, SHORT, hum

TEXT = "The garden behind the house has red roses and a small river and a bridge made of stone where people sit in the afternoon and listen to the water."
HOLD = 0.4
STEP = 0.01
LOUD = 0.004


@pytest.fixture(scope="module")
def museum(server):
    return server.agent(name="Turns", turn={"min_interruption_duration": HOLD}, avatar={"idle_timeout": {"timeout": 0}})


@dataclasses.dataclass
class Spoken:
    """The agent's sound of one `speak`, from its first to its last, and what was told meanwhile."""

    loudness: np.ndarray
    start: float
    events: list[dict]
    samples: np.ndarray

    @property
    def seconds(self) -> float:
        return len(self.loudness) * STEP

    def pause(self) -> tuple[float, float]:
        """The longest silence: when it began, and how long it lasted."""
        best = (0, 0)
        at = 0
        for loud in [*(self.loudness > LOUD), True]:
            if loud:
                at = 0
            else:
                at += 1
                best = max(best, (at, 0), key=lambda pair: pair[0])
        length = best[0]
        quiet = (self.loudness <= LOUD).astype(int)
        first = next(i for i in range(len(quiet) - length + 1) if quiet[i : i + length].all())
        return first * STEP, length * STEP

    def text(self) -> str:
        """What the user heard, as the server tells it."""
        return next(event for event in self.events if event["name"] == "agent.stopped_speaking")["payload"]["text"]

    def names(self) -> list[str]:
        return [event["name"] for event in self.events]


def events(page, mark: int) -> list[dict]:
    messages = page.page.evaluate(f"e2e.messages.slice({mark}).filter((m) => m.data?.event)")
    return [message["data"]["event"].get("event") or message["data"]["event"] for message in messages]


def says(server, page, conversation: dict, over: str | None = None, into: float = 2.0) -> Spoken:
    """Lets the agent say the text; `over` is played when it has spoken for `into` seconds."""
    mark, begun = page.mark(), page.now()
    reply = server.call("PUT", f"/v1/conversation/{conversation['id']}/speak", {"text": TEXT})
    assert reply.status == 200, reply
    if over:
        page.page.evaluate("([wav, into]) => e2e.speakOver(wav, into, 20000)", [over, into])
    page.event("agent.stopped_speaking", mark, timeout=40)
    silent = page.quiet(lasting=0.8, after=begun, timeout=40)
    _, agent = page.recording(begun, silent)
    loudness = voice.loudness(agent, step=STEP)
    loud = np.flatnonzero(loudness > LOUD)
    first, last = loud[0], loud[-1] + 1
    samples = agent[int(first * STEP * voice.RATE) : int(last * STEP * voice.RATE)]
    return Spoken(loudness[first:last], begun + first * STEP, events(page, mark), samples)


def without_words(page, sounds: list, least: float, most: float) -> str:
    """The first sound that is a voice to the detector, for as long as is wished (its silence of 0.25 s apart), and no word to the recogniser, twice."""
    seen = []
    for sound in sounds:
        for _ in range(2):
            mark = page.mark()
            said = page.page.evaluate("(wav) => e2e.speak(wav)", hum(*sound))
            page.pass_to(said["end"] + 2.3)
            messages = page.page.evaluate(f"e2e.messages.slice({mark})")
            at = {message["type"]: message["t"] for message in messages}
            lasted = at.get("user-stopped-speaking", 0) - at.get("user-started-speaking", 0) - 0.25
            words = [m["data"]["text"] for m in messages if m["type"] == "user-transcription" and m["data"]["final"]]
            seen.append((sound, round(lasted, 2), words))
            page.quiet(lasting=0.5, timeout=30)
            if words or not least < lasted < most:
                break
        else:
            return hum(*sound)
    raise AssertionError(f"every sound has words, or no voice: {seen}")


def test_who_is_let_by_and_who_stops_the_agent(server, call, museum, report):
    conversation = server.conversation(museum["id"])
    page = call().open(conversation["join_link"])
    page.join()
    page.quiet(lasting=1.0)

    short_sound = without_words(page, SHORT, 0.15, HOLD - 0.02)
    long_sound = without_words(page, LONG, HOLD + 0.05, 1.5)

    plain = says(server, page, conversation)
    assert plain.text() == TEXT
    spoken = voice.recognise(plain.samples)

    # A short sound: quieter while it lasts, not one sample later than without.
    short = says(server, page, conversation, short_sound)
    assert short.text() == TEXT and "agent.interrupted" not in short.names(), short.events
    assert abs(short.seconds - plain.seconds) < 0.1, (short.seconds, plain.seconds)
    length = min(len(short.loudness), len(plain.loudness))
    sounding = plain.loudness[:length] > 0.02
    ratio = np.where(sounding, short.loudness[:length] / np.maximum(plain.loudness[:length], 1e-6), 1)
    quietest = min(np.median(ratio[at : at + 15]) for at in range(length - 15) if sounding[at : at + 15].all())
    assert quietest < 0.45, f"the agent got no quieter than {quietest:.2f} of its voice"

    # A longer one: held, and resumed in place.
    long = says(server, page, conversation, long_sound)
    at, pause = long.pause()
    assert long.text() == TEXT, long.events
    assert pause > 0.8, f"the longest silence was {pause:.2f} s at {at:.2f} s"
    assert abs(long.seconds - pause - plain.seconds) < 0.15, (long.seconds, pause, plain.seconds)
    cut = int(at * voice.RATE), int((at + pause) * voice.RATE)
    joined = np.concatenate([long.samples[: cut[0]], long.samples[cut[1] :]])
    wrong, count = voice.errors(spoken, voice.recognise(joined))
    assert wrong <= 0.15 * count, (spoken, voice.recognise(joined))

    # "Okay" is a listener's word.
    mark = page.mark()
    okay = says(server, page, conversation, voice.say("Okay.", "rms")[0])
    assert okay.text() == TEXT, okay.events
    heard = page.page.evaluate(f"e2e.messages.slice({mark}).filter((m) => m.type === 'user-transcription').map((m) => m.data.text)")
    assert any(heard), "the recogniser heard no word: that was another sound without words"

    # "Stop" is not.
    stop = says(server, page, conversation, voice.say("Stop.", "rms")[0])
    assert "agent.interrupted" in stop.names(), stop.events
    assert TEXT.startswith(stop.text().rstrip(" .")) and 3 <= len(stop.text().split()) < len(TEXT.split()) - 3, stop.text()
    report.add("who stops the agent", {"plain s": plain.seconds, "short sound s": short.seconds, "quietest": round(float(quietest), 3), "long sound s": long.seconds,
                                       "held at s": round(at, 2), "held for s": round(pause, 2), "okay was understood as": heard, "after stop": stop.text()})  # fmt: skip
