//! Identifier of a conversation.

use core::fmt;
use core::str::FromStr;

use serde::{Deserialize, Serialize};
use uuid::Uuid;
use uuid::fmt::Hyphenated;

/// The id of a conversation: a UUID.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct ConversationId(pub u128);

impl fmt::Display for ConversationId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&Uuid::from_u128(self.0).hyphenated(), f)
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
        // The crate also parses forms without hyphens, in braces, and URNs, which are shorter or
        // longer.
        if text.len() != Hyphenated::LENGTH {
            return Err(InvalidUuid);
        }
        Uuid::try_parse(text).map(|id| Self(id.as_u128())).map_err(|_| InvalidUuid)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_written_with_hyphens_and_read_in_no_other_form() {
        let id = ConversationId(0x0123_4567_89ab_cdef_0011_2233_4455_6677);
        let text = "01234567-89ab-cdef-0011-223344556677";
        assert_eq!(id.to_string(), text);
        assert_eq!(text.parse(), Ok(id));
        assert_eq!(text.to_uppercase().parse(), Ok(id));
        for bad in [
            "",
            "0123456789abcdef0011223344556677",
            "{01234567-89ab-cdef-0011-223344556677}",
            "urn:uuid:01234567-89ab-cdef-0011-223344556677",
            "01234567-89ab-cdef-0011-22334455667g",
            "01234567-89abc-def-0011-223344556677",
        ] {
            assert_eq!(bad.parse::<ConversationId>(), Err(InvalidUuid), "{bad}");
        }
    }
}
