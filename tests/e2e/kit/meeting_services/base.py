"""What the stand-ins of the meeting-bot services share: the HTTP server with its faults, and the
delivery of webhooks.

All stand-ins run on the event loop of the fakes of providers. Their methods may be called from any
thread.
"""

import asyncio
import base64
import contextlib
import dataclasses
import datetime
import functools
import json
import math
import threading
import time

import aiohttp
import jsonschema
from aiohttp import web

from ..providers.fake import event_loop

#: Signature of a webhook that its receiver accepts.
VALID = "valid"
#: Signature of another secret.
WRONG = "wrong"


class Refused(Exception):
    """A request that the service refuses."""

    def __init__(self, status: int, body: dict | list):
        super().__init__(f"{status} {body}")
        self.status, self.body = status, body


@dataclasses.dataclass
class Request:
    """A request of the server under test."""

    #: Monotonic seconds.
    at: float
    operation: str
    method: str
    path: str
    headers: dict[str, str]
    #: The body as JSON, the text itself if it is no JSON, or None.
    body: dict | str | None
    #: Status of the answer; None = not answered.
    status: int | None = None


@dataclasses.dataclass
class Delivery:
    """One attempt to deliver a webhook."""

    at: float
    trigger: str
    body: dict
    #: None = no answer.
    status: int | None


@dataclasses.dataclass
class Fault:
    """A fault of the next requests of one operation."""

    #: None = no answer until `release`; 0 = the connection is lost.
    status: int | None
    #: A text is sent as it is, also if it is no JSON. None = the service's own words.
    body: dict | str | None
    headers: dict[str, str]
    #: Number of requests that it still affects.
    times: float
    #: Whether the service does what it was asked for, although it does not say so.
    performs: bool


def find_errors(schema: dict, body) -> dict[str, list[str]]:
    """The errors of a body by field."""
    if not isinstance(body, dict):
        return {"non_field_errors": ["Invalid data. Expected a dictionary."]}
    found: dict[str, list[str]] = {}
    for name in schema.get("required", []):
        if name not in body:
            found[name] = ["This field is required."]
    for name in body.keys() - schema["properties"].keys():
        found[name] = ["Unexpected field."]
    for name, rules in schema["properties"].items():
        if name in body:
            errors = jsonschema.Draft202012Validator(rules).iter_errors(body[name])
            if messages := [error.message for error in errors]:
                found[name] = messages
    return found


def closed_object(properties: dict, required: tuple[str, ...] = ()) -> dict:
    """The schema of an object without further fields."""
    return {
        "type": "object",
        "properties": properties,
        "required": list(required),
        "additionalProperties": False,
    }


def timestamp(at: float | None = None) -> str:
    """The date and time of a moment in monotonic seconds, or of now."""
    seconds = time.time() + (0 if at is None else at - time.monotonic())
    return datetime.datetime.fromtimestamp(seconds, datetime.UTC).isoformat()[:-6] + "Z"


