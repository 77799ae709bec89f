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

    /// Identifies what the avatar `base` looks like in front of it: SHA-256 in hexadecimal. `None`
    /// if the avatar keeps its own background.
    pub(crate) fn content_key(&self, base: &str) -> Option<String> {
        let content = serde_json::to_vec(&(base, self.drawn()?)).ok()?;
        Some(sha256_hex(&content))
    }
}

/// SHA-256 in hexadecimal.
pub(crate) fn sha256_hex(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn key(background: Value) -> Option<String> {
        serde_json::from_value::<Background>(background).unwrap().content_key("mei")
    }

    #[test]
    fn the_key_depends_on_the_content_only() {
        assert_eq!(key(json!({"type": "keep"})), None);
        let gradient = |angle: Value| {
            key(json!({"type": "gradient", "from": "#102030", "to": "#ffffff", "angle": angle}))
        };
        assert_eq!(gradient(json!(90)), gradient(json!(90.0)));
        let hash = "0".repeat(64);
        let all = [
            gradient(json!(90)),
            gradient(json!(91)),
            key(json!({"type": "colour", "colour": "#102030"})),
            key(json!({"type": "blur", "strength": 0.5})),
            key(json!({"type": "image", "image": format!("sha256:{hash}")})),
        ];
        for (i, key) in all.iter().enumerate() {
            assert_eq!(key.as_ref().unwrap().len(), 64);
            assert!(!all[..i].contains(key), "{i}");
        }
        let colour = Background {
            kind: BackgroundKind::Colour,
            colour: Some("#102030".into()),
            ..Background::default()
        };
        assert_ne!(colour.content_key("mei"), colour.content_key("leo"));
    }
}
