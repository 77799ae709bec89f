"""Speech-to-text by a script: the words of an utterance appear as its sound arrives."""

import asyncio
import dataclasses

import numpy as np

from .. import speech
from .fake import Fake, FakeSocket

#: Sample rate of all speech that the fakes recognize, in Hz.
SAMPLE_RATE = 16_000
#: Seconds of a window, and its minimum RMS (0..1) that counts as speech.
WINDOW_SECONDS, MIN_LOUDNESS = 0.02, 0.008
#: Share of an utterance's speech after which an end mark completes its text.
COMPLETE_SHARE = 0.7
#: Seconds of speech below which an end mark ends a sound without words.
MIN_SPEECH = 0.1
#: Faults of the answer to an end mark. no_final: there is none; double_final: it comes twice;
#: empty_final: the first `after` of them have an empty text; late_final: it comes `seconds` later.
FINAL_FAULTS = frozenset({"no_final", "double_final", "empty_final", "late_final"})


def loud_seconds(samples: np.ndarray, rate: int = SAMPLE_RATE) -> float:
    """Seconds of speech in 16-bit samples."""
    loudness = speech.loudness(samples, rate, WINDOW_SECONDS)
    return float((loudness > MIN_LOUDNESS).sum()) * WINDOW_SECONDS


@dataclasses.dataclass
class Utterance:
    """A text that is recognized. `seconds`: its speech; without it any sound completes it."""

    text: str
    seconds: float | None = None

    @classmethod
    def spoken(cls, text: str, voice: str = "slt"):
        """The text as `BrowserCall.speak` speaks it."""
        samples, rate = speech.flite(text, voice)
        samples = speech.trim_silence(samples)
        count = int(len(samples) * SAMPLE_RATE / rate)
        at = np.arange(count) * rate / SAMPLE_RATE
        return cls(text, loud_seconds(np.interp(at, np.arange(len(samples)), samples)))


class Script:
    """The utterances of a call, in order. A call that reconnects continues it. `repeats`: after the
    last one it begins again."""

    def __init__(
        self,
        utterances: list[Utterance],
        repeats: bool = False,
        position: tuple[int, int] = (0, 0),
    ):
        self.utterances, self.repeats = utterances, repeats
        #: The utterance that is spoken, and the number of its words that were announced.
        self.at, self.announced = position

    @property
    def position(self) -> tuple[int, int]:
        return self.at, self.announced

    @property
    def current(self) -> Utterance:
        at = self.at % len(self.utterances) if self.repeats else self.at
        return self.utterances[at] if at < len(self.utterances) else Utterance("")


class Recognition:
    """Recognizes the audio of one connection. The script of the call changes only when a final
    transcript was delivered: the audio of a lost one comes again over the next connection."""

    def __init__(self, script: Script, rate: int = SAMPLE_RATE):
        self.script = Script(script.utterances, script.repeats, script.position)
        self.rate = rate
        #: All audio, and that since the last end mark, in samples.
        self.samples = 0
        self.start = 0
        self.loud = 0.0
        self.rest = b""

    def push(self, audio: bytes):
        """16-bit samples, little-endian."""
        self.samples += len(audio) // 2
        audio = self.rest + audio
        window = 2 * round(WINDOW_SECONDS * self.rate)
        whole = len(audio) // window * window
        self.rest = audio[whole:]
        if whole:
            self.loud += loud_seconds(np.frombuffer(audio[:whole], "<i2"), self.rate)

    @property
    def seconds(self) -> float:
        """Duration of all audio."""
        return self.samples / self.rate

    @property
    def start_seconds(self) -> float:
        """Time of the last end mark in the audio."""
        return self.start / self.rate

    def words(self) -> list[str]:
        """The words so far of the utterance since the last end mark."""
        current = self.script.current
        words = current.text.split()[self.script.announced :]
        if not words or self.loud < MIN_SPEECH:
            return []
        # A text of unknown duration: three words a second.
        share = self.loud / current.seconds if current.seconds else self.loud * 3 / len(words)
        count = int(share * len(current.text.split()))
        return words[: max(0, count - (1 if share < 1 else 0))]

    def is_complete(self) -> bool:
        """Whether the sound suffices for all words of the utterance."""
        seconds = self.script.current.seconds
        return self.loud >= (MIN_SPEECH if seconds is None else COMPLETE_SHARE * seconds)

    def final_words(self) -> list[str]:
        """The words with which an end mark would be answered now."""
        if self.is_complete():
            return self.script.current.text.split()[self.script.announced :]
        return self.words()

    def finish(self) -> list[str]:
        """An end mark: the words since the last one."""
        words = self.final_words()
        if self.is_complete():
            self.script.at, self.script.announced = self.script.at + 1, 0
        else:
            # The client splits the utterance: its other words come with its other sound.
            self.script.announced += len(words)
        self.loud = 0.0
        self.start = self.samples
        return words


