"""Whether a sound arrived: what was sent is compared with what came, by normalised cross-correlation of their spectra.

Spectra and not samples: a receiver's jitter buffer stretches and fills by tens of milliseconds, which changes phases and leaves the speech
as it is. A piece of .4 s that arrived correlates by .9 to .98, the best place in other speech of the same voice by .5 to .8 (measured).
"""

import bisect
import dataclasses

import numpy as np

from . import voice

#: Samples a second of every comparison: what speech-to-text is given.
RATE = 16_000
#: Samples from one spectrum to the next, and of one.
HOP, WINDOW = 160, 400
#: Edges of the bands of a spectrum, Hz.
BANDS = np.geomspace(100, 7000, 21)
#: Spectra of a piece that is looked for.
PIECE = 40
#: Correlation from which on a piece counts as found.
ALIKE = 0.85
#: Share of a sound's pieces from which on it counts as arrived. Other speech of the same voice reaches .1 (measured). A browser that gets no
#: processor loses some of its sound, so that nearly all of it arrives is judged in the long tier, on a quiet machine.
ENOUGH, NEARLY_ALL = 0.5, 0.9
#: A piece is compared if its loudest spectrum reaches this share of the loudest of all.
LOUD = 0.01


@dataclasses.dataclass
class Arrival:
    """What of a sound arrived."""

    #: Share of its pieces that were found, in their order.
    share: float
    #: Median correlation of all pieces with the places where they fit best.
    likeness: float
    #: Seconds from the beginning of what was searched to the beginning of the sound.
    at: float


@dataclasses.dataclass
class Piece:
    """A piece of a sound that was looked for."""

    #: Seconds from the beginning of the sound, and of what was searched to the place where the piece fits best.
    at: float
    place: float
    #: Correlation there.
    fit: float
    #: How much louder it is there, as a factor.
    gain: float


def places(sent: np.ndarray, came: np.ndarray) -> list[Piece]:
    """Where each loud piece of `sent` fits best in `came`, both 16 bit at 16 kHz."""
    said, heard = spectra(sent), spectra(came)
    assert len(said) >= PIECE, f"a sound of {len(sent) / RATE:.2f} s is too short to compare"
    if len(heard) < PIECE:
        return []
    pieces = [(at, said[at : at + PIECE]) for at in range(0, len(said) - PIECE + 1, PIECE // 2)]
    strength = [np.exp(piece).sum(axis=1).max() for _, piece in pieces]
    found = []
    for (at, piece), loud in zip(pieces, strength, strict=True):
        if loud >= LOUD * max(strength):
            place, fit = best(piece, heard)
            gain = np.exp((heard[place : place + PIECE] - piece).mean() / 2)
            found.append(Piece(at * HOP / RATE, place * HOP / RATE, fit, float(gain)))
    return found


def arrived(sent: np.ndarray, came: np.ndarray) -> Arrival:
    """Looks for `sent` in `came`, both 16 bit at 16 kHz."""
    found = places(sent, came)
    if not found:
        return Arrival(0.0, 0.0, 0.0)
    good = [piece for piece in found if piece.fit >= ALIKE]
    late = [piece.place - piece.at for piece in good]
    return Arrival(in_order([piece.place for piece in good]) / len(found), float(np.median([piece.fit for piece in found])), float(np.median(late or [0.0])))


def in_order(places: list[float]) -> int:
    """The length of the longest part of `places` that ascends."""
    ends: list[float] = []
    for place in places:
        at = bisect.bisect_left(ends, place)
        ends[at : at + 1] = [place]
    return len(ends)


def expect(came: Arrival, what: str, least: float = ENOUGH):
    """Fails if less than this share of `what` arrived."""
    assert came.share >= least, f"{what} did not arrive: {came}"


def spectra(samples: np.ndarray) -> np.ndarray:
    """The logarithm of the energy in each band (n × bands), with a floor below which nothing is heard."""
    count = (len(samples) - WINDOW) // HOP + 1
    if count < 1:
        return np.zeros((0, len(BANDS) - 1))
    at = np.arange(count)[:, None] * HOP + np.arange(WINDOW)
    energy = np.abs(np.fft.rfft(samples.astype(np.float64)[at] * np.hanning(WINDOW), 512)) ** 2
    frequency = np.fft.rfftfreq(512, 1 / RATE)
    # The lowest bands are narrower than the distance of two frequencies.
    bands = [(frequency >= low) & (frequency <= max(high, low + 40)) for low, high in zip(BANDS[:-1], BANDS[1:], strict=True)]
    return np.log(np.stack([energy[:, band].sum(axis=1) for band in bands], axis=1) + 1e4)


def best(piece: np.ndarray, heard: np.ndarray) -> tuple[int, float]:
    """Where a piece fits best, and how well (normalised cross-correlation over time and bands, each band without its mean)."""
    size = len(piece)
    piece = piece - piece.mean(axis=0)
    product = sum(np.correlate(heard[:, band], piece[:, band], mode="valid") for band in range(piece.shape[1]))
    sums = lambda values: np.concatenate([np.zeros((1, values.shape[1])), np.cumsum(values, axis=0)])  # noqa: E731
    first, second = sums(heard), sums(heard**2)
    spread = second[size:] - second[:-size] - (first[size:] - first[:-size]) ** 2 / size
    fits = product / np.sqrt(np.maximum(spread.sum(axis=1), 1e-3) * max((piece**2).sum(), 1e-3))
    place = int(np.argmax(fits))
    return place, float(fits[place])


def resample(samples: np.ndarray, rate: int) -> np.ndarray:
    """16-bit samples at 16 kHz; from 48 kHz with a low pass."""
    if rate == RATE:
        return samples
    assert rate == 3 * RATE, rate
    taps = np.sinc(np.arange(-48, 49) / 3) * np.hamming(97)
    return np.convolve(samples.astype(np.float64), taps / taps.sum(), mode="same")[::3]


def spoken(sentences: list[str], speaker: str) -> list[np.ndarray]:
    """Sentences as flite speaks them, at 16 kHz."""
    said = []
    for sentence in sentences:
        samples, rate = voice.flite(sentence, speaker)
        assert rate == RATE, f"{speaker} speaks at {rate} Hz"
        said.append(voice.trim(samples))
    return said


def heard_by_page(sentences: list[str], speaker: str, recording: np.ndarray) -> list[Arrival]:
    """What of each of the agent's sentences is in a page's recording (48 kHz)."""
    came = resample(recording, voice.RATE)
    return [arrived(said, came) for said in spoken(sentences, speaker)]


def heard_by_server(sent: np.ndarray, came: np.ndarray) -> Arrival:
    """What of the page's microphone (48 kHz) is in the samples that speech-to-text was given (16 kHz). Only speech is given to it."""
    return arrived(resample(sent, voice.RATE), came)
