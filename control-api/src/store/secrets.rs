//! The write-only parts of a record: stored encrypted and returned as `***`.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize, de::DeserializeOwned};

use super::{Error, Result};
use crate::store::vault::{self, Vault};

/// Returned instead of a secret. Sent back, it preserves the stored value.
pub(crate) const SECRET_MASK: &str = "***";

/// The secrets of an agent.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct AgentSecrets {
    /// `whsec_…`
    pub(crate) webhook: String,
    /// In the order of the avatars.
    #[serde(default)]
    pub(crate) avatars: Vec<AvatarSecrets>,
}

/// The secrets of one avatar.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct AvatarSecrets {
    pub(crate) llm: Option<String>,
    pub(crate) stt: Option<String>,
    pub(crate) tts: Option<String>,
    /// The picture of a background that is not drawn, in base64: of a template, or of an avatar that
    /// calls do not show.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) background_image: Option<String>,
}

/// A new webhook secret, in the form of the Standard Webhooks specification.
pub(crate) fn new_webhook_secret() -> String {
    let mut bytes = [0; 32];
    vault::fill_random(&mut bytes);
    format!("whsec_{}", STANDARD.encode(bytes))
}

/// Encrypts `secrets` for the row `id`, as text.
#[expect(clippy::expect_used, reason = "plain data serializes")]
pub(crate) fn seal<T: Serialize>(vault: &Vault, id: &str, secrets: &T) -> String {
    let plain = serde_json::to_vec(secrets).expect("secrets serialize to JSON");
    STANDARD.encode(vault.seal(id, &plain))
}

/// Decrypts the output of [`seal`] for the row `id`.
pub(crate) fn open<T: DeserializeOwned>(vault: &Vault, id: &str, sealed: &str) -> Result<T> {
    let damaged = |why: String| Error::CorruptRow("secrets", why);
    let bytes = STANDARD.decode(sealed).map_err(|e| damaged(e.to_string()))?;
    let plain = vault.open(id, &bytes).map_err(|e| damaged(e.to_string()))?;
    serde_json::from_slice(&plain)
        .map_err(|_| damaged("the decrypted secrets are not valid JSON".into()))
}
