#!/usr/bin/env python3
"""Makes the network that reads lips from sound: assets/lips/network.bin, and its scores in docs/lips.md.

  scripts/lips/train.py           trains, writes the network, then measures it
  scripts/lips/train.py score     only measures the network that is there
  scripts/lips/train.py numbers   only writes models/tests/lips/expected.json, the numbers that the Rust code is held against

Needs Debian's libflite1 and libespeak-ng1, and numpy from PyPI (scripts/lips/requirements.txt). It speaks some hours of text with dozens of
synthetic voices, takes a few minutes, and gives the same file each time on one machine. What it scores are voices that it never heard in
training, through the product's own code (engine/examples/lips.rs).
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

# One thread: the sums come in one order on any machine, and a small network is no faster with more.
os.environ["OPENBLAS_NUM_THREADS"] = "1"
import numpy as np  # noqa: E402

sys.path.insert(0, str(Path(__file__).parent))
import decode  # noqa: E402
import network as net  # noqa: E402
import sound  # noqa: E402
from sentences import sentence  # noqa: E402
from voices import Espeak, Flite  # noqa: E402

ROOT = Path(__file__).resolve().parents[2]
WEIGHTS, SCORES = ROOT / "assets/lips/network.bin", ROOT / "docs/lips.md"
NUMBERS = ROOT / "models/tests/lips/expected.json"
SEED, STEPS = 7, 2_600

# What is told apart: the mouths of engine/src/show/visemes.rs, each by the phone that stands for it.
CLASSES = "pau p f th t k hh ch s n r aa ah ax eh ih ao uw".split()
OF_PHONE = {
    "p": "p b m em", "f": "f v", "th": "th dh", "t": "t d dx", "n": "n l en el nx", "k": "k g ng", "hh": "hh hv", "ch": "ch jh sh zh",
    "s": "s z", "r": "r er axr", "aa": "aa ae", "ah": "ah", "ax": "ax ix", "eh": "eh", "ih": "ih iy y", "ao": "ao", "uw": "uh uw w", "pau": "pau",
}
OF_PHONE = {phone: CLASSES.index(name) for name, phones in OF_PHONE.items() for phone in phones.split()}
DIPHTHONGS = {"ay": ("aa", "ih"), "aw": ("aa", "uw"), "ey": ("eh", "ih"), "ow": ("ao", "uw"), "oy": ("ao", "ih")}
FIRST_HALF = 0.55
CLOSURES = [CLASSES.index("p"), CLASSES.index("f")]
# Frames that each lasts at least.
LEAST = np.array([3 if name in ("pau", "s", "ch", "aa", "ao") else 2 for name in CLASSES])

# Whole voices: those scored are never heard in training, those for tuning decide about the decoder only.
ACCENTS = ["gmw/en-US", "gmw/en", "gmw/en-GB-x-rp", "gmw/en-GB-x-gbclan", "gmw/en-GB-x-gbcwmd", "gmw/en-GB-scotland", "gmw/en-029", "gmw/en-US-nyc"]
VARIANTS = """f1 f2 f4 m1 m2 m3 m5 m6 m8 klatt klatt2 klatt4 klatt5 Andrea Andy Annie Alex Alicia Denis Diogo Gene Jacky Lee Marco Mario Mike
Nguyen adam anika antonio belinda boris caleb david ed edward grandma gustave iven iven2 john linda marcelo max miguel norbert paul pedro
quincy rob sandro steph steph2 travis victor zac""".split()
TRAINED = [("flite", voice, 110) for voice in ("slt", "awb", "kal16")] + [
    ("espeak", f"{ACCENTS[n % len(ACCENTS)]}+{variant}", 6) for n, variant in enumerate(VARIANTS)
]
TUNED = [("flite", "kal", 20), ("espeak", "gmw/en+f5", 10), ("espeak", "gmw/en-US+Michael", 10), ("espeak", "gmw/en-GB-x-rp+klatt3", 10)]
SCORED = [("flite", "rms", 60)] + [
    ("espeak", voice, 30)
    for voice in ("gmw/en-US+f3", "gmw/en+m7", "gmw/en-GB-scotland+shelby", "gmw/en-US+robert", "gmw/en-GB-x-rp+aunty", "gmw/en-029+benjamin")
]


def say(report):
    print(f"lips: {report}", flush=True)


def voice(engine, name):
    return Flite(name) if engine == "flite" else Espeak(name)


def spoken(voices, seed):
    """(engine, voice, samples, rate, phones) of each sentence."""
    draw = random.Random(seed)
    for engine, name, count in voices:
        speaker = voice(engine, name)
        for _ in range(count):
            # Vendors speak at about one pace; some agents are asked to be slow.
            stretch = draw.choice([0.85, 1.0, 1.0, 1.0, 1.15, 1.3])
            yield engine, name, *speaker.say(sentence(draw), stretch, draw.choice([0.6, 0.8, 1.0, 1.2, 1.5]))


def labels(phones, longer, frames):
    """The class of each frame, by what sounds in its middle."""
    out, start = np.zeros(frames, np.int64), 0.0
    for name, end in phones:
        halves = DIPHTHONGS.get(name)
        middle = start + FIRST_HALF * (end - start)
        parts = [(start, middle, halves[0]), (middle, end, halves[1])] if halves else [(start, end, name)]
        for a, b, part in parts:
            first, last = (max(0, int(np.ceil(t * longer * 100 - 0.5))) for t in (a, b))
            out[first:last] = OF_PHONE[part]
        start = end
    return out


def examples(voices, seed, copies, plain):
    """Features with silence around them, and labels; of each sentence so many variations."""
    draw = np.random.default_rng(seed)
    heard, wanted = [], []
    for _, _, pcm, rate, phones in spoken(voices, seed):
        for _ in range(copies):
            made, longer = sound.varied(pcm, rate, draw, plain)
            x = sound.features(made, 16_000)
            heard.append(np.pad(x, ((-net.PAST, net.FUTURE), (0, 0)), constant_values=np.log(sound.FLOOR)))
            wanted.append(labels(phones, longer, len(x)))
    return heard, wanted


def transitions(wanted):
    """Logarithms of how often a class follows another from frame to frame, and of how often there is one at all."""
    count = len(CLASSES)
    pairs, single = np.full((count, count), 0.5), np.zeros(count)
    for y in wanted:
        np.add.at(pairs, (y[:-1], y[1:]), 1)
        single += np.bincount(y, minlength=count)
    return np.log(pairs / pairs.sum(1, keepdims=True)), np.log(single / single.sum())


def closures(found, wanted):
    """Of the closures wanted, those found within 40 ms; and how many were found where none is."""
    def runs(y):
        closed = np.isin(y, CLOSURES)
        edges = np.flatnonzero(np.diff(np.concatenate([[0], closed, [0]])))
        return edges.reshape(-1, 2), closed

    (there, closed), (given, given_closed) = runs(wanted), runs(found)
    hits = sum(given_closed[max(0, a - 4) : b + 4].any() for a, b in there)
    false = sum(not closed[max(0, a - 4) : b + 4].any() for a, b in given)
    return hits, len(there), false


def judge(model, heard, wanted, offsets, moves):
    """Accuracy of frames, share of closures found, false closures a second."""
    right = total = hits = there = false = 0
    for x, y in zip(heard, wanted):
        logits, _ = model.forward(x[None])
        found = decode.path(logits[0] + offsets, moves, LEAST)
        right, total = right + int((found == y).sum()), total + len(y)
        h, t, f = closures(found, y)
        hits, there, false = hits + h, there + t, false + f
    return right / total, hits / there, false / total * 100


def train():
    start = time.monotonic()
    heard, wanted = examples(TRAINED, SEED, 2, plain=False)
    frames = sum(map(len, wanted))
    say(f"{len(TRAINED)} voices, {len(heard)} sentences, {frames / 6000:.0f} minutes of sound after {time.monotonic() - start:.0f} s")
    moves, prior = transitions(wanted)
    model = net.Network(sound.BANDS, len(CLASSES), np.random.default_rng(SEED))
    all_frames = np.concatenate(heard)
    model.mean, model.scale = all_frames.mean(0), 1 / all_frames.std(0)
    # What is rare counts more, and lips that must shut most.
    weights = np.exp(-0.4 * prior).astype(np.float32)
    weights[CLOSURES] *= 1.5
    weights /= (weights * np.exp(prior)).sum()
    net.train(model, heard, wanted, weights, np.random.default_rng(SEED + 1), STEPS, say)
    packed = model.quantise()
    say(f"trained after {time.monotonic() - start:.0f} s")

    # The decoder: how much the network's own preference for what is frequent (and weighted) is taken back, and how dear a change is.
    heard, wanted = examples(TUNED, SEED + 2, 1, plain=True)
    bias = prior + np.log(weights)
    best = None
    for share in (0.3, 0.7):
        for cost in (0.4, 0.8):
            for bonus in (0.0, 0.7, 1.4):
                offsets = -share * bias
                offsets[CLOSURES] += bonus
                accuracy, found, false = judge(model, heard, wanted, offsets, cost * moves)
                # A closure missed is worse than one too many, until these make the mouth flutter: one more in each second counts as
                # much as 15 of a hundred missed.
                value = accuracy + found - 0.15 * false
                say(f"share {share} cost {cost} bonus {bonus}: accuracy {accuracy:.3f}, closures {found:.3f}, false {false:.2f}/s: {value:.3f}")
                if best is None or value > best[0]:
                    best = (value, offsets, cost * moves)
    write(model, packed, best[1], best[2])
    say(f"{WEIGHTS.relative_to(ROOT)} written after {time.monotonic() - start:.0f} s")


def write(model, packed, offsets, moves):
    """Little-endian, as models/src/lips/network.rs reads it."""
    names = " ".join(CLASSES).encode()
    head = [sound.BANDS, *net.HIDDEN, len(net.NEAR), len(net.FAR), decode.LAG, len(names)]
    out = b"VLIPS" + struct.pack(f"<H{len(head)}H", 1, *head) + names
    out += struct.pack(f"<{len(net.NEAR + net.FAR)}h", *net.NEAR, *net.FAR)
    floats = lambda values: np.asarray(values, "<f4").tobytes()
    out += floats(model.mean) + floats(model.scale)
    for (q, scale), b in zip(packed, model.biases):
        out += floats(scale) + floats(b) + np.ascontiguousarray(q.T).tobytes()
    out += floats(offsets) + floats(moves) + LEAST.astype("u1").tobytes()
    WEIGHTS.parent.mkdir(parents=True, exist_ok=True)
    WEIGHTS.write_bytes(out)


def read():
    """The network of the file, and its decoder's offsets and transitions."""
    data = WEIGHTS.read_bytes()
    names = " ".join(CLASSES).encode()
    at = 5 + 2 + 2 * 7 + len(names) + 2 * len(net.NEAR + net.FAR)

    def floats(*shape):
        nonlocal at
        values = np.frombuffer(data, "<f4", int(np.prod(shape)), at).reshape(shape)
        at += values.nbytes
        return values

    model = net.Network(sound.BANDS, len(CLASSES), np.random.default_rng(0))
    model.mean, model.scale = floats(sound.BANDS), floats(sound.BANDS)
    for i, w in enumerate(model.weights):
        inputs, outputs = w.shape
        scale, model.biases[i] = floats(outputs), floats(outputs)
        q = np.frombuffer(data, np.int8, w.size, at).reshape(outputs, inputs)
        at += q.nbytes
        model.weights[i] = q.T * scale
    return model, floats(len(CLASSES)), floats(len(CLASSES), len(CLASSES))


