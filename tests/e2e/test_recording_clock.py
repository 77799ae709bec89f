"""Times in the recording of a long call: its duration, both voices against the transcript, and the
pictures against the sound, at the begin and at the end.

The call takes as long as it records, so all claims share one call. engine/tests/recording.rs and
the crate `recording` test the same in virtual time.
"""

import asyncio
import os

import numpy as np
import pytest

from kit import audio_match, recorded_call, rtp, speech
from kit.provider_call import SpokenCall
from kit.recorded_call import AGENT_VOICE, CONVERSATION, GREETING, QUESTIONS, USER_VOICE
from kit.recording_file import download, find_text, messages_of, wait_for_recording
from kit.webrtc_client import run_async

MINUTES = float(os.environ.get("RECORDING_MINUTES", "30"))
#: Seconds from the begin of a question to the begin of the next one.
QUESTION_INTERVAL = 45
#: Limit in seconds.
MAX_DURATION_ERROR = 0.1
#: Seconds of one packet of sound.
PACKET = 0.02


class LongCall(SpokenCall):
    """A call with video, in which the user asks now and then. Nothing may delay its event loop: a
    microphone that pauses and then catches up loses the begin of what it gives."""

    def __init__(self, server, conversation, sounds: dict[str, np.ndarray]):
        super().__init__(server, conversation)
        self.peer.addTransceiver("video", direction="recvonly")
        self.sounds = sounds
        self.asked: list[str] = []
        #: By how many seconds the sound of each question left late at most.
        self.lateness: list[float] = []
        self.observe()

    def _on_message(self, text: str):
        """Keeps events only: each wait reads all messages, and there are levels all the time."""
        if '"event"' in text or '"bot-ready"' in text:
            super()._on_message(text)

    def play(self, text: str, voice: str = USER_VOICE):
        self.microphone.queue = self.sounds[text]

    def observe(self):
        """Records from now on which packets of the agent's voice the server sends, and when."""
        self.track = rtp.TrackRecorder(self, "audio")

    def last_departure(self) -> float:
        """When the last packet left, in seconds of the server's clock."""
        return max(self.track.server_time(stamp) for stamp, _ in self.track.packets.values())

    async def departure_of(self, text: str) -> float:
        """When the begin of a sentence of the agent left, in seconds of the server's clock."""
        await self.wait_for(lambda: self.track.reports, what="a sender report")
        packets = [self.track.packets[n] for n in sorted(self.track.packets)]
        began = self.track.server_time(packets[0][0])
        return began + await asyncio.to_thread(find_in_packets, text, packets)

    async def ask_next(self) -> str:
        """Asks the next question, and returns the answer."""
        question = QUESTIONS[len(self.asked) % len(QUESTIONS)]
        self.asked.append(question)
        count, begin = len(self.utterances()), self.microphone.sent
        assert await self.say(question) == question
        late = [late for sent, late in self.microphone.late_parts if sent >= begin]
        self.lateness.append(max(late, default=0))
        answers = await self.wait_for(lambda: self.utterances()[count:], what="an answer")
        assert answers == [CONVERSATION[question]]
        return answers[0]

    async def wait_until(self, seconds: float):
        """Waits until the user's microphone has given sound for this long. The sound of the agent
        until then is not kept."""
        given = self.microphone.sent / speech.SAMPLE_RATE
        await self.wait_for(
            lambda: self.microphone.sent >= seconds * speech.SAMPLE_RATE,
            timeout=seconds - given + 60,
            what=f"{seconds} s",
        )
        self.received_audio.clear()
        self.video_frames.clear()


def find_in_packets(text: str, packets: list[tuple[int, bytes]]) -> float:
    """Seconds from the first packet to the begin of a sentence of the agent."""
    sound = audio_match.resample(rtp.decode_opus(packets), speech.SAMPLE_RATE)
    (reference,) = audio_match.synthesize([text], AGENT_VOICE)
    near = audio_match.match(reference, sound).at
    return find_text(text, AGENT_VOICE, sound, near)[0]


async def talk(server, conversation) -> dict:
    """A call of `MINUTES`: when the first and the last sentence and the last packet left."""
    sounds = {question: speech.concatenate([(question, USER_VOICE)]) for question in QUESTIONS}
    client = await LongCall(server, conversation, sounds).connect()
    await client.wait_for_utterance(GREETING)
    begin = await client.departure_of(GREETING)
    at = QUESTION_INTERVAL / 2
    while at < 60 * MINUTES - QUESTION_INTERVAL:
        await client.wait_until(at)
        await client.ask_next()
        at += QUESTION_INTERVAL
    await client.wait_until(60 * MINUTES - QUESTION_INTERVAL / 2)
    client.observe()
    end = await client.departure_of(await client.ask_next())
    await client.wait_until(60 * MINUTES)
    await client.hang_up()
    departures = {"first": begin, "last": end, "end": client.last_departure() + PACKET}
    return {"questions": client.asked, "lateness": client.lateness, **departures}


@pytest.mark.long("recording")
def test_a_call_of_thirty_minutes_keeps_its_times(start_server, scripted_llm, report):
    server = start_server("long-call", env=recorded_call.ENVIRONMENT)
    server.read_first_start().wait_ready()
    seconds = int(60 * MINUTES) + 600
    agent = recorded_call.create_agent(server, scripted_llm, seconds=seconds)
    conversation = server.create_conversation(agent["id"])
    sent = run_async(talk(server, conversation))
    record = wait_for_recording(server, conversation["id"], timeout=600)
    recording = download(server, record)
    spoken = messages_of(record, "assistant")
    assert [m["content"] for m in messages_of(record, "user")] == sent["questions"]
    assert [m["content"] for m in spoken] == [
        GREETING,
        *(CONVERSATION[question] for question in sent["questions"]),
    ]
    first, last = (
        find_text(m["content"], AGENT_VOICE, recording.agent, m["words"][0]["start"])[0]
        for m in (spoken[0], spoken[-1])
    )
    measured = recorded_call.measure(record, recording)
    # The call began at the time zero of the file.
    call_duration = first + sent["end"] - sent["first"]
    drift = (last - first) - (sent["last"] - sent["first"])
    found = {
        **recorded_call.summary(measured),
        "duration of the call": call_duration,
        "drift": drift,
        "late questions": [round(1000 * late) for late in sent["lateness"] if late],
        "megabytes": len(recording.data) / 1e6,
    }
    report.add("the recording of a long call", found)
    assert abs(recording.duration - call_duration) <= MAX_DURATION_ERROR, found
    assert abs(drift) <= recorded_call.MAX_VOICE_ERROR, found
    recorded_call.check(measured, np.array(sent["lateness"]))
