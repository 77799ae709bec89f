"""Lip sync, measured from what the browser displayed and played.

An open mouth is dark. Its darkness is compared with the loudness of the agent's audio, or with the
jaw opening of its phones. Offsets are in seconds and positive where the picture is late. People
notice sound that is early by 45 ms or late by 125 ms (ITU-R BT.1359). So the offset must be within
−125 … +45 ms.
"""

import subprocess

import numpy as np

from . import speech

STEP_SECONDS = 0.005
MIN_OFFSET, MAX_OFFSET = -0.125, 0.045


#: Rows and columns of the mouth, and of nose and cheeks, in close pictures of 96 × 96.
MOUTH, CHEEKS = (slice(57, 79), slice(34, 62)), (slice(43, 57), slice(32, 64))
#: How far the head moves at most, in pixels of these pictures.
MAX_HEAD_SHIFT = 6


def mouth_darkness(luma: np.ndarray) -> np.ndarray:
    """How much darker (0..1) the mouth is in each of these pictures (n × 96 × 96) than in the
    median one, as a mean over the mouth, which is followed as the head moves."""
    luma = luma.astype(np.float64)
    mouth = np.stack(
        [_shifted(picture, *shift) for picture, shift in zip(luma, head_shifts(luma), strict=True)]
    )
    return np.clip(np.median(mouth, axis=0) - mouth, 0, None).mean(axis=(1, 2)) / 255


def head_shifts(luma: np.ndarray) -> np.ndarray:
    """How far (rows, columns) the nose and the cheeks are from their place in the picture that is
    nearest to the median of all: the best whole pixel, refined by parabolas."""
    rows, columns = CHEEKS
    still = np.argmin(((luma - np.median(luma, axis=0)) ** 2)[:, rows, columns].sum(axis=(1, 2)))
    reach = range(-MAX_HEAD_SHIFT, MAX_HEAD_SHIFT + 1)
    moved = lambda part, by: slice(part.start + by, part.stop + by)  # noqa: E731
    errors = np.stack(
        [
            ((luma[:, moved(rows, y), moved(columns, x)] - luma[still][CHEEKS]) ** 2).sum((1, 2))
            for y in reach
            for x in reach
        ],
        axis=1,
    ).reshape(len(luma), len(reach), len(reach))

    def vertex(before, best, after):
        curve = before - 2 * best + after
        return (before - after) / (2 * curve) if curve > 0 else 0.0

    def shift(error):
        y, x = np.clip(np.unravel_index(np.argmin(error), error.shape), 1, len(reach) - 2)
        return (
            y - MAX_HEAD_SHIFT + np.clip(vertex(*error[y - 1 : y + 2, x]), -0.5, 0.5),
            x - MAX_HEAD_SHIFT + np.clip(vertex(*error[y, x - 1 : x + 2]), -0.5, 0.5),
        )

    return np.array([shift(error) for error in errors])


def _shifted(picture: np.ndarray, down: float, right: float) -> np.ndarray:
    """The mouth of a picture whose head is displaced, between pixels by their mean."""
    y, x = int(np.floor(down)), int(np.floor(right))
    v, u = down - y, right - x
    rows, columns = MOUTH
    part = picture[rows.start + y : rows.stop + y + 1, columns.start + x : columns.stop + x + 1]
    part = part[:-1] * (1 - v) + part[1:] * v
    return part[:, :-1] * (1 - u) + part[:, 1:] * u


def loudness_envelope(agent: np.ndarray, start: float) -> tuple[np.ndarray, np.ndarray]:
    """Times and loudness (0..1, on a root scale, as mouths open) of 16-bit samples that begin at
    `start`."""
    loud = np.sqrt(speech.loudness(agent, step=STEP_SECONDS))
    return start + STEP_SECONDS * (np.arange(len(loud)) + 0.5), smooth(loud, 0.03)


def smooth(values: np.ndarray, width: float) -> np.ndarray:
    reach = int(3 * width / STEP_SECONDS)
    kernel = np.exp(-0.5 * (np.arange(-reach, reach + 1) * STEP_SECONDS / width) ** 2)
    return np.convolve(values, kernel / kernel.sum(), mode="same")


def best_offset(
    times: np.ndarray, dark: np.ndarray, at: np.ndarray, loud: np.ndarray, reach: float = 0.4
) -> tuple[float, float]:
    """The shift of the picture against the sound with the best fit, and that fit (correlation)."""
    inside = (at > times[0] + reach) & (at < times[-1] - reach)
    at, loud = at[inside], loud[inside]
    best = (-2.0, 0.0)
    for shift in np.arange(-reach, reach + STEP_SECONDS, STEP_SECONDS):
        shown = smooth(np.interp(at + shift, times, dark), 0.03)
        fit = np.corrcoef(shown, loud)[0, 1]
        if fit > best[0]:
            best = (fit, shift)
    return best[1], best[0]


def jaw_offset(
    times: np.ndarray, shown: np.ndarray, at: np.ndarray, jaw: np.ndarray, reach: float = 0.25
) -> tuple[float, float]:
    """The shift of the pictures against the jaw opening with the best fit, and that fit
    (correlation). Only moments with a picture count, so a skipped picture changes nothing."""
    shifts = np.arange(-reach, reach + STEP_SECONDS, STEP_SECONDS)
    fits = [np.corrcoef(shown, np.interp(times - shift, at, jaw))[0, 1] for shift in shifts]
    best = int(np.argmax(fits))
    return float(shifts[best]), float(fits[best])


