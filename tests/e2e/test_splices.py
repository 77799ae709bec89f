"""The shipped pose sets in two decoders that know nothing of each other, FFmpeg's and libvpx: whatever is
lost and whatever comes next, each frame shows the very picture that it shows right behind the keys, and both
decoders the same one."""

import json
import random
import struct

import av
import numpy as np
import pytest

from kit.server import ROOT

SETS = sorted((ROOT / "assets" / "avatars").glob("*.poses"))
#: A frame's row begins with these: stance, look, mouth, breath; its lengths follow.
STATES = 4
#: The most frames of one sequence.
FRAMES = 16
#: For each person: poses that are drawn from, and sequences of them. `make test` plays a small part.
SAMPLE, WHOLE = (20, 15), (80, 250)
DECODERS = ("vp8", "libvpx")


class Poses:
    """A file as models/src/face/set.rs writes it."""

    def __init__(self, path):
        file = path.read_bytes()
        assert file[:6] == b"VPOSES"
        (length,) = struct.unpack_from("<I", file, 8)
        self.manifest = json.loads(file[12 : 12 + length])
        at = 12 + length

        def take(length):
            nonlocal at
            at += length
            return file[at - length : at]

        self.key, self.anchor = take(self.manifest["key_length"]), take(self.manifest["anchor_length"])
        # Every pose in every rung, and the first frames it needs.
        self.frames = [take(length) for row in self.manifest["frames"] for length in row[STATES:]]
        self.anchored = [row[0] in self.manifest["anchored"] for row in self.manifest["frames"] for _ in row[STATES:]]
        assert len(file) - at == 32, "the checksum is left"


class Decoder:
    def __init__(self, name):
        self.context = av.CodecContext.create(name, "r")
        self.context.thread_count = 1

    def __call__(self, frame):
        (picture,) = self.context.decode(av.Packet(frame))
        return picture.to_ndarray(format="yuv420p")


def alone(name, poses, frame):
    decoder = Decoder(name)
    decoder(poses.key)
    decoder(poses.anchor)
    return decoder(frame)


@pytest.mark.parametrize("path", SETS, ids=lambda path: path.stem)
@pytest.mark.parametrize(
    ("count", "sequences"),
    [pytest.param(*SAMPLE, id="sample"), pytest.param(*WHOLE, id="whole", marks=pytest.mark.long("faces"))],
)
def test_random_splices_with_loss_show_what_was_encoded_in_both_decoders(path, count, sequences):
    poses = Poses(path)
    chance = random.Random(path.stem)
    some = chance.sample(range(len(poses.frames)), count)
    pictures = {n: alone("libvpx", poses, poses.frames[n]) for n in some}
    assert len({picture.tobytes() for picture in pictures.values()}) > 3 * count / 4, (
        "they are different pictures"
    )
    for n in some:
        assert np.array_equal(alone("vp8", poses, poses.frames[n]), pictures[n]), f"frame {n}"
    lost, shown = 0, 0
    for sequence in range(sequences):
        # Somebody joins, or one who is there asks for a key. The anchor follows, now and then a while later: frames that depend on it wait.
        # One frame of twenty is lost.
        if sequence % 10 == 0:
            decoders = [Decoder(name) for name in DECODERS]
        for decoder in decoders:
            decoder(poses.key)
        anchor = False
        for step in range(chance.randint(1, FRAMES)):
            if not anchor and chance.random() < 0.3:
                for decoder in decoders:
                    decoder(poses.anchor)
                anchor = True
            n = chance.choice(some)
            if poses.anchored[n] and not anchor:
                continue
            if chance.random() < 0.05:
                lost += 1
                continue
            shown += 1
            for name, decoder in zip(DECODERS, decoders):
                assert np.array_equal(decoder(poses.frames[n]), pictures[n]), f"{name}, sequence {sequence}, step {step}, frame {n}"
    assert lost > sequences / 10 and shown > 4 * sequences, (lost, shown)


def test_a_frame_without_what_it_depends_on_is_another_picture():
    """That the test above can fail: an anchored pose after a key alone."""
    poses = Poses(SETS[0])
    rungs = len(poses.frames) // len(poses.manifest["frames"])
    anchored = [i for i, row in enumerate(poses.manifest["frames"]) if row[0] in poses.manifest["anchored"]]
    frame = poses.frames[anchored[-1] * rungs]
    decoder = Decoder("vp8")
    decoder(poses.key)
    assert not np.array_equal(decoder(frame), alone("vp8", poses, frame))
