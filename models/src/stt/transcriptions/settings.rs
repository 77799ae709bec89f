//! Servers, their addresses, and the fields of a request.

use serde_json::{Map, Value};
use url::Url;

use crate::Error;
use crate::stt::streaming::{HostedConfig, HostedOptions, Kind, Table};

/// OpenAI's own server.
pub const OPENAI_DEFAULT_URL: &str = "https://api.openai.com/v1";
/// OpenAI's model of agents that name none.
pub const OPENAI_DEFAULT_MODEL: &str = "gpt-transcribe";
/// Groq's own server.
pub const GROQ_DEFAULT_URL: &str = "https://api.groq.com/openai/v1";
/// Groq's model of agents that name none.
pub const GROQ_DEFAULT_MODEL: &str = "whisper-large-v3-turbo";

/// Path of the interface below the base.
pub(super) const PATH: &str = "/audio/transcriptions";

/// A server with this interface.
pub(super) struct Vendor {
    /// Its name in sentences.
    pub(super) name: &'static str,
    default_url: &'static str,
    default_model: &'static str,
    /// Whether Whisper reports how probable speech is.
    reports_silence: bool,
}

pub(super) const OPENAI: Vendor = Vendor {
    name: "OpenAI",
    default_url: OPENAI_DEFAULT_URL,
    default_model: OPENAI_DEFAULT_MODEL,
    reports_silence: true,
};
pub(super) const GROQ: Vendor = Vendor {
    name: "Groq",
    default_url: GROQ_DEFAULT_URL,
    default_model: GROQ_DEFAULT_MODEL,
    reports_silence: true,
};
pub(super) const COMPATIBLE: Vendor = Vendor {
    name: "OpenAI-compatible STT",
    default_url: "",
    default_model: "",
    reports_silence: false,
};

const OPTIONS: Table = &[("prompt", Kind::Text(1_000)), ("temperature", Kind::Number(0.0, 1.0))];

/// Reads the options of an agent; also returns the names of those that are unknown or have a value
/// that is not allowed. They are the same for all models.
#[must_use]
pub fn read_options<'a>(
    _model: &str,
    values: &'a Map<String, Value>,
) -> (HostedOptions, Vec<&'a str>) {
    HostedOptions::read(OPTIONS, values)
}

/// The URL of `path` below the base, which ends in `/v1`.
///
/// # Errors
/// [`crate::ErrorKind::Rejected`] if the base is not a URL.
pub(super) fn http_url(vendor: &Vendor, config: &HostedConfig, path: &str) -> Result<Url, Error> {
    config.endpoint(vendor.name, vendor.default_url, &[PATH], path)
}

/// A field of a request: its name and value.
pub(super) type Field = (&'static str, String);

/// The fields of each request.
pub(super) fn fields(vendor: &Vendor, config: &HostedConfig) -> Vec<Field> {
    let model = config.model(vendor.default_model);
    let mut fields: Vec<Field> = Vec::new();
    if !model.is_empty() {
        fields.push(("model", model.to_owned()));
    }
    let is_whisper = model.starts_with("whisper");
    let format = if vendor.reports_silence && is_whisper { "verbose_json" } else { "json" };
    fields.push(("response_format", format.to_owned()));
    fields.extend(config.primary_language().map(|language| ("language", language)));
    let mut prompt = String::new();
    for (name, value) in config.options.parameters() {
        match name {
            "prompt" => prompt = value,
            name => fields.push((name, value)),
        }
    }
    if model.starts_with("gpt-transcribe") {
        fields.extend(config.keyterms().map(|term| ("keywords[]", term.to_owned())));
    } else {
        let terms: Vec<&str> = config.keyterms().collect();
        prompt = [prompt, terms.join(", ")].join(" ").trim().to_owned();
    }
    if !prompt.is_empty() {
        fields.push(("prompt", prompt));
    }
    fields
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::ErrorKind;

    #[test]
    fn the_base_ends_in_v1_and_has_any_scheme() {
        for (vendor, base, expected) in [
            (&OPENAI, "", "https://api.openai.com/v1/audio/transcriptions"),
            (&GROQ, " ", "https://api.groq.com/openai/v1/audio/transcriptions"),
            (&GROQ, "wss://gw.example/v1/", "https://gw.example/v1/audio/transcriptions"),
            (
                &COMPATIBLE,
                "ws://localhost:8000/v1",
                "http://localhost:8000/v1/audio/transcriptions",
            ),
            (
                &COMPATIBLE,
                "http://localhost:8000/v1/audio/transcriptions",
                "http://localhost:8000/v1/audio/transcriptions",
            ),
        ] {
            let config = HostedConfig { url: base.into(), ..HostedConfig::default() };
            assert_eq!(http_url(vendor, &config, PATH).unwrap().as_str(), expected);
        }
        let error = http_url(&COMPATIBLE, &HostedConfig::default(), PATH).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Rejected);
    }

    #[test]
    fn each_model_gets_the_fields_that_it_knows() {
        let values = json!({"prompt": "A bank.", "temperature": 0, "stream": true, "file": "x"});
        let values = values.as_object().unwrap();
        let (options, mut ignored) = read_options("", values);
        ignored.sort_unstable();
        assert_eq!(ignored, ["file", "stream"]);
        let named = |fields: Vec<Field>| -> Vec<String> {
            fields.into_iter().map(|(name, value)| format!("{name}={value}")).collect()
        };
        let keyterms = vec!["Visavis".to_owned(), "Ada".to_owned()];
        let config = HostedConfig { keyterms, options, ..HostedConfig::default() };
        assert_eq!(
            named(fields(&GROQ, &config)),
            [
                "model=whisper-large-v3-turbo",
                "response_format=verbose_json",
                "language=en",
                "temperature=0",
                "prompt=A bank. Visavis, Ada",
            ]
        );
        let options = HostedOptions::default();
        let config = HostedConfig { language: "auto".into(), options, ..config };
        assert_eq!(
            named(fields(&OPENAI, &config)),
            [
                "model=gpt-transcribe",
                "response_format=json",
                "keywords[]=Visavis",
                "keywords[]=Ada"
            ]
        );
        let config = HostedConfig { language: "de-AT".into(), ..HostedConfig::default() };
        assert_eq!(named(fields(&COMPATIBLE, &config)), ["response_format=json", "language=de"]);
    }
}
