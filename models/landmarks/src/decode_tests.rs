use image::codecs::jpeg::JpegEncoder;
use image::codecs::png::PngEncoder;
use image::codecs::webp::WebPEncoder;
use image::{ExtendedColorType, ImageEncoder as _};

use super::*;

fn decode_default(file: &[u8]) -> Result<Picture, DecodeError> {
    decode(file, DecodeLimits::default())
}

macro_rules! seed {
    ($name:literal) => {
        include_bytes!(concat!("../../../tests/fuzz/seeds/picture/", $name))
    };
}

/// 6 × 4 pixels, each of another colour.
fn colours() -> Vec<u8> {
    (0..24_u8).flat_map(|i| [i * 10, 255 - i * 10, i % 6 * 50]).collect()
}

fn png(rgb: &[u8], profile: Option<Vec<u8>>) -> Vec<u8> {
    let mut file = Vec::new();
    let mut encoder = PngEncoder::new(&mut file);
    if let Some(profile) = profile {
        encoder.set_icc_profile(profile).unwrap();
    }
    encoder.write_image(rgb, 6, 4, ExtendedColorType::Rgb8).unwrap();
    file
}

fn webp(pixels: &[u8], kind: ExtendedColorType) -> Vec<u8> {
    let mut file = Vec::new();
    WebPEncoder::new_lossless(&mut file).write_image(pixels, 6, 4, kind).unwrap();
    file
}

#[test]
fn all_formats_give_their_pixels() {
    for file in [png(&colours(), None), webp(&colours(), ExtendedColorType::Rgb8)] {
        let picture = decode_default(&file).unwrap();
        assert_eq!((picture.width(), picture.height()), (6, 4));
        assert_eq!(picture.rgb(), colours());
    }
    let mut jpeg = Vec::new();
    let gray = vec![90; 16 * 8 * 3];
    JpegEncoder::new(&mut jpeg).write_image(&gray, 16, 8, ExtendedColorType::Rgb8).unwrap();
    let picture = decode_default(&jpeg).unwrap();
    assert_eq!((picture.width(), picture.height()), (16, 8));
    assert!(picture.rgb().iter().all(|v| v.abs_diff(90) <= 2));
    // One gray block with all coefficients 0.
    assert!(decode_default(seed!("jpeg-gray")).unwrap().rgb().iter().all(|v| v.abs_diff(128) < 2));
    let deep = decode_default(seed!("png-16-bits")).unwrap();
    assert_eq!(deep.rgb()[..3], [0, 2, 4]);
}

#[test]
fn a_picture_is_turned_as_exif_says() {
    let upright = decode_default(seed!("png-gray")).unwrap();
    // 6: the first row of the file is the right column of the picture.
    let turned = decode_default(seed!("png-turned")).unwrap();
    for i in 0..8 {
        assert_eq!(upright.pixel(i, 0), turned.pixel(7, i), "{i}");
        assert_eq!(upright.pixel(0, i), turned.pixel(7 - i, 0), "{i}");
    }
    // 8: the first row of the file is the left column of the picture. The file has 16 × 8 pixels.
    let mut jpeg = Vec::new();
    let mut encoder = JpegEncoder::new(&mut jpeg);
    let exif = b"MM\0*\0\0\0\x08\0\x01\x01\x12\0\x03\0\0\0\x01\0\x08\0\0\0\0\0\0";
    encoder.set_exif_metadata(exif.to_vec()).unwrap();
    let left: Vec<u8> = (0..16 * 8).flat_map(|i| [if i % 16 < 8 { 20 } else { 200 }; 3]).collect();
    encoder.write_image(&left, 16, 8, ExtendedColorType::Rgb8).unwrap();
    let turned = decode_default(&jpeg).unwrap();
    assert_eq!((turned.width(), turned.height()), (8, 16));
    assert!(turned.pixel(4, 12)[0] < 60.0 && turned.pixel(4, 3)[0] > 160.0);
}

#[test]
fn what_is_transparent_lies_over_white() {
    let rgba: Vec<u8> = (0..24).flat_map(|i| [100, 0, 255, [0, 51, 255][i % 3]]).collect();
    let picture = decode_default(&webp(&rgba, ExtendedColorType::Rgba8)).unwrap();
    assert_eq!(picture.rgb()[..9], [255, 255, 255, 224, 204, 255, 100, 0, 255]);
}

/// Converts a colour of Display P3 by the definitions of CSS Color 4.
fn display_p3_to_srgb(colour: [u8; 3]) -> [f32; 3] {
    let linear = colour.map(|v| {
        let v = f32::from(v) / 255.0;
        if v <= 0.040_45 { v / 12.92 } else { ((v + 0.055) / 1.055).powf(2.4) }
    });
    let rows = [
        [1.224_94, -0.224_94, 0.0],
        [-0.042_057, 1.042_057, 0.0],
        [-0.019_638, -0.078_636, 1.098_274],
    ];
    rows.map(|row: [f32; 3]| {
        let v = (0..3).map(|i| row[i] * linear[i]).sum::<f32>().clamp(0.0, 1.0);
        255.0 * if v <= 0.003_130_8 { v * 12.92 } else { 1.055 * v.powf(1.0 / 2.4) - 0.055 }
    })
}

