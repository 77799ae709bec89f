"""The shipped pose sets in two independent decoders, FFmpeg's and libvpx. Whatever is lost and
whatever follows, each frame shows exactly the picture that it shows right after its reference
frames, and both decoders show the same one."""

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
        version, length = struct.unpack_from("<HI", file, 6)
        self.manifest = json.loads(file[12 : 12 + length])
        at = 12 + length

        def take(length):
            nonlocal at
            at += length
            return file[at - length : at]

        self.key_frame = take(self.manifest["key_length"])
        anchors = self.manifest["anchors"] if version > 2 else anchors_of_version_2(self.manifest)
        self.anchors = [take(anchor["length"]) for anchor in anchors]
        anchor_of = {stance: n for n, anchor in enumerate(anchors) for stance in anchor["stances"]}
        #: Each frame at each of its quality levels, with the number of its anchor: None if it
        #: depends on the key frame only.
        self.frames = [
            (take(length), anchor_of.get(row[0]))
            for row in self.manifest["frames"]
            for length in row[STATE_FIELDS:]
        ]
        assert len(file) - at == 32, "the checksum is left"
        # Raised brows show the mouths of their head on another anchor.
        for head in self.manifest.get("heads", []):
            if head["raised"] is not None:
                own, other = anchor_of[head["stance"]], anchor_of[head["raised"]]
                self.frames += [
                    (frame, other)
                    for (frame, anchor), row in zip(self.frames, self.rows(), strict=False)
                    if anchor == own and row[:2] == [head["stance"], 0]
                ]

    def rows(self):
        """The row of each frame."""
        return [row for row in self.manifest["frames"] for _ in row[STATE_FIELDS:]]


def anchors_of_version_2(manifest):
    stances = manifest["anchored"]
    return [{"stances": stances, "length": manifest["anchor_length"]}] if stances else []


class Decoder:
    def __init__(self, name):
        self.context = av.CodecContext.create(name, "r")
        self.context.thread_count = 1

    def __call__(self, frame):
        (picture,) = self.context.decode(av.Packet(frame))
        return picture.to_ndarray(format="yuv420p")


def decode_alone(name, poses, n):
    """The picture of a frame directly after the reference frames that it needs."""
    frame, anchor = poses.frames[n]
    decoder = Decoder(name)
    decoder(poses.key_frame)
    if anchor is not None:
        decoder(poses.anchors[anchor])
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
    pictures = {n: decode_alone("libvpx", poses, n) for n in sample}
    assert len({picture.tobytes() for picture in pictures.values()}) > 3 * count / 4, (
        "they are different pictures"
    )
    for n in sample:
        assert np.array_equal(decode_alone("vp8", poses, n), pictures[n]), f"frame {n}"
    lost, shown = 0, 0
    for sequence in range(sequences):
        # A client joins, or requests a key frame. An anchor follows before the first frame that
        # depends on it, and replaces the one before. One frame in twenty is lost, but no anchor.
        if sequence % 10 == 0:
            decoders = [Decoder(name) for name in DECODERS]
        for decoder in decoders:
            decoder(poses.key_frame)
        received = None
        for step in range(rng.randint(1, MAX_SEQUENCE_FRAMES)):
            n = rng.choice(sample)
            frame, anchor = poses.frames[n]
            if anchor not in (None, received):
                received = anchor
                for decoder in decoders:
                    decoder(poses.anchors[anchor])
            if rng.random() < 0.05:
                lost += 1
                continue
            shown += 1
            for name, decoder in zip(DECODERS, decoders, strict=True):
                assert np.array_equal(decoder(frame), pictures[n]), (
                    f"{name}, sequence {sequence}, step {step}, frame {n}"
                )
    assert lost > sequences / 10 and shown > 4 * sequences, (lost, shown)


def test_a_frame_without_what_it_depends_on_is_another_picture():
    """The control of the test above: a pose that depends on an anchor, right after a key frame
    alone."""
    poses = PoseSet(POSE_SET_FILES[0])
    dependent = [n for n, (_, anchor) in enumerate(poses.frames) if anchor is not None]
    decoder = Decoder("vp8")
    decoder(poses.key_frame)
    frame, _ = poses.frames[dependent[-1]]
    assert not np.array_equal(decoder(frame), decode_alone("vp8", poses, dependent[-1]))
