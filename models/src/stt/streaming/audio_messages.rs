//! Messages with audio in JSON, as base64.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::BytesMut;
use egress::websocket::Utf8Bytes;

use super::Outgoing;

/// Memory that is allocated at a time. It is used again when its messages have left.
const BLOCK_BYTES: usize = 16 << 10;

/// Writes messages with audio into one buffer.
#[derive(Debug)]
pub(in crate::stt) struct AudioMessages {
    before: &'static str,
    after: &'static str,
    buffer: BytesMut,
}

impl AudioMessages {
    /// Messages with the JSON `before` and `after` the base64 characters.
    pub(in crate::stt) fn new(before: &'static str, after: &'static str) -> Self {
        Self { before, after, buffer: BytesMut::new() }
    }

    /// The message with these samples, as on the wire.
    pub(in crate::stt) fn message(&mut self, pcm: &[u8]) -> Outgoing {
        let audio = pcm.len().div_ceil(3) * 4;
        let length = self.before.len() + audio + self.after.len();
        if self.buffer.capacity() < length {
            self.buffer.reserve(length.max(BLOCK_BYTES));
        }
        self.buffer.extend_from_slice(self.before.as_bytes());
        let start = self.buffer.len();
        self.buffer.resize(start + audio, b'=');
        // The size is exact, so neither conversion fails.
        let written = STANDARD.encode_slice(pcm, &mut self.buffer[start..]).unwrap_or_default();
        self.buffer.truncate(start + written);
        self.buffer.extend_from_slice(self.after.as_bytes());
        let message = self.buffer.split().freeze();
        Outgoing::Text(Utf8Bytes::try_from(message).unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn audio_of_any_length_is_written_as_base64() {
        let mut messages = AudioMessages::new("{\"a\":\"", "\"}");
        for (pcm, expected) in [
            (&[][..], r#"{"a":""}"#),
            (&[0, 1], r#"{"a":"AAE="}"#),
            (&[255, 254, 253, 252], r#"{"a":"//79/A=="}"#),
            (&[1, 2, 3, 4, 5, 6], r#"{"a":"AQIDBAUG"}"#),
        ] {
            let Outgoing::Text(text) = messages.message(pcm) else { panic!("no text") };
            assert_eq!(text.as_str(), expected);
        }
    }

    #[test]
    fn the_buffer_is_used_again() {
        let mut messages = AudioMessages::new("<", ">");
        let address = |message: &Outgoing| match message {
            Outgoing::Text(text) => text.as_str().as_ptr() as usize,
            Outgoing::Binary(_) => 0,
        };
        let pcm = [7; 1_600];
        let first = address(&messages.message(&pcm));
        let again = (0..100).filter(|_| address(&messages.message(&pcm)) == first).count();
        assert!(again > 10, "{again} of 100");
    }
}
