"""Deepgram's speech-to-text with turns: `/v2/listen` (Flux)."""

import uuid

from .fake import FakeSocket
from .transcription import Listener, SpeechToTextFake, word_times

#: Query parameters of the endpoint.
PARAMETERS = set(
    "model encoding sample_rate eager_eot_threshold eot_threshold eot_timeout_ms keyterm "
    "language_hint profanity_filter numerals redact mip_opt_out tag".split()
)
#: Values that the vendor accepts.
RANGES = {
    "eager_eot_threshold": (0.3, 0.9),
    "eot_threshold": (0.5, 1.0),
    "eot_timeout_ms": (500, 60_000),
}
#: The threshold of a client that names none, and one that the model never reaches.
DEFAULT_THRESHOLD, MANUAL_THRESHOLD = 0.7, 1.0
#: Seconds of silence after which the model expects the end of the turn, and is sure of it.
EAGER_SECONDS, END_SECONDS = 0.3, 0.6
#: Seconds without audio after which the vendor closes the connection.
MAX_IDLE = 10.0


def flux_problems(query) -> list[str]:
    """What the vendor would refuse in a query."""
    problems = []
    model = query.get("model", "")
    if not model.startswith("flux-"):
        problems.append(f"{model!r} is no model of Flux")
    if unknown := set(query) - PARAMETERS:
        problems.append(f"unknown parameters of Flux: {unknown}")
    if query.get("encoding") != "linear16" or query.get("sample_rate") != "16000":
        problems.append(f"not linear16 at 16 kHz: {dict(query)}")
    if "language_hint" in query and "multi" not in model:
        problems.append(f"{model} takes no language_hint")
    for name, (minimum, maximum) in RANGES.items():
        if name in query and not minimum <= float(query[name]) <= maximum:
            problems.append(f"{name}={query[name]}")
    return problems


class FluxListening(Listener):
    """A connection. The text of a turn grows until its end."""

    answers_silence = False

    def __init__(self, fake: SpeechToTextFake, socket: FakeSocket):
        super().__init__(fake, socket)
        query = socket.record.query
        self.request_id = str(uuid.uuid4())
        self.is_manual = float(query.get("eot_threshold", DEFAULT_THRESHOLD)) >= MANUAL_THRESHOLD
        self.is_eager = "eager_eot_threshold" in query
        self.sequence = 0
        self.turn = 0
        #: Words of the open turn that were reported, and whether its end is expected.
        self.reported: list[str] = []
        self.expects_end = False
        #: Seconds of speech, and the time at which they last changed.
        self.loud, self.loud_at = 0.0, 0.0

    async def start(self):
        await super().start()
        self.expire_after(MAX_IDLE, self._close_idle)
        self.answer({"type": "Connected"})

    async def _close_idle(self):
        self.fake.violate(f"no audio for {MAX_IDLE} s")
        await self.socket.close(1011, "NET-0001: no audio was received")

    async def send(self, message: dict) -> bool:
        """Messages of all types are numbered."""
        about = {"request_id": self.request_id, "sequence_id": self.sequence}
        self.sequence += 1
        return await super().send(message | about)

    async def receive(self, message):
        if isinstance(message, bytes):
            self.expire_after(MAX_IDLE, self._close_idle)
            self._receive_audio(message)
            return
        match message.get("type") if isinstance(message, dict) else None:
            case "ForceEndTurn":
                self._end_turn("manual")
            case "CloseStream":
                self.socket.record.said_goodbye = True
                self.close_later()
            case kind:
                self.fake.violate(f"unknown message {kind!r}: {str(message)[:200]}")
                words = "Could not deserialize the message"
                self.answer({"type": "Error", "code": "MESSAGE-0000", "description": words})
                self.close_later()

    def _receive_audio(self, audio: bytes):
        is_due = self.push(audio)
        recognition = self.recognition
        if recognition.loud != self.loud:
            self.loud, self.loud_at = recognition.loud, recognition.seconds
        silence = recognition.seconds - self.loud_at
        if self.reported and not self.is_manual and silence >= END_SECONDS:
            self._end_turn("model")
        elif self.reported and self.is_eager and silence >= EAGER_SECONDS and not self.expects_end:
            # The end of the turn has the same words.
            self.reported, self.expects_end = recognition.final_words(), True
            self._report("EagerEndOfTurn", 0.6)
        elif self.expects_end and silence == 0:
            self.expects_end = False
            self.reported = recognition.words()
            self._report("TurnResumed", 0.1)
        elif is_due and not self.expects_end:
            event = "Update" if self.reported else "StartOfTurn"
            self.reported = recognition.words()
            if self.reported or event == "Update":
                self._report(event, 0.1)

    def _report(self, event: str, confidence: float):
        start = self.recognition.start_seconds
        self.answer(self._turn_info(event, self.reported, start, confidence))

    def _end_turn(self, trigger: str):
        final = self.finish()
        self.reported, self.expects_end = [], False
        if final is None:
            words = "There is no open turn"
            self.answer({"type": "Warning", "code": "NO_OPEN_TURN", "description": words})
            return
        start, words, delay = final
        message = self._turn_info("EndOfTurn", words, start, 0.9) | {"trigger": trigger}
        self.answer_finally(message, delay if trigger == "manual" else 0.0)
        self.turn += 1

    def _turn_info(self, event: str, words: list[str], start: float, confidence: float) -> dict:
        end = self.recognition.seconds
        return {
            "type": "TurnInfo",
            "event": event,
            "turn_index": self.turn,
            "audio_window_start": start,
            "audio_window_end": end,
            "transcript": " ".join(words),
            "words": [
                {"word": word, "confidence": 0.98, "start": begin, "end": stop}
                for word, begin, stop in word_times(words, start, end)
            ],
            "end_of_turn_confidence": confidence,
        }
