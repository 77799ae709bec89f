//! API keys. A key has 256 random bits, is stored as SHA-256, and is shown once; afterwards only
//! its prefix is known.

use std::sync::Arc;

use aws_lc_rs::digest;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use crate::store::vault;

/// Number of characters of a key that stay visible.
const PREFIX_LENGTH: usize = 10;

/// SHA-256 of a key.
pub(crate) type KeyHash = [u8; 32];

/// A new key.
pub(crate) fn generate_key() -> String {
    let mut bytes = [0; 32];
    vault::fill_random(&mut bytes);
    format!("vv_{}", URL_SAFE_NO_PAD.encode(bytes))
}

/// The part of a key that may be shown.
pub(crate) fn key_prefix(key: &str) -> &str {
    key.get(..PREFIX_LENGTH).unwrap_or_default()
}

pub(crate) fn hash_key(key: &str) -> KeyHash {
    let mut hash = [0; 32];
    hash.copy_from_slice(digest::digest(&digest::SHA256, key.as_bytes()).as_ref());
    hash
}

pub(crate) fn to_hex(hash: &KeyHash) -> String {
    hash.iter().map(|b| format!("{b:02x}")).collect()
}

/// The stored form of a key.
pub(crate) fn stored_hash(key: &str) -> String {
    to_hex(&hash_key(key))
}

/// The key of the environment (`VISAVIS_API_KEY`), which is never stored, and its workspace.
///
/// All other keys are read from the store for each request: a key that was revoked, here or by
/// `visavis keys revoke`, is refused at once.
pub(crate) struct EnvironmentKey(Option<(KeyHash, Arc<str>)>);

impl EnvironmentKey {
    pub(crate) fn new(key_and_workspace: Option<(&str, &str)>) -> Self {
        Self(key_and_workspace.map(|(key, workspace)| (hash_key(key), Arc::from(workspace))))
    }

    pub(crate) fn workspace_for(&self, hash: &KeyHash) -> Option<Arc<str>> {
        self.0
            .as_ref()
            .filter(|(given, _)| given == hash)
            .map(|(_, workspace)| Arc::clone(workspace))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_long_and_never_the_same() {
        let (a, b) = (generate_key(), generate_key());
        assert_ne!(a, b);
        assert_eq!(a.len(), 3 + 43);
        assert_eq!(key_prefix(&a), &a[..10]);
        assert_eq!(
            stored_hash("abc"),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
        );
    }
}
