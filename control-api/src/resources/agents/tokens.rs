//! The keys of an agent's providers: `***` in a request stands for a stored key, which is sent only
//! to the provider and the address that it was stored with.

use models::registry::Vendor;

use crate::http::validate::FieldErrors;
use crate::store::agent::Avatar;
use crate::store::providers::Providers;
use crate::store::secrets::{AgentSecrets, AvatarSecrets, SECRET_MASK};

/// An agent or a template that a request replaces.
#[derive(Clone, Copy)]
pub(crate) struct Replaced<'a> {
    pub(crate) avatars: &'a [Avatar],
    pub(crate) secrets: &'a AgentSecrets,
}

impl<'a> Replaced<'a> {
    /// The providers of the `i`-th avatar, and their keys.
    pub(super) fn avatar(self, i: usize) -> Option<(&'a Providers, &'a AvatarSecrets)> {
        Some((&self.avatars.get(i)?.config, self.secrets.avatars.get(i)?))
    }
}

/// Where a key is sent.
#[derive(Clone, Copy)]
pub(crate) struct Address<'a> {
    provider: Option<&'a str>,
    url: Option<&'a str>,
}

impl<'a> Address<'a> {
    pub(crate) fn new(provider: &'a Option<String>, url: &'a Option<String>) -> Self {
        Self { provider: provider.as_deref(), url: url.as_deref() }
    }

    /// Whether no key is sent: the server's own providers serve.
    fn is_none(self) -> bool {
        let is_blank = |text: Option<&str>| text.is_none_or(|text| text.trim().is_empty());
        is_blank(self.provider) && is_blank(self.url)
    }

    /// Whether both are the same server of the same vendor.
    pub(crate) fn is_same(self, other: Self) -> bool {
        let vendor = |address: Self| Vendor::of_provider(address.provider?);
        let url = |address: Self| address.url.unwrap_or_default();
        vendor(self) == vendor(other) && url(self) == url(other)
    }
}

/// Moves the keys of `providers` out of the document. `paths` are those of the LLM, the STT and the
/// TTS in the request.
pub(super) fn take(
    providers: &mut Providers,
    old: Option<(&Providers, &AvatarSecrets)>,
    [llm_path, stt_path, tts_path]: &[String; 3],
    errors: &FieldErrors,
) -> AvatarSecrets {
    let Providers { llm, stt, tts } = providers;
    AvatarSecrets {
        llm: take_one(
            &mut llm.token,
            Address::new(&llm.provider, &llm.url),
            old.map(|(old, keys)| (Address::new(&old.llm.provider, &old.llm.url), &keys.llm)),
            (llm_path, errors),
        ),
        stt: take_one(
            &mut stt.token,
            Address::new(&stt.provider, &stt.url),
            old.map(|(old, keys)| (Address::new(&old.stt.provider, &old.stt.url), &keys.stt)),
            (stt_path, errors),
        ),
        tts: take_one(
            &mut tts.token,
            Address::new(&tts.provider, &tts.url),
            old.map(|(old, keys)| (Address::new(&old.tts.provider, &old.tts.url), &keys.tts)),
            (tts_path, errors),
        ),
        background_image: None,
    }
}

/// Replaces a key by its mask and returns it.
fn take_one(
    token: &mut Option<String>,
    address: Address<'_>,
    old: Option<(Address<'_>, &Option<String>)>,
    (path, errors): (&str, &FieldErrors),
) -> Option<String> {
    let secret = match token.take() {
        Some(mask) if mask == SECRET_MASK => {
            let stored = old.and_then(|(old, stored)| Some((old, stored.clone()?)));
            let has_moved =
                !address.is_none() && stored.as_ref().is_some_and(|(old, _)| !old.is_same(address));
            let is_valid =
                !["provider", "url"].iter().any(|name| errors.contains(&format!("{path}.{name}")));
            if has_moved && is_valid {
                let reason = "must be given again, because the provider or the address changes";
                errors.add(format!("{path}.token"), reason);
            }
            stored.map(|(_, secret)| secret)
        }
        Some(text) if text.is_empty() => None,
        text => text,
    };
    *token = secret.as_ref().map(|_| SECRET_MASK.to_owned());
    secret
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::config::StockAvatar;
    use crate::error::ApiError;
    use crate::resources::agents::parse::{Parsed, parse};
    use crate::store::agent::Agent;

    type Result<T> = std::result::Result<T, ApiError>;

    fn parse_agent(llm: Value, old: Option<&Parsed<Agent>>) -> Result<Parsed<Agent>> {
        let stock = [StockAvatar { avatar_key_id: "ada".into(), ..StockAvatar::default() }];
        let body = json!({
            "agent_name": "A",
            "agent_system_prompt": "P",
            "avatars": [{"avatar_key_id": "ada", "llm": llm}],
        });
        let old = old.map(|Parsed { document, secrets }| Replaced {
            avatars: &document.settings.avatars,
            secrets,
        });
        parse::<Agent>(body, &stock, old)
    }

    fn token(parsed: &Parsed<Agent>) -> (Option<&str>, Option<&str>) {
        let avatar = &parsed.document.settings.avatars[0];
        (avatar.config.llm.token.as_deref(), parsed.secrets.avatars[0].llm.as_deref())
    }

    #[test]
    fn the_mask_preserves_a_token_and_an_omitted_token_clears_it() {
        let first = parse_agent(json!({"token": "secret"}), None).unwrap();
        assert_eq!(token(&first), (Some("***"), Some("secret")));
        let replaced = parse_agent(json!({"token": "***", "model": "m"}), Some(&first)).unwrap();
        assert_eq!(token(&replaced), (Some("***"), Some("secret")));
        assert_eq!(replaced.secrets.webhook, first.secrets.webhook);
        assert_eq!(token(&parse_agent(json!({}), Some(&first)).unwrap()), (None, None));
        assert_eq!(token(&parse_agent(json!({"token": "***"}), None).unwrap()), (None, None));
    }

    #[test]
    fn a_stored_token_is_not_sent_to_another_provider_or_address() {
        let stored =
            json!({"provider": "openai", "url": "https://a.example/v1", "token": "secret"});
        let first = parse_agent(stored, None).unwrap();
        let access = |provider: &str, url: Value, token: &str| {
            parse_agent(json!({"provider": provider, "url": url, "token": token}), Some(&first))
        };
        let same = access("OpenAI", "https://a.example/v1".into(), "***").unwrap();
        assert_eq!(token(&same).1, Some("secret"));
        // Without a provider, the key is stored and goes nowhere, also not with a later provider.
        let unused = parse_agent(json!({"token": "***"}), Some(&first)).unwrap();
        assert_eq!(token(&unused).1, Some("secret"));
        let later = json!({"provider": "anthropic", "token": "***"});
        assert!(parse_agent(later, Some(&unused)).is_err());
        for (provider, url) in [
            ("openai", json!("https://b.example/v1")),
            ("openai", Value::Null),
            ("anthropic", json!("https://a.example/v1")),
        ] {
            let Err(ApiError::Invalid(errors)) = access(provider, url.clone(), "***") else {
                panic!("{provider} at {url} gets the key");
            };
            assert_eq!(errors[0].field, "avatars[0].llm.token");
            let given = access(provider, url, "another").unwrap();
            assert_eq!(token(&given).1, Some("another"));
        }
    }
}
