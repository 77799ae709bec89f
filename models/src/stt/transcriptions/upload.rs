//! The body of a request: `multipart/form-data` (RFC 7578) with a WAV file.

use std::hash::{BuildHasher as _, RandomState};

use bytes::{BufMut as _, Bytes, BytesMut};

use super::settings::Field;
use crate::stt::streaming::{BYTES_PER_SECOND, SAMPLE_RATE};

/// Size of a WAV header.
const HEADER_BYTES: usize = 44;

/// A request's body and its media type.
#[derive(Clone, Debug)]
pub(super) struct Upload {
    pub(super) content_type: String,
    pub(super) body: Bytes,
    /// Size of the audio in bytes.
    pub(super) audio_bytes: usize,
}

impl Upload {
    /// The fields, and the audio as the file `audio.wav`.
    pub(super) fn new(fields: &[Field], audio: &[Bytes]) -> Self {
        // Random, so that no field and no audio contains it.
        let part = || RandomState::new().hash_one(0_u8);
        let boundary = format!("visavis-{:016x}{:016x}", part(), part());
        let audio_bytes = audio.iter().map(Bytes::len).sum();
        let mut body = BytesMut::with_capacity(audio_bytes + 4_096);
        for (name, value) in fields {
            let part = format!(
                "--{boundary}\r\ncontent-disposition: form-data; name=\"{name}\"\r\n\r\n{value}\r\n"
            );
            body.extend_from_slice(part.as_bytes());
        }
        let head = format!(
            "--{boundary}\r\ncontent-disposition: form-data; name=\"file\"; \
             filename=\"audio.wav\"\r\ncontent-type: audio/wav\r\n\r\n"
        );
        body.extend_from_slice(head.as_bytes());
        put_header(&mut body, audio_bytes);
        audio.iter().for_each(|chunk| body.extend_from_slice(chunk));
        body.extend_from_slice(format!("\r\n--{boundary}--\r\n").as_bytes());
        let content_type = format!("multipart/form-data; boundary={boundary}");
        Self { content_type, body: body.freeze(), audio_bytes }
    }
}

/// Writes the header of a WAV file with mono 16-bit samples.
fn put_header(body: &mut BytesMut, audio_bytes: usize) {
    let size = u32::try_from(audio_bytes).unwrap_or(u32::MAX);
    body.put_slice(b"RIFF");
    body.put_u32_le(size.saturating_add(HEADER_BYTES as u32 - 8));
    body.put_slice(b"WAVEfmt ");
    body.put_u32_le(16);
    // PCM, one channel.
    body.put_u16_le(1);
    body.put_u16_le(1);
    body.put_u32_le(SAMPLE_RATE);
    body.put_u32_le(BYTES_PER_SECOND as u32);
    // Bytes of a sample, and bits.
    body.put_u16_le(2);
    body.put_u16_le(16);
    body.put_slice(b"data");
    body.put_u32_le(size);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_body_contains_the_fields_and_a_wav_file() {
        let audio = [Bytes::from_static(&[1, 2, 3, 4]), Bytes::from_static(&[5, 6])];
        let fields = [("model", "m".to_owned()), ("prompt", "Grüße\r\n".to_owned())];
        let upload = Upload::new(&fields, &audio);
        let boundary = upload.content_type.strip_prefix("multipart/form-data; boundary=").unwrap();
        assert_eq!((boundary.len(), upload.audio_bytes), (40, 6));
        let mut expected = format!(
            "--{boundary}\r\ncontent-disposition: form-data; name=\"model\"\r\n\r\nm\r\n\
             --{boundary}\r\ncontent-disposition: form-data; name=\"prompt\"\r\n\r\nGrüße\r\n\r\n\
             --{boundary}\r\ncontent-disposition: form-data; name=\"file\"; \
             filename=\"audio.wav\"\r\ncontent-type: audio/wav\r\n\r\n"
        )
        .into_bytes();
        expected.extend_from_slice(b"RIFF\x2a\0\0\0WAVEfmt \x10\0\0\0\x01\0\x01\0");
        expected.extend_from_slice(b"\x80\x3e\0\0\0\x7d\0\0\x02\0\x10\0data\x06\0\0\0");
        expected.extend_from_slice(&[1, 2, 3, 4, 5, 6]);
        expected.extend_from_slice(format!("\r\n--{boundary}--\r\n").as_bytes());
        assert_eq!(upload.body, expected);
        assert_ne!(Upload::new(&fields, &audio).content_type, upload.content_type);
    }
}
