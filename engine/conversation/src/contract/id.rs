//! Identifier of a conversation.

use core::fmt;
use core::str::FromStr;

use serde::{Deserialize, Serialize};

/// The id of a conversation: a UUID.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct ConversationId(pub u128);

impl fmt::Display for ConversationId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e] = [
            self.0 >> 96,
            self.0 >> 80 & 0xffff,
            self.0 >> 64 & 0xffff,
            self.0 >> 48 & 0xffff,
            self.0 & 0xffff_ffff_ffff,
        ];
        write!(f, "{a:08x}-{b:04x}-{c:04x}-{d:04x}-{e:012x}")
    }
}

impl fmt::Debug for ConversationId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The text is not a UUID of the form 8-4-4-4-12.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a UUID")]
pub struct InvalidUuid;

impl FromStr for ConversationId {
    type Err = InvalidUuid;

    fn from_str(text: &str) -> Result<Self, InvalidUuid> {
        let bytes = text.as_bytes();
        let dashes = [8, 13, 18, 23];
        let shape = bytes.len() == 36
            && bytes
                .iter()
                .enumerate()
                .all(|(i, b)| if dashes.contains(&i) { *b == b'-' } else { b.is_ascii_hexdigit() });
        if !shape {
            return Err(InvalidUuid);
        }
        u128::from_str_radix(&text.replace('-', ""), 16).map(Self).map_err(|_| InvalidUuid)
    }
}

impl From<ConversationId> for String {
    fn from(id: ConversationId) -> Self {
        id.to_string()
    }
}

impl TryFrom<String> for ConversationId {
    type Error = InvalidUuid;

    fn try_from(text: String) -> Result<Self, InvalidUuid> {
        text.parse()
    }
}