def mouth_motion(
    times: np.ndarray, dark: np.ndarray, at: np.ndarray, loud: np.ndarray, threshold: float = 0.06
) -> tuple[float, float]:
    """How much the mouth moves (standard deviation of its darkness) in sound and in silence.
    Moments within .25 s of a change count as neither."""
    sounding = loud > threshold
    reach = int(0.25 / STEP_SECONDS)
    near = np.convolve(sounding, np.ones(2 * reach + 1), mode="same")
    inner = np.convolve(~sounding, np.ones(2 * reach + 1), mode="same")
    shown = np.interp(at, times, dark)
    inside = (at > times[0]) & (at < times[-1])
    quiet, busy = shown[(near == 0) & inside], shown[sounding & (inner < 2 * reach) & inside]
    if len(quiet) < 20 or len(busy) < 20:
        raise ValueError(
            f"too little silence or sound to judge by: {len(quiet)}, {len(busy)} moments"
        )
    return float(busy.std()), float(quiet.std())


#: How far a phone opens the jaw; .2 for phones not listed.
JAW_OPENING = {
    "pau": 0,
    "p": 0,
    "b": 0,
    "m": 0,
    "f": 0.1,
    "v": 0.1,
    "aa": 0.8,
    "ae": 0.7,
    "ah": 0.5,
    "ax": 0.3,
    "ao": 0.7,
    "aw": 0.65,
    "ay": 0.65,
    "eh": 0.5,
    "ey": 0.45,
    "ih": 0.3,
    "iy": 0.25,
    "ow": 0.6,
    "oy": 0.6,
    "uh": 0.3,
    "uw": 0.28,
    "er": 0.25,
}


def flite_phones(text: str, speaker: str) -> list[tuple[str, float]]:
    """The phones of a text as flite speaks it, each with its end in seconds."""
    options = speech.SERVER_PROSODY.get(speaker, [])
    output = subprocess.run(
        ["flite", "-voice", speaker, *options, "-psdur", "-t", text, "none"],
        capture_output=True,
        check=True,
        text=True,
    ).stdout
    return [(name, float(end)) for name, end in (word.split(":") for word in output.split())]


def jaw_opening(text: str, speaker: str) -> np.ndarray:
    """The jaw opening in each step of a text that flite speaks."""
    spoken = flite_phones(text, speaker)
    at = STEP_SECONDS * (np.arange(int(spoken[-1][1] / STEP_SECONDS)) + 0.5)
    which = np.searchsorted([end for _, end in spoken], at)
    return smooth(np.array([JAW_OPENING.get(spoken[i][0], 0.2) for i in which]), 0.03)


def find_start(text: str, speaker: str, sound: np.ndarray, start: float) -> tuple[float, float]:
    """When a text that flite spoke began in 16-bit samples (48 kHz) that begin at `start`, and the
    fit (correlation)."""
    samples, rate = speech.flite(text, speaker)
    reference = np.sqrt(
        speech.loudness(np.repeat(samples, speech.SAMPLE_RATE // rate), step=STEP_SECONDS)
    )
    received = np.sqrt(speech.loudness(sound, step=STEP_SECONDS))
    fits = [
        np.corrcoef(reference, received[i : i + len(reference)])[0, 1]
        if received[i : i + len(reference)].std()
        else 0
        for i in range(len(received) - len(reference))
    ]
    best = int(np.argmax(fits))
    return start + STEP_SECONDS * best, float(fits[best])


def find_segments(
    text: str,
    speaker: str,
    sound: np.ndarray,
    start: float,
    length: float = 0.8,
    min_fit: float = 0.9,
) -> tuple[np.ndarray, np.ndarray, float]:
    """Where a text that flite spoke is in 16-bit samples (48 kHz) that begin at `start`.

    Each segment of the text is found by itself, because a busy machine may pause the speech between
    two of them. A segment counts if its loudness has at least the correlation `min_fit`. Returns
    the steps of the text that count, their times, and the share of segments with speech that count.
    """
    samples, rate = speech.flite(text, speaker)
    reference = np.sqrt(
        speech.loudness(np.repeat(samples, speech.SAMPLE_RATE // rate), step=STEP_SECONDS)
    )
    received = np.sqrt(speech.loudness(sound, step=STEP_SECONDS))
    size, reach = int(length / STEP_SECONDS), int(2 / STEP_SECONDS)
    middle = round((find_start(text, speaker, sound, start)[0] - start) / STEP_SECONDS)
    steps, times, segments = [], [], 0
    for first in range(0, len(reference) - size, size):
        segment = reference[first : first + size]
        if segment.std() < 0.3 * reference.std():
            continue
        segments += 1
        begin = max(0, middle + first - reach)
        heard = received[begin : middle + first + reach + size]
        if len(heard) < size:
            continue  # The sound ends before this segment.
        windows = np.lib.stride_tricks.sliding_window_view(heard, size)
        spread = windows.std(axis=1)
        covariance = (
            (windows - windows.mean(axis=1, keepdims=True)) * (segment - segment.mean())
        ).mean(axis=1)
        fits = np.divide(
            covariance, spread * segment.std(), out=np.zeros(len(windows)), where=spread > 0
        )
        best = int(np.argmax(fits))
        if fits[best] >= min_fit:
            steps.append(np.arange(first, first + size))
            times.append(start + STEP_SECONDS * (begin + best + np.arange(size)))
    if not steps:
        return np.zeros(0, int), np.zeros(0), 0.0
    return np.concatenate(steps), np.concatenate(times), len(steps) / segments
