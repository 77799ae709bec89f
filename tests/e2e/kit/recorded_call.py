"""Recorded calls whose words and pictures can be found in the file: what both sides say is known,
and the avatar is brighter the wider its mouth is open (`tests/e2e/flash`)."""

import json
import pathlib

import numpy as np

from . import audio_match
from .recording_file import Recording, audible_bounds, find_text, messages_of
from .typed_call import create_typed_agent

AGENT_VOICE, USER_VOICE = "rms", "slt"
GREETING = "Maybe Bob put the big map by the pump where my mother made a pot of soup for Papa."
#: Each answer is one sentence: between two there is a pause whose length is not known.
CONVERSATION = {
    "Please tell me about the oldest clock in the house.": (
        "A farmer found four fat mushrooms on the path behind the old clock and a farm."
    ),
    "What do visitors see in the first room?": (
        "Above the mountain the moon was pale and far when both of the boats moved by."
    ),
    "When does the museum open on a Monday?": (
        "We have a room for you from Monday to Friday and a bowl of warm brown bread."
    ),
    "Who built the great clock above the door?": (
        "More than a million people have heard about him and about the bell of the abbey."
    ),
    "Where may I leave my bicycle and my bag?": (
        "Bring me the blue box from behind the piano before my mother opens the window."
    ),
}
QUESTIONS = list(CONVERSATION)
#: The environment of a server with the avatar.
ENVIRONMENT = {"VISAVIS_AVATARS_DIR": str(pathlib.Path(__file__).resolve().parents[1] / "flash")}
#: Seconds around its time within which a text is searched for.
REACH = 8
#: Minimum share of the user's words in the file. Jitter and loss change some of them, and other
#: speech of the same voice reaches .1 (audio_match.py).
MIN_SHARE = 0.6
#: Limits in seconds.
MAX_VOICE_ERROR, MAX_PICTURE_ERROR = 0.04, 0.04
#: Maximum interval between two pictures, also in silence.
MAX_PICTURE_INTERVAL = 1.0
#: A picture shows the mouth at its middle and 20 ms later, because people notice early sound first
#: (engine/src/show/animator.rs).
VIDEO_LEAD = 0.04
#: Minimum correlation of the mouth with the text.
MIN_MOUTH_FIT = 0.7


def create_agent(server, scripted_llm, *, seconds: int = 600, **more) -> dict:
    """An agent that knows the conversation. The recording has a channel for each side."""
    return create_typed_agent(
        server,
        llm_server=scripted_llm(_answer),
        transcripts=QUESTIONS,
        tts={"provider": "flite", "voice_id": AGENT_VOICE},
        avatar={"avatar_key_id": "flash"},
        greeting=GREETING,
        config={"maxCallDuration": seconds, "recording": {"channels": "split"}},
        extra={"record": True},
        **more,
    )


def _answer(request: dict) -> list[str]:
    text = json.dumps(request["messages"][-1])
    return [next(reply for question, reply in CONVERSATION.items() if question in text)]


def agent_errors(recording: Recording, messages: list[dict]) -> np.ndarray:
    """How much later (seconds) the first and the last word of the agent's messages are in the
    transcript than in the file: a row for each message."""
    rows = []
    for message in messages:
        start, end = message["words"][0]["start"], message["words"][-1]["end"]
        text = message["content"]
        first, last = find_text(text, AGENT_VOICE, recording.agent, start, REACH)
        rows.append([start - first, end - last])
    return np.array(rows)


def user_errors(recording: Recording, messages: list[dict]) -> np.ndarray:
    """The same for begin and end of the user's messages, which are those of the sound: nobody knows
    when words without a sound begin."""
    rows = []
    for message in messages:
        start, text = message["seconds_from_start"], message["content"]
        end = start + message["duration"]
        origins = find_text(text, USER_VOICE, recording.user, start, REACH, lambda *_: (0, 0))
        begins, ends = audible_bounds(text, USER_VOICE)
        rows.append([_outside(start - origins[0], begins), _outside(end - origins[1], ends)])
    return np.array(rows).reshape(-1, 2)


def _outside(time: float, interval: np.ndarray) -> float:
    """How much later a time is than an interval; negative if it is earlier, 0 within."""
    return time - float(np.clip(time, *interval))


def describe(errors: np.ndarray) -> dict:
    """Minimum, median and maximum of errors, in milliseconds."""
    return {
        name: [round(1000 * float(pick(column))) for pick in (np.min, np.median, np.max)]
        for name, column in zip(("begin", "end"), errors.T, strict=True)
    }


def measure(record: dict, recording: Recording) -> dict:
    """What must hold for every file: the errors of both voices, the mouth against the first and the
    last complete message of the agent, and the pictures."""
    spoken = [m for m in messages_of(record, "assistant") if not m["interrupted"]]
    asked = messages_of(record, "user")
    ends = [(m["content"], m["words"][0]["start"]) for m in (spoken[0], spoken[-1])]
    return {
        "duration": recording.duration,
        "agent": agent_errors(recording, spoken),
        "user": user_errors(recording, asked),
        "mouth": [recording.mouth_offset(text, AGENT_VOICE, at) for text, at in ends],
        "interval": float(np.diff(recording.pictures).max()),
        "first picture": recording.pictures[0],
        "after the last picture": recording.duration - recording.pictures[-1],
    }


def summary(measured: dict) -> dict:
    """The figures for a report."""
    errors = {side: measured[side] for side in ("agent", "user") if len(measured[side])}
    return {**measured, "user": None, **{side: describe(rows) for side, rows in errors.items()}}


def check(measured: dict, lateness: np.ndarray | float = 0.0):
    """Fails if a voice or the mouth is not at its time, or if pictures are missing. `lateness`: by
    how many seconds the sound of each message of the user left late. The agent hears that much
    later what the file has at its own time."""
    found = summary(measured)
    for late, fit in measured["mouth"]:
        assert fit >= MIN_MOUTH_FIT and abs(late + VIDEO_LEAD) <= MAX_PICTURE_ERROR, found
    assert np.abs(measured["agent"]).max(initial=0) <= MAX_VOICE_ERROR, found
    errors = np.abs(measured["user"]).max(axis=1, initial=0) - lateness
    assert errors.max(initial=0) <= MAX_VOICE_ERROR, found
    assert measured["first picture"] < 0.2, found
    assert measured["interval"] < MAX_PICTURE_INTERVAL, found
    assert measured["after the last picture"] < MAX_PICTURE_INTERVAL, found


def expect_arrival(text: str, recording: Recording, min_share=MIN_SHARE):
    """Fails if a text of the user is not in the file. `min_share`: of the text's parts."""
    (reference,) = audio_match.synthesize([text], USER_VOICE)
    audio_match.expect_arrival(audio_match.match(reference, recording.user), text, min_share)
