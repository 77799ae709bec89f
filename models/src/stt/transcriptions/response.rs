//! The response to a request.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::Value;

use crate::stt::streaming::{TokenUsage, parse};

/// Whisper invents words in silence. It reports that a segment is silent with these values.
const SILENT_NO_SPEECH_PROBABILITY: f64 = 0.6;
const SILENT_LOG_PROBABILITY: f64 = -1.0;

#[derive(Deserialize)]
struct Body<'a> {
    #[serde(borrow)]
    text: Cow<'a, str>,
    #[serde(borrow, default)]
    segments: Option<Vec<Segment<'a>>>,
    #[serde(default)]
    usage: Value,
}

#[derive(Deserialize)]
struct Segment<'a> {
    #[serde(borrow, default)]
    text: Cow<'a, str>,
    #[serde(default)]
    no_speech_prob: f64,
    #[serde(default)]
    avg_logprob: f64,
}

impl Segment<'_> {
    fn is_silent(&self) -> bool {
        self.no_speech_prob > SILENT_NO_SPEECH_PROBABILITY
            && self.avg_logprob < SILENT_LOG_PROBABILITY
    }
}

/// A transcript.
#[derive(Debug, PartialEq)]
pub(super) struct Transcription {
    pub(super) text: String,
    /// What the server bills, as far as it says so.
    pub(super) usage: TokenUsage,
}

impl Transcription {
    /// Reads a response of status 200; `None` if it contains no transcript.
    pub(super) fn read(text: &str) -> Option<Self> {
        // A list would be read as the fields in their order.
        let text = text.trim_start_matches('\u{feff}').trim_start();
        let Body { text, segments, usage } = parse(text).filter(|_| text.starts_with('{'))?;
        let segments = segments.unwrap_or_default();
        let text = if segments.iter().any(Segment::is_silent) {
            let spoken = segments.iter().filter(|segment| !segment.is_silent());
            spoken.map(|segment| segment.text.trim()).collect::<Vec<_>>().join(" ")
        } else {
            text.trim().to_owned()
        };
        Some(Self { text, usage: TokenUsage::read(&usage) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text_of(body: &str) -> Option<String> {
        Transcription::read(body).map(|transcription| transcription.text)
    }

    #[test]
    fn the_text_is_read_and_unknown_fields_are_ignored() {
        let body = r#"{"text":" Grüße. ","usage":{"type":"tokens","input_tokens":14,
            "output_tokens":3,"total_tokens":17,"input_token_details":{}},"languages":[]}"#;
        let usage = TokenUsage { input: 14, output: 3 };
        let read = Transcription::read(body);
        assert_eq!(read, Some(Transcription { text: "Grüße.".into(), usage }));
        let seconds = r#"{"text":"Hi.","usage":{"type":"duration","seconds":3},"segments":null}"#;
        assert_eq!(text_of(seconds).as_deref(), Some("Hi."));
        for bad in ["", "Hi.", "{}", r#"{"error":"no"}"#, r#"{"text":7}"#, "[]", "\u{0}"] {
            assert_eq!(text_of(bad), None, "{bad}");
        }
    }

    #[test]
    fn words_that_whisper_invents_in_silence_are_dropped() {
        let body = |silence: f64, confidence: f64| {
            format!(
                r#"{{"text":" Hello. Thank you.","segments":[
                {{"text":" Hello.","no_speech_prob":0.1,"avg_logprob":-0.2}},
                {{"text":" Thank you.","no_speech_prob":{silence},"avg_logprob":{confidence}}}]}}"#
            )
        };
        assert_eq!(text_of(&body(0.9, -1.5)).as_deref(), Some("Hello."));
        assert_eq!(text_of(&body(0.9, -0.5)).as_deref(), Some("Hello. Thank you."));
        assert_eq!(text_of(&body(0.3, -1.5)).as_deref(), Some("Hello. Thank you."));
    }
}
