#!/usr/bin/env python3
"""Writes expected.csv: the output of the VAD network in ONNX Runtime for the sound of
models/tests/vad.rs.

    pip install onnxruntime numpy
    python3 models/tests/vad/expected.py NETWORK > models/tests/vad/expected.csv

NETWORK is .cache/models/silero/silero_vad_16k_op15.onnx. The sound is the test signal of
models/tests/common/sound.py.
"""

import sys
from pathlib import Path

import numpy as np
import onnxruntime

sys.path.insert(0, str(Path(__file__).parent.parent / "common"))
from sound import samples

# Sample rate in Hz; samples of a window, and samples of the previous window before it.
RATE, WINDOW, CONTEXT = 16_000, 512, 64


def main():
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(sys.argv[1], options, providers=["CPUExecutionProvider"])
    sound = (np.array(samples(), dtype=np.float64) / 32_768.0).astype(np.float32)
    state, context = np.zeros((2, 1, 128), np.float32), np.zeros(CONTEXT, np.float32)
    print("probability")
    for position in range(0, len(sound), WINDOW):
        window = sound[position : position + WINDOW]
        inputs = {
            "input": np.concatenate([context, window])[None],
            "state": state,
            "sr": np.array(RATE, np.int64),
        }
        # Only the inputs that the network declares.
        inputs = {i.name: inputs[i.name] for i in session.get_inputs()}
        probability, state = session.run(None, inputs)
        context = window[-CONTEXT:]
        print(f"{probability.item():.7f}")


main()
