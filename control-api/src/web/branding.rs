//! The appearance of the pages for visitors: the operator's name, logo and color, or those of
//! Visavis.

use std::fmt::Write as _;

use super::escape;
use crate::config::{Branding, DARK_TEXT, MIN_CONTRAST, Rgb};

/// Address of the logo.
pub(crate) const LOGO: &str = "/assets/brand-logo";
/// Name of the style sheet below `/assets/`.
pub(super) const STYLE: &str = "branding.css";

const PRODUCT: &str = "Visavis";
const MARK: &str = r#"<svg class="mark" aria-hidden="true" viewBox="0 0 32 32"><circle cx="12" cy="16" r="9"/><circle cx="20" cy="16" r="9"/></svg>"#;

/// Maximum share of the color in tinted surfaces, in percent.
const MAX_TINT: u8 = 12;
/// Minimum contrast of a button with what is around it, without a border (WCAG 2.2, 1.4.11).
const MIN_BUTTON_CONTRAST: f64 = 3.0;

/// The colors of `base.css` in one color scheme.
struct Scheme {
    surface: Rgb,
    background: Rgb,
    text: Rgb,
    muted: Rgb,
}

const LIGHT: Scheme = Scheme {
    surface: Rgb::WHITE,
    background: Rgb([0xf6, 0xf5, 0xf2]),
    text: DARK_TEXT,
    muted: Rgb([0x5c, 0x66, 0x63]),
};
const DARK: Scheme = Scheme {
    surface: Rgb([0x1a, 0x21, 0x1f]),
    background: Rgb([0x11, 0x16, 0x15]),
    text: Rgb([0xe9, 0xee, 0xec]),
    muted: Rgb([0x9a, 0xa8, 0xa4]),
};

/// The name for titles.
pub(super) fn name(branding: &Branding) -> String {
    escape(branding.name.as_deref().unwrap_or(PRODUCT).trim())
}

/// The line with logo and name.
pub(super) fn line(branding: &Branding) -> String {
    let name = branding.name.as_deref().map(str::trim);
    let content = match (&branding.logo, name) {
        (Some(_), name) => {
            // Beside the name, the logo says nothing new.
            let alt = if name.is_some() { "" } else { "Logo" };
            let name = name.map(escape).unwrap_or_default();
            format!(r#"<img class="logo" src="{LOGO}" alt="{alt}">{name}"#)
        }
        (None, Some(name)) => escape(name),
        (None, None) => format!("{MARK}{PRODUCT}"),
    };
    format!(r#"<p class="brand">{content}</p>"#)
}

/// The link to the style sheet, if there is a color.
pub(super) fn style_link(branding: &Branding) -> String {
    branding
        .color
        .map_or_else(String::new, |_| format!(r#"<link rel="stylesheet" href="/assets/{STYLE}">"#))
}

/// The style sheet, if there is a color.
pub(super) fn style(branding: &Branding) -> Option<String> {
    let color = branding.color?;
    let scheme = |scheme: &Scheme| {
        let tint = tint(color.background, scheme);
        let around = [scheme.surface, scheme.background];
        let is_visible =
            around.iter().all(|around| around.contrast(color.background) >= MIN_BUTTON_CONTRAST);
        let border = if is_visible { "transparent".to_owned() } else { scheme.text.to_string() };
        format!(
            ":root {{\n  --accent: {};\n  --accent-text: {};\n  --accent-border: {border};\n  \
             --accent-ink: {};\n  --accent-background: {tint};\n}}\n",
            color.background,
            color.text,
            readable(color.background, scheme, tint),
        )
    };
    let mut css = scheme(&LIGHT);
    let _ = write!(css, "@media (prefers-color-scheme: dark) {{\n{}}}\n", scheme(&DARK));
    Some(css)
}

/// The color of tinted surfaces: as much of the color as keeps muted text on them readable.
fn tint(color: Rgb, scheme: &Scheme) -> Rgb {
    let mut mixed = (0..=MAX_TINT).rev().map(|n| scheme.surface.mix(color, f64::from(n) / 100.0));
    mixed.find(|tint| tint.contrast(scheme.muted) >= MIN_CONTRAST).unwrap_or(scheme.surface)
}

/// The color for text and lines on the surfaces of a scheme: mixed with the color of text until it
/// is readable on all of them.
fn readable(color: Rgb, scheme: &Scheme, tint: Rgb) -> Rgb {
    let is_readable = |ink: Rgb| {
        [scheme.surface, scheme.background, tint]
            .iter()
            .all(|under| ink.contrast(*under) >= MIN_CONTRAST)
    };
    let mut mixed = (0..20).map(|step| color.mix(scheme.text, f64::from(step) / 20.0));
    mixed.find(|ink| is_readable(*ink)).unwrap_or(scheme.text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::BrandColor;

    fn value(css: &str, name: &str) -> Rgb {
        let start = css.find(&format!("--{name}: ")).unwrap() + name.len() + 4;
        Rgb::parse(&css[start..start + 7]).unwrap()
    }

    #[test]
    fn text_in_every_accepted_color_is_readable_in_both_schemes() {
        let mut accepted = 0;
        for n in 0..4096_u32 {
            let channel = |shift: u32| (n >> shift & 15) * 17;
            let text = format!("#{:02x}{:02x}{:02x}", channel(8), channel(4), channel(0));
            let Ok(color) = BrandColor::parse(&text) else { continue };
            accepted += 1;
            let css = style(&Branding { color: Some(color), ..Branding::default() }).unwrap();
            let (light, dark) = css.split_once("@media").unwrap();
            for (css, scheme) in [(light, &LIGHT), (dark, &DARK)] {
                let (ink, tint) = (value(css, "accent-ink"), value(css, "accent-background"));
                for under in [scheme.surface, scheme.background, tint] {
                    assert!(ink.contrast(under) >= MIN_CONTRAST, "{text}: {ink} on {under}");
                }
                for ink in [scheme.text, scheme.muted] {
                    assert!(ink.contrast(tint) >= MIN_CONTRAST, "{text}: {ink} on {tint}");
                }
                let button = value(css, "accent").contrast(value(css, "accent-text"));
                assert!(button >= MIN_CONTRAST, "{text}: {button}");
            }
        }
        assert!(accepted > 3000, "{accepted}");
    }

    #[test]
    fn the_schemes_are_those_of_the_style_sheet() {
        let css = include_str!("pages/base.css");
        let (light, dark) = css.split_once("@media").unwrap();
        for (css, scheme) in [(light, LIGHT), (dark, DARK)] {
            assert_eq!(value(css, "surface"), scheme.surface);
            assert_eq!(value(css, "background"), scheme.background);
            assert_eq!(value(css, "text"), scheme.text);
            assert_eq!(value(css, "text-muted"), scheme.muted);
        }
    }

    #[test]
    fn the_line_has_the_operators_name_instead_of_ours() {
        assert!(line(&Branding::default()).contains("</svg>Visavis</p>"));
        let named = Branding { name: Some("A <b>".into()), ..Branding::default() };
        assert_eq!(line(&named), r#"<p class="brand">A &lt;b&gt;</p>"#);
        assert_eq!((style(&named), style_link(&named).as_str()), (None, ""));
    }
}
