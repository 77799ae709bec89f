//! An uploaded picture.

use landmarks::{DecodeLimits, decode};

use crate::MAX_INPUT;

/// Maximum number of pixels: more only take longer.
const MAX_PIXELS: u64 = 1 << 18;

/// A PNG, JPEG or WebP file.
///
/// # Panics
/// The decoded picture has more pixels than the limit, or another number of bytes.
pub fn picture(bytes: &[u8]) {
    let limits = DecodeLimits { bytes: MAX_INPUT, pixels: MAX_PIXELS };
    if let Ok(picture) = decode(bytes, limits) {
        let pixels = picture.width() * picture.height();
        assert!(pixels as u64 <= MAX_PIXELS, "{pixels} pixels");
        assert_eq!(picture.rgb().len(), 3 * pixels);
    }
}
