#!/usr/bin/env python3
"""Measures which altered photos the checks of models/landmarks accept: rotated, cropped, covered,
with several faces, dark, burnt out, blurred, of animals and objects.

    cargo build --release -p visavis-landmarks --example find
    scripts/photo-checks.py FIND NETWORKS [--set tuning|report] [--save FOLDER] [PHOTO...]

FIND is the built example, NETWORKS the folder `mediapipe` of the models. The faces are the
astronaut of scikit-image (public domain), the characters of assets/avatars, and each PHOTO. The
thresholds were set on the set `tuning`. The set `report` has other characters and other
alterations. Needs numpy, Pillow and scikit-image. Prints one line for each picture that is judged
otherwise than expected, and the rates. The exit code is 1 if a rate is below its bar.
"""

import argparse
import json
import pathlib
import subprocess
import sys
import tempfile
from collections import Counter

import numpy as np
import skimage.data
from PIL import Image, ImageDraw, ImageFilter

ROOT = pathlib.Path(__file__).resolve().parent.parent
TUNING = ("clara", "mei", "raj")
REPORT = ("amina", "ingrid", "leo", "martin", "nia", "theo")
OBJECTS = {
    "tuning": ("cat", "coffee", "rocket", "coins"),
    "report": ("chelsea", "moon", "page", "clock", "horse", "text", "brick", "grass", "gravel"),
}
#: Lowest share of right answers by class; None: the rate is only reported.
BARS = {
    "good": 0.95,
    "levelled": 0.95,
    "no face": 0.95,
    "several": 0.95,
    "small": 0.95,
    "tilted": 0.95,
    "cut off": 0.95,
    "dark": 0.95,
    "burnt out": 0.95,
    "blurred": 0.95,
    "mouth hidden": None,
    "eyes hidden": None,
}


class Face:
    """A picture with one face: its middle, and its height from forehead to chin, in pixels."""

    def __init__(self, name, image, middle, height):
        self.name, self.image, self.middle, self.height = name, image, middle, height

    def crop(self, left, top, right, bottom):
        """A part of the picture, in heights of the face from its middle."""
        (x, y), h = self.middle, self.height
        box = (x - left * h, y - top * h, x + right * h, y + bottom * h)
        return self.image.crop(tuple(round(v) for v in box))

    def at(self, x, y):
        return self.middle[0] + x * self.height, self.middle[1] + y * self.height


def locate(find, networks, name, image, folder):
    """The face of a photo, as the program finds it."""
    file = folder / "face.png"
    image.save(file)
    found = ask(find, networks, [file])[0]
    if "points" not in found:
        sys.exit(f"{name}: {found['error']}")
    points = np.array(found["points"])
    top, chin = points[10], points[152]
    return Face(name, image, (top + chin) / 2, float(np.hypot(*(chin - top))))


def ask(find, networks, files):
    output = subprocess.run(
        [find, networks, *map(str, files)], check=True, capture_output=True, text=True
    ).stdout
    return [json.loads(line) for line in output.splitlines()]


def levels(image, scale, shift=0):
    return Image.fromarray(
        np.clip(np.asarray(image, np.float32) * scale + shift, 0, 255).astype(np.uint8)
    )


def noise(image, sigma):
    random = np.random.default_rng(5)
    values = np.asarray(image, np.float32)
    return Image.fromarray(
        np.clip(values + random.normal(0, sigma, values.shape), 0, 255).astype(np.uint8)
    )


def rotate(image, degrees):
    return image.rotate(degrees, Image.Resampling.BICUBIC, expand=True, fillcolor=(90, 90, 90))


def drawn_over(face, shape, box, colour):
    image = face.image.copy()
    corners = [*face.at(*box[:2]), *face.at(*box[2:])]
    getattr(ImageDraw.Draw(image), shape)(corners, fill=colour)
    return image


def skin(face):
    """The colour of a cheek."""
    x, y = face.at(-0.22, 0.12)
    return face.image.getpixel((round(x), round(y)))


