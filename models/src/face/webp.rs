//! Pictures for browsers: lossy WebP, which is a VP8 key frame in a RIFF container.

use character::Picture;

use super::picture::I420;
use super::vp8::{self, Encoder};

/// A WebP file of a picture with even sides. `quantizer` is VP8's: 0 (finest) … 63 (coarsest).
///
/// # Errors
/// Error of the encoder.
pub fn encode(picture: &Picture, quantizer: u32) -> Result<Vec<u8>, vp8::Error> {
    encode_i420(&I420::from_rgb(&picture.rgb(), picture.width, picture.height), quantizer)
}

/// As [`encode`], from YUV planes.
///
/// # Errors
/// Error of the encoder.
pub fn encode_i420(picture: &I420, quantizer: u32) -> Result<Vec<u8>, vp8::Error> {
    let mut encoder = Encoder::new(picture.width(), picture.height())?;
    Ok(of_key_frame(&encoder.encode_key_frame(picture, quantizer)?))
}

/// A WebP file of a key frame of VP8.
#[must_use]
pub fn of_key_frame(frame: &[u8]) -> Vec<u8> {
    let padded = frame.len().next_multiple_of(2);
    let mut file = b"RIFF".to_vec();
    file.extend((padded as u32 + 12).to_le_bytes());
    file.extend(b"WEBPVP8 ");
    file.extend((frame.len() as u32).to_le_bytes());
    file.extend(frame);
    file.resize(padded + 20, 0);
    file
}
