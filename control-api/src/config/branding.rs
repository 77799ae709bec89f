//! `branding.*`: the operator's name, logo and color on the pages for visitors.

use std::fmt;

use bytes::Bytes;

/// Maximum size of a logo's file in bytes.
const MAX_LOGO_BYTES: usize = 256 << 10;
/// Maximum width and height of a logo in pixels: browsers hold the decoded picture in memory.
const MAX_LOGO_PIXELS: usize = 4096;
/// Maximum length of a name in characters.
const MAX_NAME_CHARS: usize = 60;
/// Minimum contrast of text, WCAG 2.2 success criterion 1.4.3.
pub(crate) const MIN_CONTRAST: f64 = 4.5;

/// `branding.*`; the default is the appearance of Visavis.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Branding {
    /// `branding.name`, in place of "Visavis".
    pub name: Option<String>,
    /// `branding.logo`
    pub logo: Option<Logo>,
    /// `branding.color` of buttons.
    pub color: Option<BrandColor>,
}

impl Branding {
    /// Checks a name.
    ///
    /// # Errors
    /// What is wrong with it, as the end of a sentence.
    pub fn check_name(name: &str) -> Result<(), String> {
        let length = name.trim().chars().count();
        if length == 0 || length > MAX_NAME_CHARS || name.chars().any(char::is_control) {
            return Err(format!(
                "must have 1 to {MAX_NAME_CHARS} characters, without control characters"
            ));
        }
        Ok(())
    }
}

/// A picture in a format that browsers show without a script.
#[derive(Clone, PartialEq)]
pub struct Logo {
    pub(crate) content: Bytes,
    pub(crate) media_type: &'static str,
}

impl fmt::Debug for Logo {
    /// Without the content.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Logo").field("media_type", &self.media_type).finish_non_exhaustive()
    }
}

impl Logo {
    /// Reads the content of a file.
    ///
    /// # Errors
    /// What is wrong with it, as the end of a sentence.
    pub fn parse(content: Vec<u8>) -> Result<Self, String> {
        let media_type = if content.starts_with(b"\x89PNG\r\n\x1a\n") {
            "image/png"
        } else if content.starts_with(b"RIFF") && content.get(8..12) == Some(b"WEBP") {
            "image/webp"
        } else {
            return Err("is neither a PNG nor a WebP file".into());
        };
        if content.len() > MAX_LOGO_BYTES {
            let size = content.len().div_ceil(1024);
            return Err(format!("has {size} KB; at most {} are allowed", MAX_LOGO_BYTES >> 10));
        }
        let size = imagesize::blob_size(&content)
            .map_err(|_| "is damaged: it has no readable size".to_owned())?;
        if !(1..=MAX_LOGO_PIXELS).contains(&size.width)
            || !(1..=MAX_LOGO_PIXELS).contains(&size.height)
        {
            return Err(format!("must be at most {MAX_LOGO_PIXELS} pixels wide and high"));
        }
        Ok(Self { content: content.into(), media_type })
    }
}

/// A color with 8 bits per channel, sRGB.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Rgb(pub(crate) [u8; 3]);

impl Rgb {
    pub(crate) const WHITE: Self = Self([255; 3]);

    /// Reads `#rrggbb`.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let digits = text.strip_prefix('#').filter(|digits| digits.len() == 6)?;
        if !digits.bytes().all(|digit| digit.is_ascii_hexdigit()) {
            return None;
        }
        let number = u32::from_str_radix(digits, 16).ok()?;
        let [_, red, green, blue] = number.to_be_bytes();
        Some(Self([red, green, blue]))
    }

    /// Relative luminance, 0 to 1 (WCAG 2.2).
    fn luminance(self) -> f64 {
        let [red, green, blue] = self.0.map(|channel| {
            let value = f64::from(channel) / 255.0;
            if value <= 0.04045 { value / 12.92 } else { ((value + 0.055) / 1.055).powf(2.4) }
        });
        0.2126 * red + 0.7152 * green + 0.0722 * blue
    }

    /// Contrast ratio, 1 to 21 (WCAG 2.2).
    pub(crate) fn contrast(self, other: Self) -> f64 {
        let (a, b) = (self.luminance(), other.luminance());
        (a.max(b) + 0.05) / (a.min(b) + 0.05)
    }

    /// This color with a share of another one, 0 to 1, as `color-mix(in srgb, …)` in CSS.
    pub(crate) fn mix(self, other: Self, share: f64) -> Self {
        let mixed =
            |(a, b): (u8, u8)| (f64::from(a) * (1.0 - share) + f64::from(b) * share).round() as u8;
        let [a, b] = [self.0, other.0];
        Self([(a[0], b[0]), (a[1], b[1]), (a[2], b[2])].map(mixed))
    }
}

