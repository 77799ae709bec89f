"""Deepgram's streaming speech-to-text: `/v1/listen` (Nova)."""

import asyncio
import uuid

from aiohttp import web

from .fake import Fake, FakeSocket
from .transcription import Recognition, Script, Utterance, seconds

#: Query parameters of the endpoint.
PARAMETERS = set(
    "callback callback_method channels detect_entities diarize dictation encoding endpointing "
    "extra interim_results keyterm keywords language mip_opt_out model multichannel numerals "
    "profanity_filter punctuate redact replace sample_rate search smart_format tag "
    "utterance_end_ms vad_events version no_delay filler_words".split()
)
#: Seconds without audio or KeepAlive after which the vendor closes the connection.
MAX_IDLE = 10.0


class DeepgramFake(Fake):
    """`utterances`: what is recognized, one text after each other (a text, or an `Utterance`).
    `per_connection`: each connection begins with the first one, and after the last one again;
    otherwise a connection continues where the last one ended."""

    provider = "deepgram"
    vendor = "Deepgram"
    key_header = ("authorization", "Token ")
    #: no_final: an end mark is not answered; double_final: it is answered twice; empty_final: the
    #: first `after` of them have an empty text; late_final: after `seconds`.
    own_faults = frozenset({"no_final", "double_final", "empty_final", "late_final"})

    def __init__(
        self,
        utterances=(),
        *,
        per_connection: bool = False,
        final_delay: float = 0.15,
        interim_seconds: float = 0.25,
        **options,
    ):
        self.utterances = [u if isinstance(u, Utterance) else Utterance(u) for u in utterances]
        self.per_connection = per_connection
        self.script = Script(self.utterances)
        self.final_delay, self.interim_seconds = final_delay, interim_seconds
        super().__init__(**options)

    def add_routes(self, router):
        router.add_get("/v1/listen", self._listen)

    async def _listen(self, request: web.Request):
        if unknown := set(request.query) - PARAMETERS:
            self.violate(f"unknown parameters: {unknown}")
        if request.query.get("encoding") != "linear16" or request.query.get("channels") != "1":
            self.violate(f"not linear16 with one channel: {dict(request.query)}")
        return await self.serve_socket(request, lambda socket: Listening(self, socket))

    def script_of_connection(self) -> Script:
        return Script(self.utterances, repeats=True) if self.per_connection else self.script

    def refusal_body(self, status: int):
        codes = {401: "INVALID_AUTH", 402: "ASR_PAYMENT_REQUIRED", 429: "TOO_MANY_REQUESTS"}
        words = {
            401: "Invalid credentials.",
            402: "Project does not have enough credits for an ASR request.",
            429: "Too many requests. Please try again later.",
        }
        code, request_id = codes.get(status, "INTERNAL_SERVER_ERROR"), str(uuid.uuid4())
        body = {
            "err_code": code,
            "err_msg": words.get(status, "Internal error."),
            "request_id": request_id,
        }
        return body, {"dg-error": body["err_msg"], "dg-request-id": request_id}


