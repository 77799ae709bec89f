//! Why a model failed, and whether another try may help.

use std::error::Error as StdError;
use std::fmt;

/// What kind of failure it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Not installed here, or not configured. Trying again does not help.
    Missing,
    /// The request was refused: bad key, unknown model, content. Trying again does not help.
    Refused,
    /// Too many requests; try later.
    Busy,
    /// The connection or the server broke; try again.
    Broken,
    /// It took too long.
    Timeout,
}

impl Kind {
    /// Whether the same request may succeed later.
    #[must_use]
    pub fn retryable(self) -> bool {
        matches!(self, Self::Busy | Self::Broken | Self::Timeout)
    }
}

/// A model failed. The message is fit for logs and the conversation's record: it never holds a secret.
#[derive(Debug)]
pub struct Error {
    kind: Kind,
    message: String,
    source: Option<Box<dyn StdError + Send + Sync>>,
}

impl Error {
    /// A failure of `kind`, told in one sentence.
    pub fn new(kind: Kind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), source: None }
    }

    /// The same, with its cause.
    #[must_use]
    pub fn with_source(mut self, source: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        self.source = Some(source.into());
        self
    }

    /// What kind of failure it was.
    #[must_use]
    pub fn kind(&self) -> Kind {
        self.kind
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.source.as_deref().map(|e| e as _)
    }
}
