//! Voices of vendors: what all of them share.
//!
//! - [`spoken_text`]: special pronunciations, and the words of the vendor's times.
//! - [`samples`]: samples from bytes and from base64.
//! - [`voices`]: lists of voices.
//!
//! A vendor with a WebSocket is a [`codec::Codec`]:
//!
//! ```text
//! media thread ──commands──► task of the call ──► codec ──► WebSocket
//!                              │  queue, context     │
//!                              └────── events ◄──────┘
//! ```
//!
//! - [`call`]: a task for each call. The media side never waits.
//! - [`session`]: the task. It connects at once, and speaks one reply at a time.
//! - [`context`]: the segments of the reply that is spoken.

pub(super) mod call;
pub(super) mod codec;
pub(super) mod context;
pub(super) mod samples;
pub(super) mod session;
pub(super) mod spoken_text;
#[cfg(test)]
pub(super) mod test_server;
#[cfg(test)]
pub(super) mod test_sink;
pub(super) mod voices;

use std::time::Duration;

use serde_json::Value;

use super::voice;

/// Time limits after which a segment fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timeouts {
    /// To open a connection while a segment waits for it.
    pub connect: Duration,
    /// From the text to its first sound.
    pub first_sound: Duration,
    /// Between two pieces of the sound of a segment.
    pub gap: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(3),
            first_sound: Duration::from_millis(2_500),
            gap: Duration::from_millis(2_500),
        }
    }
}

/// A text in a message, which is not copied if it contains no escape sequence.
#[derive(Debug, serde::Deserialize)]
#[serde(transparent)]
pub(super) struct JsonText<'a>(#[serde(borrow)] pub(super) std::borrow::Cow<'a, str>);

impl AsRef<str> for JsonText<'_> {
    fn as_ref(&self) -> &str {
        &self.0
    }
}

/// Whether `name` may be a voice of a vendor. The names of the built-in voices are those of avatars.
pub(super) fn may_be_vendor_voice(name: &str) -> bool {
    !voice::is_hibari_voice(name) && !voice::is_flite_voice(name)
}

/// The text without blanks around it, or `default` if nothing is left.
pub(super) fn non_empty<'a>(text: &'a str, default: &'a str) -> &'a str {
    match text.trim() {
        "" => default,
        text => text,
    }
}

/// A number of an option, if it is in the range.
pub(super) fn number(value: &Value, range: std::ops::RangeInclusive<f64>) -> Option<f64> {
    value.as_f64().filter(|number| range.contains(number))
}

/// Reads options: calls `read` with each of them, and returns the names of those for which it
/// returns `None`.
pub(super) fn ignored_options(
    values: &serde_json::Map<String, Value>,
    mut read: impl FnMut(&str, &Value) -> Option<()>,
) -> Vec<&str> {
    values
        .iter()
        .filter(|(name, value)| read(name, value).is_none())
        .map(|(n, _)| n.as_str())
        .collect()
}
