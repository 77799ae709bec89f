"""`visavis worker` as a process: a server that serves only LiveKit rooms."""

import pathlib
import queue
import re
import shutil
import subprocess
import threading
import time
import urllib.error
import urllib.request

from .livekit_server import LiveKitServer
from .server import binary, worker_file


class Worker:
    """Starts at once. `data`: its data folder, with the keys of the fleet."""

    def __init__(self, livekit: LiveKitServer, data: pathlib.Path, env: dict, *flags: str):
        data.mkdir(parents=True, exist_ok=True)
        self.log = worker_file(f"worker-{data.name}", ".log")
        command = [binary(), "worker", "--listen", "127.0.0.1:0", "--data", str(data)]
        command += ["--allow-scripted", *flags]
        self.started_at = time.monotonic()
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                command,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                env={**livekit.environment(), **env},
            )
        self.lines: queue.Queue[tuple[float, str]] = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self):
        for line in self.process.stdout:
            self.lines.put((time.monotonic(), line.rstrip("\n")))

    def wait_listening(self) -> "Worker":
        (found,) = self._next_line(r"Visavis is listening on (http://[^ ]+)").groups()
        self.url = found
        return self

    def wait_registered(self) -> re.Match:
        """The line with the registration: id, URL and name."""
        return self._next_line(r"Visavis worker (AW_\w+) is registered with (\S+) as (\S+)")

    def _next_line(self, pattern: str) -> re.Match:
        self.line_at, line = self.lines.get(timeout=60)
        found = re.fullmatch(pattern, line)
        assert found, f"{line!r}\n{self.log.read_text()}"
        return found

    def status(self, path: str) -> int:
        try:
            with urllib.request.urlopen(self.url + path, timeout=10) as answer:
                return answer.status
        except urllib.error.HTTPError as error:
            return error.code

    def text(self, path: str) -> str:
        try:
            with urllib.request.urlopen(self.url + path, timeout=10) as answer:
                return answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.read().decode()

    def close(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(20)


def copy_keys(source: pathlib.Path, data: pathlib.Path):
    """Gives a data folder the keys of the fleet."""
    data.mkdir(parents=True, exist_ok=True)
    for file in ("secrets.key", "tokens.key"):
        shutil.copy(source / file, data / file)
