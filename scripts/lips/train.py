#!/usr/bin/env python3
"""Trains the phone network for the avatar's lips, assets/lips/network.bin, and writes its scores to
docs/lips.md.

  scripts/lips/train.py           trains and writes the network, then scores it
  scripts/lips/train.py score     only scores the existing network
  scripts/lips/train.py numbers   only writes models/tests/lips/expected.json, with which the Rust
                                  tests compare their results

Needs Debian's libflite1 and libespeak-ng1, and numpy from PyPI (scripts/lips/requirements.txt). The
script synthesizes some hours of speech with dozens of voices and takes a few minutes. On one
machine it always writes the same file. The scores are those of voices that are not in the training
set, and are measured through the production code (engine/examples/lips.rs).
"""

import importlib.util
import json
import os
import random
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path

# One thread: sums then have the same order on any machine, and a small network is not faster with
# more threads.
os.environ["OPENBLAS_NUM_THREADS"] = "1"
import numpy as np

sys.path.insert(0, str(Path(__file__).parent))
import decode
import network as net
import sound
from sentences import random_sentence
from voices import Espeak, Flite

ROOT = Path(__file__).resolve().parents[2]
NETWORK_FILE, SCORES_DOCUMENT = ROOT / "assets/lips/network.bin", ROOT / "docs/lips.md"
EXPECTED_FILE = ROOT / "models/tests/lips/expected.json"
SEED, STEPS = 7, 2_600

# The classes of the network: one for each mouth shape of engine/src/show/visemes.rs, named after a
# phone that represents it.
PHONE_CLASSES = "pau p f th t k hh ch s n r aa ah ax eh ih ao uw".split()
# The phones of each class.
CLASS_PHONES = {
    "p": "p b m em",
    "f": "f v",
    "th": "th dh",
    "t": "t d dx",
    "n": "n l en el nx",
    "k": "k g ng",
    "hh": "hh hv",
    "ch": "ch jh sh zh",
    "s": "s z",
    "r": "r er axr",
    "aa": "aa ae",
    "ah": "ah",
    "ax": "ax ix",
    "eh": "eh",
    "ih": "ih iy y",
    "ao": "ao",
    "uw": "uh uw w",
    "pau": "pau",
}
CLASS_OF_PHONE = {
    phone: PHONE_CLASSES.index(name)
    for name, phones in CLASS_PHONES.items()
    for phone in phones.split()
}
DIPHTHONGS = {
    "ay": ("aa", "ih"),
    "aw": ("aa", "uw"),
    "ey": ("eh", "ih"),
    "ow": ("ao", "uw"),
    "oy": ("ao", "ih"),
}
# The share of a diphthong's duration that belongs to its first phone.
DIPHTHONG_SPLIT = 0.55
# Classes for which the lips close.
CLOSURE_CLASSES = [PHONE_CLASSES.index("p"), PHONE_CLASSES.index("f")]
# Minimum duration of each class, in frames.
MIN_FRAMES = np.array(
    [3 if name in ("pau", "s", "ch", "aa", "ao") else 2 for name in PHONE_CLASSES]
)

# The sets have no voice in common. The tuning voices only determine the parameters of the decoder.
ACCENTS = [
    *("gmw/en-US", "gmw/en", "gmw/en-GB-x-rp", "gmw/en-GB-x-gbclan", "gmw/en-GB-x-gbcwmd"),
    *("gmw/en-GB-scotland", "gmw/en-029", "gmw/en-US-nyc"),
]
VARIANTS = """f1 f2 f4 m1 m2 m3 m5 m6 m8 klatt klatt2 klatt4 klatt5 Andrea Andy Annie Alex Alicia
Denis Diogo Gene Jacky Lee Marco Mario Mike Nguyen adam anika antonio belinda boris caleb david ed
edward grandma gustave iven iven2 john linda marcelo max miguel norbert paul pedro quincy rob sandro
steph steph2 travis victor zac""".split()
# Engine, voice and number of sentences.
TRAINING_VOICES = [("flite", voice, 110) for voice in ("slt", "awb", "kal16")] + [
    ("espeak", f"{ACCENTS[n % len(ACCENTS)]}+{variant}", 6) for n, variant in enumerate(VARIANTS)
]
TUNING_VOICES = [
    ("flite", "kal", 20),
    ("espeak", "gmw/en+f5", 10),
    ("espeak", "gmw/en-US+Michael", 10),
    ("espeak", "gmw/en-GB-x-rp+klatt3", 10),
]
TEST_VOICES = [
    ("flite", "rms", 60),
    ("espeak", "gmw/en-US+f3", 30),
    ("espeak", "gmw/en+m7", 30),
    ("espeak", "gmw/en-GB-scotland+shelby", 30),
    ("espeak", "gmw/en-US+robert", 30),
    ("espeak", "gmw/en-GB-x-rp+aunty", 30),
    ("espeak", "gmw/en-029+benjamin", 30),
]


