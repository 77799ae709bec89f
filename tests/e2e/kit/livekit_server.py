"""A livekit-server on loopback, its tokens and its API. It is started again on the same ports with
the same key."""

import asyncio
import base64
import concurrent.futures
import contextlib
import datetime
import functools
import hashlib
import json
import os
import secrets
import signal
import socket
import subprocess
import tempfile
import threading
import urllib.error
import urllib.request

import pytest
from google.protobuf.json_format import MessageToDict
from livekit import api

from .polling import wait_until
from .server import OUT, ROOT, worker_file

#: Clients use ports from 32768 on, and could take the port of a server that is being restarted.
PORTS = range(10_000, 32_000)


@functools.cache
def binary() -> str:
    """The path of livekit-server, which is built first. Without Go the test fails in CI and is
    skipped elsewhere."""
    script = ROOT / "scripts" / "install-livekit.sh"
    found = subprocess.run([script], capture_output=True, text=True, check=False)
    if found.returncode:
        reason = found.stderr.strip()
        if os.environ.get("CI") or "Go is missing" not in reason:
            pytest.fail(reason)
        pytest.skip(reason)
    return found.stdout.strip()


def free_port() -> int:
    """A port that is free for TCP and UDP."""
    while True:
        port = secrets.choice(PORTS)
        with contextlib.suppress(OSError):
            for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
                with socket.socket(socket.AF_INET, kind) as free:
                    free.bind(("127.0.0.1", port))
            return port


class LiveKitServer:
    """Starts at once, unless `start` is false. `webhooks`: URLs that receive the server's events,
    signed with its key. Its log is a file in `OUT`. `settings`: further keys of its
    configuration."""

    def __init__(self, name: str = "livekit", *, start=True, webhooks: list[str] = (), **settings):
        self.binary = binary()
        self.key, self.secret = f"API{secrets.token_hex(6)}", secrets.token_hex(32)
        self.port, udp_port = free_port(), free_port()
        self.url = f"ws://127.0.0.1:{self.port}"
        self.webhooks = list(webhooks)
        self.settings = {
            "port": self.port,
            "bind_addresses": ["127.0.0.1"],
            "rtc": {
                # It would listen on all interfaces.
                "tcp_port": 0,
                "udp_port": udp_port,
                "use_external_ip": False,
                "enable_loopback_candidate": True,
                "interfaces": {"includes": ["lo"]},
            },
            "keys": {self.key: self.secret},
            "logging": {"level": "debug"},
            **settings,
        }
        OUT.mkdir(parents=True, exist_ok=True)
        self.log = worker_file(name, ".log")
        self.process: subprocess.Popen | None = None
        if start:
            self.start()

    def environment(self) -> dict[str, str]:
        """The environment of a process that uses this server."""
        return {
            "LIVEKIT_URL": self.url,
            "LIVEKIT_API_KEY": self.key,
            "LIVEKIT_API_SECRET": self.secret,
        }

    def start(self, webhooks: list[str] | None = None):
        """Starts the server and waits until it is ready. `webhooks` replaces its URLs."""
        assert not self.is_running(), "livekit-server is already running"
        if webhooks is not None:
            self.webhooks = list(webhooks)
        settings = {**self.settings, "webhook": {"urls": self.webhooks, "api_key": self.key}}
        with tempfile.NamedTemporaryFile("w", suffix=".json") as config, self.log.open("ab") as log:
            # JSON is valid YAML.
            json.dump(settings, config)
            config.flush()
            self.process = subprocess.Popen(
                [self.binary, "--config", config.name], stdout=log, stderr=log
            )
            # The server reads its configuration before it is ready.
            wait_until(self.is_ready, lambda: f"livekit-server: {self.log_tail()}", 30)
        return self

    def is_running(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def is_ready(self) -> bool:
        assert self.is_running(), f"livekit-server stopped: {self.log_tail()}"
        try:
            with urllib.request.urlopen(self.url.replace("ws", "http", 1), timeout=5) as answer:
                return answer.read() == b"OK"
        except (urllib.error.URLError, OSError):
            return False

    def stop(self, timeout: float = 60):
        """Stops the server as an operator does: it waits until all participants have left."""
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(timeout)

    def kill(self):
        """Ends the server as a crash does."""
        self.process.kill()
        self.process.wait()

    def restart(self, webhooks: list[str] | None = None):
        """A crash, after which the server is ready again."""
        self.kill()
        return self.start(webhooks)

    def close(self):
        if self.is_running():
            self.kill()

    def log_tail(self, lines: int = 30) -> str:
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


# --- The official SDK ----------------------------------------------------------------------------


_loop_lock = threading.Lock()


def event_loop() -> asyncio.AbstractEventLoop:
    """The event loop of all participants. The main thread may have one of its own, by
    Playwright."""
    # Several threads may need it first at the same time.
    with _loop_lock:
        return _only_event_loop()


@functools.cache
def _only_event_loop() -> asyncio.AbstractEventLoop:
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, name="livekit", daemon=True).start()
    return loop


