//! The URLs of streams, and the options that an agent may set.

use serde_json::{Map, Value};
use url::Url;

use crate::Error;
use crate::stt::streaming::{HostedConfig, HostedOptions, Kind, SAMPLE_RATE, Table};

/// Deepgram's own server.
pub const DEFAULT_URL: &str = "https://api.deepgram.com";
/// Model of agents that name none.
pub const DEFAULT_MODEL: &str = "nova-3";

/// Name of the vendor in sentences.
pub(super) const VENDOR: &str = "Deepgram";

/// Endings of a base URL that people paste, longest first.
const KNOWN_ENDINGS: [&str; 4] = ["/v1/listen", "/v2/listen", "/v1", "/v2"];

/// Options of Nova.
const NOVA_OPTIONS: Table = &[
    ("filler_words", Kind::Flag),
    ("no_delay", Kind::Flag),
    ("numerals", Kind::Flag),
    ("profanity_filter", Kind::Flag),
    ("punctuate", Kind::Flag),
    ("redact", Kind::Texts(10, 64)),
    ("smart_format", Kind::Flag),
    ("tag", Kind::Text(128)),
];

/// Options of Flux.
const FLUX_OPTIONS: Table = &[
    ("eager_eot_threshold", Kind::Number(0.3, 0.9)),
    ("eot_threshold", Kind::Number(0.5, 1.0)),
    ("eot_timeout_ms", Kind::Integer(500, 60_000)),
    ("numerals", Kind::Flag),
    ("profanity_filter", Kind::Flag),
    ("redact", Kind::Texts(10, 64)),
    ("tag", Kind::Text(128)),
];

/// Reads the options of an agent for a model; also returns the names of those that are unknown or
/// have a value that the model does not allow.
#[must_use]
pub fn read_options<'a>(
    model: &str,
    values: &'a Map<String, Value>,
) -> (HostedOptions, Vec<&'a str>) {
    HostedOptions::read(if is_flux(model) { FLUX_OPTIONS } else { NOVA_OPTIONS }, values)
}

/// Whether a model is served by the interface of version 2.
#[must_use]
pub fn is_flux(model: &str) -> bool {
    model.trim().to_lowercase().starts_with("flux")
}

/// The header with the key, if there is one.
pub(super) fn authorization(config: &HostedConfig) -> Option<(&'static str, String)> {
    Some(("authorization", format!("Token {}", config.key()?)))
}

/// The parameter of Deepgram's model improvement program: the vendor does not train on the audio.
fn privacy(options: &HostedOptions) -> Option<(&'static str, &'static str)> {
    (!options.share_data).then_some(("mip_opt_out", "true"))
}

/// The URL of a stream of Nova. Contains no secret.
///
/// # Errors
/// [`crate::ErrorKind::Rejected`] if the base is not a URL.
pub(super) fn nova_url(config: &HostedConfig) -> Result<Url, Error> {
    let options = &config.options;
    let mut url = config.endpoint(VENDOR, DEFAULT_URL, &KNOWN_ENDINGS, "/v1/listen")?;
    let model = config.model(DEFAULT_MODEL);
    let keyterm = if model.starts_with("nova-3") { "keyterm" } else { "keywords" };
    let language = config.language();
    url.query_pairs_mut()
        .append_pair("model", model)
        .append_pair("language", language.as_deref().unwrap_or("multi"))
        .append_pair("encoding", "linear16")
        .append_pair("sample_rate", &SAMPLE_RATE.to_string())
        .append_pair("channels", "1")
        .append_pair("interim_results", "true")
        .extend_pairs(options.or_default("punctuate", "true"))
        .extend_pairs(options.or_default("smart_format", "true"))
        // This server decides when speech has ended.
        .append_pair("endpointing", "false")
        .extend_pairs(privacy(options))
        .extend_pairs(options.parameters())
        .extend_pairs(config.keyterms().map(|term| (keyterm, term)));
    Ok(url)
}

