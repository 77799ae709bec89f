#!/usr/bin/env python3
"""Writes the seeds of the fuzz targets for uploaded pictures, network files and audio files:
`picture`, `tflite` and `audio`.

    tests/fuzz/file_seeds.py

`--expected` prints the outputs of the networks `every-operation` and `mask-operations`, as computed
here without the server, for models/landmarks/src/tflite/network_tests.rs.
"""

import math
import pathlib
import struct
import sys
import zlib

SEEDS = pathlib.Path(__file__).resolve().parent / "seeds"
#: Types of tensors in the schema of TensorFlow Lite.
FLOAT32, FLOAT16, INT32 = 0, 1, 2
#: Built-in operations.
ADD, CONCATENATION, CONV_2D, DEPTHWISE_CONV_2D, DEQUANTIZE = 0, 2, 3, 4, 6
AVERAGE_POOL_2D, LOGISTIC, MUL, RESIZE_BILINEAR, CUSTOM, HARD_SWISH = 1, 14, 18, 23, 32, 117
MAX_POOL_2D, RELU, RESHAPE, PAD, PRELU = 17, 19, 22, 34, 54
SAME, VALID = 0, 1
NO_ACTIVATION, RELU6 = 0, 3


#: The custom operation: a transposed convolution with padding SAME and a stride of 2 × 2.
UPSAMPLE_NAME = b"Convolution2DTransposeBias"
UPSAMPLE_OPTIONS = struct.pack("<3i", 1, 2, 2)


class Byte(int):
    """A field of one byte."""


class Ints(list):
    """A vector of 32-bit numbers."""


def write_value(out, value):
    """Appends what an offset points to, and returns its position."""
    out.extend(bytes(-len(out) % 4))
    if isinstance(value, dict):
        return write_table(out, value)
    at = len(out)
    if isinstance(value, bytes):
        out.extend(struct.pack("<I", len(value)) + value)
    elif isinstance(value, Ints):
        out.extend(struct.pack(f"<I{len(value)}i", len(value), *value))
    else:
        out.extend(struct.pack("<I", len(value)) + bytes(4 * len(value)))
        for i, item in enumerate(value):
            slot = at + 4 + 4 * i
            struct.pack_into("<I", out, slot, write_value(out, item) - slot)
    return at


def write_table(out, fields):
    """Appends a table of FlatBuffers: a vtable, the fields of four bytes each, and what they refer
    to. `fields` maps the number of a field to its value."""
    count = max(fields, default=-1) + 1
    slots = {n: 4 + 4 * i for i, n in enumerate(fields)}
    vtable = len(out)
    out.extend(struct.pack("<HH", 4 + 2 * count, 4 + 4 * len(fields)))
    out.extend(b"".join(struct.pack("<H", slots.get(n, 0)) for n in range(count)))
    out.extend(bytes(-len(out) % 4))
    table = len(out)
    out.extend(struct.pack("<i", table - vtable) + bytes(4 * len(fields)))
    for n, value in fields.items():
        slot = table + slots[n]
        if isinstance(value, Byte):
            out[slot] = value
        elif isinstance(value, int):
            struct.pack_into("<i", out, slot, value)
        else:
            struct.pack_into("<I", out, slot, write_value(out, value) - slot)
    return table


class Builder:
    """Builds a network."""

    def __init__(self):
        self.buffers = [{}]
        self.tensors, self.operations, self.codes = [], [], []

    def tensor(self, shape, kind=FLOAT32, data=b""):
        buffer = 0
        if data:
            buffer = len(self.buffers)
            self.buffers.append({0: data})
        self.tensors.append({0: Ints(shape), 1: Byte(kind), 2: buffer})
        return len(self.tensors) - 1

    def constant(self, shape, values):
        return self.tensor(shape, FLOAT32, struct.pack(f"<{len(values)}f", *values))

    def operation(self, code, inputs, shape, options=None):
        if code not in self.codes:
            self.codes.append(code)
        output = self.tensor(shape)
        operation = {0: self.codes.index(code), 1: Ints(inputs), 2: Ints([output])}
        field = 5 if code == CUSTOM else 4
        self.operations.append(operation | ({field: options} if options else {}))
        return output

    def halves(self, shape, values):
        packed = struct.pack(f"<{len(values)}e", *values)
        return self.operation(DEQUANTIZE, [self.tensor(shape, FLOAT16, packed)], shape)

    def file(self, inputs, outputs):
        graph = {0: self.tensors, 1: Ints(inputs), 2: Ints(outputs), 3: self.operations}
        codes = [
            {0: Byte(code), 3: code} | ({1: UPSAMPLE_NAME} if code == CUSTOM else {})
            for code in self.codes
        ]
        model = {0: 3, 1: codes, 2: [graph], 4: self.buffers}
        out = bytearray(struct.pack("<I4s", 0, b"TFL3"))
        struct.pack_into("<I", out, 0, write_value(out, model))
        return bytes(out)


