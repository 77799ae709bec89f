"""Deepgram's streaming speech-to-text: `/v1/listen` (Nova) and `/v2/listen` (Flux)."""

import uuid

from aiohttp import web

from .flux import FluxListening, flux_problems
from .transcription import Listener, SpeechToTextFake, word_times

#: Query parameters of the endpoint.
PARAMETERS = set(
    "callback callback_method channels detect_entities diarize dictation encoding endpointing "
    "extra interim_results keyterm keywords language mip_opt_out model multichannel numerals "
    "profanity_filter punctuate redact replace sample_rate search smart_format tag "
    "utterance_end_ms vad_events version no_delay filler_words".split()
)
#: Seconds without audio or KeepAlive after which the vendor closes the connection.
MAX_IDLE = 10.0


def refusal_body(status: int):
    """What the vendor says about a status, and further headers."""
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


class DeepgramFake(SpeechToTextFake):
    provider = "deepgram"
    vendor = "Deepgram"
    key_header = ("authorization", "Token ")

    def add_routes(self, router):
        router.add_get("/v1/listen", self._listen)
        router.add_get("/v2/listen", self._listen_to_turns)

    async def _listen(self, request: web.Request):
        if unknown := set(request.query) - PARAMETERS:
            self.violate(f"unknown parameters: {unknown}")
        if request.query.get("encoding") != "linear16" or request.query.get("channels") != "1":
            self.violate(f"not linear16 with one channel: {dict(request.query)}")
        return await self.serve_socket(request, lambda socket: Listening(self, socket))

    async def _listen_to_turns(self, request: web.Request):
        for problem in flux_problems(request.query):
            self.violate(problem)
        return await self.serve_socket(request, lambda socket: FluxListening(self, socket))

    def refusal_body(self, status: int):
        return refusal_body(status)


class Listening(Listener):
    """A connection of Nova."""

    def __init__(self, fake, socket):
        super().__init__(fake, socket)
        self.request_id = str(uuid.uuid4())

    async def start(self):
        await super().start()
        self.expire_after(MAX_IDLE, self._close_idle)

    async def _close_idle(self):
        self.fake.violate(f"neither audio nor KeepAlive for {MAX_IDLE} s")
        await self.socket.close(1011, "NET-0001: no audio was received")

    async def receive(self, message):
        self.expire_after(MAX_IDLE, self._close_idle)
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
                self.answer(self._metadata())
                self.close_later()
            case kind:
                self.fake.violate(f"unknown message {kind!r}: {str(message)[:200]}")
                error = {
                    "type": "Error",
                    "variant": "SchemaError",
                    "description": "Could not deserialize",
                    "message": "unknown variant",
                }
                self.answer(error)

    async def _receive_audio(self, audio: bytes):
        if not audio:
            self.fake.violate("an empty binary message")
            await self.socket.close()
            return
        if self.push(audio):
            # The vendor sends an interim transcript although nothing has changed.
            words, start = self.recognition.words(), self.recognition.start_seconds
            self.answer(self._results(words, start, is_final=False))

    def _finalize(self):
        if final := self.finish():
            start, words, delay = final
            self.answer_finally(self._results(words, start, is_final=True), delay)

    def _results(self, words: list[str], begin: float, is_final: bool) -> dict:
        end = self.recognition.seconds
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
                                "start": start,
                                "end": stop,
                                "confidence": 0.99,
                                "punctuated_word": word,
                            }
                            for word, start, stop in word_times(words, begin, end)
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
            "duration": self.recognition.seconds,
            "channels": 1,
        }
