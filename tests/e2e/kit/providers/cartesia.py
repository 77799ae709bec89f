"""Cartesia's text-to-speech over a WebSocket: `/tts/websocket`."""

import asyncio
import base64
import dataclasses
import re
import uuid

from aiohttp import web

from .fake import FakeSocket
from .synthesis import TextToSpeechFake

#: Seconds after its last sound after which a context takes no more text.
CONTEXT_SECONDS = 1.0
#: Seconds without text after which the vendor closes the connection.
IDLE_SECONDS = 300.0
#: Fields that may differ between the messages of a context.
VARIABLE = {"transcript", "continue", "flush", "max_buffer_delay_ms", "duration"}
#: A version of the interface.
VERSION = re.compile(r"20\d\d-\d\d-\d\d")


class CartesiaFake(TextToSpeechFake):
    provider = "cartesia"
    vendor = "Cartesia"
    key_header = ("x-api-key", "")
    #: odd_bytes, no_alignment, no_end, no_sound: as of `ElevenLabsFake`; refused_in_band,
    #: no_credit_in_band, busy_in_band, failed_in_band: an error in place of the speech.
    own_faults = frozenset(
        {
            "odd_bytes",
            "no_alignment",
            "no_end",
            "no_sound",
            "refused_in_band",
            "no_credit_in_band",
            "busy_in_band",
            "failed_in_band",
        }
    )

    def __init__(self, *, first_sound: float = 0.09, **options):
        super().__init__(first_sound=first_sound, **options)

    def add_routes(self, router):
        router.add_get("/tts/websocket", self._speak)

    async def _speak(self, request: web.Request):
        version = request.query.get("cartesia_version") or request.headers.get("cartesia-version")
        if not VERSION.fullmatch(version or ""):
            self.violate(f"unknown version {version!r}")
        return await self.serve_socket(request, lambda socket: Speaking(self, socket))

    def accepts_key(self, record) -> bool:
        # The vendor's client sends the key as a bearer token.
        return super().accepts_key(record) or (
            record.headers.get("authorization") == f"Bearer {self.key}"
        )

    def refusal_body(self, status: int):
        titles = {
            401: ("invalid_api_key", "Invalid API key"),
            402: ("quota_exceeded", "You have no credits left"),
            429: ("concurrency_limited", "Too many concurrent requests"),
        }
        code, title = titles.get(status, ("internal_error", "Internal server error"))
        body = {
            "error_code": code,
            "title": title,
            "message": f"{title}.",
            "request_id": str(uuid.uuid4()),
        }
        return body, {}


@dataclasses.dataclass
class SpeechContext:
    """The speech of a reply."""

    #: The fields that no message of the context may change.
    parameters: dict
    queue: asyncio.Queue = dataclasses.field(default_factory=asyncio.Queue)
    task: asyncio.Task | None = None
    cancelled: bool = False
    #: Seconds of sound so far, and the number of the next flush.
    seconds: float = 0.0
    flushes: int = 0
    odd: bytes = b""