def log(message):
    print(f"lips: {message}", flush=True)


def open_voice(engine, name):
    return Flite(name) if engine == "flite" else Espeak(name)


def synthesize(voices, seed):
    """Yields (engine, voice, samples, rate, phones) of each sentence."""
    rng = random.Random(seed)
    for engine, name, count in voices:
        voice = open_voice(engine, name)
        for _ in range(count):
            # TTS vendors speak at about the same pace. Some agents are configured to speak slowly.
            duration_factor = rng.choice([0.85, 1.0, 1.0, 1.0, 1.15, 1.3])
            text, pitch = random_sentence(rng), rng.choice([0.6, 0.8, 1.0, 1.2, 1.5])
            yield engine, name, *voice.say(text, duration_factor, pitch)


def frame_labels(phones, duration_factor, frames):
    """The class of each frame: that of the phone at its middle."""
    labels, start = np.zeros(frames, np.int64), 0.0
    for name, end in phones:
        halves = DIPHTHONGS.get(name)
        middle = start + DIPHTHONG_SPLIT * (end - start)
        parts = (
            [(start, middle, halves[0]), (middle, end, halves[1])]
            if halves
            else [(start, end, name)]
        )
        for begin, finish, phone in parts:
            first, last = (
                max(0, int(np.ceil(t * duration_factor * 100 - 0.5))) for t in (begin, finish)
            )
            labels[first:last] = CLASS_OF_PHONE[phone]
        start = end
    return labels


def training_examples(voices, seed, copies, plain):
    """Returns the padded features and the labels of all sentences, with `copies` variations of each
    sentence."""
    rng = np.random.default_rng(seed)
    inputs, targets = [], []
    for _, _, pcm, rate, phones in synthesize(voices, seed):
        for _ in range(copies):
            variation, duration_factor = sound.augment(pcm, rate, rng, plain)
            features = sound.log_mel_features(variation, 16_000)
            inputs.append(pad(features))
            targets.append(frame_labels(phones, duration_factor, len(features)))
    return inputs, targets


def pad(features):
    """Adds the frames of silence that the network needs before and after the features."""
    padding = ((-net.PAST_FRAMES, net.FUTURE_FRAMES), (0, 0))
    return np.pad(features, padding, constant_values=np.log(sound.POWER_FLOOR))


def transition_log_probs(targets):
    """Log probabilities of the transitions between classes from frame to frame, and of the
    classes."""
    count = len(PHONE_CLASSES)
    pairs, single = np.full((count, count), 0.5), np.zeros(count)
    for y in targets:
        np.add.at(pairs, (y[:-1], y[1:]), 1)
        single += np.bincount(y, minlength=count)
    return np.log(pairs / pairs.sum(1, keepdims=True)), np.log(single / single.sum())


def score_closures(found, target):
    """The number of target closures that were found within 40 ms, the number of target closures,
    and the number of closures that were found where the target has none."""

    def closures(y):
        closed = np.isin(y, CLOSURE_CLASSES)
        edges = np.flatnonzero(np.diff(np.concatenate([[0], closed, [0]])))
        return edges.reshape(-1, 2), closed

    (target_closures, target_closed), (found_closures, found_closed) = (
        closures(target),
        closures(found),
    )
    hits = sum(found_closed[max(0, a - 4) : b + 4].any() for a, b in target_closures)
    false = sum(not target_closed[max(0, a - 4) : b + 4].any() for a, b in found_closures)
    return hits, len(target_closures), false


def evaluate(model, inputs, targets, offsets, transition_scores):
    """The accuracy of frames, the share of closures found, and the false closures per second."""
    correct = total = hits = closures = false = 0
    for x, y in zip(inputs, targets, strict=True):
        logits, _ = model.forward(x[None])
        found = decode.viterbi_path(logits[0] + offsets, transition_scores, MIN_FRAMES)
        correct, total = correct + int((found == y).sum()), total + len(y)
        more_hits, more_closures, more_false = score_closures(found, y)
        hits, closures, false = hits + more_hits, closures + more_closures, false + more_false
    return correct / total, hits / closures, false / total * 100


