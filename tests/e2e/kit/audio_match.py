"""Checks whether a sound arrived: the sent audio is compared with the received audio by normalized
cross-correlation of their spectra.

Spectra are used instead of samples. A receiver's jitter buffer stretches and fills by tens of
milliseconds, which changes phases and leaves the speech intact. A snippet of .4 s that arrived
correlates by .9 to .98. The best place in other speech of the same voice correlates by .5 to .8
(measured).
"""

import bisect
import dataclasses
import itertools

import numpy as np

from . import speech

#: Sampling rate of every comparison: that of the speech-to-text.
SAMPLE_RATE = 16_000
#: Samples from one spectrum to the next, and of one.
HOP, WINDOW = 160, 400
#: Edges of the bands of a spectrum, Hz.
BANDS = np.geomspace(100, 7000, 21)
#: Number of spectra in one snippet.
SNIPPET_SPECTRA = 40
#: Minimum correlation of a snippet that counts as found.
MATCH_THRESHOLD = 0.85
#: Minimum share of found snippets for a sound that counts as arrived. Other speech of the same
#: voice reaches .1 (measured). A browser without CPU time loses some of its sound; at a load of 20
#: on two cores .33 were left (measured). So the strict share is checked in the long tier only, on a
#: quiet machine.
MIN_SHARE, STRICT_SHARE = 0.3, 0.9
#: A snippet is compared if its loudest spectrum reaches this share of the loudest of all.
MIN_LOUDNESS = 0.01


@dataclasses.dataclass
class Arrival:
    """How much of a sound arrived."""

    #: Share of its snippets that were found in order.
    share: float
    #: Median correlation of all snippets with the places where they fit best.
    correlation: float
    #: Seconds from the start of the searched audio to the start of the sound.
    at: float


@dataclasses.dataclass
class SnippetMatch:
    """A snippet of a sound that was searched for."""

    #: Seconds from the start of the sound to the snippet, and from the start of the searched audio
    #: to the place where it fits best.
    at: float
    place: float
    #: Correlation at that place.
    fit: float
    #: How much louder the snippet is at that place, as a factor.
    gain: float