class Speaking:
    """One connection."""

    def __init__(self, fake: CartesiaFake, socket: FakeSocket):
        self.fake, self.socket = fake, socket
        self.contexts: dict[str, SpeechContext] = {}
        self.ended: set[str] = set()
        self.idle: asyncio.TimerHandle | None = None

    async def start(self):
        self._touch()

    def _touch(self):
        loop = asyncio.get_running_loop()
        if self.idle:
            self.idle.cancel()
        self.idle = loop.call_later(IDLE_SECONDS, lambda: loop.create_task(self.socket.close()))

    async def receive(self, message):
        self._touch()
        if not isinstance(message, dict):
            self.fake.violate(f"no JSON object: {str(message)[:100]!r}")
            await self._fail(None, 400, "invalid_request", "Invalid JSON")
            return
        name = message.get("context_id")
        context = self.contexts.get(name)
        if message.get("cancel"):
            if context:
                context.cancelled = True
                context.queue.put_nowait(None)
            return
        fault = self.socket.record.fault
        refusal = {
            "refused_in_band": (401, "invalid_api_key", "Invalid API key"),
            "no_credit_in_band": (402, "quota_exceeded", "You have no credits left"),
            "busy_in_band": (429, "concurrency_limited", "Too many concurrent requests"),
            "failed_in_band": (500, "internal_error", "Internal server error"),
        }.get(fault.kind if fault else "")
        if refusal:
            await self._fail(name, *refusal)
            return
        parameters = {key: value for key, value in message.items() if key not in VARIABLE}
        if problem := self._problem(message):
            self.fake.violate(f"{problem}: {message}")
            await self._fail(name, 400, "invalid_request", problem)
            return
        if context is None:
            if name in self.ended:
                await self._fail(name, 400, "context_expired", "The context has expired")
                return
            context = self.contexts[name] = SpeechContext(parameters)
            context.task = asyncio.create_task(self._speak_queued(name, context))
        elif context.parameters != parameters:
            self.fake.violate(f"the parameters of a context changed: {message}")
            await self._fail(name, 400, "invalid_request", "Context parameters changed")
            return
        text = message["transcript"]
        if text.strip():
            context.queue.put_nowait(text)
        if not message.get("continue"):
            context.queue.put_nowait(None)

    @staticmethod
    def _problem(message: dict) -> str | None:
        if not isinstance(message.get("transcript"), str):
            return "transcript is missing"
        if not message.get("model_id"):
            return "model_id is missing"
        if (message.get("voice") or {}).get("mode") != "id" or not message["voice"].get("id"):
            return "voice is missing"
        sound = message.get("output_format") or {}
        if sound.get("container") != "raw" or sound.get("encoding") != "pcm_s16le":
            return "output_format is not raw pcm_s16le"
        if not isinstance(sound.get("sample_rate"), int):
            return "sample_rate is missing"
        return None

    async def _fail(self, name: str | None, status: int, code: str, words: str):
        error = {
            "type": "error",
            "done": True,
            "status_code": status,
            "error_code": code,
            "title": words,
            "message": f"{words}.",
            "request_id": str(uuid.uuid4()),
        }
        await self.socket.send(error | ({"context_id": name} if name else {}))

    async def _speak_queued(self, name: str, context: SpeechContext):
        while not context.cancelled:
            # The first text, or the next one while the context lives.
            limit = CONTEXT_SECONDS if context.flushes else None
            try:
                text = await asyncio.wait_for(context.queue.get(), limit)
            except TimeoutError:
                break
            if text is None:
                break
            await self._speak(name, context, text)
        self.contexts.pop(name, None)
        self.ended.add(name)
        await self._send(name, {"type": "done", "done": True, "status_code": 200})

    async def _send(self, name: str, message: dict):
        common = {"context_id": name, "status_code": 206, "done": False}
        await self.socket.send(common | message)

    async def _speak(self, name: str, context: SpeechContext, text: str):
        """The speech of a text runs to its end although the context is cancelled."""
        fault = self.socket.record.fault.kind if self.socket.record.fault else None
        rate = context.parameters["output_format"]["sample_rate"]
        sound = await self.fake.synthesize(text, rate)
        context.flushes += 1
        flush = context.flushes
        await asyncio.sleep(self.fake.first_sound)
        start = context.seconds
        if context.parameters.get("add_timestamps") and fault != "no_alignment":
            words, starts, ends = [], [], []
            for word, begin, end in sound.words():
                words.append(word)
                starts.append(round(start + begin, 4))
                ends.append(round(start + end, 4))
            times = {"words": words, "start": starts, "end": ends}
            await self._send(name, {"type": "timestamps", "word_timestamps": times})
        for samples, _ in sound.chunks(self.fake.chunk_seconds):
            data = context.odd + samples.astype("<i2").tobytes()
            context.odd = b""
            if fault == "odd_bytes":
                data, context.odd = data[:-1], data[-1:]
            audio = "" if fault == "no_sound" else base64.b64encode(data).decode()
            chunk = {"type": "chunk", "data": audio, "step_time": 20.0, "flush_id": flush}
            await self._send(name, chunk)
            self.socket.record.sent_samples += len(samples)
            context.seconds += len(samples) / rate
            await asyncio.sleep(len(samples) / rate / self.fake.pace)
        if context.cancelled:
            self.fake.note_cancelled(text)
        if fault != "no_end":
            await self._send(name, {"type": "flush_done", "flush_done": True, "flush_id": flush})

    def end(self):
        if self.idle:
            self.idle.cancel()
        for context in list(self.contexts.values()):
            if context.task:
                context.task.cancel()
