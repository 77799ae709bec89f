//! The URL and the settings of a session, and the options that an agent may set.

use serde_json::{Map, Value, json};
use url::Url;

use super::resampler::OUTPUT_RATE;
use crate::Error;
use crate::hosted::is_openai_host;
use crate::stt::streaming::{HostedConfig, HostedOptions, Kind, Table};

/// OpenAI's own server.
pub const DEFAULT_URL: &str = "https://api.openai.com/v1";
/// Model of agents that name none.
pub const DEFAULT_MODEL: &str = "gpt-live-transcribe";

/// Name of the vendor in sentences.
pub(super) const VENDOR: &str = "OpenAI";

const NOISE_REDUCTION: Kind = Kind::Word(&["near_field", "far_field"]);
/// Options of a model that waits longer for more accurate words.
const WHISPER_OPTIONS: Table = &[
    ("delay", Kind::Word(&["minimal", "low", "medium", "high", "xhigh"])),
    ("noise_reduction", NOISE_REDUCTION),
];
/// Options of other models.
const OPTIONS: Table = &[("noise_reduction", NOISE_REDUCTION), ("prompt", Kind::Text(1_000))];

/// Whether a model of OpenAI (empty = the default) is served over this interface. The others are
/// served by [`crate::stt::transcriptions`].
#[must_use]
pub fn is_realtime_model(model: &str) -> bool {
    let model = model.trim();
    !(model.starts_with("whisper") || model.starts_with("gpt-transcribe"))
}

fn is_realtime_whisper(model: &str) -> bool {
    model.starts_with("gpt-realtime-whisper")
}

/// Reads the options of an agent for a model; also returns the names of those that are unknown or
/// have a value that the model does not allow.
#[must_use]
pub fn read_options<'a>(
    model: &str,
    values: &'a Map<String, Value>,
) -> (HostedOptions, Vec<&'a str>) {
    let table = if is_realtime_whisper(model.trim()) { WHISPER_OPTIONS } else { OPTIONS };
    HostedOptions::read(table, values)
}

/// The URL of a session, below a base that ends in `/v1`. Contains no secret.
///
/// # Errors
/// [`crate::ErrorKind::Rejected`] if the base is not a URL.
pub(super) fn realtime_url(config: &HostedConfig) -> Result<Url, Error> {
    let mut url = config.endpoint(VENDOR, DEFAULT_URL, &["/realtime"], "/realtime")?;
    url.query_pairs_mut().append_pair("intent", "transcription");
    // On OpenAI's own hosts, a model in the URL opens a session of another kind.
    if !url.host_str().is_some_and(is_openai_host) {
        url.query_pairs_mut().append_pair("model", config.model(DEFAULT_MODEL));
    }
    Ok(url)
}

/// The message that sets the session up.
pub(super) fn session_update(config: &HostedConfig) -> String {
    let model = config.model(DEFAULT_MODEL);
    let mut transcription = Map::new();
    transcription.insert("model".into(), model.into());
    if let Some(language) = config.primary_language() {
        transcription.insert("language".into(), language.into());
    }
    let mut noise_reduction = Value::Null;
    for (name, value) in config.options.iter() {
        match name {
            "noise_reduction" => noise_reduction = json!({ "type": value }),
            name => drop(transcription.insert(name.into(), value.clone())),
        }
    }
    let keyterms: Vec<&str> = config.keyterms().collect();
    if model.starts_with("gpt-live-transcribe") && !keyterms.is_empty() {
        transcription.insert("keywords".into(), json!(keyterms));
    } else if !is_realtime_whisper(model) && !keyterms.is_empty() {
        let prompt = transcription.get("prompt").and_then(Value::as_str).unwrap_or_default();
        let prompt = format!("{prompt} {}", keyterms.join(", "));
        transcription.insert("prompt".into(), prompt.trim().into());
    }
    json!({
        "type": "session.update",
        "session": {
            "type": "transcription",
            "audio": {
                "input": {
                    "format": {"type": "audio/pcm", "rate": OUTPUT_RATE},
                    "transcription": transcription,
                    "turn_detection": null,
                    "noise_reduction": noise_reduction,
                }
            }
        }
    })
    .to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_model_is_in_the_url_of_other_hosts_only() {
        for (base, expected) in [
            ("", "https://api.openai.com/v1/realtime?intent=transcription"),
            (
                "wss://gw.example/v1/realtime",
                "https://gw.example/v1/realtime?intent=transcription&model=gpt-live-transcribe",
            ),
        ] {
            let config = HostedConfig { url: base.into(), ..HostedConfig::default() };
            assert_eq!(realtime_url(&config).unwrap().as_str(), expected);
        }
        for (model, is_realtime) in [
            ("", true),
            ("gpt-live-transcribe", true),
            ("gpt-realtime-whisper", true),
            ("gpt-4o-mini-transcribe", true),
            ("whisper-1", false),
            (" gpt-transcribe", false),
        ] {
            assert_eq!(is_realtime_model(model), is_realtime, "{model}");
        }
    }

    #[test]
    fn each_model_gets_the_settings_that_it_knows() {
        let input = |config: &HostedConfig, values: Value| {
            let (options, ignored) = read_options(&config.model, values.as_object().unwrap());
            assert_eq!(ignored, Vec::<&str>::new());
            let config = HostedConfig { options, ..config.clone() };
            let message: Value = serde_json::from_str(&session_update(&config)).unwrap();
            assert_eq!(message["type"], "session.update");
            assert_eq!(message["session"]["type"], "transcription");
            message["session"]["audio"]["input"].clone()
        };
        let keyterms = vec!["Visavis".to_owned(), "Ada".to_owned()];
        let live = HostedConfig { language: "de-AT".into(), keyterms, ..HostedConfig::default() };
        assert_eq!(
            input(&live, json!({"prompt": "A bank.", "noise_reduction": "near_field"})),
            json!({
                "format": {"type": "audio/pcm", "rate": 24_000},
                "transcription": {
                    "model": "gpt-live-transcribe", "language": "de", "prompt": "A bank.",
                    "keywords": ["Visavis", "Ada"],
                },
                "turn_detection": null,
                "noise_reduction": {"type": "near_field"},
            })
        );
        let older = HostedConfig {
            model: "gpt-4o-mini-transcribe".into(),
            language: "auto".into(),
            ..live.clone()
        };
        let expected = json!({"model": "gpt-4o-mini-transcribe", "prompt": "A bank. Visavis, Ada"});
        assert_eq!(input(&older, json!({"prompt": "A bank."}))["transcription"], expected);
        let whisper = HostedConfig { model: "gpt-realtime-whisper".into(), ..live };
        let expected = json!({"model": "gpt-realtime-whisper", "language": "de", "delay": "low"});
        assert_eq!(input(&whisper, json!({"delay": "low"}))["transcription"], expected);
        let values = json!({"delay": "low", "turn_detection": {}});
        let ignored = read_options("", values.as_object().unwrap()).1;
        assert_eq!(ignored, ["delay", "turn_detection"]);
    }
}
