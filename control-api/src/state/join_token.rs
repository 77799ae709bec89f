//! Join tokens: a JWT (HS256) for one conversation. It authorizes the two signaling endpoints and
//! no REST route.
//!
//! Deterministic: the token is computed from the conversation's id and creation time. It need not
//! be stored, and every read of the conversation returns the same link.

use aws_lc_rs::hmac;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use conversation::id::ConversationId;
use serde::{Deserialize, Serialize};

const JWT_HEADER: &str = r#"{"alg":"HS256","typ":"JWT"}"#;

/// Claims of a token.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Claims {
    /// The conversation.
    pub(crate) sub: ConversationId,
    /// Creation time, in seconds since the Unix epoch.
    pub(crate) iat: u64,
    /// Deadline for the first join. After a join, the token is valid until the conversation has
    /// ended.
    pub(crate) exp: u64,
}

/// Signs and verifies tokens.
pub(crate) struct TokenSigner(hmac::Key);

impl TokenSigner {
    pub(crate) fn new(key: &[u8]) -> Self {
        Self(hmac::Key::new(hmac::HMAC_SHA256, key))
    }

    /// The token with these claims.
    #[expect(clippy::expect_used, reason = "plain data serializes")]
    pub(crate) fn sign(&self, claims: &Claims) -> String {
        let claims = serde_json::to_vec(claims).expect("claims serialize to JSON");
        let mut token =
            format!("{}.{}", URL_SAFE_NO_PAD.encode(JWT_HEADER), URL_SAFE_NO_PAD.encode(claims));
        let tag = hmac::sign(&self.0, token.as_bytes());
        token.push('.');
        URL_SAFE_NO_PAD.encode_string(tag, &mut token);
        token
    }

    /// The claims of `token` if its signature is valid. The caller checks the expiry: see
    /// [`Claims::exp`].
    pub(crate) fn verify(&self, token: &str) -> Option<Claims> {
        let (signed, tag) = token.rsplit_once('.')?;
        let tag = URL_SAFE_NO_PAD.decode(tag).ok()?;
        hmac::verify(&self.0, signed.as_bytes(), &tag).ok()?;
        let (header, claims) = signed.split_once('.')?;
        // Only this header is ever signed, so no other algorithm can be selected.
        if URL_SAFE_NO_PAD.decode(header).ok()? != JWT_HEADER.as_bytes() {
            return None;
        }
        serde_json::from_slice(&URL_SAFE_NO_PAD.decode(claims).ok()?).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claims() -> Claims {
        Claims { sub: ConversationId(7), iat: 100, exp: 400 }
    }

    #[test]
    fn a_token_reads_back_and_is_always_the_same() {
        let signer = TokenSigner::new(&[1; 32]);
        let token = signer.sign(&claims());
        assert_eq!(signer.verify(&token), Some(claims()));
        assert_eq!(signer.sign(&claims()), token);
    }

    #[test]
    fn a_changed_token_or_another_key_is_refused() {
        let signer = TokenSigner::new(&[1; 32]);
        let token = signer.sign(&claims());
        assert_eq!(TokenSigner::new(&[2; 32]).verify(&token), None);
        let (signed, tag) = token.rsplit_once('.').unwrap();
        let other = signer.sign(&Claims { sub: ConversationId(8), ..claims() });
        let (other, _) = other.rsplit_once('.').unwrap();
        assert_ne!(other, signed);
        assert_eq!(signer.verify(&format!("{other}.{tag}")), None);
        let none = format!(
            "{}.{}.",
            URL_SAFE_NO_PAD.encode(r#"{"alg":"none"}"#),
            signed.split_once('.').unwrap().1
        );
        assert_eq!(signer.verify(&none), None);
        assert_eq!(signer.verify(""), None);
    }
}
