//! The framing of ICE-TCP (RFC 4571): two bytes of length, then a datagram.

use super::demux::stun_ufrag;

/// Maximum length of a datagram, bytes.
pub(super) const MAX_FRAME_BYTES: usize = 2000;

/// Splits a byte stream into frames.
#[derive(Default)]
pub struct FrameDecoder {
    ufrag: Option<String>,
    /// Bytes of an incomplete frame, and of frames that were not admitted yet.
    buffer: Vec<u8>,
    /// Whether the buffer holds a complete frame.
    has_frame: bool,
}

/// How far a [`FrameDecoder`] came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Decoded {
    /// It delivered all complete frames.
    All,
    /// The next frame was not admitted.
    Stopped,
    /// The stream must be closed.
    Invalid,
}

impl FrameDecoder {
    /// The user name of the first check; `None` until that check is complete.
    #[must_use]
    pub fn ufrag(&self) -> Option<&str> {
        self.ufrag.as_deref()
    }

    /// Adds the stream's next bytes. Each complete frame goes to `deliver`, with the user name of
    /// the first check. RFC 4571 permits frames without contents; ICE has no use for them, so they
    /// are skipped. False if the stream must be closed: a frame is longer than 2,000 bytes, the
    /// first one is no STUN check, or `deliver` returned false.
    pub fn push(&mut self, bytes: &[u8], deliver: impl FnMut(&str, &[u8]) -> bool) -> bool {
        self.extend(bytes);
        self.decode(|| true, deliver) != Decoded::Invalid
    }

    /// Whether the last [`FrameDecoder::decode`] stopped before a complete frame.
    pub(super) fn has_frame(&self) -> bool {
        self.has_frame
    }

    /// Adds the stream's next bytes, for [`FrameDecoder::decode`].
    pub(super) fn extend(&mut self, bytes: &[u8]) {
        self.buffer.extend(bytes);
    }

    /// Delivers the complete frames in the buffer, as [`FrameDecoder::push`] does, until `admit`
    /// returns false. `admit` is asked before each frame, also before one without contents.
    pub(super) fn decode(
        &mut self,
        mut admit: impl FnMut() -> bool,
        mut deliver: impl FnMut(&str, &[u8]) -> bool,
    ) -> Decoded {
        let mut rest = &self.buffer[..];
        let mut decoded = Decoded::All;
        while let [high, low, tail @ ..] = rest {
            let length = usize::from(u16::from_be_bytes([*high, *low]));
            if length > MAX_FRAME_BYTES {
                return Decoded::Invalid;
            }
            let Some(contents) = tail.get(..length) else { break };
            if !admit() {
                decoded = Decoded::Stopped;
                break;
            }
            rest = &tail[length..];
            if self.ufrag.is_none() {
                self.ufrag = stun_ufrag(contents).map(str::to_owned);
            }
            let Some(ufrag) = &self.ufrag else { return Decoded::Invalid };
            if !contents.is_empty() && !deliver(ufrag, contents) {
                return Decoded::Invalid;
            }
        }
        let read = self.buffer.len() - rest.len();
        self.buffer.drain(..read);
        self.has_frame = decoded == Decoded::Stopped;
        decoded
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stun_check() -> Vec<u8> {
        let mut datagram =
            vec![0, 1, 0, 0, 0x21, 0x12, 0xa4, 0x42, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12];
        datagram.extend([0, 6, 0, 8]);
        datagram.extend(b"friend:m");
        datagram
    }

    fn frame_bytes(contents: &[u8]) -> Vec<u8> {
        [&(contents.len() as u16).to_be_bytes()[..], contents].concat()
    }

    #[test]
    fn frames_without_contents_are_skipped() {
        let (mut decoder, mut delivered) = (FrameDecoder::default(), Vec::new());
        let stream = [frame_bytes(&stun_check()), vec![0; 1_000], frame_bytes(&[7, 8])].concat();
        assert!(decoder.push(&stream, |_, contents| {
            delivered.push(contents.to_vec());
            true
        }));
        assert_eq!(delivered, [stun_check(), vec![7, 8]]);
        assert!(
            !FrameDecoder::default().push(&[0, 0], |_, _| true),
            "the first frame must be a check"
        );
    }

    #[test]
    fn frames_that_are_not_admitted_wait() {
        let (mut decoder, mut delivered) = (FrameDecoder::default(), Vec::new());
        decoder.extend(&frame_bytes(&stun_check()));
        // Frames without contents cost time too, so they are counted.
        decoder.extend(&[0, 0, 0, 1, 1, 0, 0, 0, 1, 2, 0, 1]);
        for (limit, expected, decoded) in [
            (0, 0, Decoded::Stopped),
            (2, 1, Decoded::Stopped),
            (1, 2, Decoded::Stopped),
            (9, 3, Decoded::All),
        ] {
            let mut admitted = 0;
            let admit = || {
                admitted += 1;
                admitted <= limit
            };
            let found = decoder.decode(admit, |_, contents| {
                delivered.push(contents.to_vec());
                true
            });
            assert_eq!((delivered.len(), found), (expected, decoded), "{limit} more");
            assert_eq!(decoder.has_frame(), decoded == Decoded::Stopped);
        }
        assert_eq!(delivered[1..], [vec![1], vec![2]]);
        // The last frame is incomplete.
        assert_eq!(decoder.buffer, [0, 1]);
    }
}
