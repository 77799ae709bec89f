//! Links to files of the local storage: `/media/{key}?expires=…&signature=…`. The signature is an
//! HMAC-SHA256 with a key that is derived from that of the session tokens. Servers that share a
//! database share it.

use aws_lc_rs::hmac;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

/// Separates this use of the key from the tokens.
const KEY_LABEL: &[u8] = b"visavis media links";

/// Signs and verifies links.
pub(crate) struct MediaLinkSigner(hmac::Key);

impl MediaLinkSigner {
    pub(crate) fn new(key: &[u8]) -> Self {
        let derived = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, key), KEY_LABEL);
        Self(hmac::Key::new(hmac::HMAC_SHA256, derived.as_ref()))
    }

    /// The link to the file `key`, valid until `expires` (seconds since the Unix epoch). `base`:
    /// `{base_url}`.
    pub(crate) fn link(&self, base: &str, key: &str, expires: u64) -> String {
        let tag = hmac::sign(&self.0, &signed_text(key, expires));
        let signature = URL_SAFE_NO_PAD.encode(tag);
        format!("{base}/media/{key}?expires={expires}&signature={signature}")
    }

    /// Whether the signature is that of a link.
    pub(crate) fn verify(&self, key: &str, expires: u64, signature: &str) -> bool {
        URL_SAFE_NO_PAD
            .decode(signature)
            .is_ok_and(|tag| hmac::verify(&self.0, &signed_text(key, expires), &tag).is_ok())
    }
}

fn signed_text(key: &str, expires: u64) -> Vec<u8> {
    format!("{expires} {key}").into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_is_valid_for_its_file_and_time_only() {
        let signer = MediaLinkSigner::new(&[1; 32]);
        let link = signer.link("http://here", "recordings/a.webm", 77);
        let (start, signature) = link.rsplit_once("&signature=").unwrap();
        assert_eq!(start, "http://here/media/recordings/a.webm?expires=77");
        assert!(signer.verify("recordings/a.webm", 77, signature));
        assert!(!signer.verify("recordings/a.webm", 78, signature));
        assert!(!signer.verify("recordings/b.webm", 77, signature));
        assert!(!signer.verify("recordings/a.webm", 77, ""));
        assert!(!MediaLinkSigner::new(&[2; 32]).verify("recordings/a.webm", 77, signature));
    }
}
