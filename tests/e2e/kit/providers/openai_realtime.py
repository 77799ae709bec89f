"""OpenAI's realtime transcription: `/v1/realtime?intent=transcription`."""

import base64
import binascii
import time
import uuid

from .fake import FakeSocket
from .transcription import Listener, SpeechToTextFake

#: Sample rate of the audio, in Hz.
RATE = 24_000
#: Query parameters. The vendor's own server takes no `model` with `intent=transcription`; servers
#: with the same interface need it.
PARAMETERS = {"intent", "model"}
#: Settings of the audio, and of its transcription.
INPUT_FIELDS = {"format", "transcription", "turn_detection", "noise_reduction"}
TRANSCRIPTION_FIELDS = {"model", "language", "languages", "prompt", "keywords", "delay"}
#: Starts of the models that transcribe while the user speaks. Only they know keywords.
LIVE_MODELS = ("gpt-live-transcribe", "gpt-realtime-whisper")
KEYWORD_MODELS = ("gpt-live-transcribe", "gpt-transcribe")
#: Seconds of audio that a commit needs.
MIN_COMMIT_SECONDS = 0.1
#: Tokens of a second of audio.
TOKENS_PER_SECOND = 10


def new_id(kind: str) -> str:
    return f"{kind}_{uuid.uuid4().hex[:24]}"


def session_problems(session: dict) -> list[str]:
    """What the vendor would refuse in the settings of a session."""
    problems = []
    if session.get("type") != "transcription" or set(session) - {"type", "audio", "include"}:
        problems.append(f"no transcription session: {session}")
    audio = (session.get("audio") or {}).get("input") or {}
    if unknown := set(audio) - INPUT_FIELDS:
        problems.append(f"unknown settings of the audio: {unknown}")
    if audio.get("format") != {"type": "audio/pcm", "rate": RATE}:
        problems.append(f"not PCM at 24 kHz: {audio.get('format')}")
    transcription = audio.get("transcription") or {}
    model = transcription.get("model", "")
    if not model:
        problems.append("the model is missing")
    if unknown := set(transcription) - TRANSCRIPTION_FIELDS:
        problems.append(f"unknown settings of the transcription: {unknown}")
    if model.startswith("gpt-realtime-whisper"):
        if "prompt" in transcription or audio.get("turn_detection") is not None:
            problems.append(f"{model} takes neither prompt nor turn_detection")
    elif "delay" in transcription:
        problems.append(f"{model} takes no delay")
    if {"keywords", "languages"} & set(transcription) and not model.startswith(KEYWORD_MODELS):
        problems.append(f"{model} takes no keywords")
    if audio.get("turn_detection", "server_vad") is not None:
        problems.append("the fake detects no turns")
    return problems


