//! Decodes uploaded pictures: PNG, JPEG and WebP, within limits. Encodes the crop that is kept.

use std::io::Cursor;

use image::codecs::png::PngEncoder;
use image::metadata::Orientation;
use image::{
    ColorType, DynamicImage, ImageDecoder as _, ImageEncoder as _, ImageFormat, ImageReader, Limits,
};
use moxcms::{ColorProfile, DataColorSpace, Layout, TransformOptions};

use crate::picture::Picture;

/// Limits of a picture. They bound the memory of a decoder to about 10 bytes for each pixel. With
/// the default ones, a check of a photo takes at most a second of CPU time.
#[derive(Clone, Copy, Debug)]
pub struct DecodeLimits {
    /// Maximum size of the file in bytes.
    pub bytes: usize,
    /// Maximum number of pixels.
    pub pixels: u64,
}

impl Default for DecodeLimits {
    fn default() -> Self {
        Self { bytes: 9 << 20, pixels: 40_000_000 }
    }
}

/// Why a file is not decoded. The text tells the sender what to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// The file exceeds [`DecodeLimits::bytes`].
    #[error("the picture has more than {0} MB: send a smaller one")]
    TooManyBytes(usize),
    /// The picture exceeds [`DecodeLimits::pixels`].
    #[error("the picture has more than {0} megapixels: send a smaller one")]
    TooManyPixels(u64),
    /// Not PNG, JPEG or WebP.
    #[error("the picture must be PNG, JPEG or WebP")]
    UnknownFormat,
    /// A JPEG file with four colour components, as for printing.
    #[error("the JPEG has the colours of a printer (CMYK): save it with RGB colours")]
    Cmyk,
    /// The file is cut or damaged, or has a feature that the decoder does not support.
    #[error("the picture cannot be decoded: the file may be damaged, so save it again")]
    Damaged,
}

/// A picture as a PNG file, without any loss.
///
/// # Errors
/// Never for a [`Picture`]: all its pixels are there.
pub fn encode_png(picture: &Picture) -> Result<Vec<u8>, DecodeError> {
    let mut file = Vec::new();
    let (width, height) = (picture.width() as u32, picture.height() as u32);
    PngEncoder::new(&mut file)
        .write_image(picture.rgb(), width, height, ColorType::Rgb8.into())
        .map_err(|_| DecodeError::Damaged)?;
    Ok(file)
}

/// Decodes a file. The result is upright as its EXIF orientation says; an ICC profile is converted
/// to sRGB, and what is transparent lies over white. A profile that cannot be read is ignored. Of an
/// animation, the first picture is read. A JPEG file without its end marker is refused, even if only
/// this marker is missing; whatever follows the marker is ignored.
///
/// # Errors
/// See [`DecodeError`].
pub fn decode(file: &[u8], limits: DecodeLimits) -> Result<Picture, DecodeError> {
    if file.len() > limits.bytes {
        return Err(DecodeError::TooManyBytes(limits.bytes >> 20));
    }
    let format = image::guess_format(file).map_err(|_| DecodeError::UnknownFormat)?;
    match format {
        ImageFormat::Png | ImageFormat::WebP => {}
        ImageFormat::Jpeg if has_four_components(file) => return Err(DecodeError::Cmyk),
        // The decoder fills what is missing with grey.
        ImageFormat::Jpeg if !has_end_of_image(file) => return Err(DecodeError::Damaged),
        ImageFormat::Jpeg => {}
        _ => return Err(DecodeError::UnknownFormat),
    }
    let damaged = |_| DecodeError::Damaged;
    let mut reader = ImageReader::with_format(Cursor::new(file), format);
    let mut allocation = Limits::no_limits();
    allocation.max_alloc = Some(limits.pixels.saturating_mul(8));
    reader.limits(allocation);
    let mut decoder = reader.into_decoder().map_err(damaged)?;
    let (width, height) = decoder.dimensions();
    if u64::from(width) * u64::from(height) > limits.pixels {
        return Err(DecodeError::TooManyPixels(limits.pixels / 1_000_000));
    }
    // A damaged EXIF block does not make the pixels useless.
    let orientation = decoder.orientation().unwrap_or(Orientation::NoTransforms);
    let profile = decoder.icc_profile().ok().flatten();
    let decoded = DynamicImage::from_decoder(decoder).map_err(damaged)?;
    let mut image = to_srgb(decoded, profile.as_deref());
    image.apply_orientation(orientation);
    let rgb = image.into_rgb8();
    let (width, height) = (rgb.width() as usize, rgb.height() as usize);
    Picture::new(width, height, rgb.into_raw()).ok_or(DecodeError::Damaged)
}

/// Whether a JPEG file has four colour components: the number is in its frame header (ITU-T T.81,
/// B.2.2).
fn has_four_components(file: &[u8]) -> bool {
    let mut at = 2;
    while let Some([0xff, marker, high, low]) = file.get(at..at + 4) {
        match marker {
            // A byte of padding before a marker.
            0xff => at += 1,
            // SOF0 … SOF15 without DHT, JPG and DAC.
            0xc0..=0xcf if !matches!(marker, 0xc4 | 0xc8 | 0xcc) => {
                return file.get(at + 9) == Some(&4);
            }
            // Start of the pixels.
            0xda => return false,
            _ => at += 2 + usize::from(u16::from_be_bytes([*high, *low])),
        }
    }
    false
}

