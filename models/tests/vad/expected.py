#!/usr/bin/env python3
"""Writes expected.csv: what ONNX Runtime makes of the speech detector's network, for sound that models/tests/vad.rs makes too.

    pip install onnxruntime numpy
    python3 models/tests/vad/expected.py .cache/models/silero/silero_vad_16k_op15.onnx > models/tests/vad/expected.csv

The sound is that of models/tests/common/sound.py.
"""
import sys
from pathlib import Path

import numpy as np
import onnxruntime

sys.path.insert(0, str(Path(__file__).parent.parent / "common"))
from sound import samples  # noqa: E402

RATE, WINDOW, CONTEXT = 16_000, 512, 64
WINDOWS = 400


def main():
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(sys.argv[1], options, providers=["CPUExecutionProvider"])
    sound = (np.array(samples(), dtype=np.float64) / 32_768.0).astype(np.float32)
    state, context = np.zeros((2, 1, 128), np.float32), np.zeros(CONTEXT, np.float32)
    print("probability")
    for at in range(0, len(sound), WINDOW):
        window = sound[at : at + WINDOW]
        feed = {"input": np.concatenate([context, window])[None], "state": state, "sr": np.array(RATE, np.int64)}
        feed = {i.name: feed[i.name] for i in session.get_inputs()}
        probability, state = session.run(None, feed)
        context = window[-CONTEXT:]
        print(f"{probability.item():.7f}")


main()
