//! The URL of a session, and the options that an agent may set.

use serde_json::{Map, Value, json};
use url::Url;

use crate::Error;
use crate::stt::streaming::{HostedConfig, HostedOptions, Kind, SAMPLE_RATE, Table};

/// AssemblyAI's own server.
pub const DEFAULT_URL: &str = "https://streaming.assemblyai.com";
/// Model of agents that name none.
pub const DEFAULT_MODEL: &str = "universal-3-6-pro";

/// Name of the vendor in sentences.
pub(super) const VENDOR: &str = "AssemblyAI";

/// Endings of a base URL that people paste, longest first.
const KNOWN_ENDINGS: [&str; 2] = ["/v3/ws", "/v3"];

/// Options of Universal-3.
const UNIVERSAL_3_OPTIONS: Table = &[
    ("continuous_partials", Kind::Flag),
    ("domain", Kind::Word(&["medical-v1"])),
    ("filter_profanity", Kind::Flag),
    ("interruption_delay", Kind::Integer(0, 1_000)),
    ("max_turn_silence", Kind::Integer(50, 10_000)),
    ("min_turn_silence", Kind::Integer(50, 10_000)),
    ("mode", Kind::Word(&["min_latency", "balanced", "max_accuracy"])),
    ("previous_context_n_turns", Kind::Integer(0, 100)),
    ("prompt", Kind::Text(1_750)),
    ("vad_threshold", Kind::Number(0.0, 1.0)),
    ("voice_focus", Kind::Word(&["near-field", "far-field"])),
];
/// Options of Universal-Streaming.
const UNIVERSAL_STREAMING_OPTIONS: Table = &[
    ("end_of_turn_confidence_threshold", Kind::Number(0.0, 1.0)),
    ("filter_profanity", Kind::Flag),
    ("max_turn_silence", Kind::Integer(50, 10_000)),
    ("min_turn_silence", Kind::Integer(50, 10_000)),
    ("vad_threshold", Kind::Number(0.0, 1.0)),
];
/// Options of other models.
const OTHER_OPTIONS: Table = &[("filter_profanity", Kind::Flag)];

/// A family of models. A parameter of another family refuses the session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Family {
    Universal3,
    UniversalStreaming,
    Other,
}

impl Family {
    pub(super) fn of(model: &str) -> Self {
        match model.to_lowercase() {
            model if model.starts_with("universal-streaming") => Self::UniversalStreaming,
            model if model.starts_with("universal-3") || model.starts_with("u3-") => {
                Self::Universal3
            }
            _ => Self::Other,
        }
    }

    /// Whether the end of a turn is sent twice: at first without punctuation.
    pub(super) fn formats_twice(self) -> bool {
        self == Self::UniversalStreaming
    }

    fn options(self) -> Table {
        match self {
            Self::Universal3 => UNIVERSAL_3_OPTIONS,
            Self::UniversalStreaming => UNIVERSAL_STREAMING_OPTIONS,
            Self::Other => OTHER_OPTIONS,
        }
    }

    /// The parameters with which the vendor leaves the ends of turns to this server.
    fn endpointing(self) -> &'static [(&'static str, &'static str)] {
        match self {
            // The final text comes soon after each pause.
            Self::Universal3 => &[("min_turn_silence", "100"), ("max_turn_silence", "100")],
            // The final text comes when it is requested.
            Self::UniversalStreaming => {
                &[("end_of_turn_confidence_threshold", "1.0"), ("max_turn_silence", "10000")]
            }
            Self::Other => &[],
        }
    }
}

/// Reads the options of an agent for a model (empty = [`DEFAULT_MODEL`]); also returns the names of
/// those that are unknown or have a value that the model does not allow.
#[must_use]
pub fn read_options<'a>(
    model: &str,
    values: &'a Map<String, Value>,
) -> (HostedOptions, Vec<&'a str>) {
    let model = if model.trim().is_empty() { DEFAULT_MODEL } else { model.trim() };
    HostedOptions::read(Family::of(model).options(), values)
}

