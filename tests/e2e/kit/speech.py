"""Spoken test sentences (flite), and recognition of received audio (PocketSphinx)."""

import base64
import functools
import io
import re
import subprocess
import wave

import numpy as np
import pocketsphinx

SAMPLE_RATE = 48_000
#: Options with which the command speaks as fast and with the same pitch as the server
#: (`models/src/tts/flite/prosody.rs`).
SERVER_PROSODY = {
    "rms": ["--setf", "duration_stretch=0.92"],
    "awb": ["--setf", "int_f0_target_stddev=28"],
}


@functools.cache
def speak_wav(text: str, voice: str = "slt") -> tuple[str, float]:
    """`text` as a WAV without silence at its ends, base64; and its length in seconds."""
    samples, rate = flite(text, voice)
    samples = trim_silence(samples)
    return wav_base64(samples, rate), len(samples) / rate


def flite(text: str, voice: str) -> tuple[np.ndarray, int]:
    """16-bit samples and their rate."""
    options = SERVER_PROSODY.get(voice, [])
    done = subprocess.run(
        ["flite", "-voice", voice, *options, "-t", text, "-o", "/dev/stdout"],
        capture_output=True,
        check=True,
    )
    return read_wav(done.stdout)


def read_wav(data: bytes) -> tuple[np.ndarray, int]:
    """16-bit samples of a WAV and their rate. flite writes to a pipe without knowing the length, so
    the length in the header is not used."""
    start = data.index(b"data") + 8
    rate = int.from_bytes(data[24:28], "little")
    body = data[start : start + (len(data) - start) // 2 * 2]
    return np.frombuffer(body, np.int16), rate


def speech_positions(samples: np.ndarray) -> np.ndarray:
    """The positions of the samples that count as speech: 3 % of the loudest."""
    level = np.abs(samples.astype(int))
    return np.flatnonzero(level > 0.03 * level.max())


def trim_silence(samples: np.ndarray) -> np.ndarray:
    """The samples from the first to the last one that counts as speech."""
    loud = speech_positions(samples)
    return samples[loud[0] : loud[-1] + 1]


def wav_base64(samples: np.ndarray, rate: int) -> str:
    return base64.b64encode(wav_bytes(samples, rate)).decode()


def wav_bytes(samples: np.ndarray, rate: int) -> bytes:
    out = io.BytesIO()
    with wave.open(out, "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(rate)
        file.writeframes(samples.astype(np.int16).tobytes())
    return out.getvalue()


def concatenate(parts: list[tuple[str, str] | float], rate: int = SAMPLE_RATE) -> np.ndarray:
    """Sentences `(text, voice)` and pauses in seconds, one after the other, at `rate`."""
    sound = []
    for part in parts:
        if isinstance(part, float):
            sound.append(np.zeros(int(part * rate), np.int16))
        else:
            samples, own = flite(*part)
            samples = trim_silence(samples)
            count = int(len(samples) * rate / own)
            sound.append(
                np.interp(np.arange(count) * own / rate, np.arange(len(samples)), samples).astype(
                    np.int16
                )
            )
    return np.concatenate(sound)


def loudness(samples: np.ndarray, rate: int = SAMPLE_RATE, step: float = 0.01) -> np.ndarray:
    """RMS (0..1) of every `step` seconds."""
    block = int(rate * step)
    whole = samples[: len(samples) // block * block].reshape(-1, block).astype(np.float64) / 32768
    return np.sqrt((whole**2).mean(axis=1))


def recognize(samples: np.ndarray, rate: int = SAMPLE_RATE) -> str:
    """What PocketSphinx recognizes in 16-bit samples."""
    if rate == 48_000:
        samples = samples[: len(samples) // 3 * 3].reshape(-1, 3).mean(axis=1)
    elif rate != 16_000:
        raise ValueError(f"cannot take {rate} Hz")
    decoder = pocketsphinx.Decoder(samprate=16_000, loglevel="FATAL")
    decoder.start_utt()
    decoder.process_raw(samples.astype(np.int16).tobytes(), no_search=False, full_utt=True)
    decoder.end_utt()
    best = decoder.hyp()
    return best.hypstr if best else ""


def split_words(text: str) -> list[str]:
    return re.findall(r"[a-z0-9']+", text.lower().replace("’", "'"))


def word_errors(reference: str, hypothesis: str) -> tuple[int, int]:
    """Word errors (substitutions, deletions, insertions), and the number of reference words."""
    a, b = split_words(reference), split_words(hypothesis)
    row = list(range(len(b) + 1))
    for i, x in enumerate(a, 1):
        last, row[0] = row[0], i
        for j, y in enumerate(b, 1):
            last, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, last + (x != y))
    return row[-1], len(a)
