"""ElevenLabs' streaming speech-to-text: `/v1/speech-to-text/realtime` (Scribe)."""

import base64
import binascii
import json
import uuid

from aiohttp import web

from .elevenlabs import refusal_body
from .fake import FakeSocket
from .transcription import FINAL_FAULTS, Listener, SpeechToTextFake, word_times

#: Query parameters of the endpoint.
PARAMETERS = set(
    "model_id audio_format commit_strategy language_code secondary_languages include_timestamps "
    "include_language_detection keyterms no_verbatim filter_background_audio enable_logging "
    "vad_silence_threshold_secs vad_threshold min_speech_duration_ms min_silence_duration_ms "
    "entity_detection entity_redaction entity_redaction_mode transcript_edit token".split()
)
#: Fields of a message with audio.
FIELDS = {"message_type", "audio_base_64", "commit", "sample_rate", "previous_text"}
#: Number of key terms, and characters of each.
MAX_KEYTERMS = (50, 20)
#: Seconds of audio that a commit needs.
MIN_COMMIT_SECONDS = 0.3
#: Seconds without a message after which the vendor closes the connection. A ping is no message.
MAX_IDLE = 15.0
#: Seconds after a transcript at which it comes again with the times of its words.
TIMES_DELAY = 0.05


class ScribeFake(SpeechToTextFake):
    provider = "elevenlabs"
    vendor = "ElevenLabs"
    key_header = ("xi-api-key", "")
    #: refused_in_band, no_credit_in_band, busy_in_band: as of `AssemblyAiFake`; failed_in_band: the
    #: recognition fails.
    own_faults = FINAL_FAULTS | {
        "refused_in_band",
        "no_credit_in_band",
        "busy_in_band",
        "failed_in_band",
    }

    def add_routes(self, router):
        router.add_get("/v1/speech-to-text/realtime", self._listen)

    async def _listen(self, request: web.Request):
        query = request.query
        if unknown := set(query) - PARAMETERS:
            self.violate(f"unknown parameters: {unknown}")
        if not query.get("model_id"):
            self.violate("model_id is missing")
        if query.get("audio_format") != "pcm_16000" or query.get("commit_strategy") != "manual":
            self.violate(f"not pcm_16000 with manual commits: {dict(query)}")
        if "true" == query.get("filter_background_audio") == query.get("include_timestamps"):
            self.violate("filter_background_audio with include_timestamps")
        terms = query.getall("keyterms", [])
        if len(terms) > MAX_KEYTERMS[0] or any(len(term) > MAX_KEYTERMS[1] for term in terms):
            self.violate(f"keyterms: {terms}")
        return await self.serve_socket(request, lambda socket: ScribeListening(self, socket))

    def refusal_body(self, status: int):
        return refusal_body(status)


class ScribeListening(Listener):
    """One connection."""

    def __init__(self, fake: ScribeFake, socket: FakeSocket):
        super().__init__(fake, socket)
        #: The partial transcript that was sent, and whether any audio has arrived.
        self.partial = ""
        self.has_audio = False
        query = socket.record.query
        self.has_times = "true" in (
            query.get("include_timestamps"),
            query.get("include_language_detection"),
        )

    async def start(self):
        fault = self.socket.record.fault
        refusal = {
            "refused_in_band": ("auth_error", "Invalid API key"),
            "no_credit_in_band": ("quota_exceeded", "You have exceeded your quota."),
            "busy_in_band": ("rate_limited", "Too many concurrent sessions."),
            "failed_in_band": ("transcriber_error", "The transcription failed."),
        }.get(fault.kind if fault else "")
        if refusal:
            kind, words = refusal
            error = {"message_type": kind, "error": words}
            await self.socket.response.send_str(json.dumps(error))
            await self.socket.close(1008, words)
            return
        await super().start()
        self.expire_after(MAX_IDLE, self._close_idle)
        query = self.socket.record.query
        config = {
            "sample_rate": 16_000,
            "audio_format": "pcm_16000",
            "language_code": query.get("language_code"),
            "model_id": query.get("model_id"),
            "vad_commit_strategy": False,
        }
        started = {
            "message_type": "session_started",
            "session_id": uuid.uuid4().hex,
            "config": config,
        }
        if not self.socket.stalls:
            # Not subject to faults: they concern transcripts.
            await self.socket.response.send_str(json.dumps(started))

    async def _close_idle(self):
        self.fake.violate(f"no message for {MAX_IDLE} s")
        await self.socket.close(1000, "idle")

    async def receive(self, message):
        self.expire_after(MAX_IDLE, self._close_idle)
        try:
            audio = self._audio_of(message)
        except (TypeError, ValueError, KeyError, binascii.Error) as error:
            self.fake.violate(f"{error!r}: {str(message)[:200]}")
            self.answer({"message_type": "input_error", "error": "Invalid message"})
            return
        if self.push(audio):
            partial = " ".join(self.recognition.words())
            if partial != self.partial:
                self.partial = partial
                self.answer({"message_type": "partial_transcript", "text": partial})
        if message["commit"]:
            self._commit()

    def _audio_of(self, message) -> bytes:
        """The audio of a message."""
        if message["message_type"] != "input_audio_chunk" or set(message) - FIELDS:
            raise ValueError("unknown message or field")
        if message["sample_rate"] != 16_000 or not isinstance(message["commit"], bool):
            raise ValueError("sample_rate or commit")
        if message.get("previous_text") is not None and self.has_audio:
            raise ValueError("previous_text after the first message")
        self.has_audio = True
        return base64.b64decode(message["audio_base_64"], validate=True)

    def _commit(self):
        begin, end = self.recognition.start_seconds, self.recognition.seconds
        if end - begin < MIN_COMMIT_SECONDS:
            self.fake.violate(f"a commit of {end - begin:.2f} s")
            words = f"Commit request ignored: only {1000 * (end - begin):.0f}ms of audio."
            self.answer({"message_type": "commit_throttled", "error": words})
            return
        self.partial = ""
        if not (final := self.finish()):
            return
        start, words, delay = final
        text = " ".join(words)
        self.answer_finally({"message_type": "committed_transcript", "text": text}, delay)
        if self.has_times:
            self.answer(self._with_times(words, start, end), delay=TIMES_DELAY)

    def _with_times(self, words: list[str], begin: float, end: float) -> dict:
        parts = []
        for word, start, stop in word_times(words, begin, end):
            if parts:
                parts.append({"text": " ", "start": start, "end": start, "type": "spacing"})
            parts.append({"text": word, "start": start, "end": stop, "type": "word"})
        return {
            "message_type": "committed_transcript_with_timestamps",
            "text": " ".join(words),
            "language_code": self.socket.record.query.get("language_code", "en"),
            "words": [part | {"logprob": -0.01} for part in parts],
        }

    def end(self):
        super().end()
        # The vendor has no last message.
        self.socket.record.said_goodbye = self.socket.response.close_code == 1000
