"""The shipped pose sets in two independent decoders, FFmpeg's and libvpx. Whatever is lost and
whatever follows, each frame shows exactly the picture that it shows right after the key frames, and
both decoders show the same one."""

import json
import random
import struct

import av
import numpy as np
import pytest

from kit.server import ROOT

POSE_SET_FILES = sorted((ROOT / "assets" / "avatars").glob("*.poses"))
#: The row of a frame begins with these: stance, gaze, mouth, breath; then its lengths.
STATE_FIELDS = 4
#: The maximum number of frames in one sequence.
MAX_SEQUENCE_FRAMES = 16
#: For each avatar: the number of poses to choose from, and of sequences. `make test` runs a small
#: part.
SHORT_RUN, LONG_RUN = (20, 15), (80, 250)
DECODERS = ("vp8", "libvpx")


class PoseSet:
    """A file in the format of models/src/face/pose_set.rs."""

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

        self.key_frame, self.reference_frame = (
            take(self.manifest["key_length"]),
            take(self.manifest["anchor_length"]),
        )
        # Every pose at every quality level, and the reference frames it needs.
        self.frames = [
            take(length) for row in self.manifest["frames"] for length in row[STATE_FIELDS:]
        ]
        self.needs_reference = [
            row[0] in self.manifest["anchored"]
            for row in self.manifest["frames"]
            for _ in row[STATE_FIELDS:]
        ]
        assert len(file) - at == 32, "the checksum is left"


class Decoder:
    def __init__(self, name):
        self.context = av.CodecContext.create(name, "r")
        self.context.thread_count = 1

    def __call__(self, frame):
        (picture,) = self.context.decode(av.Packet(frame))
        return picture.to_ndarray(format="yuv420p")


def decode_alone(name, poses, frame):
    decoder = Decoder(name)
    decoder(poses.key_frame)
    decoder(poses.reference_frame)
    return decoder(frame)


@pytest.mark.parametrize("path", POSE_SET_FILES, ids=lambda path: path.stem)
@pytest.mark.parametrize(
    ("count", "sequences"),
    [
        pytest.param(*SHORT_RUN, id="sample"),
        pytest.param(*LONG_RUN, id="whole", marks=pytest.mark.long("faces")),
    ],
)
def test_random_transitions_with_loss_show_what_was_encoded_in_both_decoders(
    path, count, sequences
):
    poses = PoseSet(path)
    rng = random.Random(path.stem)
    sample = rng.sample(range(len(poses.frames)), count)
    pictures = {n: decode_alone("libvpx", poses, poses.frames[n]) for n in sample}
    assert len({picture.tobytes() for picture in pictures.values()}) > 3 * count / 4, (
        "they are different pictures"
    )
    for n in sample:
        assert np.array_equal(decode_alone("vp8", poses, poses.frames[n]), pictures[n]), (
            f"frame {n}"
        )
    lost, shown = 0, 0
    for sequence in range(sequences):
        # A client joins, or requests a key frame. The reference frame follows, sometimes a while
        # later, and frames that depend on it wait. One frame in twenty is lost.
        if sequence % 10 == 0:
            decoders = [Decoder(name) for name in DECODERS]
        for decoder in decoders:
            decoder(poses.key_frame)
        has_reference = False
        for step in range(rng.randint(1, MAX_SEQUENCE_FRAMES)):
            if not has_reference and rng.random() < 0.3:
                for decoder in decoders:
                    decoder(poses.reference_frame)
                has_reference = True
            n = rng.choice(sample)
            if poses.needs_reference[n] and not has_reference:
                continue
            if rng.random() < 0.05:
                lost += 1
                continue
            shown += 1
            for name, decoder in zip(DECODERS, decoders, strict=True):
                assert np.array_equal(decoder(poses.frames[n]), pictures[n]), (
                    f"{name}, sequence {sequence}, step {step}, frame {n}"
                )
    assert lost > sequences / 10 and shown > 4 * sequences, (lost, shown)


def test_a_frame_without_what_it_depends_on_is_another_picture():
    """The control of the test above: a pose that depends on a reference frame, right after a key
    frame alone."""
    poses = PoseSet(POSE_SET_FILES[0])
    levels = len(poses.frames) // len(poses.manifest["frames"])
    dependent = [
        i for i, row in enumerate(poses.manifest["frames"]) if row[0] in poses.manifest["anchored"]
    ]
    frame = poses.frames[dependent[-1] * levels]
    decoder = Decoder("vp8")
    decoder(poses.key_frame)
    assert not np.array_equal(decoder(frame), decode_alone("vp8", poses, frame))
