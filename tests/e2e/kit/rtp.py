"""The audio and the video of a call on the server's clock, from RTP timestamps. Sender reports map
them to one time (RFC 3550, section 6.4.1).

The clock of this machine is not used. The result shows what the server sent, however late the
packets were sent or arrived.
"""

import re

import av
import numpy as np
from aiortc.codecs.vpx import VpxPayloadDescriptor
from aiortc.rtp import RtcpSrPacket

CODECS = {"audio": ("opus", 48_000), "video": ("VP8", 90_000)}


def counter_distance(value: int, base: int, bits: int) -> int:
    """How far a counter of `bits` bits is ahead of another; negative where it is behind."""
    half = 1 << (bits - 1)
    return ((value - base + half) & ((1 << bits) - 1)) - half


class TrackRecorder:
    """Records the packets and the sender reports that an aiortc receiver gets from now on."""

    def __init__(self, client, kind: str):
        self.client = client
        self.name, self.rate = CODECS[kind]
        #: Timestamp and payload by sequence number, which counts from the first packet.
        self.packets: dict[int, tuple[int, bytes]] = {}
        #: (NTP seconds, timestamp)
        self.reports: list[tuple[float, int]] = []
        self.first = None
        (receiver,) = (one.receiver for one in client.peer.getTransceivers() if one.kind == kind)
        handle_rtp, handle_rtcp = receiver._handle_rtp_packet, receiver._handle_rtcp_packet

        async def rtp(packet, arrival_time_ms):
            self._store(packet)
            await handle_rtp(packet, arrival_time_ms=arrival_time_ms)

        async def rtcp(packet):
            if isinstance(packet, RtcpSrPacket):
                self.reports.append(
                    (packet.sender_info.ntp_timestamp / 2**32, packet.sender_info.rtp_timestamp)
                )
            await handle_rtcp(packet)

        receiver._handle_rtp_packet, receiver._handle_rtcp_packet = rtp, rtcp

    def _store(self, packet):
        """Stores a packet of the codec's payload type. Retransmissions have a different one."""
        match = re.search(
            rf"a=rtpmap:(\d+) {self.name}/{self.rate}",
            self.client.peer.remoteDescription.sdp,
            re.IGNORECASE,
        )
        if packet.payload_type == int(match[1]) and packet.payload:
            self.first = packet.sequence_number if self.first is None else self.first
            self.packets[counter_distance(packet.sequence_number, self.first, 16)] = (
                packet.timestamp,
                packet.payload,
            )

    def missing_packets(self) -> int:
        return max(self.packets) - min(self.packets) + 1 - len(self.packets)

    def server_time(self, stamp: int) -> float:
        """The time of a timestamp, in seconds of the server's clock, by the last sender report."""
        ntp, base = self.reports[-1]
        return ntp + counter_distance(stamp, base, 32) / self.rate

    def clock_drift(self) -> float:
        """The difference in seconds between the first and the last sender report for one
        timestamp."""
        (ntp, stamp), *_ = self.reports
        return abs(self.server_time(stamp) - ntp)


def decode_audio(track: TrackRecorder) -> tuple[float, np.ndarray]:
    """When the audio began, and its samples (16 bit, 48 kHz). Gaps are silent."""
    ordered = [track.packets[n] for n in sorted(track.packets)]
    return track.server_time(ordered[0][0]), decode_opus(ordered)


def decode_opus(packets: list[tuple[int, bytes]]) -> np.ndarray:
    """The samples (16 bit, 48 kHz) of Opus packets with their timestamps, from the first one on.
    Gaps are silent."""
    if not packets:
        return np.zeros(0, np.int16)
    decoder = av.CodecContext.create("libopus", "r")
    decoder.format, decoder.layout, decoder.sample_rate = "s16", "mono", CODECS["audio"][1]
    zero, parts = packets[0][0], []
    for stamp, payload in packets:
        offset = counter_distance(stamp, zero, 32)
        parts += [
            (offset, frame.to_ndarray().reshape(-1)) for frame in decoder.decode(av.Packet(payload))
        ]
    samples = np.zeros(max(at + len(part) for at, part in parts), np.int16)
    for at, part in parts:
        samples[at : at + len(part)] = part
    return samples


def decode_video(track: TrackRecorder) -> tuple[np.ndarray, np.ndarray]:
    """Times, and brightness (n × height × width, 0 … 1) of the pictures."""
    frames: dict[int, bytes] = {}
    for n in sorted(track.packets):
        stamp, payload = track.packets[n]
        _, part = VpxPayloadDescriptor.parse(payload)
        frames[stamp] = frames.get(stamp, b"") + part
    decoder = av.CodecContext.create("vp8", "r")
    times, luma = [], []
    for stamp, data in frames.items():
        for picture in decoder.decode(av.Packet(data)):
            times.append(track.server_time(stamp))
            luma.append(
                (picture.to_ndarray(format="yuv420p")[: picture.height].astype(np.float64) - 16)
                / 219
            )
    return np.array(times), np.stack(luma)
