"""OpenAI's interfaces for sound: transcriptions over a WebSocket (`/v1/realtime`) and of files
(`/v1/audio/transcriptions`), and speech (`/v1/audio/speech`)."""

import asyncio
import wave
from io import BytesIO

from aiohttp import web

from .fake import MAX_ENDLESS_MESSAGES, Record
from .http_stream import stream_parts
from .openai import OpenAiAccount
from .openai_realtime import PARAMETERS, TOKENS_PER_SECOND, RealtimeListening
from .synthesis import TextToSpeechFake
from .transcription import SAMPLE_RATE, Recognition, SpeechToTextFake

#: Fields of a transcription beside the file. A list has brackets.
TRANSCRIPTION_FIELDS = set(
    "model language languages[] prompt keywords[] response_format temperature stream include[] "
    "timestamp_granularities[] chunking_strategy".split()
)
#: Fields of a speech. OpenAI's own server refuses `sample_rate`; servers with the same interface
#: take it, and to these belongs everything at another address.
SPEECH_FIELDS = set(
    "input model voice instructions response_format speed stream_format sample_rate".split()
)
#: Characters of a text, and the slowest and fastest speech.
MAX_CHARACTERS = 4_096
SPEEDS = (0.25, 4.0)
#: Sample rate of the speech, in Hz.
SPEECH_RATE = 24_000


class OpenAiSttFake(OpenAiAccount, SpeechToTextFake):
    """The model of the client decides which of the two interfaces it uses."""

    def add_routes(self, router):
        super().add_routes(router)
        router.add_get("/v1/realtime", self._listen)
        router.add_post("/v1/audio/transcriptions", self._transcribe)

    async def _listen(self, request: web.Request):
        if request.query.get("intent") != "transcription" or set(request.query) - PARAMETERS:
            self.violate(f"no transcription: {dict(request.query)}")
        return await self.serve_socket(request, lambda socket: RealtimeListening(self, socket))

    def transcriptions(self) -> list[Record]:
        """The requests for a transcription."""
        return [one for one in self.records if one.path == "/v1/audio/transcriptions"]

    async def _transcribe(self, request: web.Request):
        record = self.open_record(request)
        if refused := self.refusal(record):
            return refused
        try:
            return await self._answer_transcription(request, record)
        except asyncio.CancelledError:
            record.cancelled = True
            raise
        finally:
            with self.noting():
                record.closed_at = self.now()

    async def _answer_transcription(self, request: web.Request, record: Record):
        form = await request.post()
        file = form.get("file")
        fields = {name: form.getall(name) for name in form if name != "file"}
        with self.noting():
            record.body = {name: found[0] for name, found in fields.items()}
        audio = file.file.read() if isinstance(file, web.FileField) else b""
        record.received_bytes = len(audio)
        problems = transcription_problems(record.body)
        try:
            samples = wave_samples(audio)
        except (ValueError, EOFError, wave.Error) as error:
            problems.append(f"no WAV file: {error}")
        if problems:
            self.violations += problems
            error = {"message": problems[0], "type": "invalid_request_error"}
            return web.json_response({"error": error | {"param": None, "code": None}}, status=400)
        recognition = Recognition(self.script_of_connection())
        recognition.push(samples)
        words = recognition.finish()
        if not await self._misbehave(request, record):
            return web.Response(body=b"\x00\x01", content_type="application/json")
        await asyncio.sleep(self.final_delay)
        self.script.at, self.script.announced = recognition.script.position
        return web.json_response(transcription(record.body, words, recognition.seconds))

    async def _misbehave(self, request: web.Request, record: Record) -> bool:
        """Applies the fault of a request. Returns whether its answer is that of the vendor."""
        fault = record.fault
        match fault.kind if fault else None:
            case "stall" | "endless":
                await asyncio.sleep(3600)
            case "cut":
                request.transport.abort()
                return False
            case "close":
                request.transport.close()
                return False
            case "malformed" | "binary":
                return False
            case "slow":
                await asyncio.sleep(fault.seconds)
        return True


def transcription_problems(fields: dict[str, str]) -> list[str]:
    """What the vendor would refuse in the fields of a transcription."""
    problems = []
    model = fields.get("model", "")
    if not model:
        problems.append("the model is missing")
    if unknown := set(fields) - TRANSCRIPTION_FIELDS:
        problems.append(f"unknown fields: {unknown}")
    if {"keywords[]", "languages[]"} & set(fields) and not model.startswith("gpt-transcribe"):
        problems.append(f"{model} takes no keywords")
    formats = {"json", "text", "srt", "verbose_json", "vtt"} if "whisper" in model else {"json"}
    if fields.get("response_format", "json") not in formats:
        problems.append(f"{model} does not answer with {fields['response_format']}")
    if "stream" in fields and fields["stream"] != "false":
        problems.append("the fake does not stream transcriptions")
    return problems


