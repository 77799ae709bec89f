//! The options that an agent may set.

use serde_json::{Map, Value};

use crate::tts::hosted::{ignored_options, number};

/// Maximum length of the instructions in bytes.
const MAX_INSTRUCTIONS_BYTES: usize = 4_096;

/// Options of each request.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Options {
    /// `pcm` or `wav`; empty = `pcm`. Some compatible servers have only one of them.
    pub response_format: String,
    /// Speed of the speech, from 0.25 to 4; `None` = the vendor's default, 1.
    pub speed: Option<f64>,
    /// How to speak, in words; empty = none. Not for the models `tts-1` and `tts-1-hd`.
    pub instructions: String,
}

impl Options {
    /// Reads the options of an agent; also returns the names of those that are unknown or have a
    /// value that the protocol does not allow.
    #[must_use]
    pub fn read(values: &Map<String, Value>) -> (Self, Vec<&str>) {
        let mut options = Self::default();
        let ignored = ignored_options(values, |name, value| {
            match name {
                "speed" => options.speed = Some(number(value, 0.25..=4.0)?),
                "instructions" => {
                    let text = value.as_str().filter(|t| t.len() <= MAX_INSTRUCTIONS_BYTES)?;
                    text.clone_into(&mut options.instructions);
                }
                "response_format" => {
                    let format =
                        value.as_str().filter(|format| matches!(*format, "pcm" | "wav"))?;
                    format.clone_into(&mut options.response_format);
                }
                _ => return None,
            }
            Some(())
        });
        (options, ignored)
    }

    /// Adds the options to the body of a request.
    pub(super) fn add_to(&self, body: &mut Map<String, Value>) {
        let format = if self.response_format == "wav" { "wav" } else { "pcm" };
        body.insert("response_format".into(), format.into());
        if let Some(speed) = self.speed {
            body.insert("speed".into(), speed.into());
        }
        if !self.instructions.is_empty() {
            body.insert("instructions".into(), self.instructions.as_str().into());
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn known_options_are_read_and_the_others_are_named() {
        let values = json!({
            "speed": 1.5, "instructions": "Whisper.", "response_format": "wav", "voice": "x",
        });
        let (options, ignored) = Options::read(values.as_object().unwrap());
        assert_eq!(ignored, ["voice"]);
        let mut body = Map::new();
        options.add_to(&mut body);
        assert_eq!(
            Value::Object(body),
            json!({"speed": 1.5, "instructions": "Whisper.", "response_format": "wav"})
        );
        let wrong = json!({"speed": 9, "instructions": 1, "response_format": "mp3"});
        let (options, ignored) = Options::read(wrong.as_object().unwrap());
        assert_eq!((options, ignored.len()), (Options::default(), 3));
    }
}
