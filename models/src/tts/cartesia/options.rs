//! The options that an agent may set.

use serde_json::{Map, Value};

use crate::tts::hosted::{ignored_options, number};

/// Maximum length of a text in the options, in bytes.
const MAX_TEXT_BYTES: usize = 100;

/// Options of each context; `None` and empty = the vendor's defaults.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Options {
    /// Speed of the speech, from 0.6 to 1.5.
    pub speed: Option<f64>,
    /// Volume, from 0.5 to 2.
    pub volume: Option<f64>,
    /// Emotion, one of the vendor's words such as `content`.
    pub emotion: String,
    /// Id of a dictionary of pronunciations in the account.
    pub pronunciation_dict_id: String,
}

impl Options {
    /// Reads the options of an agent; also returns the names of those that are unknown or have a
    /// value that the protocol does not allow.
    #[must_use]
    pub fn read(values: &Map<String, Value>) -> (Self, Vec<&str>) {
        let text = |value: &Value| {
            value.as_str().filter(|text| text.len() <= MAX_TEXT_BYTES).map(str::to_owned)
        };
        let mut options = Self::default();
        let ignored = ignored_options(values, |name, value| {
            match name {
                "speed" => options.speed = Some(number(value, 0.6..=1.5)?),
                "volume" => options.volume = Some(number(value, 0.5..=2.0)?),
                "emotion" => options.emotion = text(value)?,
                "pronunciation_dict_id" => options.pronunciation_dict_id = text(value)?,
                _ => return None,
            }
            Some(())
        });
        (options, ignored)
    }

    /// Adds the options to a message.
    pub(super) fn add_to(&self, message: &mut Map<String, Value>) {
        let mut config = Map::new();
        for (name, value) in [("speed", self.speed), ("volume", self.volume)] {
            if let Some(value) = value {
                config.insert(name.into(), value.into());
            }
        }
        if !self.emotion.is_empty() {
            config.insert("emotion".into(), self.emotion.as_str().into());
        }
        if !config.is_empty() {
            message.insert("generation_config".into(), config.into());
        }
        if !self.pronunciation_dict_id.is_empty() {
            let id = self.pronunciation_dict_id.as_str();
            message.insert("pronunciation_dict_id".into(), id.into());
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
            "speed": 1.2, "volume": 2, "emotion": "calm", "pronunciation_dict_id": "d", "x": 1,
        });
        let (options, ignored) = Options::read(values.as_object().unwrap());
        assert_eq!(ignored, ["x"]);
        let mut message = Map::new();
        options.add_to(&mut message);
        let config = json!({"speed": 1.2, "volume": 2.0, "emotion": "calm"});
        let expected = json!({"generation_config": config, "pronunciation_dict_id": "d"});
        assert_eq!(Value::Object(message), expected);
        let wrong = json!({"speed": 3, "volume": "x", "emotion": "x".repeat(101)});
        let (options, ignored) = Options::read(wrong.as_object().unwrap());
        assert_eq!((&options, ignored.len()), (&Options::default(), 3));
        let mut message = Map::new();
        options.add_to(&mut message);
        assert!(message.is_empty());
    }
}
