//! The keys of a server: one signs tokens, one encrypts the secrets of the store.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;

/// Length of a key, bytes.
pub(crate) const KEY_LEN: usize = 32;

/// A key of the configuration. Servers on one database share it.
#[derive(Clone, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct SecretKey([u8; KEY_LEN]);

impl SecretKey {
    /// The bytes.
    pub(crate) fn bytes(&self) -> &[u8; KEY_LEN] {
        &self.0
    }
}

impl From<[u8; KEY_LEN]> for SecretKey {
    fn from(bytes: [u8; KEY_LEN]) -> Self {
        Self(bytes)
    }
}

impl TryFrom<String> for SecretKey {
    type Error = &'static str;

    /// Decodes base64.
    fn try_from(text: String) -> Result<Self, Self::Error> {
        let bytes = STANDARD.decode(text.trim()).ok().and_then(|bytes| bytes.try_into().ok());
        bytes
            .map(Self)
            .ok_or("must be 32 bytes in base64, such as `openssl rand -base64 32` prints")
    }
}

impl fmt::Debug for SecretKey {
    /// Hides the key.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SecretKey")
    }
}