def word_times(words: list[str], begin: float, end: float) -> list[tuple[str, float, float]]:
    """Words and their times, which are spread evenly."""
    step = (end - begin) / max(1, len(words))
    return [(word, begin + n * step, begin + (n + 1) * step) for n, word in enumerate(words)]


class SpeechToTextFake(Fake):
    """`utterances`: what is recognized, one text after each other (a text, or an `Utterance`).
    `per_connection`: each connection begins with the first one, and after the last one again;
    otherwise a connection continues where the last one ended."""

    own_faults = FINAL_FAULTS

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

    def script_of_connection(self) -> Script:
        return Script(self.utterances, repeats=True) if self.per_connection else self.script


class Listener:
    """A connection to which audio is streamed. Its answers leave in order, each after its delay."""

    #: Whether an end mark after audio without words is answered.
    answers_silence = True

    def __init__(self, fake: SpeechToTextFake, socket: FakeSocket, rate: int = SAMPLE_RATE):
        self.fake, self.socket = fake, socket
        self.script = fake.script_of_connection()
        self.recognition = Recognition(self.script, rate)
        self.interim_at = 0
        self.finals = 0
        self.queue: asyncio.Queue = asyncio.Queue()
        self.sender: asyncio.Task | None = None
        self.idle: asyncio.TimerHandle | None = None

    async def start(self):
        self.sender = asyncio.create_task(self._send_queued())

    def expire_after(self, limit: float, expire):
        """Calls the coroutine function `expire` unless this is called again within the limit."""
        loop = asyncio.get_running_loop()
        if self.idle:
            self.idle.cancel()
        self.idle = loop.call_later(limit, lambda: loop.create_task(expire()))

    def push(self, audio: bytes) -> bool:
        """Recognizes audio. Returns whether it is time for an interim transcript."""
        if len(audio) % 2:
            self.fake.violate(f"an odd number of bytes: {len(audio)}")
        recognition = self.recognition
        recognition.push(audio)
        is_due = (
            recognition.samples - self.interim_at >= self.fake.interim_seconds * recognition.rate
        )
        if is_due:
            self.interim_at = recognition.samples
        return is_due

    def answer(self, *messages: dict, delay: float = 0.0):
        """Sends messages after those that wait."""
        for message in messages:
            self.queue.put_nowait((delay, message))
            delay = 0.0

    def close_later(self):
        """Closes the connection after what waits."""
        self.queue.put_nowait((0.0, None))

    def finish(self) -> tuple[float, list[str], float] | None:
        """An end mark: the time at which its words begin, the words, and the delay of the answer;
        None = there is no answer."""
        start = self.recognition.start_seconds
        words = self.recognition.finish()
        fault = self.socket.record.fault
        kind = fault.kind if fault else None
        if kind == "no_final" or not (words or self.answers_silence):
            return None
        self.finals += 1
        if kind == "empty_final" and self.finals <= fault.after:
            words = []
        delay = self.fake.final_delay + (fault.seconds if kind == "late_final" else 0)
        return start, words, delay

    def answer_finally(self, message: dict, delay: float):
        """Sends the answer to an end mark. With it, the script of the call goes on."""
        self.queue.put_nowait((delay, message, self.recognition.script.position))
        fault = self.socket.record.fault
        if fault and fault.kind == "double_final":
            self.queue.put_nowait((0.02, message))

    async def _send_queued(self):
        while True:
            delay, message, *position = await self.queue.get()
            if delay:
                await asyncio.sleep(delay)
            if message is None:
                await self.socket.close()
                return
            if await self.send(message) and position:
                self.script.at, self.script.announced = position[0]

    async def send(self, message: dict) -> bool:
        return await self.socket.send(message)

    def end(self):
        if self.idle:
            self.idle.cancel()
        if self.sender:
            self.sender.cancel()
