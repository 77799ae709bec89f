//! The options that an agent may set, by vendor.

use serde_json::{Map, Value};

/// Type and range of an option.
#[derive(Clone, Copy, Debug)]
pub(in crate::stt) enum Kind {
    Flag,
    /// An integer in the range.
    Integer(u64, u64),
    /// A number in the range.
    Number(f64, f64),
    /// One of these words.
    Word(&'static [&'static str]),
    /// A text of at most so many characters.
    Text(usize),
    /// At most so many texts of at most so many characters.
    Texts(usize, usize),
}

impl Kind {
    fn accepts(self, value: &Value) -> bool {
        let is_text = |value: &Value, max: usize| {
            value.as_str().is_some_and(|text| !text.is_empty() && text.chars().count() <= max)
        };
        match self {
            Self::Flag => value.is_boolean(),
            Self::Integer(min, max) => value.as_u64().is_some_and(|n| (min..=max).contains(&n)),
            Self::Number(min, max) => value.as_f64().is_some_and(|n| (min..=max).contains(&n)),
            Self::Word(words) => value.as_str().is_some_and(|word| words.contains(&word)),
            Self::Text(max) => is_text(value, max),
            Self::Texts(max_texts, max) => value.as_array().is_some_and(|texts| {
                texts.len() <= max_texts && texts.iter().all(|text| is_text(text, max))
            }),
        }
    }
}

/// The options that a vendor accepts. Each is a parameter of its interface.
pub(in crate::stt) type Table = &'static [(&'static str, Kind)];

/// Options of a hosted STT.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct HostedOptions {
    values: Vec<(&'static str, Value)>,
    /// The operator permits the vendor to store the audio and to train with it.
    pub share_data: bool,
    /// The vendor decides about the ends of turns, and reports them as
    /// [`crate::stt::Event::Turn`]. Otherwise its own endpointing is off.
    pub provider_turns: bool,
}

impl HostedOptions {
    /// Reads the options of an agent; also returns the names of those that are not in `table` or
    /// have a value that it does not allow.
    pub(in crate::stt) fn read(table: Table, values: &Map<String, Value>) -> (Self, Vec<&str>) {
        let mut options = Self::default();
        for (name, kind) in table {
            if let Some(value) = values.get(*name).filter(|value| kind.accepts(value)) {
                options.values.push((name, value.clone()));
            }
        }
        let is_ignored = |name: &&str| options.iter().all(|(known, _)| known != *name);
        let ignored = values.keys().map(String::as_str).filter(is_ignored).collect();
        (options, ignored)
    }

    /// The options that are set.
    pub(in crate::stt) fn iter(&self) -> impl Iterator<Item = (&'static str, &Value)> {
        self.values.iter().map(|(name, value)| (*name, value))
    }

    /// The options as parameters of a URL; those of a list repeat.
    pub(in crate::stt) fn parameters(&self) -> Vec<(&'static str, String)> {
        let text = |value: &Value| match value {
            Value::String(text) => text.clone(),
            other => other.to_string(),
        };
        let mut parameters = Vec::new();
        for (name, value) in self.iter() {
            match value {
                Value::Array(texts) => parameters.extend(texts.iter().map(|t| (name, text(t)))),
                value => parameters.push((name, text(value))),
            }
        }
        parameters
    }

    /// A parameter that the server sets unless the agent does.
    pub(in crate::stt) fn or_default<'a>(
        &self,
        name: &'a str,
        default: &'a str,
    ) -> Option<(&'a str, &'a str)> {
        self.values.iter().all(|(known, _)| *known != name).then_some((name, default))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const TABLE: Table = &[
        ("flag", Kind::Flag),
        ("count", Kind::Integer(1, 5)),
        ("share", Kind::Number(0.0, 1.0)),
        ("mode", Kind::Word(&["fast", "exact"])),
        ("note", Kind::Text(4)),
        ("names", Kind::Texts(2, 3)),
    ];

    #[test]
    fn listed_options_with_valid_values_are_read_and_the_others_are_named() {
        let good = json!({
            "flag": false, "count": 5, "share": 1, "mode": "exact", "note": "äöüß",
            "names": ["a", "b c"],
        });
        let good = good.as_object().unwrap().clone();
        let (options, ignored) = HostedOptions::read(TABLE, &good);
        assert_eq!(ignored, Vec::<&str>::new());
        let mut parameters = options.parameters();
        parameters.sort();
        let expected = [
            ("count", "5"),
            ("flag", "false"),
            ("mode", "exact"),
            ("names", "a"),
            ("names", "b c"),
            ("note", "äöüß"),
            ("share", "1"),
        ];
        assert_eq!(parameters, expected.map(|(name, value)| (name, value.to_owned())));
        assert_eq!(options.or_default("count", "1"), None);
        assert_eq!(options.or_default("pace", "1"), Some(("pace", "1")));
        for (name, value) in [
            ("flag", json!("true")),
            ("flag", json!(null)),
            ("count", json!(0)),
            ("count", json!(6)),
            ("count", json!(1.5)),
            ("share", json!(1.01)),
            ("share", json!("1")),
            ("mode", json!("Fast")),
            ("note", json!("")),
            ("note", json!("12345")),
            ("names", json!("a")),
            ("names", json!(["a", "b", "c"])),
            ("names", json!(["abcd"])),
            ("names", json!([1])),
            ("callback", json!("https://evil.example")),
            ("share_data", json!(true)),
        ] {
            let values = Map::from_iter([(name.to_owned(), value)]);
            let (options, ignored) = HostedOptions::read(TABLE, &values);
            assert_eq!((options, ignored), (HostedOptions::default(), vec![name]), "{values:?}");
        }
    }
}