def run(coroutine, timeout: float = 30):
    """The result of a coroutine of the SDK."""
    future = asyncio.run_coroutine_threadsafe(coroutine, event_loop())
    try:
        return future.result(timeout)
    except concurrent.futures.TimeoutError:
        future.cancel()
        raise AssertionError(f"LiveKit's SDK did not finish within {timeout} s") from None


def create_token(
    server: LiveKitServer,
    room: str,
    identity: str = "caller",
    *,
    name: str = "",
    kind: api.AccessToken.ParticipantKind = "standard",
    agent: str | None = None,
    job_metadata: dict | str = "",
    metadata: str = "",
    attributes: dict[str, str] | None = None,
    ttl: float = 3600,
    secret: str | None = None,
    **grants,
) -> str:
    """A token to join the room. With `agent`, the creation of the room dispatches that agent with
    `job_metadata`. `metadata` and `attributes` are the participant's own. `ttl`: seconds, negative
    if it has expired. `grants`: of `api.VideoGrants`."""
    allowed = {"room_join": True, "can_update_own_metadata": True, "agent": kind == "agent"}
    token = (
        api.AccessToken(server.key, secret or server.secret)
        .with_identity(identity)
        .with_name(name)
        .with_kind(kind)
        .with_metadata(metadata)
        .with_attributes(attributes or {})
        .with_ttl(datetime.timedelta(seconds=ttl))
        .with_grants(api.VideoGrants(**{"room": room, **allowed, **grants}))
    )
    if agent is not None:
        dispatch = api.RoomAgentDispatch(agent_name=agent, metadata=as_text(job_metadata))
        token = token.with_room_config(api.RoomConfiguration(agents=[dispatch]))
    return token.to_jwt()


def webhook_token(server: LiveKitServer, body: bytes, secret: str | None = None) -> str:
    """The value of the header `Authorization` of a webhook of this server."""
    digest = base64.b64encode(hashlib.sha256(body).digest()).decode()
    return api.AccessToken(server.key, secret or server.secret).with_sha256(digest).to_jwt()


def read_webhook(server: LiveKitServer, body: bytes, token: str) -> dict:
    """The event of a webhook. Raises an error if the signature is wrong."""
    receiver = api.WebhookReceiver(api.TokenVerifier(server.key, server.secret))
    return as_dict(receiver.receive(body.decode(), token))


def as_text(value: dict | str) -> str:
    return value if isinstance(value, str) else json.dumps(value)


class LiveKitApi:
    """The API of a livekit-server. Answers are the API's messages as dicts."""

    def __init__(self, server: LiveKitServer):
        self.server = server

    def _request(self, ask):
        """`ask`: a function of the SDK's client that returns a coroutine."""

        async def request():
            server = self.server
            async with api.LiveKitAPI(server.url, server.key, server.secret) as client:
                return await ask(client)

        return run(request())

    def create_room(self, name: str, **settings) -> dict:
        wanted = api.CreateRoomRequest(name=name, **settings)
        return as_dict(self._request(lambda client: client.room.create_room(wanted)))

    def list_rooms(self, *names: str) -> list[dict]:
        wanted = api.ListRoomsRequest(names=names)
        return as_dicts(self._request(lambda client: client.room.list_rooms(wanted)).rooms)

    def delete_room(self, name: str):
        self._request(lambda client: client.room.delete_room(api.DeleteRoomRequest(room=name)))

    def list_participants(self, room: str) -> list[dict]:
        wanted = api.ListParticipantsRequest(room=room)
        found = self._request(lambda client: client.room.list_participants(wanted))
        return as_dicts(found.participants)

    def remove_participant(self, room: str, identity: str):
        wanted = api.RoomParticipantIdentity(room=room, identity=identity)
        self._request(lambda client: client.room.remove_participant(wanted))

    def create_dispatch(self, room: str, agent: str, metadata: dict | str = "") -> dict:
        """Asks for an agent. The room is created if there is none."""
        wanted = api.CreateAgentDispatchRequest(
            room=room, agent_name=agent, metadata=as_text(metadata)
        )
        return as_dict(self._request(lambda client: client.agent_dispatch.create_dispatch(wanted)))

    def list_dispatches(self, room: str) -> list[dict]:
        return as_dicts(self._request(lambda client: client.agent_dispatch.list_dispatch(room)))

    def delete_dispatch(self, room: str, dispatch: str):
        self._request(lambda client: client.agent_dispatch.delete_dispatch(dispatch, room))


def as_dict(message) -> dict:
    return MessageToDict(message, preserving_proto_field_name=True)


def as_dicts(messages) -> list[dict]:
    return [as_dict(message) for message in messages]
