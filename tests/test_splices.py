"""The shipped pose sets in two decoders that know nothing of each other, FFmpeg's and libvpx: whatever is lost and whatever comes next, each frame
shows the very picture that it shows right behind the keys, and both decoders the same one but for some levels beside still eyes."""

import json
import pathlib
import random
import struct

import av
import numpy as np
import pytest

SETS = sorted((pathlib.Path(__file__).parent.parent / "assets" / "avatars").glob("*.poses"))
#: A frame's row begins with these: stance, look, mouth, breath; its lengths follow.
STATES = 4
#: Frames of one sequence.
FRAMES = 600
DECODERS = ("vp8", "libvpx")
#: Levels by which they may differ. Where a segment's filter level is below 0, libvpx makes it 0 before it adds what reference and mode ask for, as
#: RFC 6386 does, and FFmpeg adds first: it smooths the edges of still eyes a little less.
UNCLAMPED = 8


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
def test_random_splices_with_loss_show_what_was_encoded_in_both_decoders(path):
    poses = Poses(path)
    chance = random.Random(path.stem)
    some = chance.sample(range(len(poses.frames)), 80)
    pictures = {name: {n: alone(name, poses, poses.frames[n]) for n in some} for name in DECODERS}
    assert len({picture.tobytes() for picture in pictures["libvpx"].values()}) > 60, "they are different pictures"
    for n in some:
        one, other = (pictures[name][n].astype(int) for name in DECODERS)
        assert np.abs(one - other).max() <= UNCLAMPED, f"frame {n}"
    decoders = [Decoder(name) for name in DECODERS]
    lost = 0
    for step in range(FRAMES):
        # A receiver joins or asks for a key, the anchor follows; then one frame of twenty is lost.
        if step % 200 == 0:
            for decoder in decoders:
                decoder(poses.key)
                decoder(poses.anchor)
        n = chance.choice(some)
        if chance.random() < 0.05:
            lost += 1
            continue
        for name, decoder in zip(DECODERS, decoders):
            assert np.array_equal(decoder(poses.frames[n]), pictures[name][n]), f"{name}, step {step}, frame {n}"
    assert lost > 10


def test_a_frame_without_what_it_depends_on_is_another_picture():
    """That the test above can fail: an anchored pose after a key alone."""
    poses = Poses(SETS[0])
    rungs = len(poses.frames) // len(poses.manifest["frames"])
    anchored = [i for i, row in enumerate(poses.manifest["frames"]) if row[0] in poses.manifest["anchored"]]
    frame = poses.frames[anchored[-1] * rungs]
    decoder = Decoder("vp8")
    decoder(poses.key)
    assert not np.array_equal(decoder(frame), alone("vp8", poses, frame))
