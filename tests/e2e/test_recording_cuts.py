"""The file of a call, cut anywhere, read by ffmpeg's reader; and what the server delivers from such
a file. recording/tests/cuts.rs reads the same files with libwebm."""

import bisect
import json
import os
import pathlib
import random
import subprocess

import av
import pytest
from av.stream import Discard

from kit.server import binary

#: Duration of the call in s, and the number of places where its file is cut.
CALL, CUTS = 1800, 1000
#: ffmpeg parses all of each prefix. The packets of one prefix of so many, and those of the last
#: seconds of the others, are compared.
FULLY_COMPARED, LAST_SECONDS = 100, 5
#: A shorter call, because a delivery encodes the sound.
DELIVERED_CALL, DELIVERIES = 20, 50
#: Difference between the duration of a delivered file and the end of the last packet, in s.
TOLERANCE = 0.1
AGENT = 0
#: What ffmpeg says of a file that ends within an element.
ENDS = ("File ended prematurely",)


@pytest.fixture(autouse=True)
def all_messages():
    """Lets av.logging.Capture see each warning and error of ffmpeg."""
    level = av.logging.get_level()
    av.logging.set_level(av.logging.WARNING)
    av.logging.set_skip_repeated(False)
    yield
    av.logging.set_skip_repeated(True)
    av.logging.set_level(level)


class RecordedCall:
    """The file of a call, which becomes shorter with each cut."""

    def __init__(self, seconds: int, path: pathlib.Path):
        self.path = path
        program = pathlib.Path(binary()).with_name("visavis-recorded-call")
        reply = subprocess.run(
            [program, str(seconds), path], check=True, capture_output=True, text=True
        )
        layout = json.loads(reply.stdout)
        self.header = layout["header"]
        #: Size of the file, number of packets, and end in ms of each cluster.
        self.clusters = layout["clusters"]
        self.size = path.stat().st_size

    def random_cuts(self, count: int, seed: int) -> list[int]:
        """Places to cut, the last one first."""
        generator = random.Random(seed)
        return sorted((generator.randrange(self.size) for _ in range(count)), reverse=True)

    def cut(self, size: int) -> tuple[int, int]:
        """Cuts the file. Returns the number of packets in complete clusters and their end in ms."""
        os.truncate(self.path, size)
        complete = bisect.bisect(self.clusters, size, key=lambda cluster: cluster[0])
        return tuple(self.clusters[complete - 1][1:]) if complete else (0, 0)


def packets(file: av.container.InputContainer) -> list[tuple[int, int, int]]:
    """Track, time in ms and position of each packet up to the end."""
    return [(p.stream_index, p.pts, p.pos) for p in file.demux() if p.size]


def last_packets(file: av.container.InputContainer, end: int) -> list[tuple[int, int, int]]:
    """The packets from some seconds before `end` on. Without an index, ffmpeg parses everything
    before them."""
    others = [stream for stream in file.streams if stream.index != AGENT]
    for stream in others:
        stream.discard = Discard.all
    file.seek(max(end - LAST_SECONDS * 1000, 0), stream=file.streams[AGENT])
    for stream in others:
        stream.discard = Discard.default
    return packets(file)


def test_a_call_of_30_minutes_is_read_up_to_any_byte(tmp_path):
    call = RecordedCall(CALL, tmp_path / "call.webm")
    with av.open(call.path) as file:
        whole = packets(file)
    assert len(whole) == call.clusters[-1][1]
    for track in range(3):
        times = [packet[1] for packet in whole if packet[0] == track]
        assert len(times) > 20_000 and times == sorted(times)
    positions = [packet[2] for packet in whole]
    assert positions == sorted(positions)
    ended_early = 0
    for number, size in enumerate(call.random_cuts(CUTS, seed=1)):
        complete, end = call.cut(size)
        if size < call.header:
            with pytest.raises(av.FFmpegError):
                av.open(call.path)
            continue
        with av.logging.Capture() as messages, av.open(call.path) as file:
            fully = number % FULLY_COMPARED == 0
            found = packets(file) if fully else last_packets(file, end)
        unexpected = [text for _, _, text in messages if not text.startswith(ENDS)]
        assert not unexpected, (size, unexpected)
        ended_early += bool(messages)
        start = bisect.bisect_left(positions, found[0][2]) if found else 0
        assert found == whole[start : start + len(found)], size
        assert start + len(found) >= complete, (size, start, len(found), complete)
        assert start == 0 if fully else not found or found[0][1] <= max(end - 1000, 0), size
    # Few cuts are at the end of an element.
    assert ended_early > 0.9 * CUTS, ended_early


def test_a_call_that_was_cut_is_delivered(tmp_path):
    call = RecordedCall(DELIVERED_CALL, tmp_path / "call.webm")
    for size in call.random_cuts(DELIVERIES, seed=2):
        complete, end = call.cut(size)
        if complete:
            check_delivery(call.path, tmp_path / "delivered.webm", end / 1000)


def check_delivery(capture: pathlib.Path, delivered: pathlib.Path, end: float):
    """Delivers the file as the server does, and reads and seeks in the result."""
    # The process ends with its server, when its input closes.
    standard_input, server = os.pipe()
    try:
        reply = subprocess.run(
            [binary(), "deliver-recording", capture, delivered, "--channels", "split"],
            check=True,
            stdin=standard_input,
            capture_output=True,
            text=True,
        )
    finally:
        os.close(server)
        os.close(standard_input)
    with av.logging.Capture() as messages, av.open(delivered) as file:
        duration = file.duration / av.time_base
        assert abs(duration - end) < TOLERANCE, (duration, end)
        assert abs(duration - json.loads(reply.stdout)["duration_ms"] / 1000) < 0.01
        sound, video = file.streams.audio[0], file.streams.video[0]
        found = packets(file)
        for stream in (sound, video):
            times = [time for index, time, _ in found if index == stream.index]
            assert times == sorted(times)
            assert end - times[-1] / 1000 < TOLERANCE, (times[-1], end)
        # The index is read: places to seek to are at most some seconds apart.
        for target in range(0, int(duration) + 1, 5):
            file.seek(target * 1000, stream=video)
            packet = next(packet for packet in file.demux(video) if packet.size)
            assert packet.is_keyframe
            assert target - 6 < float(packet.pts * packet.time_base) <= target
    assert not messages, messages
