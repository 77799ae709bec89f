//! Compact read-only tables with text keys: sorted hashes, searched by bisection.
//!
//! The keys are stored as 64-bit hashes only. Of 200,000 entries, a word that is not in a table is
//! mistaken for an entry with a probability of 10⁻¹⁴.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};

/// Hash of a text that may be composed of parts: FNV-1a with the finalizer of SplitMix64.
#[derive(Clone, Copy)]
pub(super) struct TextHash(u64);

impl TextHash {
    pub(super) const fn new() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }

    pub(super) fn add(mut self, text: &str) -> Self {
        for byte in text.bytes() {
            self.0 = (self.0 ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
        self
    }

    pub(super) fn finish(self) -> u64 {
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed ^ (mixed >> 27)
    }
}

pub(super) fn hash(text: &str) -> u64 {
    TextHash::new().add(text).finish()
}

/// A set of texts.
#[derive(Default)]
pub(super) struct TextSet(Box<[u64]>);

impl TextSet {
    pub(super) fn contains(&self, text: &str) -> bool {
        self.0.binary_search(&hash(text)).is_ok()
    }
}

/// Values by text key.
pub(super) struct TextMap<V> {
    hashes: Box<[u64]>,
    values: Box<[V]>,
}

impl<V: Copy> TextMap<V> {
    fn new(mut entries: Vec<(u64, V)>) -> Self {
        entries.sort_unstable_by_key(|(hash, _)| *hash);
        Self {
            hashes: entries.iter().map(|(hash, _)| *hash).collect(),
            values: entries.iter().map(|(_, value)| *value).collect(),
        }
    }

    pub(super) fn get(&self, text: &str) -> Option<V> {
        self.get_hashed(hash(text))
    }

    pub(super) fn get_hashed(&self, hash: u64) -> Option<V> {
        let at = self.hashes.binary_search(&hash).ok()?;
        self.values.get(at).copied()
    }

    pub(super) fn len(&self) -> usize {
        self.hashes.len()
    }
}

/// Reads a JSON object whose values `read` converts, in the order of the file.
pub(super) struct MapSeed<F>(pub(super) F);

impl<'de, V, F> DeserializeSeed<'de> for MapSeed<F>
where
    V: Copy,
    F: FnMut(JsonValue<'_>) -> Result<V, String>,
{
    type Value = TextMap<V>;

    fn deserialize<D: Deserializer<'de>>(self, json: D) -> Result<Self::Value, D::Error> {
        json.deserialize_map(self)
    }
}

impl<'de, V, F> Visitor<'de> for MapSeed<F>
where
    V: Copy,
    F: FnMut(JsonValue<'_>) -> Result<V, String>,
{
    type Value = TextMap<V>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut entries = Vec::new();
        while let Some(key) = map.next_key_seed(HashSeed)? {
            entries.push((key, map.next_value_seed(ValueSeed(&mut self.0))?));
        }
        Ok(TextMap::new(entries))
    }
}

/// A value of such an object.
pub(super) enum JsonValue<'a> {
    Text(&'a str),
    /// Fields of an object: the name, and a text or a number. Both are `None` for null.
    Fields(&'a [(String, Option<String>, Option<f64>)]),
}

struct ValueSeed<'a, F>(&'a mut F);

impl<'de, V, F: FnMut(JsonValue<'_>) -> Result<V, String>> DeserializeSeed<'de>
    for ValueSeed<'_, F>
{
    type Value = V;

    fn deserialize<D: Deserializer<'de>>(self, json: D) -> Result<V, D::Error> {
        json.deserialize_any(self)
    }
}

impl<'de, V, F: FnMut(JsonValue<'_>) -> Result<V, String>> Visitor<'de> for ValueSeed<'_, F> {
    type Value = V;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a text or an object")
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<V, E> {
        (self.0)(JsonValue::Text(text)).map_err(E::custom)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<V, A::Error> {
        let mut fields = Vec::new();
        while let Some((name, value)) = map.next_entry::<String, Field>()? {
            let (text, number) = match value {
                Field::Text(text) => (Some(text), None),
                Field::Number(number) => (None, Some(number)),
                Field::Null(()) => (None, None),
            };
            fields.push((name, text, number));
        }
        (self.0)(JsonValue::Fields(&fields)).map_err(serde::de::Error::custom)
    }
}

#[derive(serde::Deserialize)]
#[serde(untagged)]
enum Field {
    Text(String),
    Number(f64),
    Null(()),
}

/// Reads a text as its hash.
struct HashSeed;

impl<'de> DeserializeSeed<'de> for HashSeed {
    type Value = u64;

    fn deserialize<D: Deserializer<'de>>(self, json: D) -> Result<u64, D::Error> {
        json.deserialize_str(self)
    }
}

impl Visitor<'_> for HashSeed {
    type Value = u64;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a text")
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<u64, E> {
        Ok(hash(text))
    }
}

/// Reads a JSON array of texts.
pub(super) struct SetSeed;

impl<'de> DeserializeSeed<'de> for SetSeed {
    type Value = TextSet;

    fn deserialize<D: Deserializer<'de>>(self, json: D) -> Result<TextSet, D::Error> {
        json.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for SetSeed {
    type Value = TextSet;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an array of texts")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<TextSet, A::Error> {
        let mut hashes = Vec::new();
        while let Some(hash) = seq.next_element_seed(HashSeed)? {
            hashes.push(hash);
        }
        hashes.sort_unstable();
        Ok(TextSet(hashes.into()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hash_of_parts_is_that_of_the_whole() {
        assert_eq!(TextHash::new().add("w-1=").add("the").finish(), hash("w-1=the"));
        assert_ne!(hash("ab"), hash("ba"));
    }

    #[test]
    fn a_map_is_read_with_texts_numbers_and_null() {
        let json = r#"{"live": {"VERB": "lɪv", "NOUN": null}, "read": "ɹid", "x": {"NN": -2.5}}"#;
        let mut seen = Vec::new();
        let seed = MapSeed(|value: JsonValue<'_>| {
            seen.push(match value {
                JsonValue::Text(text) => text.to_owned(),
                JsonValue::Fields(fields) => format!("{fields:?}"),
            });
            Ok(seen.len())
        });
        let map = seed.deserialize(&mut serde_json::Deserializer::from_str(json)).unwrap();
        assert_eq!((map.len(), map.get("live"), map.get("x")), (3, Some(1), Some(3)));
        assert_eq!(map.get("lives"), None);
        assert_eq!(seen[1], "ɹid");
        assert!(seen[0].contains(r#"("NOUN", None, None)"#), "{}", seen[0]);
    }

    #[test]
    fn a_set_contains_its_texts_only() {
        let mut json = serde_json::Deserializer::from_str(r#"["the", "!YEAR"]"#);
        let set = SetSeed.deserialize(&mut json).unwrap();
        assert!(set.contains("the") && set.contains("!YEAR") && !set.contains("The"));
    }
}
