//! Settings of a stream, and the URL that they lead to.

use std::fmt;

use url::Url;

use crate::stt::streaming::SAMPLE_RATE;
use crate::{Error, ErrorKind};

/// Deepgram's own server.
pub const DEFAULT_URL: &str = "https://api.deepgram.com";
/// Model of agents that name none.
pub const DEFAULT_MODEL: &str = "nova-3";

/// Endings of a base URL that people paste, longest first.
const KNOWN_PATHS: [&str; 4] = ["/v1/listen", "/v2/listen", "/v1", "/v2"];

/// Server and model.
#[derive(Clone, Default)]
pub struct DeepgramConfig {
    /// Base URL: `http`, `https`, `ws` or `wss`, with an optional path prefix. Empty =
    /// [`DEFAULT_URL`].
    pub url: String,
    /// API key. Secret.
    pub token: Option<String>,
    /// Model; empty = [`DEFAULT_MODEL`].
    pub model: String,
    /// BCP 47 tag; empty = `en`. `multi` and `auto` = several languages in one call.
    pub language: String,
    /// Words that the model shall expect.
    pub keyterms: Vec<String>,
}

impl fmt::Debug for DeepgramConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DeepgramConfig")
            .field("model", &self.model)
            .field("language", &self.language)
            .finish_non_exhaustive()
    }
}

impl DeepgramConfig {
    /// The URL of a stream. Contains no secret.
    ///
    /// # Errors
    /// [`ErrorKind::Rejected`] if the base is not a URL with a host and one of the four schemes.
    pub(super) fn listen_url(&self) -> Result<String, Error> {
        let base = Some(self.url.trim()).filter(|url| !url.is_empty()).unwrap_or(DEFAULT_URL);
        let invalid =
            || Error::new(ErrorKind::Rejected, "The address of Deepgram is not a valid URL");
        let mut url = Url::parse(base).map_err(|_| invalid())?;
        if !matches!(url.scheme(), "http" | "https" | "ws" | "wss") || !url.has_host() {
            return Err(invalid());
        }
        // The key is sent in a header, never in the URL.
        url.set_username("").and_then(|()| url.set_password(None)).map_err(|()| invalid())?;
        let path = url.path().trim_end_matches('/');
        let prefix = KNOWN_PATHS
            .iter()
            .find_map(|known| path.strip_suffix(known))
            .unwrap_or(path)
            .to_owned();
        url.set_path(&format!("{prefix}/v1/listen"));
        url.set_fragment(None);
        let model = non_empty(&self.model, DEFAULT_MODEL);
        let language = match self.language.trim().replace('_', "-") {
            auto if auto.eq_ignore_ascii_case("auto") || auto.eq_ignore_ascii_case("multi") => {
                "multi".to_owned()
            }
            language => non_empty(&language, "en").to_owned(),
        };
        let keyterm = if model.starts_with("nova-3") { "keyterm" } else { "keywords" };
        let keyterms = self.keyterms.iter().map(|term| term.trim()).filter(|term| !term.is_empty());
        url.query_pairs_mut()
            .clear()
            .append_pair("model", model)
            .append_pair("language", &language)
            .append_pair("encoding", "linear16")
            .append_pair("sample_rate", &SAMPLE_RATE.to_string())
            .append_pair("channels", "1")
            .append_pair("interim_results", "true")
            .append_pair("punctuate", "true")
            .append_pair("smart_format", "true")
            // This server decides when speech has ended.
            .append_pair("endpointing", "false")
            // No training on the audio of calls.
            .append_pair("mip_opt_out", "true")
            .extend_pairs(keyterms.map(|term| (keyterm, term)));
        Ok(url.into())
    }

    /// The header with the key, if there is one.
    pub(super) fn authorization(&self) -> Option<(&'static str, String)> {
        let token = self.token.as_deref().map(str::trim).filter(|token| !token.is_empty())?;
        Some(("authorization", format!("Token {token}")))
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

    fn url_of(config: &DeepgramConfig) -> Url {
        Url::parse(&config.listen_url().unwrap()).unwrap()
    }

    #[test]
    fn the_url_has_all_parameters_and_no_secret() {
        let config = DeepgramConfig {
            token: Some("secret-key".into()),
            language: " en_GB ".into(),
            keyterms: vec!["Visavis".into(), " ".into(), "rock & roll".into()],
            ..DeepgramConfig::default()
        };
        assert_eq!(
            config.listen_url().unwrap(),
            "https://api.deepgram.com/v1/listen?model=nova-3&language=en-GB&encoding=linear16\
             &sample_rate=16000&channels=1&interim_results=true&punctuate=true&smart_format=true\
             &endpointing=false&mip_opt_out=true&keyterm=Visavis&keyterm=rock+%26+roll"
        );
        let header = config.authorization().unwrap();
        assert_eq!((header.0, header.1.as_str()), ("authorization", "Token secret-key"));
        assert!(!format!("{config:?}").contains("secret"));
        let without = DeepgramConfig { token: Some(" ".into()), ..config };
        assert_eq!(without.authorization(), None);
    }

    #[test]
    fn the_base_may_have_any_scheme_a_prefix_and_a_known_path() {
        for (base, expected) in [
            ("", "https://api.deepgram.com/v1/listen"),
            ("wss://api.eu.deepgram.com", "wss://api.eu.deepgram.com/v1/listen"),
            ("http://127.0.0.1:80/", "http://127.0.0.1/v1/listen"),
            ("ws://localhost:9/v1", "ws://localhost:9/v1/listen"),
            ("ws://localhost:9/v1/listen/", "ws://localhost:9/v1/listen"),
            (
                "https://proxy.example/deepgram/v2/listen?a=b#c",
                "https://proxy.example/deepgram/v1/listen",
            ),
            (" https://user:pass@proxy.example/x ", "https://proxy.example/x/v1/listen"),
        ] {
            let config = DeepgramConfig { url: base.into(), ..DeepgramConfig::default() };
            let mut url = url_of(&config);
            url.set_query(None);
            assert_eq!(url.as_str(), expected, "{base}");
        }
        for bad in ["api.deepgram.com", "ftp://api.deepgram.com", "https://", "data:x", "\u{0}"] {
            let config = DeepgramConfig { url: bad.into(), ..DeepgramConfig::default() };
            let error = config.listen_url().unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Rejected, "{bad}");
        }
    }

    #[test]
    fn languages_and_models_are_mapped() {
        let parameter = |config: &DeepgramConfig, name: &str| {
            let found = url_of(config).query_pairs().find(|(key, _)| key == name)?.1.into_owned();
            Some(found)
        };
        for (language, expected) in
            [("", "en"), ("de", "de"), ("auto", "multi"), ("Multi", "multi"), ("pt-BR", "pt-BR")]
        {
            let config = DeepgramConfig { language: language.into(), ..DeepgramConfig::default() };
            assert_eq!(parameter(&config, "language").as_deref(), Some(expected));
        }
        let older = DeepgramConfig {
            model: "nova-2-phonecall".into(),
            keyterms: vec!["Ada".into()],
            ..DeepgramConfig::default()
        };
        assert_eq!(parameter(&older, "model").as_deref(), Some("nova-2-phonecall"));
        assert_eq!(parameter(&older, "keyterm"), None);
        assert_eq!(parameter(&older, "keywords").as_deref(), Some("Ada"));
    }
}
