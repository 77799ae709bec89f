#!/usr/bin/env python3
"""Writes the binary seeds of the fuzz targets: demux, rtp and tcp. file_seeds.py writes
those of picture, tflite and audio; the seeds of all other targets are text files.

    tests/fuzz/seeds.py
"""

import hashlib
import hmac
import pathlib
import struct
import zlib

SEEDS = pathlib.Path(__file__).resolve().parent / "seeds"
TRANSACTION_ID = bytes(range(1, 13))
MAGIC_COOKIE = 0x2112A442
BINDING = 0x0001
#: STUN attributes (RFC 8489, RFC 8445).
MAPPED, USERNAME, INTEGRITY = 0x0001, 0x0006, 0x0008
ERROR, UNKNOWN, XOR_MAPPED = 0x0009, 0x000A, 0x0020
PRIORITY, USE_CANDIDATE, SOFTWARE, FINGERPRINT, CONTROLLING = 0x0024, 0x0025, 0x8022, 0x8028, 0x802A


def attribute(kind: int, value: bytes, length: int | None = None) -> bytes:
    """A STUN attribute. `length` replaces the correct length in its header."""
    return (
        struct.pack(">HH", kind, len(value) if length is None else length)
        + value
        + bytes(-len(value) % 4)
    )


def stun(kind: int, *attributes: bytes, length: int | None = None) -> bytes:
    """A STUN message. `length` replaces the correct length in its header."""
    body = b"".join(attributes)
    return (
        struct.pack(">HHI", kind, len(body) if length is None else length, MAGIC_COOKIE)
        + TRANSACTION_ID
        + body
    )


def binding_request(
    user: bytes = b"seed:peer", password: bytes = b"nobody knows the password"
) -> bytes:
    """A connectivity check of ICE. Its integrity never matches: the server draws a new password for
    each connection."""
    attributes = [
        attribute(USERNAME, user),
        attribute(CONTROLLING, bytes(8)),
        attribute(USE_CANDIDATE, b""),
        attribute(PRIORITY, struct.pack(">I", 0x6E0001FF)),
    ]
    signed = stun(BINDING, *attributes, length=len(b"".join(attributes)) + 24)
    attributes.append(attribute(INTEGRITY, hmac.digest(password, signed, hashlib.sha1)))
    checksummed = stun(BINDING, *attributes, length=len(b"".join(attributes)) + 8)
    attributes.append(
        attribute(FINGERPRINT, struct.pack(">I", zlib.crc32(checksummed) ^ 0x5354554E))
    )
    return stun(BINDING, *attributes)


def dtls_record(
    kind: int, body: bytes, length: int | None = None, epoch: int = 0, sequence: int = 0
) -> bytes:
    """A DTLS record. `length` replaces the correct length in its header."""
    length = len(body) if length is None else length
    version = 0xFEFD
    header = struct.pack(">BHH", kind, version, epoch) + sequence.to_bytes(6, "big")
    return header + struct.pack(">H", length) + body


def handshake(
    kind: int, body: bytes, total: int | None = None, offset: int = 0, length: int | None = None
) -> bytes:
    """A fragment of a DTLS handshake message."""

    def uint24(n):
        return n.to_bytes(3, "big")

    total = len(body) if total is None else total
    length = len(body) if length is None else length
    header = bytes([kind]) + uint24(total) + bytes(2) + uint24(offset) + uint24(length)
    return header + body


def rtp(
    payload: bytes,
    *,
    first: int = 0x80,
    pt: int = 111,
    sequence: int = 1,
    extension: bytes = b"",
    csrcs: bytes = b"",
) -> bytes:
    """An RTP packet. `first`: the first byte, with version and flags."""
    header = struct.pack(">BBHII", first, pt, sequence, 960 * sequence, 0x11223344)
    return header + csrcs + extension + payload


def rtcp(kind: int, body: bytes, count: int = 0, words: int | None = None) -> bytes:
    """An RTCP packet. `words` replaces the correct length in its header."""
    words = len(body) // 4 if words is None else words
    return struct.pack(">BBH", 0x80 | count, kind, words) + body


