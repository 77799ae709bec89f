"""AssemblyAI's Universal-Streaming, version 3: `/v3/ws`."""

import json
import time
import uuid

from aiohttp import web

from .fake import FakeSocket
from .transcription import FINAL_FAULTS, SAMPLE_RATE, Listener, SpeechToTextFake, word_times

#: Duration of a binary message that the vendor accepts, in seconds.
CHUNK_SECONDS = (0.05, 1.0)
#: Parameters of all models, and those of the U3 family only.
PARAMETERS = set(
    "sample_rate encoding speech_model format_turns min_turn_silence max_turn_silence "
    "min_end_of_turn_silence_when_confident end_of_turn_confidence_threshold vad_threshold "
    "keyterms_prompt language_code language_codes language_detection domain inactivity_timeout "
    "filter_profanity speaker_labels max_speakers redact_pii session_heartbeat "
    "acknowledge_silence include_partial_turns turn_left_pad_ms".split()
)
U3_PARAMETERS = set(
    "prompt agent_context previous_context_n_turns continuous_partials interruption_delay "
    "voice_focus voice_focus_threshold mode".split()
)
#: Time for which audio may be ahead of real time, in seconds.
MAX_AHEAD = 3.0


def is_u3(model: str) -> bool:
    return model.startswith(("universal-3", "u3"))


class AssemblyAiFake(SpeechToTextFake):
    provider = "assemblyai"
    vendor = "AssemblyAI"
    key_header = ("authorization", "")
    #: refused_in_band: the key is refused by a message and a close code, after the handshake;
    #: no_credit_in_band: so is the account; busy_in_band: so is one session too many.
    own_faults = FINAL_FAULTS | {"refused_in_band", "no_credit_in_band", "busy_in_band"}

    def __init__(
        self, *arguments, final_delay: float = 0.2, interim_seconds: float = 0.3, **options
    ):
        super().__init__(
            *arguments, final_delay=final_delay, interim_seconds=interim_seconds, **options
        )

    def add_routes(self, router):
        router.add_get("/v3/ws", self._listen)

    async def _listen(self, request: web.Request):
        model = request.query.get("speech_model", "universal-streaming-english")
        known = PARAMETERS | (U3_PARAMETERS if is_u3(model) else set())
        if unknown := set(request.query) - known:
            self.violate(f"{model} does not take {unknown}")
        if request.query.get("encoding", "pcm_s16le") != "pcm_s16le":
            self.violate(f"not pcm_s16le: {dict(request.query)}")
        return await self.serve_socket(request, lambda socket: Session(self, socket, model))

    def refusal_body(self, status: int):
        words = {401: "Unauthorized", 402: "Insufficient funds", 429: "Too many requests"}
        return {"error": words.get(status, "Internal server error")}, {}


class Session(Listener):
    """One connection."""

    answers_silence = False

    def __init__(self, fake: AssemblyAiFake, socket: FakeSocket, model: str):
        super().__init__(fake, socket)
        self.model = model
        self.started_at = time.monotonic()
        self.turn = 0
        self.interim: list[str] = []

    async def start(self):
        fault = self.socket.record.fault
        refusal = {
            "refused_in_band": (1008, "Unauthorized Connection: invalid API key"),
            "no_credit_in_band": (1008, "Insufficient credit: please add funds to your account"),
            "busy_in_band": (3009, "Too many concurrent sessions"),
        }.get(fault.kind if fault else "")
        if refusal:
            code, words = refusal
            error = {"type": "Error", "error_code": code, "error": words}
            await self.socket.response.send_str(json.dumps(error))
            await self.socket.close(code, words)
            return
        await super().start()
        begin = {
            "type": "Begin",
            "id": str(uuid.uuid4()),
            "expires_at": int(time.time()) + 10_800,
            "configuration": {"model": self.model, "mode": None, "api_version": "2025-05-12"},
        }
        if not self.socket.stalls:
            # Not subject to faults: they concern transcripts.
            await self.socket.response.send_str(json.dumps(begin))

    async def receive(self, message):
        if isinstance(message, bytes):
            await self._receive_audio(message)
            return
        match message.get("type") if isinstance(message, dict) else None:
            case "ForceEndpoint":
                self._end_turn()
            case "UpdateConfiguration":
                if unknown := set(message) - {"type"} - PARAMETERS - U3_PARAMETERS:
                    self.fake.violate(f"UpdateConfiguration with {unknown}")
            case "KeepAlive":
                pass
            case "Terminate":
                self.socket.record.said_goodbye = True
                termination = {
                    "type": "Termination",
                    "audio_duration_seconds": int(self.recognition.seconds),
                    "session_duration_seconds": int(time.monotonic() - self.started_at),
                }
                self.answer(termination)
                self.close_later()
            case kind:
                self.fake.violate(f"unknown message {kind!r}: {str(message)[:200]}")
                await self._fail(3006, "Invalid Message Type")

    async def _receive_audio(self, audio: bytes):
        duration = len(audio) / 2 / SAMPLE_RATE
        if not CHUNK_SECONDS[0] <= duration <= CHUNK_SECONDS[1]:
            self.fake.violate(f"a message of {1000 * duration:.0f} ms")
            await self._fail(3007, f"Input Duration Error: {1000 * duration:.0f} ms")
            return
        is_due = self.push(audio)
        ahead = self.recognition.seconds - (time.monotonic() - self.started_at)
        if ahead > MAX_AHEAD:
            self.fake.violate(f"audio is {ahead:.1f} s ahead of real time")
        words = self.recognition.words()
        if is_due and words != self.interim:
            start = self.recognition.start_seconds
            if not self.interim:
                self.answer({"type": "SpeechStarted", "timestamp": int(1000 * start)})
            self.answer(self._turn(words, start, ended=False))
            self.interim = words

    async def _fail(self, code: int, words: str):
        await self.socket.send({"type": "Error", "error_code": code, "error": words})
        await self.socket.close(code, words)

    def _end_turn(self):
        final = self.finish()
        self.interim = []
        if final is None:
            return
        start, words, delay = final
        formats = self.socket.record.query.get("format_turns") == "true" and not is_u3(self.model)
        if formats:
            self.answer(self._turn(words, start, ended=True, formatted=False), delay=delay)
            delay = 0.05
        self.answer_finally(self._turn(words, start, ended=True), delay)
        self.turn += 1

    def _turn(self, words, start: float, ended: bool, formatted: bool = True) -> dict:
        shown = words if formatted else [word.lower().strip(".,?!") for word in words]
        return {
            "type": "Turn",
            "turn_order": self.turn,
            "turn_is_formatted": formatted and (ended or is_u3(self.model)),
            "end_of_turn": ended,
            "transcript": " ".join(shown),
            "utterance": " ".join(shown) if ended else "",
            "end_of_turn_confidence": 0.9 if ended else 0.1,
            "words": [
                {
                    "text": word,
                    "start": int(1000 * begin),
                    "end": int(1000 * end),
                    "confidence": 0.98,
                    "word_is_final": ended,
                }
                for word, begin, end in word_times(shown, start, self.recognition.seconds)
            ],
        }
