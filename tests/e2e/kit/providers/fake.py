"""What all fakes of vendors share: an HTTP and WebSocket server, its faults, and the record of what
arrived.

All fakes of a process run on one event loop in a thread of its own.
"""

import asyncio
import contextlib
import dataclasses
import functools
import json
import secrets
import threading
import time

from aiohttp import WSCloseCode, WSMsgType, web

#: Faults that refuse a connection or a request with this HTTP status.
REFUSALS = {"401": 401, "402": 402, "403": 403, "429": 429, "500": 500, "503": 503}
#: Faults of every fake after it has accepted.
#:
#: - stall: nothing is sent
#: - cut: the connection is lost in the middle of an answer
#: - close: the connection is closed in the middle of an answer; a WebSocket with code 1011
#: - malformed: each message is cut in half
#: - binary: bytes are sent where text is expected
#: - endless: the answer does not end
#: - slow: the answer begins `seconds` later
COMMON_FAULTS = frozenset({"stall", "cut", "close", "malformed", "binary", "endless", "slow"})
#: Faults of every fake.
FAULTS = frozenset(REFUSALS) | COMMON_FAULTS
#: Close code of an internal error.
INTERNAL_ERROR = WSCloseCode.INTERNAL_ERROR
#: Messages that an endless answer has at most, so that it cannot fill the memory of a test.
MAX_ENDLESS_MESSAGES = 100_000


@functools.cache
def event_loop() -> asyncio.AbstractEventLoop:
    """The event loop of all fakes of this process."""
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, daemon=True, name="fakes").start()
    return loop


@dataclasses.dataclass
class Fault:
    """A fault of the next connections or requests."""

    #: A key of `REFUSALS`, one of `COMMON_FAULTS`, or one of the fake's own faults.
    kind: str
    #: The number of connections or requests that it affects; None = all.
    times: int | None = None
    #: Messages of the answer that precede it.
    after: int = 1
    #: Delay of a slow answer.
    seconds: float = 1.0
    #: Header `retry-after` of a refusal, in seconds.
    retry_after: float | None = None


@dataclasses.dataclass
class Received:
    """A message from the client."""

    #: Seconds since the start of the fake.
    at: float
    #: The text as JSON, or the text itself if it is no JSON; None for bytes.
    message: dict | str | None
    size: int


@dataclasses.dataclass
class Record:
    """A connection, or a request: what arrived, and when."""

    number: int
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    #: Seconds since the start of the fake.
    opened_at: float
    closed_at: float | None = None
    #: Code of the WebSocket's end; 1006 = without a close frame.
    close_code: int | None = None
    #: Whether the client sent the vendor's last message before the end.
    said_goodbye: bool = False
    #: Whether the client left before the answer was complete.
    cancelled: bool = False
    fault: Fault | None = None
    #: Body of a request, as JSON.
    body: dict | None = None
    received: list[Received] = dataclasses.field(default_factory=list)
    received_bytes: int = 0
    #: Messages and samples that were sent.
    sent: int = 0
    sent_samples: int = 0

    def texts(self, kind: str | None = None) -> list[dict]:
        """The JSON messages of the client, or those whose `type` is `kind`."""
        found = [r.message for r in self.received if isinstance(r.message, dict)]
        return [m for m in found if kind is None or m.get("type") == kind]

    @property
    def seconds(self) -> float | None:
        """Duration of the connection."""
        return None if self.closed_at is None else self.closed_at - self.opened_at


