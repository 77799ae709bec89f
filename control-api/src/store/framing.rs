//! Framing and size of an avatar's video, as agents and templates store them.

use models::face::Framing as DrawnFraming;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// How much of the avatar the video shows: the head, or head and chest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Framing {
    #[default]
    Close,
    Bust,
}

impl Framing {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Close => "close",
            Self::Bust => "bust",
        }
    }

    /// The framing with this name; the default one if there is none.
    pub(crate) fn from_name(name: &str) -> Self {
        [Self::Close, Self::Bust].into_iter().find(|known| known.name() == name).unwrap_or_default()
    }

    /// What the renderer draws.
    pub(crate) fn drawn(self) -> DrawnFraming {
        match self {
            Self::Close => DrawnFraming::Close,
            Self::Bust => DrawnFraming::Bust,
        }
    }
}

/// Width and height of a video in pixels.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub(crate) enum VideoSize {
    #[default]
    #[serde(rename = "512x512")]
    Square,
    #[serde(rename = "1280x720")]
    Landscape,
    #[serde(rename = "720x1280")]
    Portrait,
}

impl VideoSize {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Square => "512x512",
            Self::Landscape => "1280x720",
            Self::Portrait => "720x1280",
        }
    }

    /// The size with this name; the default one if there is none.
    pub(crate) fn from_name(name: &str) -> Self {
        let all = [Self::Square, Self::Landscape, Self::Portrait];
        all.into_iter().find(|known| known.name() == name).unwrap_or_default()
    }

    /// The size with this width and height; the default one if there is none.
    pub(crate) fn of_pixels(pixels: [usize; 2]) -> Self {
        let all = [Self::Square, Self::Landscape, Self::Portrait];
        all.into_iter().find(|known| known.pixels() == pixels).unwrap_or_default()
    }

    /// Width and height.
    pub(crate) fn pixels(self) -> [usize; 2] {
        match self {
            Self::Square => [512, 512],
            Self::Landscape => [1280, 720],
            Self::Portrait => [720, 1280],
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn names_are_those_of_requests() {
        for framing in [Framing::Close, Framing::Bust] {
            assert_eq!(json!(framing), framing.name());
            assert_eq!(json!(framing.drawn()), framing.name());
            assert_eq!(Framing::from_name(framing.name()), framing);
        }
        for size in [VideoSize::Square, VideoSize::Landscape, VideoSize::Portrait] {
            let [width, height] = size.pixels();
            assert_eq!(json!(size), format!("{width}x{height}"));
            assert_eq!(VideoSize::from_name(size.name()), size);
            assert_eq!(VideoSize::of_pixels([width, height]), size);
        }
    }
}
