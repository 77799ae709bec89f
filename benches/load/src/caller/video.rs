//! Receives video: it counts complete frames by timestamp and marker. Some callers also decode
//! them.

use std::time::{Duration, Instant};

use models::face::vp8;
use rtc::rtp;

use super::clock_offset::ClockOffsets;

/// Minimum time between two requests for a key frame.
const KEY_FRAME_REQUEST_INTERVAL: Duration = Duration::from_millis(500);

/// Statistics of the received video.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct ReceivedVideo {
    /// Time from the request for the conversation to the first complete frame, in s.
    pub(crate) first_frame: Option<f64>,
    /// Number of complete frames.
    pub(crate) frames: u64,
    /// Delay of the video behind its audio, from the sender reports, in s.
    pub(crate) skew: Option<f64>,
    /// Number of decoded frames.
    pub(crate) decoded: u64,
    /// Number of frames that could not be decoded; they are not part of `decoded`.
    pub(crate) decode_errors: u64,
}

/// A frame that is being received.
struct PartialFrame {
    timestamp: u32,
    next_sequence: u16,
    is_complete: bool,
    data: Vec<u8>,
}

/// Assembles frames from packets.
pub(super) struct VideoReceiver {
    started_at: Instant,
    current: Option<PartialFrame>,
    first_frame_at: Option<Instant>,
    decode_enabled: bool,
    decoder: Option<vp8::Decoder>,
    key_frame_requested_at: Option<Instant>,
    stats: ReceivedVideo,
    pub(super) offsets: ClockOffsets,
}

impl VideoReceiver {
    pub(super) fn new(started_at: Instant, decodes: bool) -> Self {
        Self {
            started_at,
            current: None,
            first_frame_at: None,
            decode_enabled: decodes,
            decoder: None,
            key_frame_requested_at: None,
            stats: ReceivedVideo::default(),
            offsets: ClockOffsets::new(90_000.0),
        }
    }

    /// Handles a packet; returns whether it completes a frame.
    pub(super) fn handle_packet(&mut self, at: Instant, packet: &rtp::Packet) -> bool {
        let header = &packet.header;
        // Padding, which senders use to probe for bandwidth, has no payload.
        let Some((starts_frame, payload)) = strip_vp8_descriptor(&packet.payload) else {
            return false;
        };
        let continues = self.current.as_ref().is_some_and(|c| {
            c.timestamp == header.timestamp
                && c.next_sequence == header.sequence_number
                && !starts_frame
        });
        if !continues {
            let mut data = self.current.take().map(|c| c.data).unwrap_or_default();
            data.clear();
            self.current = Some(PartialFrame {
                timestamp: header.timestamp,
                next_sequence: 0,
                is_complete: starts_frame,
                data,
            });
        }
        let Some(frame) = &mut self.current else {
            return false;
        };
        frame.next_sequence = header.sequence_number.wrapping_add(1);
        if self.decode_enabled {
            frame.data.extend_from_slice(payload);
        }
        if !header.marker {
            return false;
        }
        let Some(frame) = self.current.take().filter(|c| c.is_complete) else {
            return false;
        };
        self.finish_frame(at, &frame);
        true
    }

    fn finish_frame(&mut self, at: Instant, picture: &PartialFrame) {
        self.offsets.add_packet(
            at.saturating_duration_since(self.started_at).as_secs_f64(),
            picture.timestamp,
        );
        self.stats.frames += 1;
        self.first_frame_at = self.first_frame_at.or(Some(at));
        if self.decode_enabled {
            self.decode(&picture.data);
        }
    }

    /// Whether the caller requests a key frame now: it decodes, and had none yet. Packets that come
    /// before the track exists are lost to it, and a key frame may be among them.
    pub(super) fn requests_key_frame(&mut self, at: Instant) -> bool {
        let is_due = self
            .key_frame_requested_at
            .is_none_or(|last| at.saturating_duration_since(last) >= KEY_FRAME_REQUEST_INTERVAL);
        let request = self.decode_enabled && self.decoder.is_none() && is_due;
        if request {
            self.key_frame_requested_at = Some(at);
        }
        request
    }

