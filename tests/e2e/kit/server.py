"""The server under test: the release binary, on its own port, with its own data folder."""

import contextlib
import copy
import json
import os
import pathlib
import queue
import re
import signal
import subprocess
import threading
import time
import urllib.error
import urllib.request
import uuid

import numpy as np

from . import scripted_stt
from .polling import wait_until

ROOT = pathlib.Path(__file__).resolve().parents[3]
#: Logs, pictures and figures of a run. Two concurrent runs need two folders.
OUT = pathlib.Path(os.environ.get("E2E_OUT") or ROOT / "target" / "e2e")
#: The name of this pytest-xdist worker; None in the controller, and without pytest-xdist.
WORKER = os.environ.get("PYTEST_XDIST_WORKER")


def worker_file(name: str, suffix: str) -> pathlib.Path:
    """A file in `OUT` that no other worker writes."""
    return OUT / (f"{name}-{WORKER}{suffix}" if WORKER else f"{name}{suffix}")


def binary() -> str:
    target = os.environ.get("CARGO_TARGET_DIR") or ROOT / "target"
    return os.environ.get("VISAVIS_BIN") or str(pathlib.Path(target) / "release" / "visavis")


class Response:
    """Status, headers and body of an answer."""

    def __init__(self, status, headers, body: bytes):
        self.status, self.headers, self.body = status, headers, body

    def json(self):
        return json.loads(self.body)

    def __repr__(self):
        return f"{self.status} {self.body[:400]!r}"


