"""Recorded calls: what the file contains, after the end of the call and after the end of the
server. The crate `recording` and engine/tests/recording.rs test the files in detail."""

import asyncio

import numpy as np
import pytest

from kit import audio_match, speech
from kit.polling import wait_until
from kit.recording_file import download, wait_for_recording
from kit.typed_call import TypedCall, create_typed_agent
from kit.webrtc_client import run_async

GREETING = (
    "Welcome to the museum of old clocks. We have more than two hundred of them, from four "
    "centuries, and most of them still run and strike every hour."
)
QUESTION = "Please tell me about the oldest clock in the house."


@pytest.fixture(scope="module")
def agent(server):
    return server.create_agent(
        greeting=GREETING,
        transcripts=[QUESTION],
        turn={"min_interruption_duration": 0.25},
        config={"recording": {"channels": "split"}},
        extra={"record": True},
    )


def test_an_interrupted_call_is_in_its_recording(server, call, agent):
    """Both voices, the words at their times, the silence after the interruption, and pictures to
    the end."""
    created = server.create_conversation(agent["id"])
    conversation = created["id"]
    page = call().open(created["join_link"])
    page.join()
    page.barge_in(QUESTION, 1.5, "slt")
    page.wait_for_event("agent.interrupted")
    page.wait_for_event("utterance_committed")
    page.wait_for_event("agent.stopped_speaking", page.message_count() - 1)
    page.page.click("#hang-up")
    ended = server.wait_for(conversation, "ENDED")
    assert ended["is_recorded"]
    record = wait_for_recording(server, conversation)
    recording = download(server, record)
    messages = record["chat_history"]["messages"]
    greeting = next(message for message in messages if message["role"] == "assistant")
    words = greeting["words"]
    assert " ".join(word["text"] for word in words) == greeting["content"]
    first = recording.first_sound(recording.agent, 0)
    # A busy machine sends late, server and browser alike; engine/tests/voices.rs has the limit of
    # 40 ms for both voices in virtual time.
    assert abs(first - words[0]["start"]) < 0.15, (first, words[0])
    # On a busy machine, a pause may split the question.
    spoken = [message for message in messages if message["role"] == "user"]
    start = spoken[0]["seconds_from_start"]
    heard = recording.first_sound(recording.user, 0)
    assert abs(heard - start) < 0.15, (heard, spoken)
    end = spoken[-1]["seconds_from_start"] + spoken[-1]["duration"]
    assert recording.is_silent(recording.user, end + 0.1, end + 0.3)
    assert not recording.is_silent(recording.user, end - 0.3, end)
    # The last word that was heard is the last one of the greeting in the recording.
    end = words[-1]["end"]
    assert not recording.is_silent(recording.agent, end - 0.3, end)
    # A pause between two sentences, and a word that was cut, may follow.
    assert recording.is_silent(recording.agent, end + 0.8, end + 1.0)
    sent, rate = speech.flite(QUESTION, "slt")
    found = audio_match.match(audio_match.resample(sent, rate), recording.user)
    audio_match.expect_arrival(found, "the question")
    # The interruption is during the question.
    assert found.at < end + 0.3 and end < found.at + len(sent) / rate + 0.5, (found, end)
    assert recording.is_silent(recording.user, 0, max(found.at - 0.2, 0.1))
    assert recording.pictures[0] < 0.2
    gaps = np.diff(recording.pictures)
    assert len(recording.pictures) > 20 and gaps.max() < 1, gaps.max()
    assert recording.duration - recording.pictures[-1] < 0.5


def test_a_killed_server_delivers_what_was_recorded(start_server, tmp_path):
    first = start_server("recorder", data=tmp_path).read_first_start().wait_ready()
    agent = create_typed_agent(
        first, extra={"record": True, "agent_name": "Recorded"}, greeting=GREETING
    )
    conversation = first.create_conversation(agent["id"])

    async def talk():
        client = await TypedCall(first, conversation).connect()
        await client.wait_for_utterance("centuries")
        # Of the last second, nothing has to be there.
        await client.wait_for_record_value(lambda record: record["is_recorded"], "a recording")
        capture = tmp_path / "recordings" / f"{conversation['id']}.capture"
        size = capture.stat().st_size
        await asyncio.to_thread(
            wait_until, lambda: capture.stat().st_size > 2 * size, lambda: "a longer file"
        )
        first.kill()

    run_async(talk())
    second = start_server("recorder", data=tmp_path)
    second.key = first.key
    second.wait_ready()
    record = wait_for_recording(second, conversation["id"])
    assert record["status"] == "ENDED" and record["is_recorded"]
    recording = download(second, record)
    assert recording.duration > 2
    assert not recording.is_silent(recording.agent, 0, recording.duration)
