"""The sound of a text, and when each of its characters sounds."""

import asyncio
import dataclasses
import functools

import numpy as np

from .. import speech
from .fake import Fake

#: Seconds of a character of the artificial voice.
HUM_SECONDS = 0.06


@dataclasses.dataclass(frozen=True)
class Sound:
    """16-bit samples; the times of the characters in seconds."""

    samples: np.ndarray
    rate: int
    text: str
    starts: np.ndarray
    ends: np.ndarray

    def words(self) -> list[tuple[str, float, float]]:
        """The words and their times."""
        found, at = [], 0
        for word in self.text.split():
            at = self.text.index(word, at)
            end = at + len(word)
            found.append((word, float(self.starts[at]), float(self.ends[end - 1])))
            at = end
        return found

    def chunks(self, duration: float):
        """Parts of about `duration` seconds that end between words: samples, and the slice of the
        characters in them."""
        first, begin = 0, 0
        while first < len(self.text):
            last = first
            while last < len(self.text):
                last += 1
                long_enough = self.ends[last - 1] - begin / self.rate >= duration
                if long_enough and self.text[last - 1] == " ":
                    break
            is_end = last == len(self.text)
            end = len(self.samples) if is_end else int(self.ends[last - 1] * self.rate)
            yield self.samples[begin:end], slice(first, last)
            first, begin = last, end


def _aligned(samples: np.ndarray, rate: int, text: str) -> Sound:
    """Spreads the characters over the loud part of the samples."""
    loud = np.flatnonzero(np.abs(samples.astype(int)) > 0.03 * np.abs(samples.astype(int)).max())
    edges = np.linspace(loud[0] / rate, (loud[-1] + 1) / rate, len(text) + 1)
    return Sound(samples, rate, text, edges[:-1], edges[1:])


def resample(samples: np.ndarray, rate: int, to: int) -> np.ndarray:
    """Changes the rate of a whole sound by its spectrum."""
    if rate == to or not len(samples):
        return samples
    count = round(len(samples) * to / rate)
    spectrum = np.fft.rfft(samples.astype(np.float64))
    changed = np.fft.irfft(spectrum[: count // 2 + 1], count) * (count / len(samples))
    return np.clip(changed, -32768, 32767).astype(np.int16)


@functools.lru_cache(256)
def flite_voice(text: str, rate: int, voice: str = "kal16") -> Sound:
    """The text as flite speaks it. A text without words is half a second of silence."""
    if not any(character.isalnum() for character in text):
        silence = np.zeros(rate // 2, np.int16)
        edges = np.linspace(0, 0.5, len(text) + 1)
        return Sound(silence, rate, text, edges[:-1], edges[1:])
    samples, own = speech.flite(text.strip(), voice)
    return _aligned(resample(samples, own, rate), rate, text)


@functools.lru_cache(256)
def hum_voice(text: str, rate: int) -> Sound:
    """A tone that swells with each character: no synthesis, for many calls."""
    count = max(1, int(HUM_SECONDS * rate * len(text)))
    time = np.arange(count) / rate
    swell = 0.5 - 0.5 * np.cos(2 * np.pi * time / (2 * HUM_SECONDS))
    samples = (9000 * swell * np.sin(2 * np.pi * 180 * time)).astype(np.int16)
    edges = np.linspace(0, count / rate, len(text) + 1)
    return Sound(samples, rate, text, edges[:-1], edges[1:])


VOICES = {"flite": flite_voice, "hum": hum_voice}


class TextToSpeechFake(Fake):
    """`pace`: how much faster than real time the sound is sent."""

    def __init__(
        self,
        *,
        voice: str = "flite",
        pace: float = 8.0,
        first_sound: float = 0.1,
        chunk_seconds: float = 0.2,
        **options,
    ):
        self.voice, self.pace, self.first_sound = VOICES[voice], pace, first_sound
        self.chunk_seconds = chunk_seconds
        #: The texts that were spoken, and those whose speech was cancelled.
        self.spoken: list[str] = []
        self.cancelled: list[str] = []
        super().__init__(**options)

    async def synthesize(self, text: str, rate: int) -> Sound:
        """The sound of a text, which counts as spoken."""
        # Synthesis takes longer than the other fakes may wait.
        sound = await asyncio.to_thread(self.voice, text, rate)
        with self.noting():
            self.spoken.append(text.strip())
        return sound

    def note_cancelled(self, text: str):
        with self.noting():
            self.cancelled.append(text.strip())
