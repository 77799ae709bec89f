//! One outgoing track: its declaration to str0m, and its packets.

use std::time::Duration;

use str0m::Rtc;
use str0m::media::{Mid, Pt};
use str0m::rtp::{ExtensionValues, RtpWrite, Ssrc};

use super::pacer::Packet;

/// Capacity and maximum age of the retransmission cache: a few key frames.
const RTX_CACHE_PACKETS: usize = 512;
const RTX_CACHE_AGE: Duration = Duration::from_secs(3);

/// Level of digital silence in dBov (RFC 6464).
const SILENT_LEVEL: i8 = -127;

pub(super) struct Track {
    pub(super) mid: Mid,
    pt: Pt,
    ssrc: Ssrc,
    rtx: Option<Ssrc>,
    /// False until the first packet. Before that, str0m would send reports that map RTP time 0 to
    /// the clock.
    declared: bool,
    sequence: u64,
    timestamp_offset: u32,
}

impl Track {
    /// The negotiated track, or the old one if its mid is unchanged.
    pub(super) fn adopt(
        rtc: &mut Rtc,
        old: Option<Self>,
        agreed: Option<(Mid, Pt)>,
    ) -> Option<Self> {
        let (mid, pt) = agreed?;
        if let Some(old) = old.filter(|old| old.mid == mid) {
            return Some(Self { pt, ..old });
        }
        let mut api = rtc.direct_api();
        let stream = api.stream_tx_by_mid(mid, None)?;
        let (ssrc, rtx) = (stream.ssrc(), stream.rtx());
        api.remove_stream_tx(ssrc);
        // The first sequence number is below 2^15. So a receiver that misses the first packets
        // counts no rollover.
        let sequence = u64::from(rand::random::<u16>() >> 1);
        Some(Self {
            mid,
            pt,
            ssrc,
            rtx,
            declared: false,
            sequence,
            timestamp_offset: rand::random(),
        })
    }

    /// Declares the track to str0m, once.
    pub(super) fn declare(&mut self, rtc: &mut Rtc) {
        if self.declared {
            return;
        }
        self.declared = true;
        let mut api = rtc.direct_api();
        let stream = api.declare_stream_tx(self.ssrc, self.rtx, self.mid, None);
        if self.rtx.is_some() {
            // No cap on the share of retransmitted bytes: after seconds of a still picture, a key
            // frame is most of the traffic.
            stream.set_rtx_cache(RTX_CACHE_PACKETS, RTX_CACHE_AGE, None);
        }
    }

    /// Passes one packet to str0m, which encrypts it at the next time step.
    pub(super) fn write(&mut self, rtc: &mut Rtc, packet: Packet) {
        if !rtc.is_connected() {
            return;
        }
        self.declare(rtc);
        let mut api = rtc.direct_api();
        let Some(stream) = api.stream_tx_by_mid(self.mid, None) else { return };
        let stamp = (packet.timestamp as u32).wrapping_add(self.timestamp_offset);
        let write =
            RtpWrite::new(self.pt, self.sequence.into(), stamp, packet.wallclock, packet.payload);
        let mut write = write.marker(packet.marker).nackable(packet.nackable);
        if let Some(level) = packet.audio_level {
            write = write.ext_vals(ExtensionValues {
                audio_level: Some(level),
                voice_activity: Some(level > SILENT_LEVEL),
                ..ExtensionValues::default()
            });
        }
        stream.write_rtp(write);
        self.sequence += 1;
    }

    /// Whether a datagram is a retransmission of this track (RFC 4588); those have their own SSRC.
    pub(super) fn is_retransmission(&self, datagram: &[u8]) -> bool {
        let Some(rtx) = self.rtx else { return false };
        // RTP has version 2 in its first two bits, and the SSRC in bytes 8 to 11.
        datagram.first().is_some_and(|first| first >> 6 == 2)
            && datagram.get(8..12) == Some(&(*rtx).to_be_bytes())
    }
}
