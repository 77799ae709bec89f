//! What an API key may do. Which operation needs which scope is said once, in the table of [`openapi`](crate::openapi).

use std::fmt;
use std::str::FromStr;

/// The scope of an API key. Each includes those before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Scope {
    /// Reads: every `GET`.
    Read,
    /// Also holds conversations: makes, controls, rates and erases them, mints their tokens, sends agents into meetings.
    Operate,
    /// Everything.
    Administer,
}

impl Scope {
    /// All scopes, the least first.
    pub const ALL: [Self; 3] = [Self::Read, Self::Operate, Self::Administer];

    /// Its name in the API, on the command line and in the store.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Operate => "operate",
            Self::Administer => "administer",
        }
    }

    /// What a key of this scope is told where it needs a greater one.
    pub(crate) const fn refusal(self) -> &'static str {
        match self {
            Self::Read => "Forbidden: this API key has scope read",
            Self::Operate => "Forbidden: this API key has scope operate",
            Self::Administer => "Forbidden: this API key has scope administer",
        }
    }
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The text names no scope.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("must be one of read, operate, administer")]
pub struct NoScope;

impl FromStr for Scope {
    type Err = NoScope;

    fn from_str(text: &str) -> Result<Self, NoScope> {
        Self::ALL.into_iter().find(|scope| scope.name() == text).ok_or(NoScope)
    }
}