/// The URL of a session. Contains no secret.
///
/// # Errors
/// [`crate::ErrorKind::Rejected`] if the base is not a URL.
pub(super) fn session_url(config: &HostedConfig) -> Result<Url, Error> {
    let mut url = config.endpoint(VENDOR, DEFAULT_URL, &KNOWN_ENDINGS, "/v3/ws")?;
    let options = &config.options;
    let model = config.model(DEFAULT_MODEL);
    let family = Family::of(model);
    let endpointing = family.endpointing().iter().filter(|_| !options.provider_turns);
    let keyterms: Vec<&str> = config.keyterms().collect();
    let mut query = url.query_pairs_mut();
    query
        .append_pair("sample_rate", &SAMPLE_RATE.to_string())
        .append_pair("encoding", "pcm_s16le")
        .append_pair("speech_model", model)
        .extend_pairs(endpointing.filter_map(|(name, value)| options.or_default(name, value)))
        .extend_pairs(options.parameters());
    if family.formats_twice() {
        query.append_pair("format_turns", "true");
    }
    if family == Family::Universal3 {
        let language = config.primary_language().unwrap_or_else(|| "multi".into());
        query.append_pair("language_codes", &json!([language]).to_string());
    }
    if !keyterms.is_empty() {
        query.append_pair("keyterms_prompt", &json!(keyterms).to_string());
    }
    drop(query);
    Ok(url)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parameters(config: &HostedConfig) -> Vec<(String, String)> {
        let url = session_url(config).unwrap();
        assert_eq!((url.host_str(), url.path()), (Some("streaming.assemblyai.com"), "/v3/ws"));
        url.query_pairs().into_owned().collect()
    }

    fn expected(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
        pairs.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect()
    }

    #[test]
    fn each_family_gets_its_own_parameters() {
        let config = HostedConfig {
            language: "en-GB".into(),
            keyterms: vec!["Visavis".into(), "rock \"n\" roll".into()],
            ..HostedConfig::default()
        };
        assert_eq!(
            parameters(&config),
            expected(&[
                ("sample_rate", "16000"),
                ("encoding", "pcm_s16le"),
                ("speech_model", "universal-3-6-pro"),
                ("min_turn_silence", "100"),
                ("max_turn_silence", "100"),
                ("language_codes", r#"["en"]"#),
                ("keyterms_prompt", r#"["Visavis","rock \"n\" roll"]"#),
            ])
        );
        let older = HostedConfig {
            model: "universal-streaming-english".into(),
            url: "wss://streaming.assemblyai.com/v3/".into(),
            ..HostedConfig::default()
        };
        let base = [
            ("sample_rate", "16000"),
            ("encoding", "pcm_s16le"),
            ("speech_model", "universal-streaming-english"),
        ];
        let mut all = base.to_vec();
        all.extend([
            ("end_of_turn_confidence_threshold", "1.0"),
            ("max_turn_silence", "10000"),
            ("format_turns", "true"),
        ]);
        assert_eq!(parameters(&older), expected(&all));
        // The vendor's own endpointing.
        let mut options = HostedOptions::default();
        options.provider_turns = true;
        let older = HostedConfig { options: options.clone(), ..older };
        let mut all = base.to_vec();
        all.push(("format_turns", "true"));
        assert_eq!(parameters(&older), expected(&all));
        let language = "auto".into();
        let detected = HostedConfig { language, options, ..HostedConfig::default() };
        let all = parameters(&detected);
        assert!(all.contains(&("language_codes".into(), r#"["multi"]"#.into())), "{all:?}");
    }

    #[test]
    fn options_depend_on_the_family() {
        let values = json!({
            "mode": "balanced", "max_turn_silence": 400, "webhook_url": "https://evil.example",
        });
        let values = values.as_object().unwrap();
        let (options, ignored) = read_options("", values);
        assert_eq!(ignored, ["webhook_url"]);
        let all = parameters(&HostedConfig { options, ..HostedConfig::default() });
        let count = |name: &str| all.iter().filter(|(known, _)| known == name).count();
        assert_eq!(
            (count("max_turn_silence"), count("min_turn_silence"), count("mode")),
            (1, 1, 1)
        );
        assert!(all.contains(&("max_turn_silence".into(), "400".into())));
        let (_, mut ignored) = read_options("universal-streaming-multilingual", values);
        ignored.sort_unstable();
        assert_eq!(ignored, ["mode", "webhook_url"]);
        assert_eq!(read_options("whisper-rt", values).1.len(), 3);
    }
}
