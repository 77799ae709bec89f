#!/usr/bin/env python3
"""Writes expected.json: the results of the reference code for the sounds of models/tests/turn.rs.

    python3 models/tests/turn/expected.py > models/tests/turn/expected.json

The reference is the Python package pipecat-ai: its feature extraction, its network (smart-turn
v3.2), and its path from sound to probability. The script creates a virtual environment in a
temporary folder, with numpy and onnxruntime from PyPI, and unpacks the package there without its
dependencies.

The features of each sound are 80 bands x 800 frames. The script writes nine complete frames, the
mean of each band and the mean of each frame: 70 KB instead of 3 MB, which proves as much. It writes
the minimum and the maximum of the probability for features that differ by up to 1e-5. The network
computes in 8 bits, so a different rounding of its input can change its output by .2.
"""

import json
import subprocess
import sys
import tempfile
import venv
import zipfile
from pathlib import Path

REFERENCE = "pipecat-ai==1.14.0"
REQUIREMENTS = ["numpy==2.4.6", "onnxruntime==1.31.1"]
PACKAGE_FOLDER = "pipecat/audio/turn/smart_turn"
# Indices of the frames that are written completely.
FRAMES = [*range(0, 800, 100), 799]
# Number of random variations of the features.
VARIATIONS = 60
sys.path.insert(0, str(Path(__file__).parent.parent / "common"))
from sound import samples  # noqa: E402


def sounds():
    """Name and 16-bit samples of each sound; see sounds() in turn.rs."""
    signal = samples()
    return {
        "one sentence": signal[12_800:33_600],
        "eight seconds": signal[:128_000],
        "more than eight seconds": signal,
        "hardly audible": [x >> 7 for x in signal[12_800:60_000]],
        "a click": [0] * 8_000 + [32_767, -32_768] + [0] * 8_000,
        "silence": [0] * 16_000,
    }


def main():
    """Runs this script again in an environment with the reference."""
    with tempfile.TemporaryDirectory() as folder:
        venv.create(folder, with_pip=True)
        python = f"{folder}/bin/python"
        pip = [python, "-m", "pip", "--disable-pip-version-check", "--quiet"]
        subprocess.run([*pip, "install", *REQUIREMENTS], check=True, stdout=sys.stderr)
        subprocess.run(
            [*pip, "download", "--no-deps", "--dest", folder, REFERENCE],
            check=True,
            stdout=sys.stderr,
        )
        with zipfile.ZipFile(next(Path(folder).glob("pipecat_ai-*.whl"))) as wheel:
            for name in ("_whisper_features.py", "data/smart-turn-v3.2-cpu.onnx"):
                wheel.extract(f"{PACKAGE_FOLDER}/{name}", folder)
        subprocess.run([python, __file__, f"{folder}/{PACKAGE_FOLDER}"], check=True)


def write_expected(reference):
    """Prints the results of the reference in this folder."""
    sys.path.insert(0, reference)
    import numpy as np
    import onnxruntime
    from _whisper_features import compute_whisper_log_mel_features

    session = onnxruntime.InferenceSession(f"{reference}/data/smart-turn-v3.2-cpu.onnx")
    rng = np.random.default_rng(1)

    def rounded(values):
        return [round(float(x), 5) for x in values]

    expected = []
    for name, sound in sounds().items():
        # As in LocalSmartTurnAnalyzerV3: the last eight seconds, padded with silence at the start.
        audio = (np.array(sound, dtype=np.int16).astype(np.float32) / 32768.0)[-128_000:]
        audio = np.pad(audio, (128_000 - len(audio), 0))
        features = compute_whisper_log_mel_features(audio)
        variations = [features]
        for _ in range(VARIATIONS):
            noise = rng.uniform(-1e-5, 1e-5, features.shape).astype(np.float32)
            variations.append(features + noise)
        inputs = [{"input_features": variation[None]} for variation in variations]
        p = [session.run(None, each)[0][0].item() for each in inputs]
        expected.append(
            {
                "sound": name,
                "p": [round(min(p), 3), round(max(p), 3)],
                "frames": {str(n): rounded(features[:, n]) for n in FRAMES},
                "bands": rounded(features.mean(axis=1, dtype=np.float64)),
                "means": rounded(features.mean(axis=0, dtype=np.float64)),
            }
        )
    print("[\n" + ",\n".join(json.dumps(each, separators=(",", ":")) for each in expected) + "\n]")


if __name__ == "__main__":
    main() if len(sys.argv) == 1 else write_expected(sys.argv[1])