def step(kind: int, value: bytes = b"") -> bytes:
    """A step of a seed; src/steps.rs describes the format."""
    return struct.pack(">BH", kind, len(value)) + value


def flip(offset: int, first: int, second: int = 0) -> bytes:
    """Values to XOR into two bytes of a datagram."""
    return struct.pack(">HBB", offset, first, second)


def cut(length: int) -> bytes:
    """The length to which a datagram is cut."""
    return struct.pack(">H", length)


def tcp_frames(*datagrams: bytes) -> bytes:
    """The datagrams with their lengths, as in ICE-TCP (RFC 4571)."""
    return b"".join(struct.pack(">H", len(datagram)) + datagram for datagram in datagrams)


def audio_step(
    payload: bytes, sequence_jump: int = 0, time_jump: int = 0, flags: int = 2, level: int = 30
) -> bytes:
    """A step that sends an audio packet with the valid key."""
    return step(1, struct.pack(">hiBB", sequence_jump, time_jump, flags, level) + payload)


CLIENT_HELLO = dtls_record(
    22, handshake(1, bytes([0xFE, 0xFD]) + bytes(32) + bytes([0, 0, 0, 2, 0xC0, 0x2B, 1, 0]))
)
#: Datagrams of a sender that is not a client of any call.
STRAY_DATAGRAMS = {
    "check": binding_request(),
    "check-of-nobody": binding_request(b"nobody:peer"),
    "check-without-colon": binding_request(b"seed"),
    "check-of-a-name-that-is-no-text": binding_request(b"\xff\xfe:peer"),
    "check-of-an-endless-name": stun(BINDING, attribute(USERNAME, b"seed:peer", 0xFFFF)),
    "check-with-a-cut-attribute": binding_request()[:30],
    "check-with-a-wrong-length": stun(BINDING, attribute(USERNAME, b"seed:peer"), length=0xFFFC),
    "check-with-an-odd-length": stun(BINDING, attribute(USERNAME, b"seed:peer"), length=3),
    "check-with-a-short-integrity": stun(
        BINDING, attribute(USERNAME, b"seed:peer"), attribute(INTEGRITY, bytes(4))
    ),
    "check-with-a-thousand-attributes": stun(
        BINDING, *[attribute(SOFTWARE, b"")] * 300, attribute(USERNAME, b"seed:peer")
    ),
    "check-with-two-names": stun(
        BINDING, attribute(USERNAME, b"seed:peer"), attribute(USERNAME, b"x:y")
    ),
    "answer": stun(0x0101, attribute(XOR_MAPPED, bytes([0, 1, 0x12, 0x34, 1, 2, 3, 4]))),
    "answer-with-a-wrong-family": stun(
        0x0101, attribute(XOR_MAPPED, bytes([0, 9, 0, 0, 0, 0, 0, 0])), attribute(MAPPED, b"")
    ),
    "answer-with-a-short-ipv6": stun(
        0x0101, attribute(XOR_MAPPED, bytes([0, 2, 0, 0, 1, 2, 3, 4]))
    ),
    "refusal": stun(
        0x0111,
        attribute(ERROR, bytes([0, 0, 4, 87]) + b"Role Conflict"),
        attribute(UNKNOWN, b"\0\1"),
    ),
    "indication": stun(0x0011, attribute(FINGERPRINT, bytes(4))),
    "cookie-alone": stun(BINDING)[:8],
    "nothing": b"",
    "one-byte": b"\0",
    "channel-data": struct.pack(">HH", 0x4000, 4) + b"data",
    "client-hello": CLIENT_HELLO,
    "client-hello-cut": CLIENT_HELLO[:20],
    "record-of-an-endless-length": dtls_record(22, b"\1\0\0", 0xFFFF),
    "record-of-no-length": dtls_record(22, b""),
    "fragment-behind-the-end": dtls_record(22, handshake(1, b"x", 10, 0xFFFFFF, 0xFFFFFF)),
    "fragment-of-nothing": dtls_record(22, handshake(1, b"", 0xFFFFFF)),
    "alert": dtls_record(21, b"\2\x28"),
    "close-notify": dtls_record(21, b"\1\0"),
    "change-cipher": dtls_record(20, b"\1"),
    "record-of-a-later-epoch": dtls_record(23, bytes(40), epoch=1, sequence=2**48 - 1),
}
#: RTP and RTCP packets that anyone can forge.
FORGED_PACKETS = {
    "rtp": rtp(b"\xf8\xff\xfe" + bytes(16)),
    "rtp-without-payload": rtp(b""),
    "rtp-header-cut": rtp(b"")[:7],
    "rtp-of-version-one": rtp(bytes(20), first=0x40),
    "rtp-of-fifteen-csrcs-and-none": rtp(b"", first=0x8F),
    "rtp-of-more-padding-than-bytes": rtp(b"\xf8\xff", first=0xA0),
    "rtp-with-an-endless-extension": rtp(
        b"", first=0x90, extension=struct.pack(">HH", 0xBEDE, 0xFFFF)
    ),
    "rtp-with-one-byte-extensions": rtp(
        b"\xf8\xff\xfe",
        first=0x90,
        extension=struct.pack(">HH", 0xBEDE, 2) + bytes([0x10, 0x9E, 0x22, 1, 2, 3, 0xF0, 0]),
    ),
    "rtp-with-an-extension-past-its-end": rtp(
        b"", first=0x90, extension=struct.pack(">HH", 0xBEDE, 1) + bytes([0x1F, 1, 2, 3])
    ),
    "rtp-with-two-byte-extensions": rtp(
        b"\xf8\xff\xfe",
        first=0x90,
        extension=struct.pack(">HH", 0x1000, 1) + bytes([1, 0xFF, 1, 2]),
    ),
    "rtcp-report": rtcp(200, bytes(24)),
    "rtcp-report-of-31-blocks-and-none": rtcp(201, bytes(4), 31),
    "rtcp-with-an-endless-length": rtcp(201, bytes(4), 0, 0xFFFF),
    "rtcp-of-no-length": rtcp(204, b""),
    "rtcp-names-without-end": rtcp(202, struct.pack(">I", 1) + b"\1\xffx\0", 1),
    "rtcp-goodbye-with-a-long-reason": rtcp(203, struct.pack(">I", 1) + b"\xffbye", 1),
    "rtcp-nack-of-all": rtcp(205, bytes(8) + struct.pack(">HH", 0, 0xFFFF) * 30, 1),
    "rtcp-estimate-of-none": rtcp(206, bytes(8) + b"REMB" + bytes([0xFF, 0xFF, 0xFF, 0xFF]), 15),
    "rtcp-feedback-of-transport": rtcp(
        205, bytes(8) + struct.pack(">HHIH", 1, 0xFFFF, 0, 0x3FFF), 15
    ),
}