def numbers():
    """What models/tests/lips.rs holds the Rust code against: the sound of models/tests/common/sound.py, taken as samples at 48 kHz."""
    spec = importlib.util.spec_from_file_location("formula", ROOT / "models/tests/common/sound.py")
    formula = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(formula)

    x = sound.features(np.array(formula.samples()) / 32_768.0, 48_000)
    model, offsets, moves = read()
    padded = np.pad(x, ((-net.PAST, net.FUTURE), (0, 0)), constant_values=np.log(sound.FLOOR))
    logits, _ = model.forward(padded[None])
    found = decode.path(logits[0] + offsets, moves, LEAST)
    chosen = [*range(0, len(x), 30), len(x) - 1]
    told = {
        "features": [(n, [round(float(v), 5) for v in x[n]]) for n in chosen],
        "phones": " ".join(CLASSES[c] for c in found),
    }
    NUMBERS.parent.mkdir(parents=True, exist_ok=True)
    lines = json.dumps(told).replace("], [", "],\n[").replace('"phones"', '\n"phones"')
    NUMBERS.write_text(lines + "\n")
    say(f"{NUMBERS.relative_to(ROOT)} written")


# Groups of visemes as the table has them.
GROUPS = {
    "silence": ["Sil"], "p b m": ["Pp"], "f v": ["Ff"], "th dh": ["Th"], "t d n l": ["Dd", "Nn"], "k g ng hh": ["Kk"], "ch jh sh zh": ["Ch"],
    "s z": ["Ss"], "r er": ["Rr"], "aa ae ah": ["Aa"], "eh ax": ["E"], "ih iy y": ["Ih"], "ao": ["Oh"], "uw uh w": ["Ou"],
}