class RealtimeListening(Listener):
    """One connection. Each commit makes an item of the audio since the last one."""

    def __init__(self, fake: SpeechToTextFake, socket: FakeSocket):
        super().__init__(fake, socket, RATE)
        self.session = {
            "id": new_id("sess"),
            "object": "realtime.transcription_session",
            "type": "transcription",
            "expires_at": int(time.time()) + 1800,
        }
        self.is_set_up = False
        self.model = ""
        self.item, self.last_item = new_id("item"), None
        #: Number of words of the item that were sent.
        self.sent_words = 0

    async def start(self):
        await super().start()
        if not self.socket.stalls:
            # Not subject to faults: they concern transcripts.
            message = self._event("session.created", session=self.session)
            await self.socket.response.send_json(message)

    @staticmethod
    def _event(kind: str, **fields) -> dict:
        return {"type": kind, "event_id": new_id("event"), **fields}

    def _fail(self, words: str, code: str, event_id: str | None = None):
        error = {
            "type": "invalid_request_error",
            "code": code,
            "message": words,
            "param": None,
            "event_id": event_id,
        }
        self.answer(self._event("error", error=error))

    async def receive(self, message):
        kind = message.get("type") if isinstance(message, dict) else None
        match kind:
            case "session.update":
                self._set_up(message.get("session") or {})
            case "input_audio_buffer.append" if self.is_set_up:
                self._append(message)
            case "input_audio_buffer.commit" if self.is_set_up:
                self._commit(message.get("event_id"))
            case "input_audio_buffer.clear":
                self.recognition.loud, self.sent_words = 0.0, 0
                self.recognition.start = self.recognition.samples
                self.answer(self._event("input_audio_buffer.cleared"))
            case _:
                self.fake.violate(f"unknown or early message {kind!r}: {str(message)[:200]}")
                self._fail(f"Invalid value: {kind!r}.", "invalid_value")

    def _set_up(self, session: dict):
        for problem in session_problems(session):
            self.fake.violate(problem)
            self._fail(problem, "invalid_value")
            return
        self.is_set_up = True
        self.model = session["audio"]["input"]["transcription"]["model"]
        self.session |= session
        self.answer(self._event("session.updated", session=self.session))

    def _append(self, message: dict):
        try:
            audio = base64.b64decode(message["audio"], validate=True)
        except (KeyError, TypeError, ValueError, binascii.Error) as error:
            self.fake.violate(f"{error!r}: {str(message)[:200]}")
            self._fail("Invalid 'audio'.", "invalid_value", message.get("event_id"))
            return
        if self.push(audio) and self.model.startswith(LIVE_MODELS):
            for delta in self._deltas(self.recognition.words()):
                self.answer(delta)

    def _deltas(self, words: list[str]) -> list[dict]:
        """The words that were not sent yet."""
        new, first = words[self.sent_words :], self.sent_words
        self.sent_words = max(first, len(words))
        return [
            self._transcription("delta", delta=word if first + n == 0 else f" {word}")
            for n, word in enumerate(new)
        ]

    def _transcription(self, kind: str, **fields) -> dict:
        kind = f"conversation.item.input_audio_transcription.{kind}"
        return self._event(kind, item_id=self.item, content_index=0, **fields)

    def _commit(self, event_id: str | None):
        duration = self.recognition.seconds - self.recognition.start_seconds
        if duration < MIN_COMMIT_SECONDS:
            self.fake.violate(f"a commit of {1000 * duration:.0f} ms")
            words = f"buffer too small, expected at least 100ms, got {1000 * duration:.0f}ms."
            code = "input_audio_buffer_commit_empty"
            self._fail(f"Error committing input audio buffer: {words}", code, event_id)
            return
        ids = {"item_id": self.item, "previous_item_id": self.last_item}
        self.answer(self._event("input_audio_buffer.committed", **ids))
        content = [{"type": "input_audio", "transcript": None}]
        item = {
            "id": self.item,
            "type": "message",
            "object": "realtime.item",
            "status": "completed",
            "role": "user",
            "content": content,
        }
        added = self._event("conversation.item.added", item=item, previous_item_id=self.last_item)
        self.answer(added)
        if final := self.finish():
            _, words, delay = final
            text = " ".join(words)
            tokens = (max(1, round(TOKENS_PER_SECOND * duration)), max(1, len(words)))
            usage = {
                "type": "tokens",
                "input_tokens": tokens[0],
                "output_tokens": tokens[1],
                "total_tokens": sum(tokens),
                "input_token_details": {"text_tokens": 0, "audio_tokens": tokens[0]},
            }
            if deltas := self._deltas(words):
                self.answer(*deltas, delay=delay)
                delay = 0.01
            completed = self._transcription("completed", transcript=text, usage=usage)
            self.answer_finally(completed, delay)
        self.item, self.last_item, self.sent_words = new_id("item"), self.item, 0

    def end(self):
        super().end()
        # The vendor has no last message.
        self.socket.record.said_goodbye = self.socket.response.close_code == 1000
