//! Pictures for custom avatars: checks that need no decoding.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use crate::error::ApiError;

/// Maximum file size of a picture, bytes.
const MAX_IMAGE_BYTES: usize = 9 << 20;
/// Maximum number of pixels of a picture: a small file may decompress to many.
const MAX_PIXELS: usize = 40_000_000;
const TOO_MANY_PIXELS: &str = "must hold at most 40 megapixels";

/// Whether the bytes have the signature of a PNG, JPEG or WebP file. The content is checked by the
/// renderer.
fn is_picture(bytes: &[u8]) -> bool {
    bytes.starts_with(b"\x89PNG\r\n\x1a\n")
        || bytes.starts_with(b"\xff\xd8\xff")
        || (bytes.starts_with(b"RIFF") && bytes.get(8..12) == Some(b"WEBP"))
}

/// Checks a data URI with a picture. 413 if the picture is too large.
pub(crate) fn check_data_uri(uri: &str) -> Result<Result<(), &'static str>, ApiError> {
    let Some((head, data)) = uri.strip_prefix("data:").and_then(|rest| rest.split_once(',')) else {
        return Ok(Err("must be a base64 data URI"));
    };
    let Some(kind) = head.strip_suffix(";base64") else {
        return Ok(Err("must be a base64 data URI"));
    };
    if !matches!(kind, "image/png" | "image/jpeg" | "image/jpg" | "image/webp") {
        return Ok(Err("must be PNG, JPEG or WebP"));
    }
    let Ok(bytes) = STANDARD.decode(data) else { return Ok(Err("must be a base64 data URI")) };
    if bytes.len() > MAX_IMAGE_BYTES {
        return Err(ApiError::PayloadTooLarge);
    }
    if !is_picture(&bytes) {
        return Ok(Err("must be PNG, JPEG or WebP"));
    }
    // Only the header is read. A picture without a readable size is left to the renderer.
    let pixels =
        imagesize::blob_size(&bytes).ok().map(|size| size.width.saturating_mul(size.height));
    Ok(if pixels.is_none_or(|pixels| pixels <= MAX_PIXELS) { Ok(()) } else { Err(TOO_MANY_PIXELS) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_picture_is_a_data_uri_of_a_known_kind() {
        let uri =
            |kind: &str, bytes: &[u8]| format!("data:{kind};base64,{}", STANDARD.encode(bytes));
        let rejection = |uri: &str| check_data_uri(uri).unwrap().err();
        for (kind, bytes) in [
            ("image/png", &b"\x89PNG\r\n\x1a\n...."[..]),
            ("image/jpeg", b"\xff\xd8\xff\xe0...."),
            ("image/webp", b"RIFF....WEBPVP8 "),
        ] {
            assert_eq!(rejection(&uri(kind, bytes)), None, "{kind}");
        }
        assert_eq!(rejection("https://example.com/a.png"), Some("must be a base64 data URI"));
        assert_eq!(rejection("data:image/png;base64,***"), Some("must be a base64 data URI"));
        assert_eq!(rejection(&uri("image/gif", b"GIF89a")), Some("must be PNG, JPEG or WebP"));
        assert_eq!(rejection(&uri("image/png", b"GIF89a")), Some("must be PNG, JPEG or WebP"));
        let png = |width: u32, height: u32| {
            let size = [width.to_be_bytes(), height.to_be_bytes()].concat();
            [b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR", &size[..], b"\x08\x02\0\0\0"].concat()
        };
        let jpeg = |width: u16, height: u16| {
            let size = [height.to_be_bytes(), width.to_be_bytes()].concat();
            [b"\xff\xd8\xff\xc0\0\x11\x08", &size[..], b"\x03\x01\x22\0\x02\x11\x01\x03\x11\x01"]
                .concat()
        };
        let webp = |width: u32, height: u32| {
            let size = [&(width - 1).to_le_bytes()[..3], &(height - 1).to_le_bytes()[..3]].concat();
            [b"RIFF\x1e\0\0\0WEBPVP8X\x0a\0\0\0\0\0\0\0", &size[..]].concat()
        };
        for (kind, fits, bomb) in [
            ("image/png", png(8000, 5000), png(8000, 5001)),
            ("image/jpeg", jpeg(8000, 5000), jpeg(8000, 5001)),
            ("image/webp", webp(8000, 5000), webp(8000, 5001)),
        ] {
            assert_eq!(
                (rejection(&uri(kind, &fits)), rejection(&uri(kind, &bomb))),
                (None, Some(TOO_MANY_PIXELS)),
                "{kind}"
            );
        }
        let large = uri("image/png", &vec![0; MAX_IMAGE_BYTES + 1]);
        assert!(matches!(check_data_uri(&large), Err(ApiError::PayloadTooLarge)));
    }
}
