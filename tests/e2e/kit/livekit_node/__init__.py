"""A participant with LiveKit's official client for Node (client.mjs), as a process.
`scripts/test-e2e.sh` installs the client."""

import json
import pathlib
import subprocess
import threading

import numpy as np

from ..livekit_pages import INSTALLED
from ..livekit_server import LiveKitServer
from ..polling import wait_until
from ..server import worker_file

SCRIPT = pathlib.Path(__file__).parent / "client.mjs"


class NodeCaller:
    """Joins at once. `events`: what it printed, in its order. `sound`: a file for what it hears."""

    def __init__(self, livekit: LiveKitServer, token: str, sound: pathlib.Path):
        package = INSTALLED / "node_modules/@livekit/rtc-node"
        assert package.exists(), f"{package} is missing: scripts/test-e2e.sh installs it"
        self.sound = sound
        self.events: list[dict] = []
        self.log = worker_file("livekit-node", ".log")
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                ["node", str(SCRIPT), str(INSTALLED), livekit.url, token, str(sound)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self):
        for line in self.process.stdout:
            # The client logs to stdout, too.
            try:
                message = json.loads(line)
            except ValueError:
                continue
            if isinstance(message, dict) and "event" in message:
                self.events.append(message)

    def send_chat(self, text: str):
        self.process.stdin.write(json.dumps({"chat": text}) + "\n")
        self.process.stdin.flush()

    def leave(self) -> int:
        """Leaves the room. Returns the exit status."""
        self.process.stdin.close()
        return self.process.wait(30)

    def samples(self) -> np.ndarray:
        """What it heard so far: 16-bit samples at 48 kHz."""
        if not self.sound.exists():
            return np.zeros(0, np.int16)
        data = self.sound.read_bytes()
        return np.frombuffer(data[: len(data) // 2 * 2], np.int16)

    def wait_for(self, event: str, **fields) -> dict:
        """The first event with these fields."""

        def found():
            assert self.process.poll() is None, f"the client ended\n{self.describe()}"
            return next((one for one in list(self.events) if matches(one)), None)

        def matches(one: dict) -> bool:
            return one["event"] == event and fields.items() <= one.items()

        return wait_until(found, lambda: f"{event} {fields}\n{self.describe()}")

    def states(self, identity: str) -> list[str]:
        """The values of the attribute `lk.agent.state` of an agent."""
        states = [
            one["attributes"].get("lk.agent.state")
            for one in list(self.events)
            if one["event"] in ("participant", "attributes") and one["identity"] == identity
        ]
        return [state for state in states if state]

    def describe(self) -> str:
        events = "\n".join(map(str, self.events))
        return f"{events}\nsamples: {len(self.samples())}\n{self.log.read_text()[-2000:]}"

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(20)
