"""Deepgram's text-to-speech over a WebSocket: `/v1/speak` (Aura)."""

import asyncio
import collections
import re
import uuid

from aiohttp import web

from .deepgram import refusal_body
from .fake import FakeSocket
from .synthesis import TextToSpeechFake

#: Query parameters of the endpoint.
PARAMETERS = {"model", "encoding", "sample_rate", "speed", "mip_opt_out", "tag"}
#: Name of a voice, and its language.
VOICE = re.compile(r"aura(-2)?-[a-z]+-(?P<language>[a-z]{2})")
LANGUAGES = {"en", "es", "de", "nl", "fr", "it", "ja"}
SAMPLE_RATES = {8_000, 16_000, 24_000, 32_000, 48_000}
#: Languages of which the voices take another speed, and the speeds.
SPEED_LANGUAGES, SPEEDS = {"en", "es"}, (0.7, 1.5)
#: Characters of a message.
MAX_CHARACTERS = 2_000
#: Flushes that the vendor accepts in a time, in seconds.
MAX_FLUSHES, FLUSH_SECONDS = 20, 60.0


class AuraFake(TextToSpeechFake):
    provider = "deepgram"
    vendor = "Deepgram"
    key_header = ("authorization", "Token ")
    #: odd_bytes, no_end, no_sound: as of `ElevenLabsFake`.
    own_faults = frozenset({"odd_bytes", "no_end", "no_sound"})

    def add_routes(self, router):
        router.add_get("/v1/speak", self._speak)

    async def _speak(self, request: web.Request):
        query = request.query
        if unknown := set(query) - PARAMETERS:
            self.violate(f"unknown parameters: {unknown}")
        voice = VOICE.fullmatch(query.get("model", ""))
        language = voice["language"] if voice else ""
        if language not in LANGUAGES:
            self.violate(f"no voice: {query.get('model')!r}")
        if query.get("encoding") != "linear16":
            self.violate(f"not linear16: {dict(query)}")
        if int(query.get("sample_rate", 24_000)) not in SAMPLE_RATES:
            self.violate(f"sample_rate={query['sample_rate']}")
        if "speed" in query and (
            language not in SPEED_LANGUAGES or not SPEEDS[0] <= float(query["speed"]) <= SPEEDS[1]
        ):
            self.violate(f"{query['model']} with speed {query['speed']}")
        return await self.serve_socket(request, lambda socket: AuraSpeaking(self, socket))

    def refusal_body(self, status: int):
        return refusal_body(status)


class AuraSpeaking:
    """One connection. Its sound has no names: that of one flush follows that of another."""

    def __init__(self, fake: AuraFake, socket: FakeSocket):
        self.fake, self.socket = fake, socket
        self.rate = int(socket.record.query.get("sample_rate", 24_000))
        self.buffer = ""
        #: Texts to speak to their ends.
        self.queue: asyncio.Queue[str] = asyncio.Queue()
        self.task: asyncio.Task | None = None
        #: Number of `Clear` messages: a speech that began before the last one is cancelled.
        self.clears = 0
        self.is_speaking = False
        self.sequence = 0
        self.flushes: collections.deque[float] = collections.deque()
        self.odd = b""

    async def start(self):
        self.task = asyncio.create_task(self._speak_queued())
        metadata = {
            "type": "Metadata",
            "request_id": str(uuid.uuid4()),
            "model_name": self.socket.record.query.get("model"),
            "model_version": "2026-01-01.0",
            "model_uuid": "00000000-0000-4000-8000-000000000002",
        }
        if not self.socket.stalls:
            # Not subject to faults: they concern sound.
            await self.socket.response.send_json(metadata)

    async def receive(self, message):
        match message.get("type") if isinstance(message, dict) else None:
            case "Speak":
                text = message.get("text")
                if not isinstance(text, str) or not text.strip() or len(text) > MAX_CHARACTERS:
                    self.fake.violate(f"no text to speak: {str(message)[:200]}")
                    await self._warn("DATA-0001", "Invalid text")
                    return
                self.buffer += text
            case "Flush":
                await self._flush()
            case "Clear":
                await self._clear()
            case "Close":
                self.socket.record.said_goodbye = True
                await self.socket.close()
            case kind:
                self.fake.violate(f"unknown message {kind!r}: {str(message)[:200]}")
                await self._warn("DATA-0000", "Could not deserialize the message")

    async def _warn(self, code: str, words: str):
        await self.socket.send({"type": "Warning", "description": words, "code": code})

    def _next(self) -> int:
        self.sequence += 1
        return self.sequence - 1

    async def _flush(self):
        now = self.fake.now()
        while self.flushes and self.flushes[0] <= now - FLUSH_SECONDS:
            self.flushes.popleft()
        if len(self.flushes) >= MAX_FLUSHES:
            self.fake.violate(f"more than {MAX_FLUSHES} flushes in {FLUSH_SECONDS:.0f} s")
            await self._warn("EXCESSIVE_FLUSH", "Too many flushes")
            return
        self.flushes.append(now)
        self.queue.put_nowait(self.buffer)
        self.buffer = ""

    async def _clear(self):
        self.clears += 1
        self.buffer = ""
        while not self.queue.empty():
            self.fake.note_cancelled(self.queue.get_nowait())
        if not self.is_speaking:
            await self._send_cleared()

    async def _send_cleared(self):
        await self.socket.send({"type": "Cleared", "sequence_id": self._next()})

    async def _speak_queued(self):
        while True:
            text = await self.queue.get()
            clears, self.is_speaking = self.clears, True
            if text.strip():
                await self._speak(text, clears)
            self.is_speaking = False
            for _ in range(self.clears - clears):
                await self._send_cleared()
            fault = self.socket.record.fault
            if self.clears == clears and not (fault and fault.kind == "no_end"):
                await self.socket.send({"type": "Flushed", "sequence_id": self._next()})

    async def _speak(self, text: str, clears: int):
        fault = self.socket.record.fault.kind if self.socket.record.fault else None
        sound = await self.fake.synthesize(text, self.rate)
        await asyncio.sleep(self.fake.first_sound)
        is_over = False
        for samples, _ in sound.chunks(self.fake.chunk_seconds):
            if is_over:
                return
            # One more part of the speech under way is sent.
            is_over = self.clears != clears
            if is_over:
                self.fake.note_cancelled(text)
            data = self.odd + samples.astype("<i2").tobytes()
            self.odd = b""
            if fault == "odd_bytes":
                data, self.odd = data[:-1], data[-1:]
            if fault != "no_sound":
                await self.socket.send(data)
            self.socket.record.sent_samples += len(samples)
            await asyncio.sleep(len(samples) / self.rate / self.fake.pace)

    def end(self):
        if self.task:
            self.task.cancel()