def locate_snippets(sent: np.ndarray, received: np.ndarray) -> list[SnippetMatch]:
    """Where each loud snippet of `sent` fits best in `received`, both 16 bit at 16 kHz."""
    reference, received_spectra = band_spectra(sent), band_spectra(received)
    assert len(reference) >= SNIPPET_SPECTRA, (
        f"a sound of {len(sent) / SAMPLE_RATE:.2f} s is too short to compare"
    )
    if len(received_spectra) < SNIPPET_SPECTRA:
        return []
    snippets = [
        (at, reference[at : at + SNIPPET_SPECTRA])
        for at in range(0, len(reference) - SNIPPET_SPECTRA + 1, SNIPPET_SPECTRA // 2)
    ]
    strength = [np.exp(snippet).sum(axis=1).max() for _, snippet in snippets]
    found = []
    for (at, snippet), loud in zip(snippets, strength, strict=True):
        if loud >= MIN_LOUDNESS * max(strength):
            place, fit = best_match(snippet, received_spectra)
            gain = np.exp((received_spectra[place : place + SNIPPET_SPECTRA] - snippet).mean() / 2)
            found.append(
                SnippetMatch(at * HOP / SAMPLE_RATE, place * HOP / SAMPLE_RATE, fit, float(gain))
            )
    return found


def match(sent: np.ndarray, received: np.ndarray) -> Arrival:
    """Searches for `sent` in `received`, both 16 bit at 16 kHz."""
    found = locate_snippets(sent, received)
    if not found:
        return Arrival(0.0, 0.0, 0.0)
    good = [snippet for snippet in found if snippet.fit >= MATCH_THRESHOLD]
    late = [snippet.place - snippet.at for snippet in good]
    return Arrival(
        longest_increasing([snippet.place for snippet in good]) / len(found),
        float(np.median([snippet.fit for snippet in found])),
        float(np.median(late or [0.0])),
    )


def longest_increasing(places: list[float]) -> int:
    """The length of the longest increasing subsequence of `places`."""
    ends: list[float] = []
    for place in places:
        at = bisect.bisect_left(ends, place)
        ends[at : at + 1] = [place]
    return len(ends)


def expect_arrival(received: Arrival, what: str, min_share: float = MIN_SHARE):
    """Fails if less than this share of `what` arrived."""
    assert received.share >= min_share, f"{what} did not arrive: {received}"


def band_spectra(samples: np.ndarray) -> np.ndarray:
    """The logarithm of the energy in each band (n × bands), with a floor below which nothing is
    audible."""
    count = (len(samples) - WINDOW) // HOP + 1
    if count < 1:
        return np.zeros((0, len(BANDS) - 1))
    at = np.arange(count)[:, None] * HOP + np.arange(WINDOW)
    energy = np.abs(np.fft.rfft(samples.astype(np.float64)[at] * np.hanning(WINDOW), 512)) ** 2
    frequency = np.fft.rfftfreq(512, 1 / SAMPLE_RATE)
    # The lowest bands are narrower than the distance between two frequencies.
    bands = [
        (frequency >= low) & (frequency <= max(high, low + 40))
        for low, high in itertools.pairwise(BANDS)
    ]
    return np.log(np.stack([energy[:, band].sum(axis=1) for band in bands], axis=1) + 1e4)


def best_match(snippet: np.ndarray, received_spectra: np.ndarray) -> tuple[int, float]:
    """Where a snippet fits best, and the fit (normalized cross-correlation over time and bands,
    each band without its mean)."""
    size = len(snippet)
    snippet = snippet - snippet.mean(axis=0)
    product = sum(
        np.correlate(received_spectra[:, band], snippet[:, band], mode="valid")
        for band in range(snippet.shape[1])
    )

    def sums(values):
        return np.concatenate([np.zeros((1, values.shape[1])), np.cumsum(values, axis=0)])

    first, second = sums(received_spectra), sums(received_spectra**2)
    spread = second[size:] - second[:-size] - (first[size:] - first[:-size]) ** 2 / size
    fits = product / np.sqrt(np.maximum(spread.sum(axis=1), 1e-3) * max((snippet**2).sum(), 1e-3))
    place = int(np.argmax(fits))
    return place, float(fits[place])


def resample(samples: np.ndarray, rate: int) -> np.ndarray:
    """16-bit samples at 16 kHz; from 48 kHz with a low-pass filter."""
    if rate == SAMPLE_RATE:
        return samples
    assert rate == 3 * SAMPLE_RATE, rate
    taps = np.sinc(np.arange(-48, 49) / 3) * np.hamming(97)
    return np.convolve(samples.astype(np.float64), taps / taps.sum(), mode="same")[::3]


def synthesize(sentences: list[str], speaker: str) -> list[np.ndarray]:
    """Sentences as flite speaks them, at 16 kHz."""
    reference = []
    for sentence in sentences:
        samples, rate = speech.flite(sentence, speaker)
        assert rate == SAMPLE_RATE, f"{speaker} speaks at {rate} Hz"
        reference.append(speech.trim_silence(samples))
    return reference


def match_page_audio(sentences: list[str], speaker: str, recording: np.ndarray) -> list[Arrival]:
    """How much of each of the agent's sentences is in a page's recording (48 kHz)."""
    received = resample(recording, speech.SAMPLE_RATE)
    return [match(reference, received) for reference in synthesize(sentences, speaker)]


def match_stt_audio(sent: np.ndarray, received: np.ndarray) -> Arrival:
    """How much of the page's microphone audio (48 kHz) is in the samples that the speech-to-text
    was given (16 kHz). Only speech is given to it."""
    return match(resample(sent, speech.SAMPLE_RATE), received)
