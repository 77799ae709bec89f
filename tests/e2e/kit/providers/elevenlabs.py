"""ElevenLabs' text-to-speech over a WebSocket: several contexts (`multi-stream-input`) or one
(`stream-input`)."""

import asyncio
import base64
import dataclasses
import json

from aiohttp import web

from .fake import FakeSocket
from .synthesis import TextToSpeechFake

#: Contexts of a connection that the vendor allows. A closed one counts until its final message.
MAX_CONTEXTS = 5
#: Seconds without text after which the vendor closes the connection.
IDLE_SECONDS = 20.0
#: Query parameters.
PARAMETERS = set(
    "model_id language_code enable_logging enable_ssml_parsing output_format inactivity_timeout "
    "sync_alignment auto_mode apply_text_normalization seed authorization single_use_token".split()
)
#: Characters without `flush` or `auto_mode` after which the vendor begins to speak.
FIRST_SCHEDULE = 120


def refusal_body(status: int):
    """What the vendor says about a status, and further headers."""
    details = {
        401: ("invalid_api_key", "Invalid API key"),
        402: ("payment_required", "This request requires more credits."),
        429: ("too_many_concurrent_requests", "Too many concurrent requests."),
    }
    name, words = details.get(status, ("internal_server_error", "Internal server error"))
    return {"detail": {"status": name, "message": words}}, {}


class ElevenLabsFake(TextToSpeechFake):
    """`relative`: the times of a message count from its own sound, otherwise from the beginning of
    the context."""

    provider = "elevenlabs"
    vendor = "ElevenLabs"
    key_header = ("xi-api-key", "")
    #: odd_bytes: messages end in the middle of a sample; no_alignment: without times; no_end: the
    #: end of a text is not marked; no_sound: messages without sound; refused_in_band: the key is
    #: refused after the handshake; no_credit_in_band, busy_in_band: so are the account and one
    #: request too many.
    own_faults = frozenset(
        {
            "odd_bytes",
            "no_alignment",
            "no_end",
            "no_sound",
            "refused_in_band",
            "no_credit_in_band",
            "busy_in_band",
        }
    )

    def __init__(self, *, chunk_seconds: float = 0.5, relative: bool = True, **options):
        self.relative = relative
        super().__init__(chunk_seconds=chunk_seconds, **options)

    def add_routes(self, router):
        path = "/v1/text-to-speech/{voice}"
        router.add_get(path + "/multi-stream-input", self._speak)
        router.add_get(path + "/stream-input", self._speak)
        router.add_get("/v2/voices", self._voices)

    async def _speak(self, request: web.Request):
        if unknown := set(request.query) - PARAMETERS:
            self.violate(f"unknown parameters: {unknown}")
        model = request.query.get("model_id", "eleven_multilingual_v2")
        if "language_code" in request.query and "v2_5" not in model:
            self.violate(f"{model} takes no language_code")
        if model.startswith(("eleven_v3", "eleven_v4")):
            self.violate(f"{model} is not served here")
        return await self.serve_socket(request, lambda socket: Speaking(self, socket))

    async def _voices(self, request: web.Request):
        record = self.open_record(request)
        if refused := self.refusal(record):
            return refused
        labels = {"language": "en", "gender": "male"}
        voice = {"voice_id": "JBFqnCBsd6RMkjVDRZzb", "name": "George", "labels": labels}
        with self.noting():
            record.closed_at = self.now()
        return web.json_response({"voices": [voice], "has_more": False, "total_count": 1})

    def refusal_body(self, status: int):
        return refusal_body(status)


@dataclasses.dataclass
class SpeechContext:
    """The speech of a reply."""

    settings: dict | None
    buffer: str = ""
    #: Texts to speak, and marks of their ends; None = the end of the context.
    queue: asyncio.Queue = dataclasses.field(default_factory=asyncio.Queue)
    task: asyncio.Task | None = None
    closed: bool = False
    #: Seconds of sound so far.
    seconds: float = 0.0
    odd: bytes = b""