/// Whether a JPEG file has the marker of its end after its pixels (ITU-T T.81, B.1.1 and B.2). A cut
/// file has none: within the pixels, a byte 0 follows each 0xff that is no marker, and segments are
/// skipped with all that they contain, such as a smaller picture.
fn has_end_of_image(file: &[u8]) -> bool {
    let (mut at, mut has_pixels) = (2, false);
    while let Some(found) = file.get(at..).and_then(|rest| rest.iter().position(|b| *b == 0xff)) {
        at += found;
        match file.get(at + 1..) {
            // A byte of padding before a marker.
            Some([0xff, ..]) => at += 1,
            // A byte of the pixels, and markers without content: TEM, RST0 … RST7, SOI.
            Some([0 | 1 | 0xd0..=0xd8, ..]) => at += 2,
            Some([0xd9, ..]) if has_pixels => return true,
            Some([0xd9, ..]) => at += 2,
            Some([marker, high, low, ..]) => {
                has_pixels |= *marker == 0xda;
                at += 2 + usize::from(u16::from_be_bytes([*high, *low]));
            }
            _ => return false,
        }
    }
    false
}

/// The picture in sRGB, with 8 bits per channel and without alpha.
fn to_srgb(image: DynamicImage, profile: Option<&[u8]>) -> DynamicImage {
    let colour: ColorType = image.color();
    // A profile of other colours than those of the picture is ignored, as in browsers.
    let fits = |profile: &ColorProfile| match profile.color_space {
        DataColorSpace::Rgb => true,
        DataColorSpace::Gray => !colour.has_color(),
        _ => false,
    };
    let profile = profile.and_then(|bytes| ColorProfile::new_from_slice(bytes).ok()).filter(fits);
    let (width, height) = (image.width(), image.height());
    if colour.has_alpha() {
        let mut rgba = match &profile {
            Some(gray) if gray.color_space == DataColorSpace::Gray => {
                let pixels = image.to_luma_alpha8().into_raw();
                convert(&pixels, gray, Layout::GrayAlpha, Layout::Rgba)
            }
            Some(profile) => {
                let pixels = image.to_rgba8().into_raw();
                convert(&pixels, profile, Layout::Rgba, Layout::Rgba)
            }
            None => None,
        }
        .unwrap_or_else(|| image.into_rgba8().into_raw());
        let over_white = |value: u8, alpha: u8| {
            let (value, alpha) = (u32::from(value), u32::from(alpha));
            ((value * alpha + 255 * (255 - alpha) + 127) / 255) as u8
        };
        let count = rgba.len() / 4;
        for i in 0..count {
            let alpha = rgba[4 * i + 3];
            for c in 0..3 {
                rgba[3 * i + c] = over_white(rgba[4 * i + c], alpha);
            }
        }
        rgba.truncate(3 * count);
        return rgb_image(width, height, rgba);
    }
    let converted = match &profile {
        Some(gray) if gray.color_space == DataColorSpace::Gray => {
            convert(&image.to_luma8().into_raw(), gray, Layout::Gray, Layout::Rgb)
        }
        Some(profile) => {
            // The only copy of the pixels, if they are 8-bit RGB as in nearly every photo.
            let copied;
            let pixels: &[u8] = match image.as_rgb8() {
                Some(rgb) => rgb.as_raw(),
                None => {
                    copied = image.to_rgb8();
                    copied.as_raw()
                }
            };
            convert(pixels, profile, Layout::Rgb, Layout::Rgb)
        }
        None => None,
    };
    match converted {
        Some(rgb) => rgb_image(width, height, rgb),
        None => DynamicImage::ImageRgb8(image.into_rgb8()),
    }
}

fn rgb_image(width: u32, height: u32, rgb: Vec<u8>) -> DynamicImage {
    let image = image::RgbImage::from_raw(width, height, rgb).unwrap_or_default();
    DynamicImage::ImageRgb8(image)
}

/// Converts pixels of a profile to sRGB; `None` if the profile does not describe such pixels.
fn convert(pixels: &[u8], profile: &ColorProfile, from: Layout, to: Layout) -> Option<Vec<u8>> {
    let srgb = ColorProfile::new_srgb();
    let options = TransformOptions::default();
    let transform = profile.create_transform_8bit(from, &srgb, to, options).ok()?;
    let mut converted = vec![0; pixels.len() / channels(from) * channels(to)];
    transform.transform(pixels, &mut converted).ok()?;
    Some(converted)
}

fn channels(layout: Layout) -> usize {
    match layout {
        Layout::Gray => 1,
        Layout::GrayAlpha => 2,
        Layout::Rgb => 3,
        _ => 4,
    }
}

#[cfg(test)]
#[path = "decode_tests.rs"]
mod tests;