    /// Before the first key frame, nothing can be decoded.
    fn decode(&mut self, frame: &[u8]) {
        if self.decoder.is_none() {
            let Some((width, height)) = key_frame_size(frame) else {
                return;
            };
            self.decoder = vp8::Decoder::new(width, height).ok();
        }
        let Some(decoder) = &mut self.decoder else {
            return;
        };
        match decoder.decode(frame) {
            Ok(_) => self.stats.decoded += 1,
            Err(_) => self.stats.decode_errors += 1,
        }
    }

    /// Returns the statistics of a call that was requested at `requested_at`. `sound`: the median
    /// audio offset, as in [`ClockOffsets`].
    pub(super) fn finish(&mut self, requested_at: Instant, sound: Option<f64>) -> ReceivedVideo {
        self.stats.first_frame =
            self.first_frame_at.map(|at| at.saturating_duration_since(requested_at).as_secs_f64());
        self.stats.skew = self.offsets.median().zip(sound).map(|(picture, sound)| picture - sound);
        self.stats
    }
}

/// Strips the VP8 payload descriptor (RFC 7741, 4.2). Returns the payload, and whether it starts a
/// frame. The parser of the WebRTC stack rejects payloads below four bytes, but a frame may end in
/// one.
fn strip_vp8_descriptor(packet: &[u8]) -> Option<(bool, &[u8])> {
    let first = *packet.first()?;
    let mut length = 1;
    if first & 0x80 != 0 {
        let extension = *packet.get(1)?;
        length += 1;
        if extension & 0x80 != 0 {
            // The picture id has a second byte if its first bit is set.
            length += 1 + usize::from(*packet.get(length)? & 0x80 != 0);
        }
        length += usize::from(extension & 0x40 != 0) + usize::from(extension & 0x30 != 0);
    }
    let rest = packet.get(length..).filter(|rest| !rest.is_empty())?;
    Some((first & 0x10 != 0 && first & 0x07 == 0, rest))
}