class Server:
    """Starts at once. `wait_ready()` waits until the server accepts calls. `scripted`: agents may
    use scripted models."""

    def __init__(
        self,
        data: pathlib.Path,
        *flags: str,
        env: dict | None = None,
        name: str = "server",
        scripted: bool = True,
    ):
        self.data = data
        self.key = None
        self.demo = None
        self.public = bool((env or {}).get("VISAVIS_SERVER_PUBLIC_URL"))
        OUT.mkdir(parents=True, exist_ok=True)
        self.log = worker_file(name, ".log")
        self.started_at = time.monotonic()
        clean = {
            k: v
            for k, v in os.environ.items()
            if not k.startswith(("OPENAI_", "ANTHROPIC_", "DEEPGRAM_"))
            and k not in ("VISAVIS_BIN", "VISAVIS_RTVI_BUNDLE")
        }
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [
                    binary(),
                    "serve",
                    "--listen",
                    "127.0.0.1:0",
                    "--data",
                    str(data),
                    *(["--allow-scripted"] if scripted else []),
                    *flags,
                ],
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                cwd=data,
                # Tests type faster than visitors are allowed to.
                env={
                    "VISAVIS_LOG": "info,str0m=warn,rmcp=off",
                    "VISAVIS_LIMITS_QUESTIONS": "0",
                    **clean,
                    **(env or {}),
                },
            )
        self.lines: queue.Queue[str | None] = queue.Queue()
        threading.Thread(target=self._read_stdout, daemon=True).start()
        line = self._next_line(60)
        found = re.fullmatch(r"Visavis is listening on (http://[^ ]+)", line)
        assert found, f"first line: {line!r}\n{self.log_tail()}"
        self.url = found.group(1)
        self.seconds_to_listen = time.monotonic() - self.started_at

    def _read_stdout(self):
        for line in self.process.stdout:
            self.lines.put(line.rstrip("\n"))
        self.lines.put(None)

    def _next_line(self, timeout: float) -> str:
        try:
            line = self.lines.get(timeout=timeout)
        except queue.Empty:
            raise AssertionError(
                f"the server said nothing for {timeout} s\n{self.log_tail()}"
            ) from None
        assert line is not None, f"the server stopped with {self.process.wait()}\n{self.log_tail()}"
        return line

    def read_first_start(self):
        """Reads what a first start prints: the key, and the demo's link if the server has no public
        address and its models are installed."""
        line = self._next_line(60)
        assert line.startswith("API key: "), line
        self.key = line.removeprefix("API key: ")
        if self.public:
            return self
        line = self._next_line(60)
        # The demo's link is printed when the models are loaded, which may be later.
        while line.startswith("Visavis worker "):
            line = self._next_line(60)
        if not line.startswith("No demo: "):
            assert line.startswith(f"Demo: {self.url}/embed/"), line
            self.demo = line.removeprefix("Demo: ")
        return self

    def wait_ready(self, timeout: float = 120):
        """Waits until `/readyz` answers 200."""

        def is_ready():
            assert self.process.poll() is None, f"the server stopped\n{self.log_tail()}"
            return self.request("GET", "/readyz", key=None).status == 200

        wait_until(
            is_ready,
            lambda: f"readiness: {self.request('GET', '/readyz', key=None)}\n{self.log_tail()}",
            timeout,
        )
        return self

    def with_workspace(self, name: str | None = None) -> "Server":
        """This server with the key of a new workspace. Everything that is created through it
        belongs to this workspace only."""
        other = copy.copy(self)
        name = name or f"test-{uuid.uuid4().hex[:12]}"
        command = [binary(), "keys", "create", "--workspace", name, "--data", str(self.data)]
        other.key = subprocess.run(
            command, capture_output=True, text=True, check=True, cwd=self.data
        ).stdout.strip()
        return other

    def log_tail(self, lines: int = 40) -> str:
        text = self.log.read_text(errors="replace").splitlines()
        return f"--- last lines of {self.log} ---\n" + "\n".join(text[-lines:])

    @contextlib.contextmanager
    def without_errors(self):
        """Fails if the server logs an error meanwhile: a mistake of a client is none. A disk that
        does not respond in time is no mistake of a client."""
        start = self.log.stat().st_size
        yield
        lines = self.log.read_bytes()[start:].decode(errors="replace").splitlines()
        lines = [line for line in lines if "control_api::store::health" not in line]
        assert not (errors := [line for line in lines if " ERROR " in line]), "\n".join(errors)

    # --- HTTP ---

    def request(
        self,
        method: str,
        path: str,
        body=None,
        key: str | None = "own",
        headers: dict | None = None,
        raw: bytes | None = None,
        timeout=60,
    ) -> Response:
        """`key`: "own" = the server's first key, None = without."""
        url = path if path.startswith("http") else self.url + path
        headers = dict(headers or {})
        if key:
            headers["x-api-key"] = self.key if key == "own" else key
        if body is not None:
            raw = json.dumps(body).encode()
            headers.setdefault("content-type", "application/json")
        request = urllib.request.Request(url, data=raw, method=method, headers=headers)
        try:
            with urllib.request.urlopen(request, timeout=timeout) as answer:
                return Response(answer.status, answer.headers, answer.read())
        except urllib.error.HTTPError as answer:
            return Response(answer.code, answer.headers, answer.read())

    def create_agent(
        self,
        *,
        name="Test agent",
        prompt="You are a friendly assistant.",
        knowledge: str | None = None,
        greeting: str | None = None,
        hooks=None,
        events=None,
        tools=(),
        llm: dict | None = None,
        voice: str = "rms",
        turn: dict | None = None,
        config: dict | None = None,
        avatar: dict | None = None,
        extra: dict | None = None,
        transcripts: list | None = None,
        tap: bool = False,
    ) -> dict:
        """Creates an agent; returns its id and webhook secret. `transcripts`: what the scripted
        speech-to-text recognizes (see scripted_stt.py); without it the real recognizer runs. `tap`:
        the samples given to the speech-to-text are stored for `stt_audio`; the returned `tap` has
        the file's name."""
        tapped = uuid.uuid4().hex if tap else None
        stt = (
            {
                "stt": {
                    "provider": "script",
                    "model": scripted_stt.stt_script(transcripts or [], tapped),
                }
            }
            if tap or transcripts is not None
            else {}
        )
        pictures = self.request("GET", "/v1/ext/avatars").json()
        assert pictures, "there is no stock avatar"
        avatar_config = {
            "avatar_key_id": pictures[0]["avatar_key_id"],
            "persona_name": name,
            "welcome_message": {"wait_time": 0, "messages": [greeting] if greeting else []},
            "config": {
                "tts": {"provider": "flite", "voice_id": voice},
                **({"llm": llm} if llm else {}),
                **stt,
            },
            **(avatar or {}),
        }
        body = {
            "agent_name": name,
            "agent_system_prompt": prompt,
            "avatars": [avatar_config],
            "config": {"turn": {"echo_warmup": 0, **(turn or {})}, **(config or {})},
            "tool": list(tools),
            **(extra or {}),
        }
        if knowledge:
            body["knowledge_base"] = [self.create_knowledge_base(knowledge)]
        if hooks:
            body |= {"callback_url": hooks.url, "callback_events": events or ALL_EVENTS}
        reply = self.request("POST", "/v1/ext/agent", body)
        assert reply.status == 200, reply
        created = reply.json()
        assert created["message"] == "Agent created successfully", created
        if hooks:
            hooks.secret = created["webhook_secret"]
        return {**created, "tap": tapped} if tap else created

    def stt_audio(self, agent: dict) -> np.ndarray:
        """The samples (16 bit, 16 kHz) that the speech-to-text of a tapped agent was given so
        far."""
        file = self.data / "taps" / f"{agent['tap']}.pcm"
        return (
            np.frombuffer(file.read_bytes(), np.int16) if file.exists() else np.zeros(0, np.int16)
        )

    def create_knowledge_base(self, text: str, files: dict[str, bytes] | None = None) -> str:
        """Creates a knowledge base of a text and files, waits until all is indexed, and returns its
        id."""
        edge = uuid.uuid4().hex
        parts = [
            (f'name="{k}"', v.encode())
            for k, v in (
                ("name", "Test knowledge"),
                ("description", "What the tests ask for"),
                ("text", text),
            )
        ]
        parts += [
            (f'name="input"; filename="{name}"', body) for name, body in (files or {}).items()
        ]
        raw = (
            b"".join(
                f"--{edge}\r\ncontent-disposition: form-data; {head}\r\n\r\n".encode()
                + body
                + b"\r\n"
                for head, body in parts
            )
            + f"--{edge}--\r\n".encode()
        )
        reply = self.request(
            "POST",
            "/v1/ext/kb",
            raw=raw,
            headers={"content-type": f"multipart/form-data; boundary={edge}"},
        )
        assert reply.status == 200, reply
        created = reply.json()["id"]

        def documents():
            return self.request("GET", f"/v1/ext/kb/{created}").json()["documents"]

        # `or [{}]`: a knowledge base without documents is not ready.
        def is_ready():
            return all(document.get("status") == "ready" for document in documents() or [{}])

        wait_until(is_ready, lambda: f"the documents: {documents()}")
        return created

    def create_conversation(self, agent: str, **more) -> dict:
        reply = self.request("POST", "/v1/ext/conversation", {"agent_id": agent, **more})
        assert reply.status == 201, reply
        return reply.json()

    def get_conversation(self, conversation: str) -> dict:
        reply = self.request("GET", f"/v1/ext/conversation/{conversation}")
        assert reply.status == 200, reply
        return reply.json()

    def wait_for(self, conversation: str, status: str, timeout: float = 60) -> dict:
        """The record as soon as its status is `status`."""
        return self.wait_for_record(
            conversation, lambda record: record["status"] == status, timeout
        )

    def wait_for_record(self, conversation: str, holds, timeout: float = 60) -> dict:
        """The record as soon as `holds(record)`."""

        def matching():
            record = self.get_conversation(conversation)
            return record if holds(record) else None

        return wait_until(
            matching,
            lambda: f"the record: {self.get_conversation(conversation)}\n{self.log_tail()}",
            timeout,
        )

    def wait_turns(self, conversation: str, min_turns: int = 0, timeout: float = 60) -> list[dict]:
        """The latencies of each turn, as soon as `min_turns` turns are recorded. The record is
        written after the call."""

        def recorded():
            return self.request("GET", f"/v1/ext/conversation/{conversation}/turns").json()

        wait_until(
            lambda: len(recorded()) >= min_turns,
            lambda: f"{min_turns} turns: {recorded()}\n{self.log_tail()}",
            timeout,
        )
        return recorded()

    # --- the process ---

    def rss_mb(self) -> float:
        """Resident memory in MB."""
        status = pathlib.Path(f"/proc/{self.process.pid}/status").read_text()
        return int(re.search(r"VmRSS:\s+(\d+)", status).group(1)) / 1000

    def cpu_seconds(self) -> float:
        """Seconds of CPU time used so far."""
        fields = (
            pathlib.Path(f"/proc/{self.process.pid}/stat").read_text().rsplit(")", 1)[1].split()
        )
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def cpu_wait_seconds(self) -> float:
        """Seconds so far in which a thread of the server was runnable and had no CPU."""
        files = pathlib.Path(f"/proc/{self.process.pid}/task").glob("*/schedstat")
        return sum(int(file.read_text().split()[1]) for file in files) / 1e9

    def is_alive(self) -> bool:
        return self.process.poll() is None

    def kill(self):
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def stop(self):
        """Sends SIGTERM until the server is gone. The second signal does not wait for calls. Two
        signals that arrive before a busy server handles the first count as one."""
        end = time.monotonic() + 60
        while self.is_alive():
            self.process.terminate()
            try:
                self.process.wait(0.5)
            except subprocess.TimeoutExpired:
                if time.monotonic() > end:
                    self.kill()
                    raise AssertionError(f"the server did not stop\n{self.log_tail()}") from None


ALL_EVENTS = [
    "agent.interrupted",
    "agent.started_speaking",
    "agent.stopped_speaking",
    "call_ended",
    "max_call_duration_timeout",
    "max_call_duration_warning",
    "participant_left",
    "tool_call",
    "utterance_committed",
    "user.started_speaking",
    "user.stopped_speaking",
]