#[test]
fn a_colour_profile_is_converted() {
    let profile = ColorProfile::new_display_p3().encode().unwrap();
    let skin = [200, 140, 110].repeat(24);
    let grey = ColorProfile::new_gray_with_gamma(1.8).encode().unwrap();
    let [converted, ignored, other] = [Some(profile), Some(b"no profile".to_vec()), Some(grey)]
        .map(|profile| decode_default(&png(&skin, profile)).unwrap());
    assert_eq!(ignored.rgb(), skin);
    assert_eq!(other.rgb(), skin, "a profile of grey pixels does not fit");
    let expected = display_p3_to_srgb([200, 140, 110]);
    for (value, expected) in converted.rgb().chunks_exact(3).flat_map(|p| p.iter().zip(expected)) {
        assert!((f32::from(*value) - expected).abs() <= 2.0, "{value} for {expected}");
    }
    // The profile changes this colour visibly, so the test would fail without the conversion.
    assert!((expected[0] - 200.0).abs() > 5.0, "{expected:?}");
}

#[test]
fn what_cannot_be_decoded_has_its_own_sentence() {
    assert_eq!(decode_default(seed!("jpeg-cmyk")), Err(DecodeError::Cmyk));
    assert_eq!(decode_default(seed!("gif")), Err(DecodeError::UnknownFormat));
    assert_eq!(decode_default(b""), Err(DecodeError::UnknownFormat));
    assert_eq!(decode_default(seed!("png-cut")), Err(DecodeError::Damaged));
    assert_eq!(decode_default(seed!("png-large")), Err(DecodeError::TooManyPixels(40)));
    assert_eq!(decode_default(seed!("jpeg-large")), Err(DecodeError::TooManyPixels(40)));
    let limits = DecodeLimits { bytes: 1 << 20, pixels: 20 };
    assert_eq!(decode(&vec![0; (1 << 20) + 1], limits), Err(DecodeError::TooManyBytes(1)));
    assert_eq!(decode(&png(&colours(), None), limits), Err(DecodeError::TooManyPixels(0)));
    assert!(DecodeError::Cmyk.to_string().contains("save it with RGB colours"));
}

#[test]
fn the_largest_picture_has_40_megapixels() {
    let head = |width: u16, height: u16| {
        let mut file = Vec::new();
        let gray = vec![90; 16 * 8 * 3];
        JpegEncoder::new(&mut file).write_image(&gray, 16, 8, ExtendedColorType::Rgb8).unwrap();
        let frame = file.windows(2).position(|pair| pair == [0xff, 0xc0]).unwrap();
        file[frame + 5..frame + 7].copy_from_slice(&height.to_be_bytes());
        file[frame + 7..frame + 9].copy_from_slice(&width.to_be_bytes());
        decode_default(&file)
    };
    assert_eq!(head(8000, 5001), Err(DecodeError::TooManyPixels(40)));
    // It has the right size, but no pixels for it.
    assert_ne!(head(8000, 5000), Err(DecodeError::TooManyPixels(40)));
}

/// A JPEG file with the details of a photo.
fn detailed_jpeg() -> Vec<u8> {
    let mut state = 1_u32;
    let noise = (0..160 * 120 * 3).map(|i| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        ((i / 480) as u8).wrapping_add((state >> 27) as u8)
    });
    let mut file = Vec::new();
    let mut encoder = JpegEncoder::new_with_quality(&mut file, 85);
    // A segment that contains the end of a smaller picture.
    encoder
        .set_exif_metadata(b"MM\0*\0\0\0\x08\0\0\0\0\0\0\xff\xda\0\x02\xff\xd9".to_vec())
        .unwrap();
    let pixels: Vec<u8> = noise.collect();
    encoder.write_image(&pixels, 160, 120, ExtendedColorType::Rgb8).unwrap();
    file
}

#[test]
fn a_cut_jpeg_is_damaged() {
    let file = detailed_jpeg();
    assert!(decode_default(&file).is_ok());
    for percent in [5, 35, 60, 95] {
        let cut = &file[..file.len() * percent / 100];
        assert_eq!(decode_default(cut).err(), Some(DecodeError::Damaged), "{percent} %");
    }
    // The end marker alone is missing.
    let without_end = decode_default(&file[..file.len() - 2]);
    assert_eq!(without_end.err(), Some(DecodeError::Damaged));
    let mut longer = file.clone();
    longer.extend(b"\0\0 appended by a camera \xff");
    assert!(decode_default(&longer) == decode_default(&file));
    let progressive = seed!("jpeg-progressive");
    assert!(decode_default(progressive).is_ok());
    let cut = &progressive[..progressive.len() * 95 / 100];
    assert_eq!(decode_default(cut), Err(DecodeError::Damaged));
}

#[test]
fn a_damaged_file_gives_an_error_or_a_picture() {
    let limits = DecodeLimits { bytes: 1 << 20, pixels: 1 << 16 };
    let files = [
        seed!("png-gray").to_vec(),
        seed!("png-turned").to_vec(),
        seed!("png-profile").to_vec(),
        seed!("jpeg-gray").to_vec(),
        seed!("jpeg-profile").to_vec(),
        seed!("jpeg-turned").to_vec(),
        webp(&colours(), ExtendedColorType::Rgb8),
    ];
    for file in files {
        for length in 0..file.len() {
            drop(decode(&file[..length], limits));
        }
        let mut damaged = file.clone();
        for at in 0..file.len() {
            for wrong in [file[at] ^ 1, file[at] ^ 0x80, 0, 0xff] {
                damaged[at] = wrong;
                if let Ok(picture) = decode(&damaged, limits) {
                    assert!((picture.width() * picture.height()) as u64 <= limits.pixels);
                }
            }
            damaged[at] = file[at];
        }
    }
}
