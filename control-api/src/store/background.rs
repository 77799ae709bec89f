//! What is behind an avatar, as agents and templates store it.

use models::face::background::Background as DrawnBackground;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Number;
use sha2::{Digest as _, Sha256};

/// Before the hash in a reference to a picture.
pub(crate) const IMAGE_PREFIX: &str = "sha256:";

/// Type of a background.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum BackgroundKind {
    #[default]
    Keep,
    Colour,
    Gradient,
    Blur,
    Image,
}

impl BackgroundKind {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Keep => "keep",
            Self::Colour => "colour",
            Self::Gradient => "gradient",
            Self::Blur => "blur",
            Self::Image => "image",
        }
    }
}

/// What is behind an avatar: its own background (`keep`), a colour, a gradient, its own background
/// out of focus (`blur`), or a picture. The other fields belong to one type each.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Background {
    #[serde(rename = "type")]
    pub(crate) kind: BackgroundKind,
    /// Required for `colour`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("format" = "color", "pattern" = "^#[0-9a-fA-F]{6}$"))]
    pub(crate) colour: Option<String>,
    /// Required for `gradient`: the colour where it starts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("format" = "color", "pattern" = "^#[0-9a-fA-F]{6}$"))]
    pub(crate) from: Option<String>,
    /// Required for `gradient`: the colour where it ends.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("format" = "color", "pattern" = "^#[0-9a-fA-F]{6}$"))]
    pub(crate) to: Option<String>,
    /// Direction of a `gradient` in degrees, as in CSS; by default 180, from top to bottom.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 360))]
    pub(crate) angle: Option<Number>,
    /// How far a `blur` is out of focus; 0.5 by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 1))]
    pub(crate) strength: Option<Number>,
    /// Required for `image`: a PNG, JPEG or WebP file as a base64 data URI. Responses contain
    /// `sha256:` and 64 hexadecimal digits, which a request may send back while an agent of the
    /// workspace uses the picture.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) image: Option<String>,
}

impl Background {
    /// The SHA-256 of its picture's file in hexadecimal; `None` if it has no picture.
    pub(crate) fn image_hash(&self) -> Option<&str> {
        self.image.as_deref()?.strip_prefix(IMAGE_PREFIX)
    }

    /// Whether the avatar keeps its own background.
    pub(crate) fn is_own(&self) -> bool {
        self.kind == BackgroundKind::Keep
    }

    /// What the renderer draws; `None` if the avatar keeps its own background, or a field is
    /// missing. A picture is its reference.
    pub(crate) fn drawn(&self) -> Option<DrawnBackground> {
        serde_json::to_value(self).ok().and_then(|value| serde_json::from_value(value).ok())
    }
}

/// SHA-256 in hexadecimal.
pub(crate) fn sha256_hex(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}
