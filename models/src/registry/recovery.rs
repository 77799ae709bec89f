//! What closes a breaker before its delay is over: a test that succeeded, and a key that was stored
//! again.

use std::sync::Arc;

use engine_api::{LlmChoice, SttChoice, TtsChoice};

use super::{Kind, Registry, Vendor, normalize_name};
use crate::breaker::Breaker;

impl Registry {
    /// A request to the STT that `choice` names first has succeeded: calls use it again.
    pub fn confirm_stt(&self, choice: &SttChoice) {
        let SttChoice { provider, model, url, token, workspace, .. } = choice;
        let own = (url.as_ref(), token.as_ref());
        self.confirm(Kind::Stt, provider, model, own, workspace);
    }

    /// The same for the language model.
    pub fn confirm_llm(&self, choice: &LlmChoice) {
        let LlmChoice { provider, model, url, token, workspace, .. } = choice;
        let own = (url.as_ref(), token.as_ref());
        self.confirm(Kind::Llm, provider, model, own, workspace);
    }

    /// The same for the TTS.
    pub fn confirm_tts(&self, choice: &TtsChoice) {
        let TtsChoice { provider, model_id, url, token, workspace, .. } = choice;
        let own = (url.as_ref(), token.as_ref());
        self.confirm(Kind::Tts, provider, model_id, own, workspace);
    }

    /// The key of an account was stored, so its earlier failures count no longer. `url`: empty = the
    /// vendor's own server.
    pub fn forget_failures(&self, provider: &str, url: &str, token: &str) {
        if let Some(vendor) = Vendor::of_provider(provider) {
            self.breakers.close_account(vendor.name, url, Some(token));
        }
    }

    fn confirm(
        &self,
        kind: Kind,
        provider: &str,
        model: &str,
        own: (Option<&String>, Option<&String>),
        workspace: &str,
    ) {
        let name = normalize_name(&self.first_provider(kind, provider, workspace));
        let vendor = Vendor::of_provider(&name).filter(|vendor| vendor.serves(kind));
        let breaker: Option<Arc<Breaker>> = vendor.and_then(|vendor| {
            let access = self.access(vendor, kind, own, workspace).ok()?;
            Some(self.breaker(kind, vendor, &access, model))
        });
        if let Some(breaker) = breaker {
            breaker.succeeded();
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::Instant;

    use super::*;
    use crate::registry::Config;
    use crate::{Error, ErrorKind};

    #[tokio::test]
    async fn a_key_that_works_again_is_used_at_once() {
        let client = egress::Client::new(egress::Policy::default()).unwrap();
        let registry = Registry::new(Config::default(), client, tokio::runtime::Handle::current());
        let choice = LlmChoice {
            provider: "claude".into(),
            token: Some("key".into()),
            ..LlmChoice::default()
        };
        let entry = || registry.llm_entry(&choice, "Ada", std::time::Duration::from_secs(5));
        let breaker = entry().unwrap().0.breaker.unwrap();
        let fail = || {
            breaker.failed(Instant::now(), &Error::new(ErrorKind::InvalidKey, "not valid"));
            assert!(breaker.skip_reason().is_some());
        };
        fail();
        registry.forget_failures("anthropic", "", "another key");
        registry.confirm_tts(&TtsChoice { provider: "cartesia".into(), ..TtsChoice::default() });
        assert!(breaker.skip_reason().is_some(), "of another account");
        registry.forget_failures("anthropic", "", "key");
        assert_eq!(breaker.skip_reason(), None);
        fail();
        registry.confirm_llm(&choice);
        assert_eq!(breaker.skip_reason(), None);
    }
}