/// Width and height of a key frame (RFC 6386, 9.1); `None` for other frames.
fn key_frame_size(frame: &[u8]) -> Option<(usize, usize)> {
    let [tag, _, _, 0x9d, 0x01, 0x2a, w0, w1, h0, h1, ..] = frame else {
        return None;
    };
    let side = |low: u8, high: u8| usize::from(u16::from_le_bytes([low, high]) & 0x3fff);
    (tag & 1 == 0).then(|| (side(*w0, *w1), side(*h0, *h1)))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use bytes::Bytes;
    use engine::clock;
    use models::face::picture::I420;

    use super::*;

    /// A frame as packets of `size` bytes, each with the shortest descriptor.
    fn packets(frame: &[u8], size: usize, sequence: &mut u16, timestamp: u32) -> Vec<rtp::Packet> {
        let count = frame.len().div_ceil(size);
        let parts = frame.chunks(size).enumerate();
        parts
            .map(|(i, part)| {
                let mut packet = rtp::Packet::default();
                packet.header.sequence_number = *sequence;
                packet.header.timestamp = timestamp;
                packet.header.marker = i + 1 == count;
                *sequence = sequence.wrapping_add(1);
                let descriptor = if i == 0 { 0x10 } else { 0 };
                packet.payload = Bytes::from([&[descriptor], part].concat());
                packet
            })
            .collect()
    }

    fn frames() -> Vec<Vec<u8>> {
        let mut encoder = vp8::Encoder::new(64, 64).unwrap();
        let picture = |n: usize| I420::from_rgb(&vec![n as u8 * 20; 64 * 64 * 3], 64, 64);
        let mut frames = vec![encoder.encode_key_frame(&picture(0), 10).unwrap()];
        frames.extend((1..6).map(|n| {
            encoder
                .encode_pose(
                    &picture(n),
                    vp8::Quantizers::uniform(10),
                    &[vp8::BlockMode::Coded; 16],
                )
                .unwrap()
        }));
        frames
    }

    #[test]
    fn whole_pictures_are_counted_decoded_and_timed() {
        let started_at = clock::now();
        let mut receiver = VideoReceiver::new(started_at, true);
        let mut sequence = u16::MAX - 2;
        let mut completed = 0;
        for (n, frame) in frames().iter().enumerate() {
            let at = started_at + Duration::from_millis(100 + 40 * n as u64);
            for packet in packets(frame, 20, &mut sequence, n as u32 * 3600) {
                completed += u32::from(receiver.handle_packet(at, &packet));
            }
        }
        let stats = receiver.finish(started_at, None);
        assert_eq!((completed, stats.frames, stats.decoded, stats.decode_errors), (6, 6, 6, 0));
        assert!((stats.first_frame.unwrap() - 0.1).abs() < 1e-9);
    }

    #[test]
    fn a_missing_first_key_frame_is_requested_until_one_comes() {
        let started_at = clock::now();
        let mut receiver = VideoReceiver::new(started_at, true);
        let frames = frames();
        let mut sequence = 0;
        let mut requests = |receiver: &mut VideoReceiver, frame: &[u8], millis: u64| {
            let at = started_at + Duration::from_millis(millis);
            for packet in packets(frame, 1000, &mut sequence, millis as u32 * 90) {
                receiver.handle_packet(at, &packet);
            }
            receiver.requests_key_frame(at)
        };
        assert!(requests(&mut receiver, &frames[1], 40), "the key frame was lost");
        assert!(!requests(&mut receiver, &frames[2], 80), "one request is under way");
        assert!(requests(&mut receiver, &frames[3], 540), "it was lost, too");
        assert!(!requests(&mut receiver, &frames[0], 1_080), "this is a key frame");
        assert!(!requests(&mut receiver, &frames[1], 1_120));
        assert_eq!(receiver.finish(started_at, None).decoded, 2);
        let mut counting = VideoReceiver::new(started_at, false);
        assert!(
            !requests(&mut counting, &frames[1], 1_160),
            "a caller that only counts needs none"
        );
    }

    #[test]
    fn a_descriptor_is_as_long_as_its_bits_say() {
        let one = |bytes: &'static [u8]| strip_vp8_descriptor(bytes);
        assert_eq!(one(&[0x10, 7]), Some((true, &[7][..])));
        assert_eq!(one(&[0x00, 7]), Some((false, &[7][..])));
        assert_eq!(one(&[0x11, 7]), Some((false, &[7][..])), "another partition");
        assert_eq!(one(&[0x90, 0xf0, 0x81, 0x02, 3, 4, 7]), Some((true, &[7][..])), "all of it");
        assert_eq!(one(&[0x90, 0x80, 0x01, 7]), Some((true, &[7][..])), "a short number");
        for short in [&[][..], &[0x10], &[0x90, 0x80], &[0x90, 0x80, 0x81, 1]] {
            assert_eq!(strip_vp8_descriptor(short), None, "{short:?}");
        }
    }

    #[test]
    fn a_picture_that_lacks_a_packet_is_none() {
        let started_at = clock::now();
        for lost in [0, 1, 2] {
            let mut receiver = VideoReceiver::new(started_at, false);
            let mut sequence = 7;
            let frame = vec![0; 55];
            let all = packets(&frame, 20, &mut sequence, 90);
            let mut received = all.iter().enumerate().filter(|(i, _)| *i != lost);
            assert!(!received.any(|(_, p)| receiver.handle_packet(started_at, p)), "packet {lost}");
            let next = packets(&frame, 20, &mut sequence, 3690);
            assert!(next.iter().any(|p| receiver.handle_packet(started_at, p)));
        }
    }
}
