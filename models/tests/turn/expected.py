#!/usr/bin/env python3
"""Writes expected.json: what the reference code makes of sounds that models/tests/turn.rs makes too.

    python3 models/tests/turn/expected.py > models/tests/turn/expected.json

The reference is the feature extraction and the network (smart-turn v3.2) that the pipecat-ai Python package brings, and its own way from
sound to probability. The script makes itself a virtual environment in a temporary folder, with numpy and onnxruntime from PyPI, and unpacks
the package there without its dependencies.

Of the 80 x 800 features of each sound it writes nine whole frames, the mean of each band and the mean of each frame: 70 KB say as much
as 3 MB would. Of the probability it writes the least and the most that the network says when its features move by a hundred-thousandth:
it counts in 8 bits, and what is rounded the other way at its entrance may be .2 more or less at its end.
"""
import json
import os
import subprocess
import sys
import tempfile
import venv
import zipfile
from pathlib import Path

REFERENCE = "pipecat-ai==1.14.0"
NEEDS = ["numpy==2.4.6", "onnxruntime==1.31.1"]
FOLDER = "pipecat/audio/turn/smart_turn"
FRAMES = [*range(0, 800, 100), 799]
TRIES = 60
sys.path.insert(0, str(Path(__file__).parent.parent / "common"))
from sound import samples  # noqa: E402


def sounds():
    """Name and 16-bit samples of each sound; see sounds() in turn.rs."""
    whole = samples()
    return {
        "one sentence": whole[12_800:33_600],
        "eight seconds": whole[:128_000],
        "more than eight seconds": whole,
        "hardly audible": [x >> 7 for x in whole[12_800:60_000]],
        "a click": [0] * 8_000 + [32_767, -32_768] + [0] * 8_000,
        "silence": [0] * 16_000,
    }


def main():
    with tempfile.TemporaryDirectory() as folder:
        venv.create(folder, with_pip=True)
        python = f"{folder}/bin/python"
        pip = [python, "-m", "pip", "--disable-pip-version-check", "--quiet"]
        subprocess.run([*pip, "install", *NEEDS], check=True, stdout=sys.stderr)
        subprocess.run([*pip, "download", "--no-deps", "--dest", folder, REFERENCE], check=True, stdout=sys.stderr)
        with zipfile.ZipFile(next(Path(folder).glob("pipecat_ai-*.whl"))) as wheel:
            for name in ("_whisper_features.py", "data/smart-turn-v3.2-cpu.onnx"):
                wheel.extract(f"{FOLDER}/{name}", folder)
        subprocess.run([python, __file__, f"{folder}/{FOLDER}"], check=True)


def write(reference):
    sys.path.insert(0, reference)
    import numpy as np
    import onnxruntime
    from _whisper_features import compute_whisper_log_mel_features

    session = onnxruntime.InferenceSession(f"{reference}/data/smart-turn-v3.2-cpu.onnx")
    noise = np.random.default_rng(1)
    rounded = lambda values: [round(float(x), 5) for x in values]
    told = []
    for name, sound in sounds().items():
        # As LocalSmartTurnAnalyzerV3 does it: the last eight seconds, silence before what is shorter.
        audio = (np.array(sound, dtype=np.int16).astype(np.float32) / 32768.0)[-128_000:]
        audio = np.pad(audio, (128_000 - len(audio), 0))
        features = compute_whisper_log_mel_features(audio)
        moved = [features, *(features + noise.uniform(-1e-5, 1e-5, features.shape).astype(np.float32) for _ in range(TRIES))]
        p = [session.run(None, {"input_features": each[None]})[0][0].item() for each in moved]
        told.append({
            "sound": name,
            "p": [round(min(p), 3), round(max(p), 3)],
            "frames": {str(n): rounded(features[:, n]) for n in FRAMES},
            "bands": rounded(features.mean(axis=1, dtype=np.float64)),
            "means": rounded(features.mean(axis=0, dtype=np.float64)),
        })
    print("[\n" + ",\n".join(json.dumps(each, separators=(",", ":")) for each in told) + "\n]")


if __name__ == "__main__":
    main() if len(sys.argv) == 1 else write(sys.argv[1])