def numbers(count, seed):
    """Multiples of 1/4 between -5/4 and 5/4, which have an exact representation in 16 bits."""
    return [((i * 7 + seed * 3) % 11 - 5) / 4 for i in range(count)]


CONV_WEIGHTS, CONV_BIAS = numbers(4 * 3 * 3 * 2, 1), numbers(4, 2)
SLOPES = numbers(4, 3)
DEPTHWISE_WEIGHTS, DEPTHWISE_BIAS = numbers(3 * 3 * 4, 4), numbers(4, 5)


def every_operation():
    """A network with all operations: 5 × 4 × 2 numbers in, 12 × 4 numbers out."""
    b = Builder()
    picture = b.tensor([1, 5, 4, 2])
    window = {0: Byte(SAME), 1: 2, 2: 2}
    weights = b.halves([4, 3, 3, 2], CONV_WEIGHTS)
    bias = b.constant([4], CONV_BIAS)
    conv = b.operation(CONV_2D, [picture, weights, bias], [1, 3, 2, 4], window | {3: Byte(RELU6)})
    prelu = b.operation(PRELU, [conv, b.constant([1, 1, 4], SLOPES)], [1, 3, 2, 4])
    weights = b.constant([1, 3, 3, 4], DEPTHWISE_WEIGHTS)
    bias = b.halves([4], DEPTHWISE_BIAS)
    options = {0: Byte(SAME), 1: 1, 2: 1, 3: 1}
    depthwise = b.operation(DEPTHWISE_CONV_2D, [prelu, weights, bias], [1, 3, 2, 4], options)
    pool = b.operation(MAX_POOL_2D, [picture], [1, 3, 2, 2], window | {3: 2, 4: 2})
    amounts = b.tensor([4, 2], INT32, struct.pack("<8i", 0, 0, 0, 0, 0, 0, 0, 2))
    pad = b.operation(PAD, [pool, amounts], [1, 3, 2, 4])
    added = b.operation(ADD, [depthwise, pad], [1, 3, 2, 4], {0: Byte(NO_ACTIVATION)})
    relu = b.operation(RELU, [added], [1, 3, 2, 4])
    parts = [b.operation(RESHAPE, [part], [1, 6, 4]) for part in (added, relu)]
    joined = b.operation(CONCATENATION, parts, [1, 12, 4], {0: 1})
    return b.file([picture], [joined])


def expected_output():
    """The output of `every_operation` for the input i/8 - 2, i = 0 …, by the definitions."""
    picture = [i / 8 - 2 for i in range(5 * 4 * 2)]

    def taps(row, column, stride, size, before, height, width):
        for y in range(size):
            for x in range(size):
                j, i = row * stride + y - before[0], column * stride + x - before[1]
                if 0 <= j < height and 0 <= i < width:
                    yield y * size + x, j * width + i

    conv = []
    for row in range(3):
        for column in range(2):
            for n in range(4):
                total = CONV_BIAS[n]
                # SAME: 3 rows of stride 2 span 7 of 5 rows, 2 columns span 5 of 4.
                for place, pixel in taps(row, column, 2, 3, (1, 0), 5, 4):
                    for c in range(2):
                        weight = CONV_WEIGHTS[(n * 9 + place) * 2 + c]
                        total += weight * picture[pixel * 2 + c]
                conv.append(min(max(total, 0), 6))
    prelu = [v if v >= 0 else v * SLOPES[i % 4] for i, v in enumerate(conv)]
    added = []
    for row in range(3):
        for column in range(2):
            for n in range(4):
                total = DEPTHWISE_BIAS[n]
                for place, pixel in taps(row, column, 1, 3, (1, 1), 3, 2):
                    total += DEPTHWISE_WEIGHTS[place * 4 + n] * prelu[pixel * 4 + n]
                if n < 2:
                    pool = taps(row, column, 2, 2, (0, 0), 5, 4)
                    total += max(picture[pixel * 2 + n] for _, pixel in pool)
                added.append(total)
    return added + [max(v, 0) for v in added]