def wave_samples(audio: bytes) -> bytes:
    """The samples of a WAV file at 16 kHz, whose header must be right."""
    if len(audio) < 44 or int.from_bytes(audio[4:8], "little") != len(audio) - 8:
        raise ValueError("the size in the header is wrong")
    with wave.open(BytesIO(audio)) as file:
        about = (file.getnchannels(), file.getsampwidth(), file.getframerate())
        samples = file.readframes(file.getnframes())
    if about != (1, 2, SAMPLE_RATE) or len(samples) != 2 * file.getnframes():
        raise ValueError(f"{about}, {len(samples)} bytes")
    return samples


def transcription(fields: dict[str, str], words: list[str], seconds: float) -> dict:
    text = " ".join(words)
    if fields.get("response_format") == "verbose_json":
        segment = {
            "id": 0,
            "seek": 0,
            "start": 0.0,
            "end": seconds,
            "text": f" {text}",
            "tokens": [],
            "temperature": 0.0,
            "avg_logprob": -0.2,
            "compression_ratio": 1.2,
            "no_speech_prob": 0.01,
        }
        return {
            "task": "transcribe",
            "language": "english",
            "duration": seconds,
            "text": text,
            "segments": [segment] if words else [],
            "usage": {"type": "duration", "seconds": max(1, round(seconds))},
        }
    tokens = (max(1, round(TOKENS_PER_SECOND * seconds)), max(1, len(words)))
    usage = {
        "type": "tokens",
        "input_tokens": tokens[0],
        "output_tokens": tokens[1],
        "total_tokens": sum(tokens),
        "input_token_details": {"text_tokens": 0, "audio_tokens": tokens[0]},
    }
    return {"text": text, "usage": usage}


class OpenAiSpeechFake(OpenAiAccount, TextToSpeechFake):
    #: odd_bytes: parts end in the middle of a sample; no_sound: the answer is empty.
    own_faults = frozenset({"odd_bytes", "no_sound"})

    def add_routes(self, router):
        super().add_routes(router)
        router.add_post("/v1/audio/speech", self._speak)

    def speeches(self) -> list[Record]:
        """The requests for a speech."""
        return [one for one in self.records if one.path == "/v1/audio/speech"]

    async def _speak(self, request: web.Request):
        record = self.open_record(request)
        if refused := self.refusal(record):
            return refused
        body = await request.json()
        with self.noting():
            record.body = body
        if problems := speech_problems(body):
            self.violations += problems
            with self.noting():
                record.closed_at = self.now()
            error = {"message": problems[0], "type": "invalid_request_error"}
            return web.json_response({"error": error | {"param": None, "code": None}}, status=400)
        kind = "audio/wav" if body.get("response_format") == "wav" else "audio/pcm"
        response = await stream_parts(self, request, record, kind, self._parts(record, body))
        if record.cancelled:
            self.note_cancelled(body["input"])
        return response

    async def _parts(self, record: Record, body: dict):
        fault = record.fault
        kind = fault.kind if fault else None
        sound = await self.synthesize(body["input"], SPEECH_RATE)
        await asyncio.sleep(self.first_sound + (fault.seconds if kind == "slow" else 0))
        if kind == "no_sound":
            return
        if body.get("response_format") == "wav":
            yield endless_wave_header(SPEECH_RATE)
        odd = b""
        for _ in range(MAX_ENDLESS_MESSAGES if kind == "endless" else 1):
            for samples, _ in sound.chunks(self.chunk_seconds):
                data = odd + samples.astype("<i2").tobytes()
                odd = b""
                if kind == "odd_bytes":
                    data, odd = data[:-1], data[-1:]
                yield data
                record.sent_samples += len(samples)
                await asyncio.sleep(len(samples) / SPEECH_RATE / self.pace)
        if odd:
            yield odd


def speech_problems(body: dict) -> list[str]:
    """What the vendor would refuse in a request for a speech."""
    problems = [f"{name} is missing" for name in ("model", "voice", "input") if not body.get(name)]
    if unknown := set(body) - SPEECH_FIELDS:
        problems.append(f"unknown fields: {unknown}")
    if len(body.get("input") or "") > MAX_CHARACTERS:
        problems.append("the input is too long")
    if body.get("response_format") not in ("pcm", "wav"):
        problems.append(f"the fake does not speak {body.get('response_format', 'mp3')}")
    if body.get("stream_format", "audio") != "audio":
        problems.append("the fake has no stream of events")
    if body.get("sample_rate", SPEECH_RATE) != SPEECH_RATE:
        problems.append(f"sample_rate {body['sample_rate']}")
    if not SPEEDS[0] <= body.get("speed", 1.0) <= SPEEDS[1]:
        problems.append(f"speed {body['speed']}")
    return problems


def endless_wave_header(rate: int) -> bytes:
    """The header of a WAV file whose length is not known yet."""
    unknown = b"\xff\xff\xff\xff"
    form = b"\x01\x00\x01\x00" + rate.to_bytes(4, "little") + (2 * rate).to_bytes(4, "little")
    form += b"\x02\x00\x10\x00"
    return b"RIFF" + unknown + b"WAVEfmt \x10\x00\x00\x00" + form + b"data" + unknown