def score():
    """Measures by the product's own code, and writes the tables into docs/lips.md."""
    with tempfile.TemporaryDirectory() as folder:
        counts = {}
        for engine, name, pcm, rate, phones in spoken(SCORED, SEED + 3):
            key = f"{engine} {name.removeprefix('gmw/')}"
            counts[key] = counts.get(key, 0) + 1
            at = Path(folder) / key / f"{counts[key]:03}"
            at.parent.mkdir(exist_ok=True)
            at.with_suffix(".pcm").write_bytes(pcm.astype("<i2").tobytes())
            at.with_suffix(".json").write_text(json.dumps({"rate": rate, "phones": phones}))
        command = ["cargo", "run", "--quiet", "--release", "--locked", "--package", "visavis-engine", "--example", "lips", "--", folder]
        measured = json.loads(subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE).stdout)
    names = sorted(measured, key=lambda name: (not name.startswith("flite"), name))
    lines = [
        "| voice | minutes | jaw, r | lag | closures shut | shut where none is, a minute | frames of the right viseme |",
        "|---|---|---|---|---|---|---|",
    ]
    for name in names:
        m = measured[name]
        total, right = (sum(counts[i] for counts in m["visemes"].values()) for i in (0, 1))
        shut, minutes = m["closed"] / m["closures"], m["seconds"] / 60
        lines.append(
            f"| {name} | {minutes:.1f} | {m['jaw']:.2f} | {m['lag'] * 1e3:+.0f} ms | {shut:.1%} of {m['closures']} | {m['invented'] / minutes:.0f} | {right / total:.1%} |"
        )
    lines += ["", "| sound | " + " | ".join(GROUPS) + " |", "|---|" + "---|" * len(GROUPS)]
    for name in names:
        cells = []
        for group in GROUPS.values():
            total, right = (sum(measured[name]["visemes"][v][i] for v in group) for i in (0, 1))
            cells.append(f"{right / total:.0%}" if total else "")
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    text = SCORES.read_text()
    begin, end = "<!-- scores: written by scripts/lips/train.py -->", "<!-- end of scores -->"
    head, rest = text.split(begin)
    SCORES.write_text(head + begin + "\n\n" + "\n".join(lines) + "\n\n" + end + rest.split(end)[1])
    say(f"{SCORES.relative_to(ROOT)} written")


if __name__ == "__main__":
    tasks = {"train": [train, numbers, score], "score": [score], "numbers": [numbers]}
    for task in tasks[sys.argv[1] if len(sys.argv) > 1 else "train"]:
        task()