UPSAMPLE_WEIGHTS, UPSAMPLE_BIAS = numbers(2 * 2 * 2, 6), [0.5]


def mask_operations():
    """A network with the operations of the person's mask: 2 × 2 × 2 numbers in, 6 × 8 out."""
    b = Builder()
    picture = b.tensor([1, 2, 2, 2])
    swish = b.operation(HARD_SWISH, [picture], [1, 2, 2, 2])
    options = {0: Byte(VALID), 1: 2, 2: 2, 3: 2, 4: 2}
    pool = b.operation(AVERAGE_POOL_2D, [swish], [1, 1, 1, 2], options)
    factors = b.operation(LOGISTIC, [pool], [1, 1, 1, 2])
    scaled = b.operation(MUL, [swish, factors], [1, 2, 2, 2], {0: Byte(NO_ACTIVATION)})
    size = b.tensor([2], INT32, struct.pack("<2i", 3, 4))
    resized = b.operation(RESIZE_BILINEAR, [scaled, size], [1, 3, 4, 2], {3: Byte(1)})
    weights, bias = b.constant([1, 2, 2, 2], UPSAMPLE_WEIGHTS), b.constant([1], UPSAMPLE_BIAS)
    inputs = [resized, weights, bias]
    upsampled = b.operation(CUSTOM, inputs, [1, 6, 8, 1], UPSAMPLE_OPTIONS)
    return b.file([picture], [upsampled])


