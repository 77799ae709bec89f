"""Seeking in the delivered file of a call: what Chromium and ffmpeg show at random times is the
picture that was sent then."""

import bisect

import pytest

from kit.recording_file import download, wait_for_recording
from kit.seeking import digest_of, misses, pictures_of, seek_in_browser, seek_times
from kit.typed_call import create_typed_agent, run_call

GREETING = (
    "Welcome to the museum of old clocks. Most of them still run, and strike every hour of the day "
    "and of the night."
)


@pytest.fixture(scope="module")
def recorded(server):
    """The record and the file of a call whose viewer receives no video."""
    agent = create_typed_agent(
        server,
        greeting=GREETING,
        tts={"provider": "flite", "voice_id": "rms"},
        extra={"record": True},
    )

    async def listen(client):
        await client.wait_for_utterance("night")

    ended = run_call(server, agent, listen)
    record = wait_for_recording(server, ended["id"])
    return record, download(server, record)


@pytest.fixture(scope="module")
def pictures(recorded):
    """The pictures of the file in order: times and SHA-256."""
    return pictures_of(recorded[1])


def test_a_browser_seeks_to_the_right_picture(server, browser, recorded, pictures, rng):
    record, recording = recorded
    times = seek_times(pictures, rng)
    seen = seek_in_browser(browser, server, record["recording_url"], times)
    assert seen["duration"] == seen["seekable"] == pytest.approx(recording.duration, abs=0.001)
    assert misses(pictures, seen["shown"]) == []


def test_ffmpeg_seeks_to_the_right_picture(recorded, pictures, rng):
    _, recording = recorded
    times = seek_times(pictures, rng)
    shown = []
    for at in times:
        expected = bisect.bisect_right(recording.pictures, at) - 1
        (frame,) = recording.frames(recording.pictures[expected], recording.pictures[expected])
        shown.append((at, digest_of(frame[1])))
    assert misses(pictures, shown) == []