class Fake:
    """The server of a vendor. `key` is the only key that it accepts."""

    #: The vendor's name in an agent, and for people.
    provider = ""
    vendor = ""
    #: Name of the header with the key, in lower case, and what precedes the key.
    key_header: tuple[str, str] = ("authorization", "")
    #: Status with which another key is refused.
    wrong_key_status = 401
    #: Faults beside the common ones.
    own_faults: frozenset[str] = frozenset()

    def __init__(
        self, key: str | None = None, *, keep_messages: bool = True, needs_key: bool = True
    ):
        self.key = key or f"{type(self).__name__.lower()}-{secrets.token_hex(12)}"
        self.needs_key = needs_key
        self.started_at = time.monotonic()
        self.changed = threading.Condition()
        self.faults: list[Fault] = []
        #: Whether the messages of the clients are kept, or only counted.
        self.keep_messages = keep_messages
        self.records: list[Record] = []
        #: What a client did that the vendor does not allow.
        self.violations: list[str] = []
        self.runner: web.AppRunner | None = None
        self.url = self._run(self._start())

    @staticmethod
    def _run(work):
        return asyncio.run_coroutine_threadsafe(work, event_loop()).result(30)

    async def _start(self) -> str:
        app = web.Application(client_max_size=64 << 20)
        app.router.add_get("/-/report", self._report)
        self.add_routes(app.router)
        # A handler is cancelled as soon as its client has left.
        self.runner = web.AppRunner(
            app, handler_cancellation=True, access_log=None, shutdown_timeout=0.1
        )
        await self.runner.setup()
        site = web.TCPSite(self.runner, "127.0.0.1", 0, backlog=2048)
        await site.start()
        return f"http://127.0.0.1:{self.runner.addresses[0][1]}"

    @property
    def base_url(self) -> str:
        """The address for an agent."""
        return self.url

    def add_routes(self, router: web.UrlDispatcher):
        raise NotImplementedError

    def close(self):
        if self.runner:
            self._run(self.runner.cleanup())

    # --- faults ---

    def fail(self, kind: str, **options):
        """Adds a fault. Faults apply in the order in which they were added."""
        assert kind in FAULTS | self.own_faults, kind
        self.faults.append(Fault(kind, **options))
        return self

    def recover(self):
        self.faults.clear()

    def _take_fault(self, path: str) -> Fault | None:
        """Lists of models and voices do not fail: clients request them at any time."""
        if not self.faults or path.endswith(("/models", "/voices")):
            return None
        fault = self.faults[0]
        if fault.times is not None:
            fault.times -= 1
            if fault.times <= 0:
                self.faults.pop(0)
        return fault

    # --- the record ---

    def now(self) -> float:
        return time.monotonic() - self.started_at

    @contextlib.contextmanager
    def noting(self):
        """Changes of the record: who waits for one is told."""
        with self.changed:
            yield
            self.changed.notify_all()

    def violate(self, what: str):
        with self.noting():
            self.violations.append(what)

    def open_record(self, request: web.Request) -> Record:
        """The record of a new connection or request, with its fault."""
        if self.key in str(request.rel_url):
            self.violate("the key is in a URL")
        with self.noting():
            record = Record(
                len(self.records),
                request.path,
                dict(request.query),
                {name.lower(): value for name, value in request.headers.items()},
                self.now(),
                fault=self._take_fault(request.path),
            )
            self.records.append(record)
        return record

    def refusal(self, record: Record) -> web.Response | None:
        """The answer to a connection or request that is not accepted."""
        fault = record.fault
        status = REFUSALS.get(fault.kind) if fault else None
        if status is None and self.needs_key and not self.accepts_key(record):
            status = self.wrong_key_status
        if status is None:
            return None
        headers = {}
        if fault and fault.retry_after is not None:
            headers["retry-after"] = f"{fault.retry_after:g}"
        body, more = self.refusal_body(status)
        with self.noting():
            record.closed_at = self.now()
        return web.json_response(body, status=status, headers=headers | more)

    def accepts_key(self, record: Record) -> bool:
        name, prefix = self.key_header
        return record.headers.get(name) == prefix + self.key

    def refusal_body(self, status: int) -> tuple[dict, dict[str, str]]:
        """What the vendor says about a status, and further headers."""
        raise NotImplementedError

    def wait_for(self, found, what: str, timeout: float = 60):
        """The first true value of `found()`."""
        with self.changed:
            end = time.monotonic() + timeout
            while not (value := found()):
                left = end - time.monotonic()
                assert left > 0, f"{self.vendor}: waited {timeout} s for {what}; {self.describe()}"
                self.changed.wait(left)
            return value

    def open_count(self) -> int:
        return sum(record.closed_at is None for record in self.records)

    def describe(self) -> str:
        lines = []
        for record in self.records[-5:]:
            last = [one.message or f"{one.size} bytes" for one in record.received[-4:]]
            lines.append(
                f"{record.path} {record.fault} {record.opened_at:.2f}–{record.closed_at} "
                f"{record.close_code} sent {record.sent}, received {len(record.received)}: {last}"
            )
        return "\n".join([*lines, f"violations: {self.violations}"])

    def answer_list(self, request: web.Request, models: dict) -> web.Response:
        """Answers a request for the list of models."""
        record = self.open_record(request)
        if refused := self.refusal(record):
            return refused
        with self.noting():
            record.closed_at = self.now()
        return web.json_response(models)

    async def _report(self, _request) -> web.Response:
        """Figures for a test in another process."""
        started = self.now()
        await asyncio.sleep(0)
        return web.json_response(
            {
                "connections": len(self.records),
                "open": self.open_count(),
                "violations": self.violations[:20],
                "received_bytes": sum(record.received_bytes for record in self.records),
                "sent": sum(record.sent for record in self.records),
                "sent_samples": sum(record.sent_samples for record in self.records),
                "polite": sum(record.said_goodbye for record in self.records),
                "cancelled": sum(record.cancelled for record in self.records),
                "loop_delay_ms": 1000 * (self.now() - started),
                "cpu_seconds": time.process_time(),
            }
        )

    # --- WebSocket ---

    async def serve_socket(self, request: web.Request, session) -> web.StreamResponse:
        """Accepts a WebSocket and gives each message to `session(socket)`: an object with
        `async start()`, `async receive(message)`, where bytes are audio, and `end()`."""
        record = self.open_record(request)
        if refused := self.refusal(record):
            return refused
        socket = FakeSocket(self, record)
        handler = session(socket)
        try:
            await socket.prepare(request)
            with contextlib.suppress(ConnectionError):
                await handler.start()
                async for message in socket.response:
                    if message.type not in (WSMsgType.TEXT, WSMsgType.BINARY):
                        break
                    await handler.receive(socket.note(message))
        finally:
            # Also if the client has left, which cancels this task.
            handler.end()
            with self.noting():
                record.closed_at = self.now()
                record.close_code = socket.response.close_code or 1006
        return socket.response


