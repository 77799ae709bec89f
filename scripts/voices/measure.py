#!/usr/bin/env python3
"""Measures the sound of the male voices before and after the equalizer, and draws spectrograms.

    python3 -m venv ENV && ENV/bin/pip install numpy scipy matplotlib
    VISAVIS_SOUND_DIR=AFTER cargo test -p visavis-models-tests --test voices -- --ignored \
        long_write_the_sound_of_the_voices
    ENV/bin/python scripts/voices/measure.py AFTER PICTURES

It needs the commands flite and opusdec (Debian: flite, opus-tools). "Before" is the sound of the
command flite. The reference is the recordings piper-joe of models/tests/wer. Opus removed their
sound above 8 kHz, so Hibari is the reference from 5 kHz on.
"""

import re
import subprocess
import sys
import tempfile
import wave
from pathlib import Path

import matplotlib
import numpy as np
import scipy.signal as ss

matplotlib.use("Agg")
import matplotlib.pyplot as plt

ROOT = Path(__file__).resolve().parents[2]
RATE = 48_000
# Centers of third octaves in Hz.
BANDS = 1000 * 2.0 ** (np.arange(-9, 11) / 3)
RANGES = [(2500, 4300), (4500, 5600), (5600, 7000), (7000, 7900), (8100, 9500)]


def read(path):
    with wave.open(str(path)) as file:
        pcm = np.frombuffer(file.readframes(file.getnframes()), "<i2") / 32_768
        return ss.resample_poly(pcm, RATE // 100, file.getframerate() // 100)


def frames(sound):
    length = RATE // 50
    return sound[: len(sound) // length * length].reshape(-1, length)


def loudness(sound):
    """Root of the mean square in the louder half of the frames of 20 ms."""
    power = np.sort((frames(sound) ** 2).mean(1))[::-1]
    return np.sqrt(power[: -(-len(power) // 2)].mean())


def long_term_spectrum(sound):
    """Power of each third octave in dB, of a sound of equal loudness."""
    f, power = ss.welch(sound / loudness(sound), RATE, nperseg=RATE // 20)
    edge = 2 ** (1 / 6)
    bands = [power[(f >= c / edge) & (f < c * edge)].sum() * f[1] for c in BANDS]
    return 10 * np.log10(np.array(bands) + 1e-12)


def band_power(sound):
    """Power of each range in dB, in fricatives, vowels and silence, told from the spectrum."""
    sound = sound / loudness(sound)

    def power(low, high):
        sos = ss.butter(4, [low, high], "band", fs=RATE, output="sos")
        return (frames(ss.sosfilt(sos, sound)) ** 2).mean(1)

    high, low, total = power(2500, 4300), power(60, 1000), (frames(sound) ** 2).mean(1)
    kinds = {
        "fricatives": (high > low) & (total > 1e-4 * total.max()),
        "vowels": (high < 0.1 * low) & (total > 1e-2 * total.max()),
        "silence": total < 1e-5 * total.max(),
    }
    powers = [power(*limits) for limits in RANGES]
    return {
        kind: [10 * np.log10(p[mask].mean() + 1e-12) for p in powers]
        for kind, mask in kinds.items()
        if mask.any()
    }


def load(after, folder):
    text = (ROOT / "models/tests/common/replies.rs").read_text()
    replies = re.findall(r'^    "(.+)",$', text, re.MULTILINE)
    sounds = {}
    for voice in ("rms", "awb"):
        sounds[f"{voice} before"] = []
        for n, reply in enumerate(replies):
            path = folder / f"{voice}-{n}.wav"
            subprocess.run(["flite", "-voice", voice, "-t", reply, "-o", path], check=True)
            sounds[f"{voice} before"].append(read(path))
        sounds[f"{voice} after"] = [read(p) for p in sorted(after.glob(f"{voice}-*.wav"))]
    sounds["joe"] = []
    for source in sorted((ROOT / "models/tests/wer/audio").glob("piper-joe-*.opus")):
        path = folder / f"{source.stem}.wav"
        subprocess.run(["opusdec", "--quiet", "--rate", str(RATE), source, path], check=True)
        sounds["joe"].append(read(path))
    sounds["Hibari"] = [read(p) for p in sorted(after.glob("hibari-*.wav"))]
    return sounds


def draw(sounds, path):
    """Spectrograms of one sentence about the weather."""
    figure, axes = plt.subplots(len(sounds), 1, figsize=(11, 2.2 * len(sounds)))
    for axis, (name, parts) in zip(axes, sounds.items(), strict=True):
        sound = parts[1 if name == "joe" else 4]
        f, t, power = ss.spectrogram(
            sound / loudness(sound), RATE, nperseg=960, noverlap=720, nfft=2048
        )
        decibels = 10 * np.log10(power + 1e-12)
        axis.pcolormesh(t, f / 1000, decibels, vmin=-85, vmax=-25, cmap="magma")
        axis.set(ylim=(0, 12), title=name, ylabel="kHz")
    figure.tight_layout()
    figure.savefig(path, dpi=80)


def main():
    after, pictures = Path(sys.argv[1]), Path(sys.argv[2])
    pictures.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        sounds = load(after, Path(folder))
    joined = {name: np.concatenate(parts) for name, parts in sounds.items()}
    spectra = {name: long_term_spectrum(sound) for name, sound in joined.items()}
    names = list(spectra)
    print("Hz".rjust(7), *(name.rjust(11) for name in names))
    for n, center in enumerate(BANDS):
        print(f"{center:7.0f}", *(f"{spectra[name][n]:11.1f}" for name in names))
    bands = {
        "joe, 125 Hz to 6.3 kHz": ("joe", 120, 6500),
        "Hibari, 5 to 10 kHz": ("Hibari", 4900, 11_000),
    }
    for title, (reference, low, high) in bands.items():
        chosen = (low < BANDS) & (high > BANDS)
        for name in names:
            # The level above 5 kHz matters, too; below, the spectra are of equal loudness.
            error = (spectra[name] - spectra[reference])[chosen]
            value = error.std() if reference == "joe" else np.sqrt((error**2).mean())
            print(f"distance to {title}: {name} {value:.1f} dB")
    for name in names:
        level = 20 * np.log10(loudness(joined[name]))
        print(f"{name}: loudness {level:.1f} dBFS, peak {np.abs(joined[name]).max():.2f}")
        for kind, powers in band_power(joined[name]).items():
            print(f"    {kind}:", " ".join(f"{p:.1f}" for p in powers), "dB")
    for voice in ("rms", "awb"):
        shown = {n: parts for n, parts in sounds.items() if voice in n or n in ("joe", "Hibari")}
        draw(shown, pictures / f"{voice}.png")


main()
