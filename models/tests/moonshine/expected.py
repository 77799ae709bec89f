#!/usr/bin/env python3
"""Writes expected.json: what the reference code transcribes for some files of the word error rate
set (models/tests/wer).

    python3 models/tests/moonshine/expected.py > models/tests/moonshine/expected.json

The reference is the greedy search of moonshine-onnx in github.com/usefulsensors/moonshine (MIT),
written anew for the files of moonshine-voice, whose inputs have two masks besides. It needs the
models of `make setup` and libopus (Debian: libopus0). The script creates a virtual environment in a
temporary folder, with numpy and onnxruntime from PyPI.
"""

import ctypes
import ctypes.util
import json
import os
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

REQUIREMENTS = ["numpy==2.4.6", "onnxruntime==1.31.1"]
ROOT = Path(__file__).resolve().parents[3]
MODELS = Path(os.environ.get("VISAVIS_MODELS_DIR", ROOT / ".cache/models"))
AUDIO = ROOT / "models/tests/wer/audio"
RATE = 16_000
START, END = 1, 2
FIRST_TEXT, FIRST_SPECIAL = 3, 32_000
TOKENS_PER_SECOND, MIN_TOKENS = 6.5, 4
# An uncertain transcript is decoded again with some silence before it, as in the module; the more
# probable one counts.
UNCERTAIN, SHIFT = -0.3, 200
CACHE = (1, 8, 1, 36)


def names():
    """The files: one of each speaker, and every fourth one with noise."""
    speakers = sorted({path.stem[:-3] for path in AUDIO.glob("*.opus")})
    clean = [name for name in speakers if not name.startswith("noise-")]
    yield from (f"{name}-{at * 3 % 14:02}" for at, name in enumerate(clean))
    yield from [path.stem for path in sorted(AUDIO.glob("noise-*.opus"))][::4]


def packets(data):
    """Packets of an Ogg stream."""
    at, packet = 0, b""
    while at < len(data):
        table = data[at + 27 : at + 27 + data[at + 26]]
        at += 27 + len(table)
        for size in table:
            packet += data[at : at + size]
            at += size
            if size < 255:
                yield packet
                packet = b""


def decode_opus(path):
    """Samples at 16 kHz, 16 bits, without the decoder's delay."""
    import numpy as np

    opus = ctypes.CDLL(ctypes.util.find_library("opus"))
    opus.opus_decoder_create.restype = ctypes.c_void_p
    decoder = ctypes.c_void_p(opus.opus_decoder_create(RATE, 1, None))
    head, _, *audio = packets(path.read_bytes())
    out, buffer = [], (ctypes.c_int16 * (RATE // 8))()
    for packet in audio:
        count = opus.opus_decode(decoder, packet, len(packet), buffer, len(buffer), 0)
        out += buffer[:count]
    skipped = int.from_bytes(head[10:12], "little") * RATE // 48_000
    return np.array(out[skipped:], np.int16)


def tokens():
    """Bytes of each token."""
    data, at, found = (MODELS / "moonshine-tiny-en/tokenizer.bin").read_bytes(), 0, []
    while at < len(data):
        length, at = data[at], at + 1
        if length >= 128:
            length, at = length - 128 + 128 * data[at], at + 1
        found.append(data[at : at + length])
        at += length
    return found


class Reference:
    def __init__(self):
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        folder = MODELS / "moonshine-tiny-en"
        self.encoder, self.decoder = (
            onnxruntime.InferenceSession(str(folder / name), options)
            for name in ("encoder_model.ort", "decoder_model_merged.ort")
        )
        self.tokens = tokens()

    def transcribe(self, pcm):
        import numpy as np

        text, log_probability = self.search(pcm, len(pcm))
        if log_probability < UNCERTAIN:
            shifted = np.concatenate([np.zeros(SHIFT, np.int16), pcm])
            second, other = self.search(shifted, len(pcm))
            if other > log_probability:
                return second
        return text

    def search(self, pcm, length):
        """Text and mean log probability of its tokens."""
        import numpy as np

        samples = (pcm.astype(np.float32) / 32768)[np.newaxis]
        inputs = {"input_values": samples, "attention_mask": np.ones(samples.shape, np.int64)}
        states = self.encoder.run(None, inputs)[0]
        past = {
            value.name: np.zeros(CACHE, np.float32)
            for value in self.decoder.get_inputs()
            if value.name.startswith("past_key_values")
        }
        names = [value.name for value in self.decoder.get_outputs()]
        token, written, log_probability = START, [], 0.0
        for step in range(max(MIN_TOKENS, int(length / RATE * TOKENS_PER_SECOND))):
            outputs = self.decoder.run(
                None,
                {
                    "encoder_attention_mask": np.ones((1, 1), np.int64),
                    "input_ids": np.array([[token]], np.int64),
                    "encoder_hidden_states": states,
                    "use_cache_branch": np.array([step > 0]),
                    **past,
                },
            )
            logits = outputs[0][0, -1]
            token = int(logits.argmax())
            log_probability -= float(np.log(np.exp(logits - logits.max()).sum()))
            if token == END:
                break
            written.append(token)
            for name, value in zip(names[1:], outputs[1:], strict=True):
                if step == 0 or ".decoder." in name:
                    past[name.replace("present", "past_key_values")] = value
        text = b"".join(self.tokens[t] for t in written if FIRST_TEXT <= t < FIRST_SPECIAL)
        text = text.decode("utf-8", "replace").replace("\u2581", " ").strip()
        return text, log_probability / (len(written) + 1)


def main():
    if sys.argv[1:] == ["--inside"]:
        reference = Reference()
        found = {
            name: reference.transcribe(decode_opus(AUDIO / f"{name}.opus")) for name in names()
        }
        print(json.dumps(found, indent=1, ensure_ascii=False))
        return
    with tempfile.TemporaryDirectory() as folder:
        venv.create(folder, with_pip=True)
        python = Path(folder) / "bin/python"
        pip = [python, "-m", "pip", "--quiet", "--disable-pip-version-check", "install"]
        subprocess.run([*pip, *REQUIREMENTS], check=True)
        subprocess.run([python, __file__, "--inside"], check=True)


if __name__ == "__main__":
    main()
