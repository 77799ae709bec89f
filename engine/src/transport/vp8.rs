//! RTP payload format for VP8 (RFC 7741). Its temporal layers allow frames of the pose cache to be
//! lost, skipped and repeated.
//!
//! Every cached frame refers only to the key frame, or only to the altref frame. These two are
//! temporal layer 0, and so is a cached frame now and then. All other frames are layer 1. They set
//! Y (depends only on layer 0) and N (no frame depends on it), so that a browser shows every frame
//! that arrives.

use std::sync::Arc;

use super::VideoFrame;

/// Maximum RTP payload including the descriptor, bytes: 1200 bytes of UDP payload minus the RTP
/// header, its extensions and the SRTP tag.
pub(super) const MAX_PAYLOAD_BYTES: usize = 1120;
/// Length of the descriptor, bytes: X, I+L+T, PictureID of 15 bits, TL0PICIDX, TID+Y.
const DESCRIPTOR_BYTES: usize = 6;

/// Whether a frame needs several packets.
pub(super) fn needs_fragmentation(frame: &[u8]) -> bool {
    frame.len() > MAX_PAYLOAD_BYTES - DESCRIPTOR_BYTES
}

/// Picture counters of one outgoing track.
#[derive(Debug, Default)]
pub(super) struct Packetizer {
    picture_id: u16,
    tl0_pic_idx: u8,
}

impl Packetizer {
    /// Starts at the given counters; `picture_id` is cut to 15 bits.
    pub(super) fn new(picture_id: u16, tl0_pic_idx: u8) -> Self {
        Self { picture_id: picture_id & 0x7fff, tl0_pic_idx }
    }

    /// Calls `send(payload, last)` for each packet of the frame; the packets have about equal
    /// lengths.
    pub(super) fn packetize(&mut self, frame: &VideoFrame, mut send: impl FnMut(Arc<[u8]>, bool)) {
        if frame.payload.is_empty() {
            return;
        }
        let layer0 = frame.is_key_frame || frame.base_layer;
        if layer0 {
            self.tl0_pic_idx = self.tl0_pic_idx.wrapping_add(1);
        }
        self.picture_id = (self.picture_id + 1) & 0x7fff;
        let [high, low] = (self.picture_id | 0x8000).to_be_bytes();
        let droppable = if layer0 { 0 } else { 0x20 };
        let layer = if layer0 { 0 } else { 0x60 };
        let packets = frame.payload.len().div_ceil(MAX_PAYLOAD_BYTES - DESCRIPTOR_BYTES);
        let size = frame.payload.len().div_ceil(packets);
        for (i, part) in frame.payload.chunks(size).enumerate() {
            let start = if i == 0 { 0x10 } else { 0 };
            let descriptor = [0x80 | droppable | start, 0xe0, high, low, self.tl0_pic_idx, layer];
            send(descriptor.into_iter().chain(part.iter().copied()).collect(), i + 1 == packets);
        }
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    fn packets(
        packetizer: &mut Packetizer,
        len: usize,
        key: bool,
        base_layer: bool,
    ) -> Vec<(Arc<[u8]>, bool)> {
        let payload = Bytes::from((0..len).map(|i| i as u8).collect::<Vec<_>>());
        let mut out = Vec::new();
        packetizer
            .packetize(&VideoFrame { payload, is_key_frame: key, base_layer }, |packet, last| {
                out.push((packet, last))
            });
        out
    }

    #[test]
    fn a_key_is_layer_0_and_a_cached_frame_is_a_droppable_layer_1() {
        let mut packetizer = Packetizer::new(0x7ffe, 255);
        let key = packets(&mut packetizer, 10, true, false);
        assert_eq!(key[0].0[..6], [0x90, 0xe0, 0xff, 0xff, 0, 0x00]);
        let other = packets(&mut packetizer, 10, false, false);
        assert_eq!(other[0].0[..6], [0xb0, 0xe0, 0x80, 0x00, 0, 0x60]);
        let base = packets(&mut packetizer, 10, false, true);
        assert_eq!(base[0].0[..6], [0x90, 0xe0, 0x80, 0x01, 1, 0x00]);
    }

    #[test]
    fn a_long_frame_is_cut_evenly_and_only_its_last_packet_ends_it() {
        let packets = packets(&mut Packetizer::default(), 3000, true, false);
        assert_eq!(packets.iter().map(|(p, _)| p.len()).collect::<Vec<_>>(), [1006, 1006, 1006]);
        assert_eq!(packets.iter().map(|(_, last)| *last).collect::<Vec<_>>(), [false, false, true]);
        assert_eq!(packets.iter().map(|(p, _)| p[0]).collect::<Vec<_>>(), [0x90, 0x80, 0x80]);
        let whole: Vec<u8> = packets.iter().flat_map(|(p, _)| p[6..].iter().copied()).collect();
        assert_eq!(whole, (0..3000).map(|i| i as u8).collect::<Vec<_>>());
    }

    #[test]
    fn no_packet_is_longer_than_the_limit() {
        for len in [1, 1113, 1114, 1115, 2228, 2229, 40_000] {
            let packets = packets(&mut Packetizer::default(), len, false, false);
            assert!(packets.iter().all(|(p, _)| p.len() <= MAX_PAYLOAD_BYTES));
            assert_eq!(packets.iter().filter(|(_, last)| *last).count(), 1);
            assert_eq!(packets.len() > 1, needs_fragmentation(&vec![0; len]));
            assert_eq!(packets.iter().map(|(p, _)| p.len() - DESCRIPTOR_BYTES).sum::<usize>(), len);
        }
    }

    #[test]
    fn an_empty_frame_sends_nothing() {
        assert!(packets(&mut Packetizer::default(), 0, true, true).is_empty());
    }
}
