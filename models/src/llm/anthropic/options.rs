//! The options that an agent may set.

use serde_json::{Map, Value};

use super::super::options;

/// Options of each request.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Options {
    /// Maximum number of tokens in a reply.
    pub max_tokens: u32,
    /// Randomness, from 0 to 1; `None` = the model's default. Current models refuse it.
    pub temperature: Option<f64>,
    /// How long the model thinks before it answers: `low`, `medium` or `high`. `None`: it does not
    /// think.
    pub effort: Option<&'static str>,
}

impl Default for Options {
    fn default() -> Self {
        Self { max_tokens: 600, temperature: None, effort: None }
    }
}

impl Options {
    /// Reads the options of an agent (`max_tokens`, `temperature`, `reasoning_effort`); also
    /// returns the names of those that are unknown or have a value that the protocol does not
    /// allow.
    #[must_use]
    pub fn read(values: &Map<String, Value>) -> (Self, Vec<&str>) {
        let names = ["max_tokens", "temperature", "reasoning_effort"];
        let (read, mut ignored) = options::Options::read(values, &names);
        let temperature = read.temperature.filter(|temperature| *temperature <= 1.0);
        if temperature != read.temperature {
            ignored.push("temperature");
        }
        let effort = match read.reasoning_effort {
            Some("minimal" | "low") => Some("low"),
            Some("medium") => Some("medium"),
            Some("high" | "xhigh") => Some("high"),
            _ => None,
        };
        let max_tokens = read.max_tokens.unwrap_or(Self::default().max_tokens);
        (Self { max_tokens, temperature, effort }, ignored)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn known_options_are_read_and_the_others_are_named() {
        let read = |values: Value| {
            let values = values.as_object().cloned().unwrap();
            let (options, ignored) = Options::read(&values);
            (options, ignored.into_iter().map(str::to_owned).collect::<Vec<_>>())
        };
        assert_eq!(read(json!({})), (Options::default(), Vec::new()));
        let all = json!({"max_tokens": 50, "temperature": 1, "reasoning_effort": "minimal"});
        let expected = Options { max_tokens: 50, temperature: Some(1.0), effort: Some("low") };
        assert_eq!(read(all), (expected, Vec::new()));
        assert_eq!(read(json!({"reasoning_effort": "none"})), (Options::default(), Vec::new()));
        let wrong = json!({
            "max_tokens": 0, "temperature": 1.5, "stream": false, "tool_choice": {"type": "any"},
        });
        let (options, mut ignored) = read(wrong);
        ignored.sort_unstable();
        assert_eq!(options, Options::default());
        assert_eq!(ignored, ["max_tokens", "stream", "temperature", "tool_choice"]);
        assert_eq!(read(json!({"max_tokens": "9"})).1, ["max_tokens"]);
    }
}
