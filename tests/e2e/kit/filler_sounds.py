"""Voiced sounds without words, as people make them while they think: "um", "uh … uh". Which of them
the recognizer takes for no word depends on what it heard before. So there are several of each
length to choose from."""

import functools
import subprocess

import numpy as np

from . import speech

#: For each sound: flite's voice, its text, the duration factor, the number of repetitions, and the
#: pause between them in seconds.
SHORT_SOUNDS = [
    ("slt", "um", 1, 1, 0),
    ("rms", "uh", 1.7, 1, 0),
    ("awb", "uh", 2.5, 1, 0),
    ("slt", "erm", 1.3, 1, 0),
    ("awb", "err", 1.3, 1, 0),
]
LONG_SOUNDS = [
    ("awb", "uh", 2.5, 2, 0.15),
    ("slt", "um", 1, 2, 0.15),
    ("awb", "err", 1.3, 2, 0.15),
    ("slt", "erm", 1.3, 2, 0.18),
    ("awb", "huh uh", 1.6, 2, 0.12),
    ("awb", "uh", 2.2, 3, 0.05),
    ("slt", "um", 1, 2, 0.2),
    ("awb", "em", 1.3, 2, 0.15),
    ("rms", "uh", 1.7, 2, 0.18),
    ("slt", "uh", 1.6, 2, 0.15),
]


@functools.cache
def filler_sound(name: str, text: str, duration_factor: float, times: int, pause: float) -> str:
    """The sound as a WAV, base64."""
    command = [
        "flite",
        "-voice",
        name,
        "--setf",
        f"duration_stretch={duration_factor}",
        "-t",
        text,
        "-o",
        "/dev/stdout",
    ]
    samples, rate = speech.read_wav(subprocess.run(command, capture_output=True, check=True).stdout)
    samples = speech.trim_silence(samples)
    gap = np.zeros(int(pause * rate), np.int16)
    return speech.wav_base64(
        np.concatenate([samples, *[part for _ in range(times - 1) for part in (gap, samples)]]),
        rate,
    )