/// The URL of a stream of Flux. Contains no secret.
///
/// # Errors
/// [`crate::ErrorKind::Rejected`] if the base is not a URL.
pub(super) fn flux_url(config: &HostedConfig) -> Result<Url, Error> {
    let options = &config.options;
    let mut url = config.endpoint(VENDOR, DEFAULT_URL, &KNOWN_ENDINGS, "/v2/listen")?;
    let model = config.model(DEFAULT_MODEL).to_lowercase();
    let endpointing: &[(&str, &str)] = if options.provider_turns {
        &[("eager_eot_threshold", "0.5")]
    } else {
        // This server decides when a turn has ended.
        &[("eot_threshold", "1.0"), ("eot_timeout_ms", "60000")]
    };
    // Only the multilingual model accepts it.
    let language = config.primary_language().filter(|_| model.contains("multi"));
    url.query_pairs_mut()
        .append_pair("model", &model)
        .append_pair("encoding", "linear16")
        .append_pair("sample_rate", &SAMPLE_RATE.to_string())
        .extend_pairs(
            endpointing.iter().filter_map(|(name, value)| options.or_default(name, value)),
        )
        .extend_pairs(privacy(options))
        .extend_pairs(options.parameters())
        .extend_pairs(language.map(|language| ("language_hint", language)))
        .extend_pairs(config.keyterms().map(|term| ("keyterm", term)));
    Ok(url)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(model: &str, values: &Value) -> (HostedOptions, Vec<String>) {
        let values = values.as_object().unwrap();
        let (options, ignored) = read_options(model, values);
        (options, ignored.into_iter().map(str::to_owned).collect())
    }

    #[test]
    fn the_url_of_nova_has_all_parameters_and_no_secret() {
        let config = HostedConfig {
            token: Some("secret-key".into()),
            language: " en_GB ".into(),
            keyterms: vec!["Visavis".into(), " ".into(), "rock & roll".into()],
            ..HostedConfig::default()
        };
        assert_eq!(
            nova_url(&config).unwrap().as_str(),
            "https://api.deepgram.com/v1/listen?model=nova-3&language=en-GB&encoding=linear16\
             &sample_rate=16000&channels=1&interim_results=true&punctuate=true&smart_format=true\
             &endpointing=false&mip_opt_out=true&keyterm=Visavis&keyterm=rock+%26+roll"
        );
        let header = authorization(&config).unwrap();
        assert_eq!((header.0, header.1.as_str()), ("authorization", "Token secret-key"));
        let without = HostedConfig { token: Some(" ".into()), ..config };
        assert_eq!(authorization(&without), None);
    }

    #[test]
    fn options_of_nova_replace_the_defaults_and_only_the_operator_shares_data() {
        let values = json!({
            "smart_format": false, "redact": ["pci", "ssn"], "tag": "a b", "mip_opt_out": false,
            "endpointing": 10, "callback": "https://evil.example", "model": "nova-2",
        });
        let (mut options, mut ignored) = read("nova-3", &values);
        ignored.sort_unstable();
        assert_eq!(ignored, ["callback", "endpointing", "mip_opt_out", "model"]);
        options.share_data = true;
        let config =
            HostedConfig { language: "auto".into(), model: "nova-2".into(), ..Default::default() };
        let config = HostedConfig { keyterms: vec!["Ada".into()], options, ..config };
        assert_eq!(
            nova_url(&config).unwrap().query().unwrap(),
            "model=nova-2&language=multi&encoding=linear16&sample_rate=16000&channels=1\
             &interim_results=true&punctuate=true&endpointing=false&redact=pci&redact=ssn\
             &smart_format=false&tag=a+b&keywords=Ada"
        );
    }
    #[test]
    fn flux_leaves_the_ends_of_turns_to_this_server_unless_it_shall_decide() {
        let config = HostedConfig {
            model: "Flux-general-multi".into(),
            language: "de-AT".into(),
            keyterms: vec!["Visavis".into()],
            ..HostedConfig::default()
        };
        assert_eq!(
            flux_url(&config).unwrap().as_str(),
            "https://api.deepgram.com/v2/listen?model=flux-general-multi&encoding=linear16\
             &sample_rate=16000&eot_threshold=1.0&eot_timeout_ms=60000&mip_opt_out=true\
             &language_hint=de&keyterm=Visavis"
        );
        let values = json!({"eot_threshold": 0.8, "eager_eot_threshold": 1.0, "punctuate": true});
        let (mut options, mut ignored) = read("flux-general-en", &values);
        ignored.sort_unstable();
        assert_eq!(ignored, ["eager_eot_threshold", "punctuate"]);
        options.provider_turns = true;
        let model = "flux-general-en".into();
        let config = HostedConfig { model, options, ..HostedConfig::default() };
        assert_eq!(
            flux_url(&config).unwrap().query().unwrap(),
            "model=flux-general-en&encoding=linear16&sample_rate=16000&eager_eot_threshold=0.5\
             &mip_opt_out=true&eot_threshold=0.8"
        );
    }
}