class Listening:
    """One connection."""

    def __init__(self, fake: DeepgramFake, socket: FakeSocket):
        self.fake, self.socket = fake, socket
        self.script = fake.script_of_connection()
        self.recognition = Recognition(self.script)
        self.request_id = str(uuid.uuid4())
        self.interim_at = 0
        self.finals = 0
        #: Answers in order, after their delay.
        self.queue: asyncio.Queue = asyncio.Queue()
        self.sender: asyncio.Task | None = None
        self.idle: asyncio.TimerHandle | None = None

    async def start(self):
        self.sender = asyncio.create_task(self._send_queued())
        self._touch()

    def _touch(self):
        loop = asyncio.get_running_loop()
        if self.idle:
            self.idle.cancel()
        self.idle = loop.call_later(MAX_IDLE, lambda: loop.create_task(self._close_idle()))

    async def _close_idle(self):
        self.fake.violate(f"neither audio nor KeepAlive for {MAX_IDLE} s")
        await self.socket.close(1011, "NET-0001: no audio was received")

    async def receive(self, message):
        self._touch()
        if isinstance(message, bytes):
            await self._receive_audio(message)
            return
        match message.get("type") if isinstance(message, dict) else None:
            case "KeepAlive":
                pass
            case "Finalize":
                self._finalize()
            case "CloseStream":
                self.socket.record.said_goodbye = True
                self.queue.put_nowait((0.0, self._metadata()))
                self.queue.put_nowait((0.0, None))
            case kind:
                self.fake.violate(f"unknown message {kind!r}: {str(message)[:200]}")
                error = {
                    "type": "Error",
                    "variant": "SchemaError",
                    "description": "Could not deserialize",
                    "message": "unknown variant",
                }
                self.queue.put_nowait((0.0, error))

    async def _receive_audio(self, audio: bytes):
        if not audio:
            self.fake.violate("an empty binary message")
            await self.socket.close()
            return
        if len(audio) % 2:
            self.fake.violate(f"an odd number of bytes: {len(audio)}")
        recognition = self.recognition
        recognition.push(audio)
        step = self.fake.interim_seconds
        if seconds(recognition.samples - self.interim_at) >= step:
            self.interim_at = recognition.samples
            words = recognition.words()
            # The vendor sends an interim transcript although nothing has changed.
            self.queue.put_nowait((0.0, self._results(words, is_final=False)))

    def _finalize(self):
        start = self.recognition.start
        words = self.recognition.finish()
        fault = self.socket.record.fault
        kind = fault.kind if fault else None
        if kind == "no_final":
            return
        self.finals += 1
        if kind == "empty_final" and self.finals <= fault.after:
            words = []
        answer = self._results(words, is_final=True, start=start)
        delay = self.fake.final_delay + (fault.seconds if kind == "late_final" else 0)
        self.queue.put_nowait((delay, answer, self.recognition.script.position))
        if kind == "double_final":
            self.queue.put_nowait((0.02, answer))

    async def _send_queued(self):
        while True:
            delay, message, *position = await self.queue.get()
            if delay:
                await asyncio.sleep(delay)
            if message is None:
                await self.socket.close()
                return
            if await self.socket.send(message) and position:
                self.script.at, self.script.announced = position[0]

    def _results(self, words: list[str], is_final: bool, start: int | None = None) -> dict:
        start = self.recognition.start if start is None else start
        begin, end = seconds(start), seconds(self.recognition.samples)
        step = (end - begin) / max(1, len(words))
        return {
            "type": "Results",
            "channel_index": [0, 1],
            "start": begin,
            "duration": end - begin,
            "is_final": is_final,
            "speech_final": False,
            "from_finalize": is_final,
            "channel": {
                "alternatives": [
                    {
                        "transcript": " ".join(words),
                        "confidence": 0.99 if words else 0.0,
                        "words": [
                            {
                                "word": word.lower().strip(".,?!"),
                                "start": begin + number * step,
                                "end": begin + (number + 1) * step,
                                "confidence": 0.99,
                                "punctuated_word": word,
                            }
                            for number, word in enumerate(words)
                        ],
                    }
                ]
            },
            "metadata": {
                "request_id": self.request_id,
                "model_info": {"name": "general-nova-3", "version": "1", "arch": "nova-3"},
                "model_uuid": "00000000-0000-4000-8000-000000000003",
            },
        }

    def _metadata(self) -> dict:
        return {
            "type": "Metadata",
            "transaction_key": "deprecated",
            "request_id": self.request_id,
            "sha256": "0" * 64,
            "created": "2026-01-01T00:00:00.000Z",
            "duration": seconds(self.recognition.samples),
            "channels": 1,
        }

    def end(self):
        if self.idle:
            self.idle.cancel()
        if self.sender:
            self.sender.cancel()
