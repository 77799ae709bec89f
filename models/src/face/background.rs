//! What an avatar stands in front of.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use character::{Colour, Picture};
use landmarks::DecodeLimits;
use serde::{Deserialize, Serialize};

use super::cutout::Cutout;
use super::webp;

/// What replaces the background of an avatar. Serialized as the control plane stores it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Background {
    /// One colour.
    Colour {
        /// The colour.
        colour: Colour,
    },
    /// A linear gradient.
    Gradient {
        /// The colour where it starts.
        from: Colour,
        /// The colour where it ends.
        to: Colour,
        /// Direction in degrees, as in CSS: 180 leads from top to bottom, 90 from left to right.
        angle: f32,
    },
    /// The avatar's own background, out of focus.
    Blur {
        /// How far it is out of focus: 0 (not at all) … 1.
        strength: f32,
    },
    /// A picture. It covers the whole background; its edges are cut off if its shape differs.
    Image {
        /// PNG, JPEG or WebP file in base64.
        image: String,
    },
}

/// Maximum number of pixels on the longer side of a picture that is kept as a background.
pub const MAX_IMAGE_SIDE: usize = 1280;
/// VP8 quantizer of a picture that is kept: nearly no visible loss.
const IMAGE_QUANTIZER: u32 = 6;

/// Why a background cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum BackgroundError {
    /// Its picture cannot be decoded.
    #[error(transparent)]
    Picture(#[from] landmarks::DecodeError),
    /// Its picture cannot be encoded.
    #[error(transparent)]
    Vp8(#[from] super::vp8::Error),
}

impl Background {
    /// Its picture, as RGB triples. `rest` is the avatar at rest.
    pub(super) fn paint(
        &self,
        (width, height): (usize, usize),
        rest: &Cutout,
    ) -> Result<Vec<u8>, BackgroundError> {
        Ok(match self {
            Self::Colour { colour } => rgb(*colour).map(|level| level as u8).repeat(width * height),
            Self::Gradient { from, to, angle } => {
                paint_gradient((width, height), rgb(*from), rgb(*to), *angle)
            }
            Self::Blur { strength } => rest.blurred((width, height), *strength),
            Self::Image { image } => {
                let file = STANDARD.decode(image).unwrap_or_default();
                let picture = landmarks::decode(&file, DecodeLimits::default())?;
                landmarks::cover(&picture, [width, height]).rgb().to_vec()
            }
        })
    }
}

/// Decodes an uploaded picture and encodes it as WebP, with at most [`MAX_IMAGE_SIDE`] pixels on the
/// longer side. Both are files in base64.
///
/// # Errors
/// If it is no picture.
pub fn normalize_image(file: &str) -> Result<String, BackgroundError> {
    let file = STANDARD.decode(file).unwrap_or_default();
    let picture = landmarks::decode(&file, DecodeLimits::default())?;
    let longer = picture.width().max(picture.height());
    let scale = (MAX_IMAGE_SIDE as f32 / longer as f32).min(1.0);
    // Even, because video has half the resolution of colour.
    let [width, height] = [picture.width(), picture.height()]
        .map(|side| ((side as f32 * scale / 2.0).round() as usize * 2).clamp(2, MAX_IMAGE_SIDE));
    let small = landmarks::resize(&picture, [width, height]);
    let rgba = small.rgb().chunks_exact(3).flat_map(|p| [p[0], p[1], p[2], 255]).collect();
    Ok(STANDARD.encode(webp::encode(&Picture { width, height, rgba }, IMAGE_QUANTIZER)?))
}

/// Red, green and blue, 0 … 255.
fn rgb(Colour(colour): Colour) -> [f32; 3] {
    [16, 8, 0].map(|shift: u32| (colour >> shift & 255) as f32)
}

/// The gradient of CSS: the corners in its direction have the colours `from` and `to`.
fn paint_gradient(
    (width, height): (usize, usize),
    from: [f32; 3],
    to: [f32; 3],
    angle: f32,
) -> Vec<u8> {
    let (sin, cos) = angle.to_radians().sin_cos();
    let (w, h) = (width as f32, height as f32);
    let length = (w * sin).abs() + (h * cos).abs();
    let mut out = Vec::with_capacity(width * height * 3);
    for y in 0..height {
        for x in 0..width {
            let (u, v) = (x as f32 + 0.5 - w / 2.0, y as f32 + 0.5 - h / 2.0);
            let t = ((u * sin - v * cos) / length + 0.5).clamp(0.0, 1.0);
            // An ordered dither hides the steps between levels.
            let dither = ((x * 7 + y * 13) % 8) as f32 / 8.0 - 0.44;
            for k in 0..3 {
                let level = from[k] + (to[k] - from[k]) * t;
                out.push((level + 0.5 + dither * 0.6).clamp(0.0, 255.0) as u8);
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gradient_runs_in_the_direction_of_css() {
        let size = (40, 20);
        let at = |picture: &[u8], x: usize, y: usize| picture[(y * size.0 + x) * 3];
        for (angle, dark, light) in
            [(180.0, (20, 0), (20, 19)), (90.0, (0, 10), (39, 10)), (0.0, (20, 19), (20, 0))]
        {
            let picture = paint_gradient(size, [0.0; 3], [200.0; 3], angle);
            let (dark, light) = (at(&picture, dark.0, dark.1), at(&picture, light.0, light.1));
            assert!(dark < 12 && light > 188, "{angle}: {dark} to {light}");
        }
    }

    #[test]
    fn a_background_is_stored_with_its_type() {
        let stored = r##"{"type":"gradient","from":"#102030","to":"#ffffff","angle":180.0}"##;
        let background: Background = serde_json::from_str(stored).unwrap();
        assert_eq!(serde_json::to_string(&background).unwrap(), stored);
        assert!(serde_json::from_str::<Background>(r#"{"type":"keep"}"#).is_err());
    }

    #[test]
    fn an_uploaded_picture_is_kept_small_and_even() {
        let picture = landmarks::Picture::new(1999, 31, vec![90; 1999 * 31 * 3]).unwrap();
        let file = STANDARD.encode(landmarks::encode_png(&picture).unwrap());
        let stored = STANDARD.decode(normalize_image(&file).unwrap()).unwrap();
        let stored = landmarks::decode(&stored, DecodeLimits::default()).unwrap();
        assert_eq!((stored.width(), stored.height()), (1280, 20));
        assert!(normalize_image("bm90IGEgcGljdHVyZQ==").is_err());
    }
}
