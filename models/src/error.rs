//! Errors of models, and whether a retry may succeed.

use std::error::Error as StdError;
use std::fmt;

/// Kind of failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorKind {
    /// Not installed on this server, or not configured. A retry does not help.
    NotAvailable,
    /// The request was rejected: unknown model, content. A retry does not help.
    Rejected,
    /// The API key is not valid, or may not do this. A retry does not help.
    InvalidKey,
    /// The account has no credit left. A retry does not help.
    NoCredit,
    /// Too many requests; retry later.
    Busy,
    /// The connection or the server failed; a retry may succeed.
    Failed,
    /// The time limit expired.
    Timeout,
}

impl ErrorKind {
    /// Whether the same request may succeed later.
    #[must_use]
    pub fn is_retryable(self) -> bool {
        matches!(self, Self::Busy | Self::Failed | Self::Timeout)
    }
}

/// A failure of a model. The message may be logged and stored in the conversation's record: it
/// never contains a secret.
#[derive(Debug)]
pub struct Error {
    kind: ErrorKind,
    message: String,
    source: Option<Box<dyn StdError + Send + Sync>>,
    is_exhausted: bool,
}

impl Error {
    /// A failure of `kind`, described in one sentence.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), source: None, is_exhausted: false }
    }

    /// Adds the cause.
    #[must_use]
    pub fn with_source(mut self, source: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        self.source = Some(source.into());
        self
    }

    /// The same error: all models have failed, and none of them has answered.
    #[must_use]
    pub(crate) fn exhausted(self) -> Self {
        Self { is_exhausted: true, ..self }
    }

    /// Whether all models have failed, and none of them has answered: no fallback is left.
    #[must_use]
    pub fn is_exhausted(&self) -> bool {
        self.is_exhausted
    }

    /// Kind of failure.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
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

impl From<egress::Error> for Error {
    fn from(error: egress::Error) -> Self {
        let kind = match error {
            egress::Error::ForbiddenAddress
            | egress::Error::Invalid(_)
            | egress::Error::TooLarge => ErrorKind::Rejected,
            egress::Error::Timeout => ErrorKind::Timeout,
            egress::Error::Connection(_) => ErrorKind::Failed,
        };
        Self::new(kind, error.to_string())
    }
}
