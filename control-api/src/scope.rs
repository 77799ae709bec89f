//! Scopes of API keys. The table in [`operations`](crate::operations) defines which operation needs
//! which scope.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

/// The scope of an API key. Each includes the ones before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Scope {
    /// Reads: every `GET`.
    Read,
    /// Also runs conversations: creates, controls, rates and erases them, creates their tokens, and
    /// sends agents into meetings. Plays samples of voices.
    Operate,
    /// Everything.
    Administer,
}

impl Scope {
    /// All scopes, in ascending order.
    pub const ALL: [Self; 3] = [Self::Read, Self::Operate, Self::Administer];

    /// Name in the API, on the command line and in the store.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Operate => "operate",
            Self::Administer => "administer",
        }
    }

    /// Error text for a key of this scope when an operation needs a higher one.
    pub(crate) const fn forbidden_message(self) -> &'static str {
        match self {
            Self::Read => "Forbidden: this API key has scope read",
            Self::Operate => "Forbidden: this API key has scope operate",
            Self::Administer => "Forbidden: this API key has scope administer",
        }
    }
}

impl JsonSchema for Scope {
    fn schema_name() -> Cow<'static, str> {
        "Scope".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"type": "string", "enum": Self::ALL.map(Self::name)})
    }
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The text is not the name of a scope.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("must be one of read, operate, administer")]
pub struct ParseScopeError;

impl FromStr for Scope {
    type Err = ParseScopeError;

    fn from_str(text: &str) -> Result<Self, ParseScopeError> {
        Self::ALL.into_iter().find(|scope| scope.name() == text).ok_or(ParseScopeError)
    }
}
