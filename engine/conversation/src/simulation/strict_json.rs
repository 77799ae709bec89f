//! Reads JSON without loss. A key that occurs twice in one object is an error here, whereas
//! serde_json's own [`MetricValue`] keeps the last value.

use core::fmt::{self, Write as _};

use serde::de::{DeserializeSeed, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};
use serde_json::{Error, Map, Value};

/// Why a text cannot be parsed.
pub(crate) enum StrictJsonError {
    /// Not valid JSON from the value at this path on; the path is empty for the text as a whole.
    InvalidJson { path: String, error: Error },
    /// The key at this path occurs twice in its object, the second time in this line, from 1.
    DuplicateKey { path: String, line: usize },
}

/// Parses a JSON text.
pub(crate) fn parse_strict(json: &[u8]) -> Result<Value, StrictJsonError> {
    let mut place = ReaderPosition::default();
    let mut reader = serde_json::Deserializer::from_slice(json);
    let value = ValueSeed(&mut place).deserialize(&mut reader);
    match value.and_then(|value| reader.end().map(|()| value)) {
        Ok(value) => Ok(value),
        Err(error) if place.duplicate_key => {
            Err(StrictJsonError::DuplicateKey { path: place.path, line: error.line() })
        }
        Err(error) => Err(StrictJsonError::InvalidJson { path: place.path, error }),
    }
}

/// The position of the reader. After an error it stays there.
#[derive(Default)]
struct ReaderPosition {
    path: String,
    duplicate_key: bool,
}

struct ValueSeed<'p>(&'p mut ReaderPosition);

impl<'de> DeserializeSeed<'de> for ValueSeed<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, json: D) -> Result<Value, D::Error> {
        json.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for ValueSeed<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any JSON value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let Self(place) = self;
        let (mut list, above) = (Vec::new(), place.path.len());
        loop {
            // Writing to a string cannot fail.
            let _ = write!(place.path, "[{}]", list.len());
            let Some(item) = items.next_element_seed(ValueSeed(place))? else { break };
            list.push(item);
            place.path.truncate(above);
        }
        place.path.truncate(above);
        Ok(Value::Array(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Value, A::Error> {
        let Self(place) = self;
        let (mut map, above) = (Map::new(), place.path.len());
        while let Some(key) = fields.next_key::<String>()? {
            if above > 0 {
                place.path.push('.');
            }
            place.path.push_str(&key);
            if map.contains_key(&key) {
                place.duplicate_key = true;
                return Err(A::Error::custom("duplicate key"));
            }
            map.insert(key, fields.next_value_seed(ValueSeed(place))?);
            place.path.truncate(above);
        }
        Ok(Value::Object(map))
    }
}

/// Longest path or reason in a message, in bytes.
const MAX_QUOTE_BYTES: usize = 200;

/// Makes a path or reason that quotes the file fit on one readable line: control characters are
/// escaped, and the middle of a long text is omitted.
pub(crate) fn to_single_line(mut text: String) -> String {
    if text.len() > MAX_QUOTE_BYTES {
        let (head, tail) = (
            text.floor_char_boundary(MAX_QUOTE_BYTES / 2),
            text.ceil_char_boundary(text.len() - MAX_QUOTE_BYTES / 2),
        );
        text.replace_range(head..tail, "…");
    }
    if text.contains(char::is_control) {
        text.chars()
            .map(|c| if c.is_control() { c.escape_default().to_string() } else { c.into() })
            .collect()
    } else {
        text
    }
}
