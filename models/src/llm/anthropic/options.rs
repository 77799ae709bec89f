//! The options that an agent may set.

use serde_json::{Map, Value};

/// Options of each request.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Options {
    /// Maximum number of tokens in a reply.
    pub max_tokens: u32,
    /// Randomness, from 0 to 1; `None` = the model's default. Current models refuse it.
    pub temperature: Option<f64>,
}

impl Default for Options {
    fn default() -> Self {
        Self { max_tokens: 600, temperature: None }
    }
}

impl Options {
    /// Reads the options of an agent; also returns the names of those that are unknown or have a
    /// value that the protocol does not allow.
    #[must_use]
    pub fn read(values: &Map<String, Value>) -> (Self, Vec<&str>) {
        let (mut options, mut ignored) = (Self::default(), Vec::new());
        for (name, value) in values {
            let known = match name.as_str() {
                "max_tokens" => {
                    let tokens = value.as_u64().and_then(|n| u32::try_from(n).ok());
                    tokens.filter(|n| *n > 0).map(|n| options.max_tokens = n)
                }
                "temperature" => {
                    let temperature = value.as_f64().filter(|t| (0.0..=1.0).contains(t));
                    temperature.map(|t| options.temperature = Some(t))
                }
                _ => None,
            };
            if known.is_none() {
                ignored.push(name.as_str());
            }
        }
        (options, ignored)
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
        assert_eq!(
            read(json!({"max_tokens": 50, "temperature": 1})),
            (Options { max_tokens: 50, temperature: Some(1.0) }, Vec::new())
        );
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