def train():
    """Trains the network, tunes the decoder and writes both."""
    start = time.monotonic()
    inputs, targets = training_examples(TRAINING_VOICES, SEED, 2, plain=False)
    frames = sum(map(len, targets))
    log(
        f"{len(TRAINING_VOICES)} voices, {len(inputs)} sentences, {frames / 6000:.0f} minutes of "
        f"sound after {time.monotonic() - start:.0f} s"
    )
    log_probs, prior = transition_log_probs(targets)
    model = net.Network(sound.BANDS, len(PHONE_CLASSES), np.random.default_rng(SEED))
    all_frames = np.concatenate(inputs)
    model.mean, model.scale = all_frames.mean(0), 1 / all_frames.std(0)
    # Rare classes get a higher weight, and closures the highest.
    weights = np.exp(-0.4 * prior).astype(np.float32)
    weights[CLOSURE_CLASSES] *= 1.5
    weights /= (weights * np.exp(prior)).sum()
    rng = np.random.default_rng(SEED + 1)
    net.train(model, inputs, targets, weights, rng, STEPS, log)
    packed = model.quantize()
    log(f"trained after {time.monotonic() - start:.0f} s")

    # Parameters of the decoder. `share`: how much of the network's bias toward frequent and
    # weighted classes is removed. `cost`: the weight of the transition scores. `bonus`: added to
    # the scores of closures.
    inputs, targets = training_examples(TUNING_VOICES, SEED + 2, 1, plain=True)
    bias = prior + np.log(weights)
    best = None
    for share in (0.3, 0.7):
        for cost in (0.4, 0.8):
            for bonus in (0.0, 0.7, 1.4):
                offsets = -share * bias
                offsets[CLOSURE_CLASSES] += bonus
                accuracy, found, false = evaluate(model, inputs, targets, offsets, cost * log_probs)
                # A missed closure is worse than a false one, until false closures make the mouth
                # flutter: one more per second weighs as much as 15 % more missed closures.
                value = accuracy + found - 0.15 * false
                log(
                    f"share {share} cost {cost} bonus {bonus}: accuracy {accuracy:.3f}, "
                    f"closures {found:.3f}, false {false:.2f}/s: {value:.3f}"
                )
                if best is None or value > best[0]:
                    best = (value, offsets, cost * log_probs)
    write_network(model, packed, best[1], best[2])
    log(f"{NETWORK_FILE.relative_to(ROOT)} written after {time.monotonic() - start:.0f} s")


def write_network(model, packed, offsets, transition_scores):
    """Writes the network and the parameters of the decoder in little-endian order, in the format of
    models/src/lips/network.rs."""
    first_offsets, second_offsets = net.FIRST_LAYER_OFFSETS, net.SECOND_LAYER_OFFSETS
    names = " ".join(PHONE_CLASSES).encode()
    head = [
        sound.BANDS,
        *net.HIDDEN,
        len(first_offsets),
        len(second_offsets),
        decode.LOOKAHEAD_FRAMES,
        len(names),
    ]
    out = b"VLIPS" + struct.pack(f"<H{len(head)}H", 1, *head) + names
    offset_count = len(first_offsets + second_offsets)
    out += struct.pack(f"<{offset_count}h", *first_offsets, *second_offsets)

    def floats(values):
        return np.asarray(values, "<f4").tobytes()

    out += floats(model.mean) + floats(model.scale)
    for (q, scale), b in zip(packed, model.biases, strict=True):
        out += floats(scale) + floats(b) + np.ascontiguousarray(q.T).tobytes()
    out += floats(offsets) + floats(transition_scores) + MIN_FRAMES.astype("u1").tobytes()
    NETWORK_FILE.parent.mkdir(parents=True, exist_ok=True)
    NETWORK_FILE.write_bytes(out)


def read_network():
    """Reads the network, and the offsets and transition scores of the decoder."""
    data = NETWORK_FILE.read_bytes()
    names = " ".join(PHONE_CLASSES).encode()
    offset_count = len(net.FIRST_LAYER_OFFSETS + net.SECOND_LAYER_OFFSETS)
    position = 5 + 2 + 2 * 7 + len(names) + 2 * offset_count

    def floats(*shape):
        nonlocal position
        values = np.frombuffer(data, "<f4", int(np.prod(shape)), position).reshape(shape)
        position += values.nbytes
        return values

    model = net.Network(sound.BANDS, len(PHONE_CLASSES), np.random.default_rng(0))
    model.mean, model.scale = floats(sound.BANDS), floats(sound.BANDS)
    for i, w in enumerate(model.weights):
        inputs, outputs = w.shape
        scale, model.biases[i] = floats(outputs), floats(outputs)
        q = np.frombuffer(data, np.int8, w.size, position).reshape(outputs, inputs)
        position += q.nbytes
        model.weights[i] = q.T * scale
    return model, floats(len(PHONE_CLASSES)), floats(len(PHONE_CLASSES), len(PHONE_CLASSES))


