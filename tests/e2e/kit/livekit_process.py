"""A caller in a process of its own, which a test kills."""

import pathlib
import subprocess
import sys
import types

from .livekit_client import LiveKitCaller
from .livekit_server import LiveKitServer

GREETED = "the agent has greeted"


class CallerProcess:
    """Joins with the Python SDK and stays."""

    def __init__(self, livekit: LiveKitServer, token: str):
        self.process = subprocess.Popen(
            [sys.executable, "-m", "kit.livekit_process", livekit.url, token],
            cwd=pathlib.Path(__file__).parents[1],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def wait_for_greeting(self):
        line = self.process.stdout.readline()
        assert line.strip() == GREETED, f"the caller ended with {self.process.wait()}: {line!r}"

    def kill(self):
        self.process.kill()
        self.process.wait()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.kill()
        self.process.stdin.close()
        self.process.stdout.close()


def main(url: str, token: str):
    with LiveKitCaller(types.SimpleNamespace(url=url), token=token) as caller:
        caller.wait_for_caption(caller.wait_for_agent().identity)
        print(GREETED, flush=True)
        # The end of the test closes it.
        sys.stdin.read()


if __name__ == "__main__":
    main(*sys.argv[1:])