impl fmt::Display for Rgb {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [red, green, blue] = self.0;
        write!(f, "#{red:02x}{green:02x}{blue:02x}")
    }
}

/// Text on light surfaces.
pub(crate) const DARK_TEXT: Rgb = Rgb([0x1c, 0x23, 0x21]);

/// The color of buttons, and the color of the text on them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BrandColor {
    pub(crate) background: Rgb,
    pub(crate) text: Rgb,
}

impl fmt::Display for BrandColor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.background, f)
    }
}

impl BrandColor {
    /// Reads `#rrggbb`.
    ///
    /// # Errors
    /// It is no color, or no text on it is readable: the end of a sentence.
    pub fn parse(text: &str) -> Result<Self, String> {
        let background = Rgb::parse(text)
            .ok_or_else(|| format!("\"{text}\" is not a color such as \"#17695f\""))?;
        let [white, dark] = [Rgb::WHITE, DARK_TEXT].map(|text| background.contrast(text));
        let color = Self { background, text: if white >= dark { Rgb::WHITE } else { DARK_TEXT } };
        if white.max(dark) < MIN_CONTRAST {
            let best = white.max(dark);
            return Err(format!(
                "text on \"{text}\" has a contrast of {best:.2}:1 at most, and needs \
                 {MIN_CONTRAST}:1; choose a darker or a lighter color"
            ));
        }
        Ok(color)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_on_a_color_is_readable_or_the_color_is_refused() {
        let text = |color: &str| BrandColor::parse(color).map(|color| color.text.to_string());
        assert_eq!(text("#17695F").as_deref(), Ok("#ffffff"));
        assert_eq!(text("#ffcc00").as_deref(), Ok("#1c2321"));
        let refused = text("#7a7a7a").unwrap_err();
        assert!(refused.contains("has a contrast of 4.29:1 at most, and needs 4.5:1"), "{refused}");
        for wrong in ["red", "#12345", "#1234567", "123456", "#12345g", "#+12345", ""] {
            assert!(text(wrong).unwrap_err().contains("is not a color"), "{wrong}");
        }
    }

    #[test]
    fn contrast_is_that_of_the_guidelines() {
        let black = Rgb([0; 3]);
        assert!((Rgb::WHITE.contrast(black) - 21.0).abs() < 1e-9);
        // https://webaim.org/resources/contrastchecker: #777777 on white is 4.48:1.
        let gray = Rgb::parse("#777777").unwrap();
        assert!((Rgb::WHITE.contrast(gray) - 4.48).abs() < 0.005);
        assert_eq!(black.mix(Rgb::WHITE, 0.5).to_string(), "#808080");
    }

    #[test]
    fn a_logo_is_a_small_png_or_webp_file() {
        let png = |width: u32, height: u32, padding: usize| {
            let size = [width.to_be_bytes(), height.to_be_bytes()].concat();
            let head = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR";
            [&head[..], &size, b"\x08\x02\0\0\0", &vec![0; padding]].concat()
        };
        assert_eq!(Logo::parse(png(400, 100, 0)).unwrap().media_type, "image/png");
        let fault = |content: Vec<u8>| Logo::parse(content).unwrap_err();
        assert_eq!(fault(b"<svg/>".to_vec()), "is neither a PNG nor a WebP file");
        assert_eq!(fault(png(400, 100, 256 << 10)), "has 257 KB; at most 256 are allowed");
        assert_eq!(fault(png(5000, 100, 0)), "must be at most 4096 pixels wide and high");
        assert!(fault(b"\x89PNG\r\n\x1a\n".to_vec()).contains("damaged"));
    }

    #[test]
    fn a_name_is_one_short_line() {
        assert_eq!(Branding::check_name("Museum of Time"), Ok(()));
        for wrong in ["", "  ", "a\nb", &"x".repeat(61)] {
            assert!(Branding::check_name(wrong).is_err(), "{wrong:?}");
        }
    }
}