def write_expected():
    """Writes the expected results of models/tests/lips.rs, for the test signal of
    models/tests/common/sound.py, taken as samples at 48 kHz."""
    path = ROOT / "models/tests/common/sound.py"
    spec = importlib.util.spec_from_file_location("test_signal", path)
    test_signal = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(test_signal)

    features = sound.log_mel_features(np.array(test_signal.samples()) / 32_768.0, 48_000)
    model, offsets, transition_scores = read_network()
    logits, _ = model.forward(pad(features)[None])
    found = decode.viterbi_path(logits[0] + offsets, transition_scores, MIN_FRAMES)
    chosen = [*range(0, len(features), 30), len(features) - 1]
    expected = {
        "features": [(n, [round(float(v), 5) for v in features[n]]) for n in chosen],
        "phones": " ".join(PHONE_CLASSES[c] for c in found),
    }
    EXPECTED_FILE.parent.mkdir(parents=True, exist_ok=True)
    lines = json.dumps(expected).replace("], [", "],\n[").replace('"phones"', '\n"phones"')
    EXPECTED_FILE.write_text(lines + "\n")
    log(f"{EXPECTED_FILE.relative_to(ROOT)} written")


# The columns of the viseme table, with the visemes of each.
VISEME_GROUPS = {
    "silence": ["Sil"],
    "p b m": ["Pp"],
    "f v": ["Ff"],
    "th dh": ["Th"],
    "t d n l": ["Dd", "Nn"],
    "k g ng hh": ["Kk"],
    "ch jh sh zh": ["Ch"],
    "s z": ["Ss"],
    "r er": ["Rr"],
    "aa ae ah": ["Aa"],
    "eh ax": ["E"],
    "ih iy y": ["Ih"],
    "ao": ["Oh"],
    "uw uh w": ["Ou"],
}


def measure():
    """Measures the test voices with the production code. Returns the scores by voice."""
    with tempfile.TemporaryDirectory() as folder:
        counts = {}
        for engine, name, pcm, rate, phones in synthesize(TEST_VOICES, SEED + 3):
            voice = f"{engine} {name.removeprefix('gmw/')}"
            counts[voice] = counts.get(voice, 0) + 1
            path = Path(folder) / voice / f"{counts[voice]:03}"
            path.parent.mkdir(exist_ok=True)
            path.with_suffix(".pcm").write_bytes(pcm.astype("<i2").tobytes())
            path.with_suffix(".json").write_text(json.dumps({"rate": rate, "phones": phones}))
        command = [
            *("cargo", "run", "--quiet", "--release", "--locked", "--package", "visavis-engine"),
            *("--example", "lips", "--", folder),
        ]
        process = subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE)
    return json.loads(process.stdout)


def write_scores():
    """Scores the network and writes the tables to docs/lips.md."""
    scores = measure()
    voices = sorted(scores, key=lambda voice: (not voice.startswith("flite"), voice))
    columns = [
        *("voice", "minutes", "jaw, r", "lag", "closures shut"),
        *("shut where none is, a minute", "frames of the right viseme"),
    ]
    lines = ["| " + " | ".join(columns) + " |", "|" + "---|" * len(columns)]
    for voice in voices:
        score = scores[voice]
        total, correct = (sum(counts[i] for counts in score["visemes"].values()) for i in (0, 1))
        found, minutes = score["closed"] / score["closures"], score["seconds"] / 60
        cells = [
            voice,
            f"{minutes:.1f}",
            f"{score['jaw']:.2f}",
            f"{score['lag'] * 1e3:+.0f} ms",
            f"{found:.1%} of {score['closures']}",
            f"{score['invented'] / minutes:.0f}",
            f"{correct / total:.1%}",
        ]
        lines.append("| " + " | ".join(cells) + " |")
    lines += ["", "| sound | " + " | ".join(VISEME_GROUPS) + " |"]
    lines.append("|---|" + "---|" * len(VISEME_GROUPS))
    for voice in voices:
        cells = []
        for group in VISEME_GROUPS.values():
            visemes = scores[voice]["visemes"]
            total, correct = (sum(visemes[viseme][i] for viseme in group) for i in (0, 1))
            cells.append(f"{correct / total:.0%}" if total else "")
        lines.append(f"| {voice} | " + " | ".join(cells) + " |")
    text = SCORES_DOCUMENT.read_text()
    begin, end = "<!-- scores: written by scripts/lips/train.py -->", "<!-- end of scores -->"
    head, rest = text.split(begin)
    section = begin + "\n\n" + "\n".join(lines) + "\n\n" + end
    SCORES_DOCUMENT.write_text(head + section + rest.split(end)[1])
    log(f"{SCORES_DOCUMENT.relative_to(ROOT)} written")


if __name__ == "__main__":
    tasks = {
        "train": [train, write_expected, write_scores],
        "score": [write_scores],
        "numbers": [write_expected],
    }
    for task in tasks[sys.argv[1] if len(sys.argv) > 1 else "train"]:
        task()
