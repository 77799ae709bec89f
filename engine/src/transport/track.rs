//! One outgoing track: what str0m must be told of it, and its packets.

use std::time::Duration;

use str0m::Rtc;
use str0m::media::{Mid, Pt};
use str0m::rtp::{RtpWrite, Ssrc};

use super::pacer::Packet;

/// Packets and age of what may be sent again: a few key frames.
const RTX_CACHE_PACKETS: usize = 512;
const RTX_CACHE_AGE: Duration = Duration::from_secs(3);

pub(super) struct Track {
    pub(super) mid: Mid,
    pt: Pt,
    ssrc: Ssrc,
    rtx: Option<Ssrc>,
    /// False until the first packet: before that str0m would send reports that tie RTP time 0 to the clock.
    declared: bool,
    sequence: u64,
    timestamp_offset: u32,
}

impl Track {
    /// The track that was agreed on; the old one, if it is the same.
    pub(super) fn adopt(rtc: &mut Rtc, old: Option<Self>, agreed: Option<(Mid, Pt)>) -> Option<Self> {
        let (mid, pt) = agreed?;
        if let Some(old) = old.filter(|old| old.mid == mid) {
            return Some(Self { pt, ..old });
        }
        let mut api = rtc.direct_api();
        let stream = api.stream_tx_by_mid(mid, None)?;
        let (ssrc, rtx) = (stream.ssrc(), stream.rtx());
        api.remove_stream_tx(ssrc);
        // The first sequence number is below 2^15, so that a receiver that misses the first packets counts no rollover.
        let sequence = u64::from(rand::random::<u16>() >> 1);
        Some(Self { mid, pt, ssrc, rtx, declared: false, sequence, timestamp_offset: rand::random() })
    }

    /// Tells str0m of the track, once.
    pub(super) fn declare(&mut self, rtc: &mut Rtc) {
        if self.declared {
            return;
        }
        self.declared = true;
        let mut api = rtc.direct_api();
        let stream = api.declare_stream_tx(self.ssrc, self.rtx, self.mid, None);
        if self.rtx.is_some() {
            // No cap on the share of resent bytes: a key frame after seconds of still picture is most of the traffic.
            stream.set_rtx_cache(RTX_CACHE_PACKETS, RTX_CACHE_AGE, None);
        }
    }

    /// Hands one packet to str0m, which encrypts it with the next time step.
    pub(super) fn write(&mut self, rtc: &mut Rtc, packet: Packet) {
        if !rtc.is_connected() {
            return;
        }
        self.declare(rtc);
        let mut api = rtc.direct_api();
        let Some(stream) = api.stream_tx_by_mid(self.mid, None) else { return };
        let stamp = (packet.timestamp as u32).wrapping_add(self.timestamp_offset);
        let write = RtpWrite::new(self.pt, self.sequence.into(), stamp, packet.wallclock, packet.payload);
        stream.write_rtp(write.marker(packet.marker).nackable(packet.nackable));
        self.sequence += 1;
    }

    /// Whether a datagram is a packet of this track that is sent once more (RFC 4588): such packets have an SSRC of their own.
    pub(super) fn is_retransmission(&self, datagram: &[u8]) -> bool {
        let Some(rtx) = self.rtx else { return false };
        // RTP has the version 2 in its first two bits, and the SSRC in bytes 8 to 11.
        datagram.first().is_some_and(|first| first >> 6 == 2)
            && datagram.get(8..12) == Some(&(*rtx).to_be_bytes())
    }
}