class Speaking:
    """One connection."""

    def __init__(self, fake: ElevenLabsFake, socket: FakeSocket):
        self.fake, self.socket = fake, socket
        query = socket.record.query
        self.is_multi = socket.record.path.endswith("multi-stream-input")
        self.rate = int(query.get("output_format", "pcm_24000").removeprefix("pcm_"))
        self.auto = query.get("auto_mode") == "true"
        self.idle_seconds = float(query.get("inactivity_timeout", IDLE_SECONDS))
        self.contexts: dict[str, SpeechContext] = {}
        self.idle: asyncio.TimerHandle | None = None

    async def start(self):
        fault = self.socket.record.fault
        refusal = {
            "refused_in_band": ("invalid_api_key", "Invalid API key", 1008),
            "no_credit_in_band": ("quota_exceeded", "This request exceeds your quota.", 1008),
            "busy_in_band": ("max_active_conversations", "Too many requests", 1008),
        }.get(fault.kind if fault else "")
        if refusal:
            await self._fail(*refusal)
            return
        self._touch()

    def _touch(self):
        loop = asyncio.get_running_loop()
        if self.idle:
            self.idle.cancel()

        async def expire():
            await self._fail("input_timeout_exceeded", "No text was received in time.", 1008)

        self.idle = loop.call_later(self.idle_seconds, lambda: loop.create_task(expire()))

    async def _fail(self, error: str, words: str, code: int):
        message = {"message": words, "error": error, "code": code}
        await self.socket.response.send_str(json.dumps(message))
        await self.socket.close(code, words)

    async def receive(self, message):
        self._touch()
        if not isinstance(message, dict):
            self.fake.violate(f"no JSON object: {str(message)[:100]!r}")
            return
        if message.get("close_socket"):
            self.socket.record.said_goodbye = True
            await self.socket.close()
            return
        name = str(message.get("context_id") or "default")
        if self.is_multi and "context_id" not in message:
            if message != {"text": ""}:
                self.fake.violate(f"without context_id: {message}")
            return
        context = self.contexts.get(name)
        if message.get("close_context"):
            if context:
                self._close(context)
            return
        text = message.get("text")
        if not isinstance(text, str):
            self.fake.violate(f"without text: {message}")
            return
        if context is None:
            await self._open(name, text, message)
            return
        if message.get("voice_settings", context.settings) != context.settings:
            self.fake.violate("the settings of a context changed")
            await self._fail("voice_settings", "voice_settings cannot be changed", 1008)
            return
        if context.closed:
            self.fake.violate(f"text for the closed context {name}")
            return
        self._add_text(context, text, message)

    async def _open(self, name: str, text: str, message: dict):
        if text.strip():
            self.fake.violate(f"the first text of a context is no blank: {text!r}")
        if len(self.contexts) >= MAX_CONTEXTS:
            self.fake.violate(f"more than {MAX_CONTEXTS} contexts")
            await self._fail("max_contexts", f"Maximum {MAX_CONTEXTS} contexts", 1008)
            return
        context = self.contexts[name] = SpeechContext(message.get("voice_settings"))
        context.task = asyncio.create_task(self._speak_queued(name, context))

    def _add_text(self, context: SpeechContext, text: str, message: dict):
        if text and not text.endswith(" "):
            self.fake.violate(f"a text does not end with a blank: {text!r}")
        context.buffer += text
        is_end = not self.is_multi and not text
        sentence_ends = self.auto and context.buffer.rstrip().endswith((".", "!", "?"))
        starts = message.get("try_trigger_generation") or len(context.buffer) >= FIRST_SCHEDULE
        if message.get("flush") or is_end or sentence_ends or starts:
            if context.buffer.strip():
                context.queue.put_nowait(context.buffer)
            if message.get("flush"):
                context.queue.put_nowait(("mark",))
            context.buffer = ""
        if is_end:
            context.queue.put_nowait(None)

    def _close(self, context: SpeechContext):
        """What is buffered is lost. One more part of the speech under way is sent."""
        context.closed = True
        context.queue.put_nowait(None)

    async def _speak_queued(self, name: str, context: SpeechContext):
        while (item := await context.queue.get()) is not None and not context.closed:
            if isinstance(item, str):
                await self._speak(name, context, item)
            elif self.socket.record.fault and self.socket.record.fault.kind == "no_end":
                pass
            else:
                await self.socket.send({"type": "flush_done"} | self._name(name))
        self.contexts.pop(name, None)
        await self.socket.send({"isFinal": True} | self._name(name))
        if not self.is_multi:
            await self.socket.close()

    def _name(self, name: str) -> dict:
        return {"contextId": name} if self.is_multi else {}

    async def _speak(self, name: str, context: SpeechContext, text: str):
        fault = self.socket.record.fault.kind if self.socket.record.fault else None
        sound = await self.fake.synthesize(text, self.rate)
        await asyncio.sleep(self.fake.first_sound)
        is_over = False
        start = context.seconds
        for samples, part in sound.chunks(self.fake.chunk_seconds):
            if is_over:
                break
            is_over = context.closed
            if is_over:
                self.fake.note_cancelled(text)
            data = context.odd + samples.astype("<i2").tobytes()
            context.odd = b""
            if fault == "odd_bytes":
                data, context.odd = data[:-1], data[-1:]
            offset = start - context.seconds if self.fake.relative else start
            alignment = {
                "chars": list(text[part]),
                "charStartTimesMs": [
                    round(1000 * (at + offset)) for at in sound.starts[part].tolist()
                ],
                "charDurationsMs": [
                    round(1000 * (b - a))
                    for a, b in zip(sound.starts[part], sound.ends[part], strict=True)
                ],
            }
            audio = "" if fault == "no_sound" else base64.b64encode(data).decode()
            times = None if fault == "no_alignment" else alignment
            message = {
                "audio": audio,
                "isFinal": None,
                "normalizedAlignment": times,
                "alignment": times,
            }
            await self.socket.send(message | self._name(name))
            self.socket.record.sent_samples += len(samples)
            context.seconds += len(samples) / self.rate
            await asyncio.sleep(len(samples) / self.rate / self.fake.pace)

    def end(self):
        if self.idle:
            self.idle.cancel()
        for context in list(self.contexts.values()):
            if context.task:
                context.task.cancel()