class FakeSocket:
    """The fake's end of a WebSocket. Applies the fault of its connection to what is sent."""

    def __init__(self, fake: Fake, record: Record):
        self.fake, self.record = fake, record
        self.response = web.WebSocketResponse(compress=False, max_msg_size=16 << 20, timeout=1.0)
        self.request: web.Request | None = None

    async def prepare(self, request: web.Request):
        self.request = request
        await self.response.prepare(request)

    def note(self, message) -> dict | str | bytes:
        """Records a message of the client and decodes it."""
        data = message.data
        content = data if isinstance(data, bytes) else parse(data)
        record = self.record
        record.received_bytes += len(data)
        if self.fake.keep_messages:
            with self.fake.noting():
                stored = None if isinstance(data, bytes) else content
                record.received.append(Received(self.fake.now(), stored, len(data)))
        return content

    @property
    def fault(self) -> str | None:
        """The fault that applies to the next message."""
        fault = self.record.fault
        return fault.kind if fault and self.record.sent >= fault.after else None

    @property
    def stalls(self) -> bool:
        return bool(self.record.fault) and self.record.fault.kind == "stall"

    async def send(self, message: dict | bytes) -> bool:
        """Sends an answer, or what the fault makes of it. Returns whether the client got it."""
        if self.stalls or self.response.closed:
            return False
        if isinstance(message, bytes):
            content, write = message, self.response.send_bytes
        else:
            content, write = json.dumps(message, separators=(",", ":")), self.response.send_str
        match self.fault:
            case "cut":
                self.abort()
                return False
            case "close":
                await self.close(INTERNAL_ERROR, "internal error")
                return False
            case "malformed":
                await self._write(write(content[: len(content) // 2]))
                return False
            case "binary" if isinstance(content, str):
                await self._write(self.response.send_bytes(content.encode()))
                return False
            case "slow" if self.record.sent == self.record.fault.after:
                await asyncio.sleep(self.record.fault.seconds)
            case "endless":
                for _ in range(MAX_ENDLESS_MESSAGES):
                    if not await self._write(write(content)):
                        return False
                    await asyncio.sleep(0.01)
                return False
        return await self._write(write(content))

    async def _write(self, sending) -> bool:
        self.record.sent += 1
        try:
            await sending
        except ConnectionError:
            return False
        return not self.response.closed

    async def close(self, code: int = WSCloseCode.OK, reason: str = ""):
        await self.response.close(code=code, message=reason.encode())

    def abort(self):
        """The connection is lost without a close frame."""
        if self.request and self.request.transport:
            self.request.transport.abort()


def parse(text: str) -> dict | str:
    try:
        content = json.loads(text)
    except ValueError:
        return text
    return content if isinstance(content, dict) else text
