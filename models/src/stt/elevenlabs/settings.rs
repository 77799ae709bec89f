//! The URL of a session, and the options that an agent may set.

use serde_json::{Map, Value};
use url::Url;

use crate::Error;
use crate::stt::streaming::{HostedConfig, HostedOptions, Kind, Table};

/// ElevenLabs' own server.
pub const DEFAULT_URL: &str = "https://api.elevenlabs.io";
/// Model of agents that name none.
pub const DEFAULT_MODEL: &str = "scribe_v2_realtime";

/// Name of the vendor in sentences.
pub(super) const VENDOR: &str = "ElevenLabs";

/// Endings of a base URL that people paste, longest first.
const KNOWN_ENDINGS: [&str; 3] = ["/v1/speech-to-text/realtime", "/v1/speech-to-text", "/v1"];
/// Maximum number of key terms, and of characters of each. Others refuse the session.
const MAX_KEYTERMS: (usize, usize) = (50, 20);

const OPTIONS: Table = &[
    ("filter_background_audio", Kind::Flag),
    ("no_verbatim", Kind::Flag),
    ("secondary_languages", Kind::Texts(10, 8)),
];

/// Reads the options of an agent; also returns the names of those that are unknown or have a value
/// that is not allowed. They are the same for all models.
#[must_use]
pub fn read_options<'a>(
    _model: &str,
    values: &'a Map<String, Value>,
) -> (HostedOptions, Vec<&'a str>) {
    HostedOptions::read(OPTIONS, values)
}

/// The URL of a session. Contains no secret.
///
/// # Errors
/// [`crate::ErrorKind::Rejected`] if the base is not a URL.
pub(super) fn realtime_url(config: &HostedConfig) -> Result<Url, Error> {
    let options = &config.options;
    let path = KNOWN_ENDINGS[0];
    let mut url = config.endpoint(VENDOR, DEFAULT_URL, &KNOWN_ENDINGS, path)?;
    let keyterms = config.keyterms().filter(|term| term.chars().count() <= MAX_KEYTERMS.1);
    // Zero retention.
    let privacy = (!options.share_data).then_some(("enable_logging", "false"));
    url.query_pairs_mut()
        .append_pair("model_id", config.model(DEFAULT_MODEL))
        .append_pair("audio_format", "pcm_16000")
        // This server decides when speech has ended.
        .append_pair("commit_strategy", "manual")
        .extend_pairs(config.primary_language().map(|code| ("language_code", code)))
        .extend_pairs(privacy)
        .extend_pairs(options.parameters())
        .extend_pairs(keyterms.take(MAX_KEYTERMS.0).map(|term| ("keyterms", term)));
    Ok(url)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_url_has_all_parameters() {
        let mut keyterms = vec!["Visavis".to_owned(), "more than twenty characters".to_owned()];
        keyterms.extend((0..60).map(|n| format!("t{n}")));
        let config = HostedConfig { language: "pt-BR".into(), keyterms, ..HostedConfig::default() };
        let url = realtime_url(&config).unwrap();
        assert!(
            url.as_str().starts_with(
                "https://api.elevenlabs.io/v1/speech-to-text/realtime?model_id=scribe_v2_realtime\
                 &audio_format=pcm_16000&commit_strategy=manual&language_code=pt\
                 &enable_logging=false&keyterms=Visavis&keyterms=t0&"
            ),
            "{url}"
        );
        assert_eq!(url.query_pairs().filter(|(name, _)| name == "keyterms").count(), 50);
    }

    #[test]
    fn options_are_added_and_only_the_operator_shares_data() {
        let values = json!({
            "no_verbatim": true, "secondary_languages": ["en", "de"], "enable_logging": true,
            "commit_strategy": "vad", "include_timestamps": true,
        });
        let values = values.as_object().unwrap();
        let (mut options, mut ignored) = read_options("", values);
        ignored.sort_unstable();
        assert_eq!(ignored, ["commit_strategy", "enable_logging", "include_timestamps"]);
        options.share_data = true;
        let language = "auto".into();
        let config = HostedConfig { language, options, ..HostedConfig::default() };
        assert_eq!(
            realtime_url(&config).unwrap().query().unwrap(),
            "model_id=scribe_v2_realtime&audio_format=pcm_16000&commit_strategy=manual\
             &no_verbatim=true&secondary_languages=en&secondary_languages=de"
        );
    }
}
