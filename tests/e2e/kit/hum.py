"""Voiced sounds without words, as people make while they think: "um", "uh … uh". Which of them the recogniser takes for no word depends on
what it heard before, so there are several of each length to choose from."""

import functools
import subprocess

import numpy as np

from . import voice

#: Per sound: flite's voice, what it says, how far it stretches it, how often, and the pause between, in seconds.
SHORT = [("slt", "um", 1, 1, 0), ("rms", "uh", 1.7, 1, 0), ("awb", "uh", 2.5, 1, 0), ("slt", "erm", 1.3, 1, 0), ("awb", "err", 1.3, 1, 0)]
LONG = [
    ("awb", "uh", 2.5, 2, 0.15), ("slt", "um", 1, 2, 0.15), ("awb", "err", 1.3, 2, 0.15), ("slt", "erm", 1.3, 2, 0.18), ("awb", "huh uh", 1.6, 2, 0.12),
    ("awb", "uh", 2.2, 3, 0.05), ("slt", "um", 1, 2, 0.2), ("awb", "em", 1.3, 2, 0.15), ("rms", "uh", 1.7, 2, 0.18), ("slt", "uh", 1.6, 2, 0.15),
]  # fmt: skip


@functools.cache
def hum(name: str, text: str, stretch: float, times: int, pause: float) -> str:
    """As a WAV, base64."""
    command = ["flite", "-voice", name, "--setf", f"duration_stretch={stretch}", "-t", text, "-o", "/dev/stdout"]
    samples, rate = voice.read(subprocess.run(command, capture_output=True, check=True).stdout)
    samples = voice.trim(samples)
    gap = np.zeros(int(pause * rate), np.int16)
    return voice.encode(np.concatenate([samples, *[part for _ in range(times - 1) for part in (gap, samples)]]), rate)
