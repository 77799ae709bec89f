//! The error of an invalid setting.

/// A setting is out of range or of the wrong type.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {reason}")]
pub struct SettingError {
    /// Name of the setting in the scenario format.
    pub field: String,
    /// The reason.
    pub reason: String,
}

impl SettingError {
    /// Creates the error for one setting.
    pub fn new(field: impl Into<String>, reason: impl Into<String>) -> Self {
        Self { field: field.into(), reason: reason.into() }
    }
}