def beside(face, other, share=1.0):
    """Two pictures side by side; the second face has this share of the first one's height."""
    small = resized(other, face.height * share)
    size = small.size
    both = Image.new("RGB", (face.image.width + size[0], max(face.image.height, size[1])))
    both.paste(face.image, (0, 0))
    both.paste(small, (face.image.width, 0))
    return both


def resized(face, height):
    """The picture with a face of this height in pixels."""
    scale = height / face.height
    size = round(face.image.width * scale), round(face.image.height * scale)
    return face.image.resize(size, Image.Resampling.LANCZOS)


def altered_tuning(face, other):
    yield "good", "plain", face.image
    yield "good", "mirrored", face.image.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
    yield "good", "tilt 12", rotate(face.image, 12)
    yield "good", "noise", noise(face.image, 8)
    yield "levelled", "upside down", face.image.transpose(Image.Transpose.ROTATE_180)
    yield "tilted", "tilt 50", rotate(face.image, 50)
    yield "small", "60 pixels", resized(face, 60)
    yield "several", "two", beside(face, other)
    yield "cut off", "chin", face.crop(2, 2, 2, 0.4)
    yield "cut off", "forehead", face.crop(2, 0.35, 2, 2)
    yield "dark", "× 0.15", levels(face.image, 0.15)
    yield "burnt out", "× 2.5", levels(face.image, 2.5)
    yield "blurred", "sigma 5 %", blurred(face, 0.05)
    yield "mouth hidden", "blue", drawn_over(face, "ellipse", (-0.3, 0.1, 0.3, 0.6), (60, 90, 160))
    yield "eyes hidden", "black", drawn_over(face, "rectangle", (-0.4, -0.3, 0.4, -0.08), (8, 8, 8))


def blurred(face, share):
    """Blurred by a share of the face's height."""
    return face.image.filter(ImageFilter.GaussianBlur(face.height * share))


def altered_report(face, other):
    gray = face.image.convert("L").convert("RGB")
    yield "good", "plain", face.image
    yield "good", "gray", gray
    yield "good", "tilt -25", rotate(face.image, -25)
    yield "good", "tilt 35", rotate(face.image, 35)
    yield "good", "darker", levels(face.image, 0.6)
    yield "good", "brighter", levels(face.image, 1.2)
    yield "good", "close", face.crop(0.95, 0.95, 0.95, 0.95)
    yield "good", "far", resized(face, 100)
    yield "good", "noise", noise(face.image, 14)
    yield "levelled", "upside down", face.image.transpose(Image.Transpose.ROTATE_180)
    yield "levelled", "on the side", face.image.transpose(Image.Transpose.ROTATE_90)
    yield "levelled", "on the other side, tilted", rotate(face.image, -100)
    yield "levelled", "upside down, tilted", rotate(face.image, 165)
    yield "tilted", "tilt -50", rotate(face.image, -50)
    yield "tilted", "tilt 132", rotate(face.image, 132)
    yield "small", "70 pixels", resized(face, 70)
    yield "small", "45 pixels", resized(face, 45)
    yield "several", "two", beside(face, other)
    yield "several", "one is smaller", beside(face, other, 0.5)
    yield "cut off", "chin", face.crop(2, 2, 2, 0.5)
    yield "cut off", "forehead", face.crop(2, 0.45, 2, 2)
    yield "cut off", "left", face.crop(0.3, 2, 2, 2)
    yield "cut off", "right half", face.crop(2, 2, 0.05, 2)
    yield "dark", "× 0.12", levels(face.image, 0.12)
    yield "dark", "× 0.2, - 10", levels(face.image, 0.2, -10)
    yield "burnt out", "× 3", levels(face.image, 3)
    yield "burnt out", "× 2, + 100", levels(face.image, 2, 100)
    yield "blurred", "sigma 4 %", blurred(face, 0.04)
    yield "blurred", "sigma 8 %", blurred(face, 0.08)
    mask = (-0.36, 0.02, 0.36, 0.56)
    yield "mouth hidden", "white", drawn_over(face, "ellipse", mask, (235, 235, 240))
    yield "mouth hidden", "green", drawn_over(face, "ellipse", mask, (70, 120, 90))
    yield "mouth hidden", "skin", drawn_over(face, "ellipse", (-0.3, 0.1, 0.3, 0.5), skin(face))
    yield (
        "eyes hidden",
        "black",
        drawn_over(face, "rectangle", (-0.42, -0.28, 0.42, -0.02), (15, 15, 15)),
    )
    yield (
        "eyes hidden",
        "brown",
        drawn_over(face, "rectangle", (-0.4, -0.26, 0.4, -0.05), (60, 42, 30)),
    )