JOIN_STEPS = step(2) * 2 + step(5, b"\x14") + step(2) * 4 + step(5, b"\x32") + step(2) * 8
DEMUX_SEEDS = {
    **{name: step(0, datagram) + step(1, datagram) for name, datagram in STRAY_DATAGRAMS.items()},
    "join": JOIN_STEPS * 3,
    "join-from-two-addresses": step(2) + step(4) + step(5, b"\x14") + (step(4) + step(2)) * 6,
    "join-damaged": step(3, flip(0, 1)) + step(3, flip(21, 0xFF)) + step(3, cut(19)) + JOIN_STEPS,
    "join-with-a-damaged-hello": step(2)
    + step(5, b"\x14")
    + b"".join(step(3, flip(at, 0x80)) for at in range(10, 70, 6))
    + JOIN_STEPS,
    "join-with-strangers": b"".join(
        step(2) + step(0, datagram) + step(5, b"\5") for datagram in STRAY_DATAGRAMS.values()
    ),
    "join-cut": step(2)
    + step(5, b"\x14")
    + b"".join(step(3, cut(at)) for at in (1, 12, 13, 14, 25, 60))
    + JOIN_STEPS,
    "all-time": step(5, b"\xff") * 150,
}
OPUS_PAYLOADS = {
    "silence": b"\xf8\xff\xfe",
    "code-three": b"\xfb\x06" + bytes(12),
    "code-three-of-63-frames": b"\xfb\x3f" + bytes(63),
    "code-three-of-none": b"\xfb\x00",
    "code-one": b"\xf9\1",
    "header": b"\xf8",
}
RTVI_MESSAGE = b'{"label":"rtvi-ai","type":"client-message","id":"1","data":{"t":"interrupt"}}'
RTP_SEEDS = {
    **{name: step(0, packet) for name, packet in FORGED_PACKETS.items()},
    **{
        f"opus-{name}": audio_step(payload)
        + step(4, b"\x14")
        + audio_step(payload, 1, 960)
        + step(4, b"\x50")
        for name, payload in OPUS_PAYLOADS.items()
    },
    "forged-all": b"".join(step(0, packet) for packet in FORGED_PACKETS.values()),
    "strange-all": b"".join(step(0, datagram) for datagram in STRAY_DATAGRAMS.values()),
    "voice": (audio_step(b"\xf8\xff\xfe") + step(4, b"\x14")) * 20,
    "voice-marked-without-extensions": audio_step(b"\xf8\xff\xfe", flags=1) * 3 + step(4, b"\x3c"),
    "voice-out-of-order": audio_step(b"\xf8\xff\xfe", 2, 1920)
    + audio_step(b"\xf8\xff\xfe", -2, -1920)
    + audio_step(b"\xf8\xff\xfe", 3, 960)
    + step(4, b"\xff"),
    "voice-jumps": audio_step(b"\xf8\xff\xfe", 32000, 2**31 - 961) * 3
    + audio_step(b"\xf8\xff\xfe", -32000, -(2**31))
    + step(4, b"\xff"),
    "voice-after-a-gap": audio_step(b"\xf8\xff\xfe")
    + audio_step(b"\xf8\xff\xfe", 30, 28800)
    + step(4, b"\xff") * 6,
    "voice-twice": audio_step(b"\xf8\xff\xfe")
    + audio_step(b"\xf8\xff\xfe", -1, -960)
    + step(4, b"\x28"),
    "voice-damaged": step(2, flip(3, 0xFF)) + audio_step(b"\xf8\xff\xfe") + step(2, flip(12, 1)),
    "text": step(3, RTVI_MESSAGE)
    + step(4, b"\x14")
    + step(3, b"")
    + step(3, b"\xff\xfe")
    + step(5, RTVI_MESSAGE)
    + step(4, b"\x14"),
    "text-of-64-kib": step(3, b"x" * 0xFFFF) + step(4, b"\x14") * 5,
    "goes-silent": step(4, b"\xff") * 100,
}
TCP_SEEDS = {
    "check": b"\0" + tcp_frames(binding_request()),
    "check-and-more": b"\1" + tcp_frames(binding_request(), CLIENT_HELLO, rtp(b"\xf8\xff\xfe")),
    "check-cut": b"\2" + tcp_frames(binding_request())[:40],
    "no-check": b"\3" + tcp_frames(CLIENT_HELLO, binding_request()),
    "two-names": b"\4" + tcp_frames(binding_request(), binding_request(b"other:peer")),
    "http": b"\5GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "endless-frame": b"\6" + tcp_frames(binding_request()) + b"\xff\xff" + bytes(64),
    "longest-frame": b"\x40" + tcp_frames(binding_request(), bytes(2000)),
    "longer-frame": b"\x40" + tcp_frames(binding_request(), bytes(2001)),
    "empty-frames": b"\0" + tcp_frames(binding_request()) + bytes(64),
    "empty-frame-first": b"\0" + bytes(2) + tcp_frames(binding_request()),
    "one-byte": b"\0\0",
    "strange": b"\x1f" + tcp_frames(binding_request(), *STRAY_DATAGRAMS.values()),
    "name-of-nothing": b"\0" + tcp_frames(binding_request(b":peer"), binding_request()),
}


def main():
    for target, seeds in {"demux": DEMUX_SEEDS, "rtp": RTP_SEEDS, "tcp": TCP_SEEDS}.items():
        folder = SEEDS / target
        folder.mkdir(parents=True, exist_ok=True)
        for name, seed in seeds.items():
            (folder / name).write_bytes(seed)
        print(f"{target}: {len(seeds)} seeds, {sum(len(seed) for seed in seeds.values())} bytes")


if __name__ == "__main__":
    main()