class MeetingService:
    """A meeting-bot service. `key` is the only key that it accepts. `resolve` maps the start of a
    public https address to a server on loopback; wss addresses follow it to ws."""

    #: Header with the key, and what precedes the key.
    key_header: tuple[str, str] = ("authorization", "Token ")
    #: A secret with which a wrong signature is made.
    wrong_secret = "whsec_" + base64.b64encode(b"the secret of another server").decode()
    #: Seconds between the attempts to deliver a webhook.
    retry_delays: tuple[float, ...] = (1, 2)
    #: Whether webhooks are sent without a secret.
    sends_unsigned = False
    #: Seconds that the service waits for the answer.
    webhook_timeout: float = 15

    def __init__(
        self,
        key: str = "meeting-key",
        webhook_secret: str | None = None,
        resolve: dict[str, str] | None = None,
        webhook_url: str | None = None,
    ):
        self.key, self.webhook_secret = key, webhook_secret
        self.resolve = dict(resolve or {})
        #: The address that an operator enters in the service's dashboard.
        self.webhook_url = webhook_url
        #: Whether webhooks are sent by themselves, and how many seconds late.
        self.sends_webhooks, self.webhook_delay = True, 0.0
        #: Seconds of each step of a bot that leaves.
        self.leave_seconds = 0.2
        self.changed = threading.Condition()
        self.requests: list[Request] = []
        self.deliveries: list[Delivery] = []
        self.bots: dict[str, object] = {}
        self.taken_bots = 0
        #: What the server under test did that the service does not allow, and addresses that
        #: `resolve` does not know.
        self.violations: list[str] = []
        self.faults: dict[str, list[Fault]] = {}
        self.tasks: set = set()
        self.run(self._start())

    # --- life ---

    def run(self, work):
        """Runs a coroutine on the event loop and waits for its result."""
        return asyncio.run_coroutine_threadsafe(work, event_loop()).result(60)

    def call(self, function, *arguments):
        """Calls a function on the event loop, without waiting for it."""
        event_loop().call_soon_threadsafe(function, *arguments)

    def spawn(self, work):
        """Runs a coroutine on the event loop until the stand-in is closed."""
        task = asyncio.run_coroutine_threadsafe(work, event_loop())
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)
        return task

    async def _start(self):
        self.released = asyncio.Event()
        self.client = aiohttp.ClientSession()
        app = web.Application()
        self.add_routes(app.router)
        app.router.add_route("*", "/{rest:.*}", self._unknown)
        self.runner = web.AppRunner(
            app, handler_cancellation=True, access_log=None, shutdown_timeout=0.1
        )
        await self.runner.setup()
        await web.TCPSite(self.runner, "127.0.0.1", 0).start()
        self.port = self.runner.addresses[0][1]
        self.url = f"http://127.0.0.1:{self.port}"

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        for task in list(self.tasks):
            task.cancel()
        self.run(self._stop())

    async def _stop(self):
        self.released.set()
        for bot in self.bots.values():
            await bot.close_connections()
        await self.client.close()
        await self.runner.cleanup()

    @contextlib.contextmanager
    def noting(self):
        """Changes what tests wait for."""
        with self.changed:
            yield
            self.changed.notify_all()

    def violate(self, what: str):
        with self.noting():
            self.violations.append(what)

    def wait_for(self, found, what: str, timeout: float = 60):
        """The first true value of `found()`."""
        with self.changed:
            end = time.monotonic() + timeout
            while not (value := found()):
                left = end - time.monotonic()
                assert left > 0, f"waited {timeout} s for {what}; {self.describe()}"
                self.changed.wait(left)
            return value

    def wait_for_bot(self, timeout: float = 60):
        """The next bot that no call of this method has returned."""
        self.wait_for(lambda: len(self.bots) > self.taken_bots, "a bot", timeout)
        self.taken_bots += 1
        return list(self.bots.values())[self.taken_bots - 1]

    def requests_of(self, operation: str) -> list[Request]:
        """The requests of an operation: create, get, leave, delete_data, chat, participants, …"""
        return [request for request in self.requests if request.operation == operation]

    def live_bots(self) -> list:
        """The bots that have not ended."""
        return [bot for bot in self.bots.values() if not bot.is_over]

    def describe(self) -> str:
        asked = [f"{r.method} {r.path} {r.status}" for r in self.requests[-5:]]
        sent = [f"{d.trigger} {d.status}" for d in self.deliveries[-5:]]
        states = [bot.state for bot in self.bots.values()]
        return f"{asked}, webhooks {sent}, bots {states}, violations {self.violations}"

    # --- faults ---

    def fail(self, operation: str, status, body=None, headers=None, *, times=1, performs=False):
        """The next `times` requests of the operation fail, or all (None). `status` None: no answer
        until `release`; 0: the connection is lost. `performs`: the service does what it was asked
        for all the same."""
        fault = Fault(status, body, dict(headers or {}), times or math.inf, performs)
        self.faults.setdefault(operation, []).append(fault)

    fail_create = functools.partialmethod(fail, "create")
    fail_leave = functools.partialmethod(fail, "leave")
    fail_get = functools.partialmethod(fail, "get")

    def recover(self):
        """Ends all faults, and answers the requests that wait."""
        self.faults.clear()
        self.release()

    def release(self):
        """Answers the requests that wait."""

        self.call(self.released.set)
        self.released = asyncio.Event()

    def _take_fault(self, operation: str) -> Fault | None:
        waiting = self.faults.get(operation)
        if not waiting:
            return None
        waiting[0].times -= 1
        return waiting.pop(0) if waiting[0].times <= 0 else waiting[0]

    # --- requests ---

    def add_routes(self, router: web.UrlDispatcher):
        raise NotImplementedError

    def error_body(self, status: int, message: str = "") -> dict:
        """What the service says about an error."""
        raise NotImplementedError

    def route(self, router, method: str, path: str, operation: str, perform):
        """`perform(bot, body)` returns the status and the body of the answer. `bot` is None where
        the path names none."""

        async def handle(request: web.Request) -> web.StreamResponse:
            return await self._handle(request, operation, perform)

        router.add_route(method, path, handle)

    async def _unknown(self, request: web.Request) -> web.Response:
        self.violate(f"unknown address: {request.method} {request.path}")
        return web.json_response(self.error_body(404), status=404)

    async def _handle(self, request: web.Request, operation: str, perform) -> web.StreamResponse:
        text = await request.text()
        body: dict | str | None = text or None
        with contextlib.suppress(ValueError):
            body = json.loads(text)
        headers = {name.lower(): value for name, value in request.headers.items()}
        record = Request(time.monotonic(), operation, request.method, request.path, headers, body)
        with self.noting():
            self.requests.append(record)
        status, answer, more = await self._answer(request, record, perform)
        if status == 0:
            request.transport.abort()
            return web.Response()
        with self.noting():
            record.status = status
        if status == 204:
            return web.Response(status=204)
        content = answer if isinstance(answer, str) else json.dumps(answer)
        return web.Response(
            status=status, text=content, content_type="application/json", headers=more
        )

    async def _answer(self, request, record: Request, perform) -> tuple[int, dict | str, dict]:
        name, prefix = self.key_header
        if record.headers.get(name) != prefix + self.key:
            return 401, self.error_body(401), {}
        fault = self._take_fault(record.operation)
        if fault is None:
            return *self._perform(request, record, perform), {}
        result = self._perform(request, record, perform) if fault.performs else None
        if fault.status is None:
            await self.released.wait()
            return *(result or self._perform(request, record, perform)), {}
        answer = self.error_body(fault.status) if fault.body is None else fault.body
        return fault.status, answer, fault.headers

    def _perform(self, request, record: Request, perform) -> tuple[int, dict]:
        bot = None
        if (id := request.match_info.get("bot")) is not None:
            bot = self.bots.get(id)
            if bot is None:
                return 404, self.error_body(404)
        try:
            if isinstance(record.body, str):
                raise Refused(400, self.error_body(400, "JSON parse error"))
            return perform(bot, record.body)
        except Refused as refused:
            return refused.status, refused.body

    def add_bot(self, bot):
        with self.noting():
            self.bots[bot.id] = bot

    # --- what the service sends ---

    def resolve_url(self, url: str) -> str:
        """The loopback address of a public address."""
        for public, local in self.resolve.items():
            sockets = public.replace("https://", "wss://"), local.replace("http://", "ws://")
            for start, target in ((public, local), sockets):
                rest = url.removeprefix(start)
                if rest != url and (not rest or rest[0] in "/?#"):
                    return target + rest
        self.violate(f"`resolve` does not know {url}")
        raise ValueError(f"`resolve` does not know {url}")

    async def deliver(
        self, url: str, trigger: str, body: dict, headers, *, delay=0.0, retry_delays=(), again=None
    ) -> int | None:
        """Sends a webhook until it is accepted. `headers(content)` makes the headers of each
        attempt. `again(status)` tells whether another attempt follows."""
        content = json.dumps(body).encode()
        again = again or (lambda status: status is None or not 200 <= status < 300)
        target = self.resolve_url(url)
        status = None
        for pause in (delay, *retry_delays):
            await asyncio.sleep(pause)
            made = {"content-type": "application/json", **headers(content)}
            status = None
            with contextlib.suppress(aiohttp.ClientError, TimeoutError):
                limit = aiohttp.ClientTimeout(self.webhook_timeout)
                async with self.client.post(
                    target, data=content, headers=made, timeout=limit, allow_redirects=False
                ) as answer:
                    status = answer.status
            with self.noting():
                self.deliveries.append(Delivery(time.monotonic(), trigger, body, status))
            if not again(status):
                break
        return status

    def signing_secret(self, signature: str | None) -> str | None:
        """The secret for a signature: `VALID`, `WRONG`, or None for none."""
        if signature is None:
            return None
        return self.webhook_secret if signature == VALID else self.wrong_secret