def is_right(expected, answer):
    accepted = "points" in answer
    if expected == "good":
        return accepted
    if expected == "levelled":
        # Also right: refused.
        return not accepted or any("turned by" in warning for warning in answer["warnings"])
    return not accepted


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("find")
    parser.add_argument("networks")
    parser.add_argument("photos", nargs="*", type=pathlib.Path)
    parser.add_argument("--set", choices=OBJECTS, default="report")
    parser.add_argument("--save", type=pathlib.Path, help="a folder for the altered pictures")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = arguments.save or pathlib.Path(scratch)
        folder.mkdir(parents=True, exist_ok=True)
        sys.exit(run(arguments, folder))


def run(arguments, folder):
    names = TUNING if arguments.set == "tuning" else REPORT
    images = {n: Image.open(ROOT / f"assets/avatars/{n}.512.webp").convert("RGB") for n in names}
    # Drawn characters are small: twice the size, with a little noise as of a camera.
    images = {
        n: noise(i.resize((i.width * 2, i.height * 2), Image.Resampling.LANCZOS), 3)
        for n, i in images.items()
    }
    astronaut = Image.fromarray(skimage.data.astronaut())
    if arguments.set == "report":
        astronaut = astronaut.transpose(Image.Transpose.FLIP_LEFT_RIGHT).crop((60, 0, 512, 420))
    images["astronaut"] = astronaut
    images |= {photo.stem: Image.open(photo).convert("RGB") for photo in arguments.photos}
    faces = [
        locate(arguments.find, arguments.networks, name, image, folder)
        for name, image in images.items()
    ]
    altered = altered_tuning if arguments.set == "tuning" else altered_report
    cases = []
    for face, other in zip(faces, faces[1:] + faces[:1], strict=True):
        cases += [(kind, f"{face.name}: {name}", i) for kind, name, i in altered(face, other)]
    for name in OBJECTS[arguments.set]:
        pixels = np.asarray(getattr(skimage.data, name)())
        pixels = pixels.astype(np.uint8) * 255 if pixels.dtype == bool else pixels
        cases.append(("no face", name, Image.fromarray(pixels).convert("RGB")))
    flat = Image.new("RGB", (400, 300), (120, 90, 70))
    cases += [("no face", "flat", flat), ("no face", "only noise", noise(flat, 60))]
    files = []
    for i, (_, _, image) in enumerate(cases):
        files.append(folder / f"{i:03}.png")
        image.save(files[-1])
    answers = ask(arguments.find, arguments.networks, files)
    return report(cases, files, answers)


def report(cases, files, answers):
    counts, reasons = {}, {}
    for (kind, name, _), file, answer in zip(cases, files, answers, strict=True):
        right = is_right(kind, answer)
        found, total = counts.get(kind, (0, 0))
        counts[kind] = found + right, total + 1
        reasons.setdefault(kind, Counter())[answer.get("reason", "accepted")] += 1
        if not right:
            said = answer.get("reason") or answer.get("error") or "accepted"
            print(f"{file.name} {kind}: {name}: {said} {answer.get('angles', '')}")
    failed = False
    for kind, (right, total) in counts.items():
        bar = BARS[kind]
        below = bar is not None and right < bar * total
        failed |= below
        answers = ", ".join(f"{reason} {n}" for reason, n in sorted(reasons[kind].items()))
        print(f"{kind:14} {right:3} of {total:3} ({answers}){' BELOW THE BAR' if below else ''}")
    print(f"{len(cases)} pictures")
    return 1 if failed else 0


if __name__ == "__main__":
    main()
