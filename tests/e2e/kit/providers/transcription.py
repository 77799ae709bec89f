"""Speech-to-text by a script: the words of an utterance appear as its sound arrives."""

import dataclasses

import numpy as np

from .. import speech

#: Sample rate of all speech that the fakes recognize, in Hz.
SAMPLE_RATE = 16_000
#: Samples of a window, and its minimum RMS (0..1) that counts as speech.
WINDOW, MIN_LOUDNESS = 320, 0.008
#: Share of an utterance's speech after which an end mark completes its text.
COMPLETE_SHARE = 0.7
#: Seconds of speech below which an end mark ends a sound without words.
MIN_SPEECH = 0.1


def loud_seconds(samples: np.ndarray) -> float:
    """Seconds of speech in 16-bit samples at 16 kHz."""
    loudness = speech.loudness(samples, SAMPLE_RATE, WINDOW / SAMPLE_RATE)
    return float((loudness > MIN_LOUDNESS).sum()) * WINDOW / SAMPLE_RATE


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

    def __init__(self, script: Script):
        self.script = Script(script.utterances, script.repeats, script.position)
        #: All audio, and that since the last end mark, in samples.
        self.samples = 0
        self.start = 0
        self.loud = 0.0
        self.rest = b""

    def push(self, audio: bytes):
        """16-bit samples, little-endian."""
        self.samples += len(audio) // 2
        audio = self.rest + audio
        whole = len(audio) // (2 * WINDOW) * 2 * WINDOW
        self.rest = audio[whole:]
        if whole:
            self.loud += loud_seconds(np.frombuffer(audio[:whole], "<i2"))

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

    def finish(self) -> list[str]:
        """An end mark: the words since the last one."""
        current = self.script.current
        needed = MIN_SPEECH if current.seconds is None else COMPLETE_SHARE * current.seconds
        if self.loud >= needed:
            words = current.text.split()[self.script.announced :]
            self.script.at, self.script.announced = self.script.at + 1, 0
            self.loud = 0.0
        else:
            # The client splits the utterance: its other words come with its other sound.
            words = self.words()
            self.script.announced += len(words)
            self.loud = 0.0
        self.start = self.samples
        return words


def seconds(samples: int) -> float:
    return samples / SAMPLE_RATE
