"""Callers of several LiveKit rooms in a process of their own, so that they do not disturb the
measurements of the test."""

import contextlib
import json
import pathlib
import subprocess
import sys
import types

import numpy as np

from . import speech
from .livekit_client import SAMPLE_RATE, LiveKitCaller, resample
from .livekit_server import LiveKitServer
from .polling import wait_until


class Crowd:
    """Joins one room for each token, one after another. Each caller speaks a recording from its
    beginning, in a loop, and receives sound and video. All leave `seconds` after the first one has
    begun. `out` then contains the statistics of their tracks."""

    def __init__(
        self,
        livekit: LiveKitServer,
        tokens: list[str],
        recording: pathlib.Path,
        seconds: float,
        out: pathlib.Path,
    ):
        self.out = out
        arguments = [livekit.url, recording, seconds, out, *tokens]
        self.process = subprocess.Popen(
            [sys.executable, "-m", "kit.livekit_crowd", *map(str, arguments)],
            cwd=pathlib.Path(__file__).parents[1],
        )

    def read_statistics(self) -> list[dict[str, dict]]:
        """Waits until all have left. For each caller, the statistics of its tracks by kind."""
        status = self.process.wait(60)
        assert status == 0, f"the callers ended with {status}: see the test's output"
        return json.loads(self.out.read_text())

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()


class CrowdCaller(LiveKitCaller):
    """Keeps nothing of what it receives. LiveKit's SDK decodes it all the same."""

    #: So long, the process may be late without a gap in the sound.
    microphone_queue = 500

    def _on_track_subscribed(self, *_):
        pass


def main(url: str, recording: str, seconds: str, out: str, *tokens: str):
    sound = resample(*speech.read_wav(pathlib.Path(recording).read_bytes()))
    sound = np.resize(sound, round(float(seconds) * SAMPLE_RATE))
    callers = []
    with contextlib.ExitStack() as stack:
        for token in tokens:
            caller = CrowdCaller(types.SimpleNamespace(url=url), token=token)
            callers.append(stack.enter_context(caller))
            caller.wait_for_agent()
            caller.play(sound)
        wait_until(lambda: not len(callers[0].queue), "the end of the sound", float(seconds) + 60)
        statistics = [
            {kind: caller.inbound_rtp(kind)[0] for kind in ("audio", "video")} for caller in callers
        ]
    pathlib.Path(out).write_text(json.dumps(statistics))


if __name__ == "__main__":
    main(*sys.argv[1:])