def expected_mask_output():
    """The output of `mask_operations` for the input i/8 - 2, i = 0 …, by the definitions."""
    swish = [(v := i / 8 - 2) * min(max(v + 3, 0), 6) / 6 for i in range(8)]
    factors = [1 / (1 + math.exp(-sum(swish[c::2]) / 4)) for c in range(2)]
    scaled = [v * factors[i % 2] for i, v in enumerate(swish)]

    def sample(y, x, c):
        y, x = (min(max(v, 0), 1) for v in (y, x))
        corner = [scaled[(j * 2 + i) * 2 + c] for j in range(2) for i in range(2)]
        upper, lower = (corner[k] + (corner[k + 1] - corner[k]) * x for k in (0, 2))
        return upper + (lower - upper) * y

    output = []
    for row in range(6):
        for column in range(8):
            y, x = (row // 2 + 0.5) * 2 / 3 - 0.5, (column // 2 + 0.5) * 2 / 4 - 0.5
            place = (row % 2 * 2 + column % 2) * 2
            terms = (UPSAMPLE_WEIGHTS[place + c] * sample(y, x, c) for c in range(2))
            output.append(UPSAMPLE_BIAS[0] + sum(terms))
    return output


def single_operation(code, shapes, options, *more):
    """A network of one operation on constants of these shapes."""
    b = Builder()
    picture = b.tensor([1, 4, 4, 2])
    constants = [b.constant(shape, numbers(_count(shape), 7)) for shape in shapes[1:]]
    output = b.operation(code, [picture, *constants, *more], shapes[0], options)
    return b.file([picture], [output])


def _count(shape):
    count = 1
    for length in shape:
        count *= length
    return count


def tflite_seeds():
    whole = every_operation()
    window = {0: Byte(VALID), 1: 1, 2: 1}
    return {
        "every-operation": whole,
        "mask-operations": mask_operations(),
        "every-operation-cut": whole[: len(whole) // 2],
        "empty": b"",
        "no-graph": Builder().file([], [])[:64],
        "endless-offset": whole[:8] + b"\xff" * 16 + whole[24:],
        "large-window": single_operation(
            MAX_POOL_2D, [[1, 1, 1, 2]], {0: Byte(SAME), 1: 4, 2: 4, 3: 1 << 30, 4: 1 << 30}
        ),
        "large-tensor": single_operation(RESHAPE, [[1 << 16, 1 << 16, 1 << 16, 1 << 16]], {}),
        "no-stride": single_operation(
            CONV_2D, [[1, 4, 4, 1], [1, 1, 1, 2], [1]], window | {1: 0, 2: 0}
        ),
        "pointwise": single_operation(CONV_2D, [[1, 4, 4, 1], [1, 1, 1, 2], [1]], window),
        "wrong-shape": single_operation(CONV_2D, [[1, 4, 4, 9], [1, 1, 1, 2], [1]], window),
        "uses-its-own-output": single_operation(ADD, [[1, 4, 4, 2]], {}, 1),
    }


def png(width, height, kind, rows, *chunks, depth=8):
    def chunk(name, content):
        body = name + content
        return struct.pack(">I", len(content)) + body + struct.pack(">I", zlib.crc32(body))

    header = struct.pack(">IIBBBBB", width, height, depth, kind, 0, 0, 0)
    pixels = zlib.compress(b"".join(b"\0" + row for row in rows), 9)
    content = [chunk(b"IHDR", header), *(chunk(*c) for c in chunks), chunk(b"IDAT", pixels)]
    return b"\x89PNG\r\n\x1a\n" + b"".join(content) + chunk(b"IEND", b"")


def exif(orientation):
    """A block of EXIF with one entry."""
    entry = struct.pack(">HHIHH", 0x0112, 3, 1, orientation, 0)
    return b"MM\0*" + struct.pack(">IH", 8, 1) + entry + bytes(4)


#: A baseline JPEG of 8 × 8 gray pixels: one block with the coefficient 0.
JPEG_TABLES = (
    b"\xff\xdb\0\x43\0" + bytes([16] * 64) + b"\xff\xc4\0\x14\0\1" + bytes(15) + b"\0"
    b"\xff\xc4\0\x14\x10\1" + bytes(15) + b"\0"
)


def jpeg(*segments, width=8, height=8, components=1, start=0xC0):
    size = struct.pack(">BHHB", 8, height, width, components)
    parts = b"".join(bytes([i + 1, 0x11, 0]) for i in range(components))
    frame = struct.pack(">BBH", 0xFF, start, 2 + len(size + parts)) + size + parts
    scan = bytes([components]) + b"".join(bytes([i + 1, 0]) for i in range(components))
    scan += b"\0\x3f\0"
    scan = b"\xff\xda" + struct.pack(">H", 2 + len(scan)) + scan + bytes([0x3F] * components)
    return b"\xff\xd8" + b"".join(segments) + JPEG_TABLES + frame + scan + b"\xff\xd9"


def app(n, content):
    return b"\xff" + bytes([0xE0 + n]) + struct.pack(">H", 2 + len(content)) + content


def picture_seeds():
    gray = [bytes([x * 16 + y for x in range(8)]) for y in range(8)]
    rgba = [bytes([255, 0, 0, 64 * y]) * 4 for y in range(4)]
    profile = struct.pack(">I", 140) + bytes(32) + b"acsp" + bytes(100)
    return {
        "png-gray": png(8, 8, 0, gray),
        "png-alpha": png(4, 4, 6, rgba),
        "png-turned": png(8, 8, 0, gray, (b"eXIf", exif(6))),
        "png-profile": png(8, 8, 0, gray, (b"iCCP", b"p\0\0" + zlib.compress(profile))),
        "png-large": png(100_000, 100_000, 2, gray),
        "png-cut": png(8, 8, 0, gray)[:-30],
        "png-16-bits": png(2, 2, 2, [bytes(range(12))] * 2, depth=16),
        "jpeg-gray": jpeg(),
        "jpeg-turned": jpeg(app(1, b"Exif\0\0" + exif(8))),
        "jpeg-profile": jpeg(app(2, b"ICC_PROFILE\0\1\1" + profile)),
        "jpeg-cmyk": jpeg(components=4),
        "jpeg-progressive": jpeg(start=0xC2),
        "jpeg-large": jpeg(width=65_500, height=65_500),
        "jpeg-cut": jpeg()[:-10],
        "webp-header": b"RIFF\x1e\0\0\0WEBPVP8X\x0a\0\0\0\x2c\0\0\0\x07\0\0\x07\0\0",
        "webp-lossless": b"RIFF\x1a\0\0\0WEBPVP8L\x0d\0\0\0"
        b"/\0\0\0\x10\x07\x10\x11\x11\x88\x88\xfe\x07\0",
        "gif": b"GIF89a\1\0\1\0\0\0\0;",
    }


def wav(tag, channels, bits, data, length=None, rate=8_000, extra=b""):
    """A WAV file. `length` is what the file declares for its data."""
    size = channels * bits // 8
    form = struct.pack("<HHIIHH", tag, channels, rate, rate * size, size, bits) + extra
    length = len(data) if length is None else length
    chunks = [b"fmt ", struct.pack("<I", len(form)), form, b"data", struct.pack("<I", length), data]
    body = b"WAVE" + b"".join(chunks)
    return b"RIFF" + struct.pack("<I", len(body)) + body


def ogg_crc(page):
    """The checksum of a page whose own checksum is zero."""
    crc = 0
    for byte in page:
        crc ^= byte << 24
        for _ in range(8):
            crc = (crc << 1 ^ (0x04C11DB7 if crc & 0x80000000 else 0)) & 0xFFFFFFFF
    return crc


def ogg_page(number, packets, position=0, flags=0, serial=7):
    """A page of packets that are shorter than 255 bytes."""
    header = struct.pack("<4sBBqIIIB", b"OggS", 0, flags, position, serial, number, 0, len(packets))
    page = bytearray(header + bytes(len(packet) for packet in packets) + b"".join(packets))
    struct.pack_into("<I", page, 22, ogg_crc(page))
    return bytes(page)


def opus(packets, channels=1, position=960, serial=7):
    """A stream of Opus."""
    head = b"OpusHead\1" + struct.pack("<BHIhB", channels, 312, 48_000, 0, 0)
    return (
        ogg_page(0, [head], 0, 2, serial)
        + ogg_page(1, [b"OpusTags" + bytes(8)], 0, 0, serial)
        + ogg_page(2, packets, position, 4, serial)
    )


def audio_seeds():
    fixtures = SEEDS.parents[2] / "control-api/documents/fixtures"
    mp3 = (fixtures / "mono-cbr.mp3").read_bytes()
    samples = struct.pack("<8h", *range(-4, 4))
    extensible = struct.pack("<HHIH", 22, 16, 4, 1) + bytes.fromhex("000000001000800000aa00389b71")
    # Frames of 20 ms whose content is any bytes, and frames of 60 ms that were not sent.
    packets = [bytes([kind, *range(40)]) for kind in (0x08, 0x78, 0xF8, 0xFC)]
    return {
        "wav-16-bits": wav(1, 2, 16, samples),
        "wav-8-bits": wav(1, 1, 8, bytes(range(9))),
        "wav-24-bits": wav(1, 1, 24, bytes(range(9))),
        "wav-float": wav(3, 1, 32, struct.pack("<4f", 0.5, -2, math.nan, math.inf)),
        "wav-extensible": wav(0xFFFE, 1, 16, samples, extra=extensible),
        "wav-endless": wav(1, 1, 16, samples, 0xFFFFFFFF),
        "wav-many-channels": wav(1, 9, 16, samples),
        "mp3": mp3,
        "mp3-id3": b"ID3\4\0\0\0\0\0\5title" + mp3[:600] + b"TAG" + bytes(125),
        "mp3-joined": mp3[:500] + mp3[100:700],
        "mp3-large-id3": b"ID3\4\0\0\x7f\x7f\x7f\x7f" + mp3[:300],
        "ogg-opus": opus(packets, 2),
        "ogg-opus-not-sent": opus([b"\x18"] * 250, 1, 2**62),
        "ogg-chained": opus(packets[:1]) + opus(packets[1:2], serial=8),
        "ogg-pictures": ogg_page(0, [b"\x80theora"], 0, 2, 1) + opus(packets[2:]),
        "ogg-cut": opus(packets)[:-9],
        "pcm": b"\0visavis-pcm\0" + struct.pack("<II4hI", 48_000, 4, 1, -1, 2, -2, 0),
        "pcm-refused": b"\0visavis-pcm\0"
        + struct.pack("<II2hI", 8_000, 2, 1, 2, 0xFFFFFFFF)
        + b"the audio is damaged",
        "pcm-large": b"\0visavis-pcm\0" + struct.pack("<II", 96_000, 0xFFFFFFFE),
        "why": b"\0visavis-why\0the audio contains no sound",
    }


def main():
    if "--expected" in sys.argv[1:]:
        print(expected_output(), [round(v, 5) for v in expected_mask_output()], sep="\n")
        return
    targets = {"tflite": tflite_seeds(), "picture": picture_seeds(), "audio": audio_seeds()}
    for target, seeds in targets.items():
        folder = SEEDS / target
        folder.mkdir(parents=True, exist_ok=True)
        for name, seed in seeds.items():
            (folder / name).write_bytes(seed)
        print(f"{target}: {len(seeds)} seeds, {sum(len(seed) for seed in seeds.values())} bytes")


if __name__ == "__main__":
    main()
