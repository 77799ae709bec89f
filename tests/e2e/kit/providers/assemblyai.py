"""AssemblyAI's Universal-Streaming, version 3: `/v3/ws`."""

import asyncio
import json
import time
import uuid

from aiohttp import web

from .fake import Fake, FakeSocket
from .transcription import SAMPLE_RATE, Recognition, Script, Utterance, seconds

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


class AssemblyAiFake(Fake):
    """`utterances`, `per_connection`: as of `DeepgramFake`."""

    provider = "assemblyai"
    vendor = "AssemblyAI"
    key_header = ("authorization", "")
    #: no_final, double_final, empty_final, late_final: as of `DeepgramFake`; refused_in_band: the
    #: key is refused by a message and a close code, after the handshake; no_credit_in_band: so is
    #: the account; busy_in_band: so is one session too many.
    own_faults = frozenset(
        {
            "no_final",
            "double_final",
            "empty_final",
            "late_final",
            "refused_in_band",
            "no_credit_in_band",
            "busy_in_band",
        }
    )

    def __init__(
        self,
        utterances=(),
        *,
        per_connection: bool = False,
        final_delay: float = 0.2,
        interim_seconds: float = 0.3,
        **options,
    ):
        self.utterances = [u if isinstance(u, Utterance) else Utterance(u) for u in utterances]
        self.per_connection = per_connection
        self.script = Script(self.utterances)
        self.final_delay, self.interim_seconds = final_delay, interim_seconds
        super().__init__(**options)

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

    def script_of_connection(self) -> Script:
        return Script(self.utterances, repeats=True) if self.per_connection else self.script

    def refusal_body(self, status: int):
        words = {401: "Unauthorized", 402: "Insufficient funds", 429: "Too many requests"}
        return {"error": words.get(status, "Internal server error")}, {}


class Session:
    """One connection."""

    def __init__(self, fake: AssemblyAiFake, socket: FakeSocket, model: str):
        self.fake, self.socket, self.model = fake, socket, model
        self.script = fake.script_of_connection()
        self.recognition = Recognition(self.script)
        self.started_at = time.monotonic()
        self.turn = 0
        self.interim_at = 0
        self.finals = 0
        self.interim: list[str] = []
        self.queue: asyncio.Queue = asyncio.Queue()
        self.sender: asyncio.Task | None = None

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
        self.sender = asyncio.create_task(self._send_queued())
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
                    "audio_duration_seconds": int(seconds(self.recognition.samples)),
                    "session_duration_seconds": int(time.monotonic() - self.started_at),
                }
                self.queue.put_nowait((0.0, termination))
                self.queue.put_nowait((0.0, None))
            case kind:
                self.fake.violate(f"unknown message {kind!r}: {str(message)[:200]}")
                await self._fail(3006, "Invalid Message Type")

    async def _receive_audio(self, audio: bytes):
        duration = len(audio) / 2 / SAMPLE_RATE
        if not CHUNK_SECONDS[0] <= duration <= CHUNK_SECONDS[1]:
            self.fake.violate(f"a message of {1000 * duration:.0f} ms")
            await self._fail(3007, f"Input Duration Error: {1000 * duration:.0f} ms")
            return
        self.recognition.push(audio)
        ahead = seconds(self.recognition.samples) - (time.monotonic() - self.started_at)
        if ahead > MAX_AHEAD:
            self.fake.violate(f"audio is {ahead:.1f} s ahead of real time")
        step = self.fake.interim_seconds
        if seconds(self.recognition.samples - self.interim_at) >= step:
            self.interim_at = self.recognition.samples
            words = self.recognition.words()
            if words != self.interim:
                if not self.interim:
                    at = int(1000 * seconds(self.recognition.start))
                    self.queue.put_nowait((0.0, {"type": "SpeechStarted", "timestamp": at}))
                self.queue.put_nowait((0.0, self._turn(words, ended=False)))
                self.interim = words

    async def _fail(self, code: int, words: str):
        await self.socket.send({"type": "Error", "error_code": code, "error": words})
        await self.socket.close(code, words)

    def _end_turn(self):
        start = self.recognition.start
        words = self.recognition.finish()
        self.interim = []
        fault = self.socket.record.fault
        kind = fault.kind if fault else None
        # Nothing said: no answer.
        if not words or kind == "no_final":
            return
        self.finals += 1
        if kind == "empty_final" and self.finals <= fault.after:
            words = []
        delay = self.fake.final_delay + (fault.seconds if kind == "late_final" else 0)
        formats = self.socket.record.query.get("format_turns") == "true" and not is_u3(self.model)
        if formats:
            plain = self._turn(words, ended=True, start=start, formatted=False)
            self.queue.put_nowait((delay, plain))
            delay = 0.05
        final = self._turn(words, ended=True, start=start)
        self.queue.put_nowait((delay, final, self.recognition.script.position))
        if kind == "double_final":
            self.queue.put_nowait((0.02, final))
        self.turn += 1

    def _turn(self, words, ended: bool, start: int | None = None, formatted: bool = True) -> dict:
        start = self.recognition.start if start is None else start
        begin = 1000 * seconds(start)
        step = (1000 * seconds(self.recognition.samples) - begin) / max(1, len(words))
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
                    "start": int(begin + number * step),
                    "end": int(begin + (number + 1) * step),
                    "confidence": 0.98,
                    "word_is_final": ended,
                }
                for number, word in enumerate(shown)
            ],
        }

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

    def end(self):
        if self.sender:
            self.sender.cancel()
