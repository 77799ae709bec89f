//! The options that an agent may set for each request to a hosted model.

use std::ops::RangeInclusive;

use serde_json::{Map, Value};

/// Values of `reasoning_effort`.
const EFFORTS: [&str; 6] = ["none", "minimal", "low", "medium", "high", "xhigh"];

/// Values of `verbosity`.
const VERBOSITIES: [&str; 3] = ["low", "medium", "high"];

/// Options of each request; `None` = the adapter's default, else the server's.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Options {
    /// Maximum number of tokens in a reply, from 1.
    pub max_tokens: Option<u32>,
    /// Randomness, from 0 to 2.
    pub temperature: Option<f64>,
    /// Share of the probable tokens from which the model chooses, from 0 to 1.
    pub top_p: Option<f64>,
    /// Penalty of repeated tokens, from -2 to 2.
    pub frequency_penalty: Option<f64>,
    /// Penalty of tokens that occurred, from -2 to 2.
    pub presence_penalty: Option<f64>,
    /// Seed of the randomness.
    pub seed: Option<i64>,
    /// How long a model thinks before it answers: `none`, `minimal`, `low`, `medium`, `high` or
    /// `xhigh`.
    pub reasoning_effort: Option<&'static str>,
    /// Length of the replies: `low`, `medium` or `high`.
    pub verbosity: Option<&'static str>,
    /// Whether the model may call several tools at once.
    pub parallel_tool_calls: Option<bool>,
}

impl Options {
    /// Reads the options of an agent that are in `names`; also returns the names of those that are
    /// not, or have a value that is not allowed.
    pub(super) fn read<'a>(values: &'a Map<String, Value>, names: &[&str]) -> (Self, Vec<&'a str>) {
        let (mut options, mut ignored) = (Self::default(), Vec::new());
        for (name, value) in values {
            if !names.contains(&name.as_str()) || !options.set(name, value) {
                ignored.push(name.as_str());
            }
        }
        (options, ignored)
    }

    /// Sets an option; returns whether it exists and allows the value.
    fn set(&mut self, name: &str, value: &Value) -> bool {
        match name {
            "max_tokens" => store(&mut self.max_tokens, count(value)),
            "temperature" => store(&mut self.temperature, number(value, 0.0..=2.0)),
            "top_p" => store(&mut self.top_p, number(value, 0.0..=1.0)),
            "frequency_penalty" => store(&mut self.frequency_penalty, number(value, -2.0..=2.0)),
            "presence_penalty" => store(&mut self.presence_penalty, number(value, -2.0..=2.0)),
            "seed" => store(&mut self.seed, value.as_i64()),
            "reasoning_effort" => store(&mut self.reasoning_effort, one_of(value, &EFFORTS)),
            "verbosity" => store(&mut self.verbosity, one_of(value, &VERBOSITIES)),
            "parallel_tool_calls" => store(&mut self.parallel_tool_calls, value.as_bool()),
            _ => false,
        }
    }
}

fn store<T>(place: &mut Option<T>, value: Option<T>) -> bool {
    let valid = value.is_some();
    *place = value.or(place.take());
    valid
}

fn count(value: &Value) -> Option<u32> {
    value.as_u64().and_then(|n| u32::try_from(n).ok()).filter(|n| *n > 0)
}

fn number(value: &Value, range: RangeInclusive<f64>) -> Option<f64> {
    value.as_f64().filter(|number| range.contains(number))
}

fn one_of(value: &Value, allowed: &[&'static str]) -> Option<&'static str> {
    let value = value.as_str()?;
    allowed.iter().copied().find(|known| *known == value)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(values: Value, names: &[&str]) -> (Options, Vec<String>) {
        let values = values.as_object().cloned().unwrap();
        let (options, ignored) = Options::read(&values, names);
        (options, ignored.into_iter().map(str::to_owned).collect())
    }

    #[test]
    fn valid_options_are_read() {
        let names = [
            "max_tokens",
            "temperature",
            "top_p",
            "frequency_penalty",
            "presence_penalty",
            "seed",
            "reasoning_effort",
            "verbosity",
            "parallel_tool_calls",
        ];
        let values = json!({
            "max_tokens": 50, "temperature": 1, "top_p": 0.5, "frequency_penalty": -2,
            "presence_penalty": 2, "seed": -7, "reasoning_effort": "low", "verbosity": "high",
            "parallel_tool_calls": false,
        });
        let expected = Options {
            max_tokens: Some(50),
            temperature: Some(1.0),
            top_p: Some(0.5),
            frequency_penalty: Some(-2.0),
            presence_penalty: Some(2.0),
            seed: Some(-7),
            reasoning_effort: Some("low"),
            verbosity: Some("high"),
            parallel_tool_calls: Some(false),
        };
        assert_eq!(read(values, &names), (expected, Vec::new()));
    }

    #[test]
    fn unknown_names_and_wrong_values_are_named_and_ignored() {
        let wrong = [
            ("max_tokens", json!(0)),
            ("max_tokens", json!("9")),
            ("temperature", json!(2.5)),
            ("top_p", json!(-0.1)),
            ("seed", json!(0.5)),
            ("reasoning_effort", json!("hard")),
            ("verbosity", json!(1)),
            ("parallel_tool_calls", json!("yes")),
            ("stream", json!(false)),
        ];
        for (name, value) in wrong {
            let (options, ignored) = read(json!({ name: value }), &[name]);
            assert_eq!((options, ignored), (Options::default(), vec![name.to_owned()]), "{value}");
        }
        assert_eq!(read(json!({"seed": 1}), &["top_p"]).1, ["seed"]);
    }
}
