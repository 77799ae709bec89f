//! API keys. A key has 256 random bits, is stored as SHA-256, and is shown once; afterwards only
//! its prefix is known.

use std::sync::Arc;

use aws_lc_rs::digest;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use crate::store::vault;

/// Number of characters of a key that stay visible.
const PREFIX: usize = 10;

/// SHA-256 of a key.
pub(crate) type Hash = [u8; 32];

/// A new key.
pub(crate) fn fresh_key() -> String {
    let mut bytes = [0; 32];
    vault::random(&mut bytes);
    format!("vv_{}", URL_SAFE_NO_PAD.encode(bytes))
}

/// The part of a key that may be shown.
pub(crate) fn prefix(key: &str) -> &str {
    key.get(..PREFIX).unwrap_or_default()
}

pub(crate) fn hash(key: &str) -> Hash {
    let mut hash = [0; 32];
    hash.copy_from_slice(digest::digest(&digest::SHA256, key.as_bytes()).as_ref());
    hash
}

pub(crate) fn hex(hash: &Hash) -> String {
    hash.iter().map(|b| format!("{b:02x}")).collect()
}

/// The stored form of a key.
pub(crate) fn stored(key: &str) -> String {
    hex(&hash(key))
}

/// The key of the environment (`VISAVIS_API_KEY`), which is never stored, and its workspace.
///
/// All other keys are read from the store for each request: a key that was revoked, here or by
/// `visavis keys revoke`, is refused at once.
pub(crate) struct Given(Option<(Hash, Arc<str>)>);

impl Given {
    pub(crate) fn new(given: Option<(&str, &str)>) -> Self {
        Self(given.map(|(key, workspace)| (hash(key), Arc::from(workspace))))
    }

    pub(crate) fn workspace(&self, hash: &Hash) -> Option<Arc<str>> {
        self.0.as_ref().filter(|(given, _)| given == hash).map(|(_, workspace)| Arc::clone(workspace))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_long_and_never_the_same() {
        let (a, b) = (fresh_key(), fresh_key());
        assert_ne!(a, b);
        assert_eq!(a.len(), 3 + 43);
        assert_eq!(prefix(&a), &a[..10]);
        assert_eq!(stored("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    }
}
