//! The options that an agent may set.

use serde_json::{Map, Value};

use crate::tts::hosted::{ignored_options, number};

/// Options of the voice; `None` = as stored with the voice.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Options {
    /// From 0 (expressive) to 1 (even).
    pub stability: Option<f64>,
    /// Similarity to the original voice, from 0 to 1.
    pub similarity_boost: Option<f64>,
    /// Exaggeration of the style, from 0 to 1. Costs latency.
    pub style: Option<f64>,
    /// More similarity at a higher latency.
    pub use_speaker_boost: Option<bool>,
    /// Speed of the speech, from 0.7 to 1.2.
    pub speed: Option<f64>,
    /// How numbers and the like become words: `auto`, `on` or `off`; empty = the vendor's default.
    pub apply_text_normalization: String,
}

impl Options {
    /// Reads the options of an agent; also returns the names of those that are unknown or have a
    /// value that the protocol does not allow.
    #[must_use]
    pub fn read(values: &Map<String, Value>) -> (Self, Vec<&str>) {
        let mut options = Self::default();
        let ignored = ignored_options(values, |name, value| {
            match name {
                "stability" => options.stability = Some(number(value, 0.0..=1.0)?),
                "similarity_boost" => options.similarity_boost = Some(number(value, 0.0..=1.0)?),
                "style" => options.style = Some(number(value, 0.0..=1.0)?),
                "use_speaker_boost" => options.use_speaker_boost = Some(value.as_bool()?),
                "speed" => options.speed = Some(number(value, 0.7..=1.2)?),
                "apply_text_normalization" => {
                    let how = value.as_str().filter(|how| matches!(*how, "auto" | "on" | "off"))?;
                    how.clone_into(&mut options.apply_text_normalization);
                }
                _ => return None,
            }
            Some(())
        });
        (options, ignored)
    }

    /// The settings of a context, if there are any. Dialogue models have the stability alone.
    pub(super) fn voice_settings(&self, is_dialogue: bool) -> Option<Value> {
        let mut settings = Map::new();
        let mut add = |name: &str, value: Option<Value>| {
            if let Some(value) = value {
                settings.insert(name.into(), value);
            }
        };
        add("stability", self.stability.map(Value::from));
        if !is_dialogue {
            add("similarity_boost", self.similarity_boost.map(Value::from));
            add("style", self.style.map(Value::from));
            add("use_speaker_boost", self.use_speaker_boost.map(Value::from));
            add("speed", self.speed.map(Value::from));
        }
        (!settings.is_empty()).then_some(Value::Object(settings))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn known_options_are_read_and_the_others_are_named() {
        let values = json!({
            "stability": 0.5, "similarity_boost": 1, "style": 0, "use_speaker_boost": false,
            "speed": 1.1, "apply_text_normalization": "off", "enable_logging": true,
        });
        let (options, ignored) = Options::read(values.as_object().unwrap());
        assert_eq!(ignored, ["enable_logging"]);
        assert_eq!(options.apply_text_normalization, "off");
        let expected = json!({
            "stability": 0.5, "similarity_boost": 1.0, "style": 0.0, "use_speaker_boost": false,
            "speed": 1.1,
        });
        assert_eq!(options.voice_settings(false), Some(expected));
        assert_eq!(options.voice_settings(true), Some(json!({"stability": 0.5})));
        let wrong = json!({"stability": 2, "style": "x", "speed": 0.1, "use_speaker_boost": 1});
        let (options, ignored) = Options::read(wrong.as_object().unwrap());
        assert_eq!((&options, ignored.len()), (&Options::default(), 4));
        assert_eq!(options.voice_settings(false), None);
    }
}
