//! Server, model, language, options and time limits of a hosted STT.

use std::fmt;
use std::time::Duration;

use url::Url;

use crate::Error;
use crate::hosted::{base_url, with_path};
use crate::stt::HostedOptions;

/// Time limits of a hosted STT.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timeouts {
    /// To open a connection while audio waits for it; 3 s. While none waits, the limit is 10 s or
    /// this, if this is longer. Without effect on an STT that is one request for each utterance.
    pub connect: Duration,
    /// To the first message about an utterance, from the time at which its audio is long enough for
    /// an answer; 2.5 s. Afterwards the STT has failed.
    pub first: Duration,
    /// From the end of speech to the final transcript; `None` = the vendor's default. Afterwards the
    /// last interim transcript is the final one, or without one the STT has failed. An STT that is
    /// one request for each utterance gets a fifth of the audio's duration in addition.
    pub final_transcript: Option<Duration>,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(3),
            first: Duration::from_millis(2_500),
            final_transcript: None,
        }
    }
}

/// What is configured of a hosted STT. The meaning of the model is the vendor's.
#[derive(Clone, Default)]
pub struct HostedConfig {
    /// Base URL: `http`, `https`, `ws` or `wss`, with an optional path prefix. Empty = the vendor's
    /// own server.
    pub url: String,
    /// API key. Secret.
    pub token: Option<String>,
    /// Model; empty = the vendor's default.
    pub model: String,
    /// BCP 47 tag; empty = `en`. `multi` and `auto` = the vendor detects the language.
    pub language: String,
    /// Words that the model shall expect.
    pub keyterms: Vec<String>,
    /// The agent's options, as the vendor's `read_options` returns them.
    pub options: HostedOptions,
    /// Time limits.
    pub timeouts: Timeouts,
}

impl fmt::Debug for HostedConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HostedConfig")
            .field("model", &self.model)
            .field("language", &self.language)
            .finish_non_exhaustive()
    }
}

impl HostedConfig {
    /// The URL of `path` on the server with the scheme `http` or `https`, as of [`base_url`].
    ///
    /// # Errors
    /// As [`base_url`].
    pub(in crate::stt) fn endpoint(
        &self,
        vendor: &str,
        default_base: &str,
        known_endings: &[&str],
        path: &str,
    ) -> Result<Url, Error> {
        let base = base_url(vendor, &self.url, default_base, known_endings)?;
        Ok(with_path(base, path.trim_start_matches('/')))
    }

    /// The key without blanks around it, if there is one.
    pub(in crate::stt) fn key(&self) -> Option<&str> {
        self.token.as_deref().map(str::trim).filter(|token| !token.is_empty())
    }

    /// The model, or `default`.
    pub(in crate::stt) fn model<'a>(&'a self, default: &'a str) -> &'a str {
        non_empty(&self.model, default)
    }

    /// The BCP 47 tag of the language; `None` = the vendor detects it.
    pub(in crate::stt) fn language(&self) -> Option<String> {
        let tag = self.language.trim().replace('_', "-");
        let is_detected = ["auto", "multi"].iter().any(|word| tag.eq_ignore_ascii_case(word));
        (!is_detected).then(|| non_empty(&tag, "en").to_owned())
    }

    /// The code of the language without region or script, such as `en`; `None` = the vendor
    /// detects it.
    pub(in crate::stt) fn primary_language(&self) -> Option<String> {
        let tag = self.language()?;
        Some(tag.split('-').next().unwrap_or_default().to_lowercase())
    }

    /// The words that the model shall expect, without blanks around them.
    pub(in crate::stt) fn keyterms(&self) -> impl Iterator<Item = &str> {
        self.keyterms.iter().map(|term| term.trim()).filter(|term| !term.is_empty())
    }
}

/// The text without blanks around it, or `default` if nothing is left.
fn non_empty<'a>(text: &'a str, default: &'a str) -> &'a str {
    match text.trim() {
        "" => default,
        text => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_path_follows_the_base_whatever_people_paste() {
        const ENDINGS: [&str; 4] = ["/v1/listen", "/v2/listen", "/v1", "/v2"];
        let endpoint = |base: &str| {
            let config = HostedConfig { url: base.into(), ..HostedConfig::default() };
            config.endpoint("Deepgram", "https://api.deepgram.com", &ENDINGS, "/v1/listen")
        };
        for (base, expected) in [
            ("", "https://api.deepgram.com/v1/listen"),
            ("ws://localhost:9/v1/listen/", "http://localhost:9/v1/listen"),
            (
                "wss://proxy.example/deepgram/v2/listen?a=b#c",
                "https://proxy.example/deepgram/v1/listen",
            ),
        ] {
            assert_eq!(endpoint(base).unwrap().as_str(), expected, "{base}");
        }
        let error = endpoint("api.deepgram.com").unwrap_err();
        assert_eq!(error.to_string(), "The address of Deepgram is not a valid URL");
    }

    #[test]
    fn languages_are_normalized() {
        for (language, tag, primary) in [
            ("", Some("en"), Some("en")),
            (" pt_BR ", Some("pt-BR"), Some("pt")),
            ("EN-gb", Some("EN-gb"), Some("en")),
            ("auto", None, None),
            ("Multi", None, None),
        ] {
            let config = HostedConfig { language: language.into(), ..HostedConfig::default() };
            assert_eq!(config.language().as_deref(), tag, "{language}");
            assert_eq!(config.primary_language().as_deref(), primary, "{language}");
        }
    }

    #[test]
    fn the_key_is_not_printed() {
        let config = HostedConfig { token: Some(" secret-key ".into()), ..HostedConfig::default() };
        assert!(!format!("{config:?}").contains("secret"));
        assert_eq!(config.key(), Some("secret-key"));
        let blank = HostedConfig { token: Some(" ".into()), ..HostedConfig::default() };
        assert_eq!(blank.key(), None);
    }
}
