//! Part-of-speech tagger: an averaged perceptron with the tags of the Penn Treebank. A word with
//! one usual tag has it in a dictionary; for the others, features of the word and its neighbors
//! vote.
//!
//! Features after Collins (2002), "Discriminative training methods for hidden Markov models", as in
//! the weights' own package.

use serde::de::{Deserializer, MapAccess, Visitor};

use super::table::{JsonValue, MapSeed, SetSeed, TextHash, TextMap, TextSet};

/// Units of a weight: the file has one decimal.
const WEIGHT_SCALE: f64 = 10.0;
/// The tag of a word without any known feature.
const DEFAULT_TAG: &str = "NN";
const BEFORE: [&str; 2] = ["-START2-", "-START-"];
const AFTER: [&str; 2] = ["-END-", "-END2-"];

/// The weights of a feature: a range of [`Tagger::cells`].
#[derive(Clone, Copy)]
struct Cells {
    start: u32,
    count: u8,
}

pub(super) struct Tagger {
    tags: Vec<String>,
    /// Words with one usual tag.
    usual: TextMap<u8>,
    /// Words that have features of their own.
    vocabulary: TextSet,
    features: TextMap<Cells>,
    /// Tag and weight.
    cells: Vec<(u8, i16)>,
}

impl Tagger {
    /// Reads the weights from JSON.
    ///
    /// # Errors
    /// The reason, without the name of the file.
    pub(super) fn parse(json: &[u8]) -> Result<Self, String> {
        let mut json = serde_json::Deserializer::from_slice(json);
        json.deserialize_map(TaggerVisitor).map_err(|error| error.to_string())
    }

    /// The tag of each word of a sentence.
    pub(super) fn tag<'a>(&'a self, words: &[&str]) -> Vec<&'a str> {
        let mut context: Vec<String> = BEFORE.map(str::to_owned).into();
        context.extend(words.iter().map(|word| self.context_form(word)));
        context.extend(AFTER.map(str::to_owned));
        let (mut before, mut last) = (BEFORE[0], BEFORE[1]);
        let mut tags = Vec::with_capacity(words.len());
        let mut scores = vec![0; self.tags.len()];
        for (at, word) in words.iter().enumerate() {
            let tag = match self.usual.get(word) {
                Some(tag) => self.tags.get(usize::from(tag)).map_or(DEFAULT_TAG, String::as_str),
                None => self.predict(word, &context[at..at + 5], [last, before], &mut scores),
            };
            tags.push(tag);
            (before, last) = (last, tag);
        }
        tags
    }

    /// A word as a neighbor of others: rare ones are represented by their shape.
    fn context_form(&self, word: &str) -> String {
        let digits = |text: &str| text.chars().all(|c| c.is_ascii_digit());
        let normal = if word.contains('-') && !word.starts_with('-') {
            "!HYPHEN".to_owned()
        } else if word.len() == 4 && digits(word) {
            "!YEAR".to_owned()
        } else if word.starts_with(|c: char| c.is_ascii_digit()) {
            "!DIGITS".to_owned()
        } else {
            word.to_lowercase()
        };
        if self.vocabulary.contains(&normal) { normal } else { format!("<{}>", shape(word)) }
    }

    /// `window`: the context forms from two words before to two words after. `last`: the tags of
    /// the previous word and of the one before it.
    fn predict<'a>(
        &'a self,
        word: &str,
        window: &[String],
        last: [&str; 2],
        scores: &mut [i32],
    ) -> &'a str {
        let [w_2, w_1, own, w1, w2] = window else { return DEFAULT_TAG };
        let first = word.chars().next().map_or(0, char::len_utf8);
        let position = if w_1 == BEFORE[1] { "i0" } else { "i+" };
        scores.fill(0);
        let mut known = false;
        for parts in [
            ["b", "", "", ""],
            ["s3=", last_three(word), "", ""],
            ["p1=", &word[..first], "", ""],
            ["w=", own, "", ""],
            ["sh=", &shape(word), "", ""],
            [position, "", "", ""],
            ["t-1=", last[0], "", ""],
            ["t-2=", last[1], "", ""],
            ["t-12=", last[0], ",", last[1]],
            ["w-1=", w_1, "", ""],
            ["s3-1=", last_three(w_1), "", ""],
            ["w-2=", w_2, "", ""],
            ["w+1=", w1, "", ""],
            ["s3+1=", last_three(w1), "", ""],
            ["w+2=", w2, "", ""],
        ] {
            let hash = parts.iter().fold(TextHash::new(), |hash, part| hash.add(part)).finish();
            let Some(Cells { start, count }) = self.features.get_hashed(hash) else { continue };
            known = true;
            let cells = self.cells.iter().skip(start as usize).take(usize::from(count));
            for &(tag, weight) in cells {
                if let Some(score) = scores.get_mut(usize::from(tag)) {
                    *score += i32::from(weight);
                }
            }
        }
        let best = self.tags.iter().zip(&*scores).max_by_key(|(tag, score)| (**score, *tag));
        match best {
            Some((tag, _)) if known => tag,
            _ => DEFAULT_TAG,
        }
    }
}

/// The last three characters.
fn last_three(word: &str) -> &str {
    word.char_indices().rev().nth(2).map_or(word, |(at, _)| &word[at..])
}

/// Class of a word's characters.
fn shape(word: &str) -> String {
    let all = |test: fn(char) -> bool| word.chars().all(test);
    let first_upper = word.starts_with(char::is_uppercase);
    let fixed = if all(char::is_alphabetic) {
        if all(char::is_lowercase) {
            "x"
        } else if all(char::is_uppercase) {
            if word.chars().nth(1).is_some() { "XX" } else { "X1" }
        } else if first_upper && word.chars().skip(1).all(char::is_lowercase) {
            "Xx"
        } else {
            "xX"
        }
    } else if all(|c| c.is_ascii_digit()) {
        "d"
    } else {
        return word
            .chars()
            .take(4)
            .map(|c| {
                if c.is_numeric() {
                    'd'
                } else if c.is_alphabetic() {
                    'x'
                } else {
                    c
                }
            })
            .collect();
    };
    fixed.to_owned()
}

struct TaggerVisitor;

impl<'de> Visitor<'de> for TaggerVisitor {
    type Value = Tagger;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("an object with tags, tagdict, vocab and weights")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Tagger, A::Error> {
        let (mut tags, mut cells) = (Vec::<String>::new(), Vec::new());
        let (mut usual, mut vocabulary, mut features) = (None, None, None);
        while let Some(key) = map.next_key::<String>()? {
            let number = |tag: &str| {
                let at = tags.iter().position(|known| known == tag);
                at.and_then(|at| u8::try_from(at).ok())
                    .ok_or_else(|| format!("the tag {tag:?} is not in the list"))
            };
            match key.as_str() {
                "tags" => tags = map.next_value()?,
                "tagdict" => {
                    let seed = MapSeed(|value: JsonValue<'_>| match value {
                        JsonValue::Text(tag) => number(tag),
                        JsonValue::Fields(_) => Err("a word has several tags".to_owned()),
                    });
                    usual = Some(map.next_value_seed(seed)?);
                }
                "vocab" => vocabulary = Some(map.next_value_seed(SetSeed)?),
                "weights" => {
                    let seed = MapSeed(|value: JsonValue<'_>| {
                        let JsonValue::Fields(fields) = value else {
                            return Err("a feature has no weights".to_owned());
                        };
                        let start = u32::try_from(cells.len()).map_err(|e| e.to_string())?;
                        for (tag, _, weight) in fields {
                            let weight = weight.ok_or("a weight is not a number")? * WEIGHT_SCALE;
                            cells.push((number(tag)?, weight.round() as i16));
                        }
                        let count = u8::try_from(fields.len()).map_err(|e| e.to_string())?;
                        Ok(Cells { start, count })
                    });
                    features = Some(map.next_value_seed(seed)?);
                }
                _ => return Err(serde::de::Error::custom(format!("unknown field {key:?}"))),
            }
        }
        let missing = || serde::de::Error::custom("a field is missing");
        Ok(Tagger {
            usual: usual.ok_or_else(missing)?,
            vocabulary: vocabulary.ok_or_else(missing)?,
            features: features.ok_or_else(missing)?,
            tags,
            cells,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MODEL: &str = r#"{"tags": ["DT", "NN", "VB"], "tagdict": {"the": "DT"},
        "vocab": ["the", "record"],
        "weights": {"t-1=DT": {"NN": 4.5, "VB": -1.0}, "w+1=the": {"VB": 2.0}, "i0": {"VB": 0.5}}}"#;

    #[test]
    fn the_neighbors_of_a_word_decide_its_tag() {
        let tagger = Tagger::parse(MODEL.as_bytes()).unwrap();
        assert_eq!(tagger.tag(&["the", "record"]), ["DT", "NN"]);
        assert_eq!(tagger.tag(&["record", "the", "record"]), ["VB", "DT", "NN"]);
        assert_eq!(tagger.tag(&["x", "y"])[1], "NN", "nothing is known about it");
        assert!(tagger.tag(&[]).is_empty());
    }

    #[test]
    fn shapes_and_suffixes_count_characters() {
        let shapes = ["it", "It", "IT", "I", "iPad", "12", "a-b", "3rd", "é"].map(shape);
        assert_eq!(shapes, ["x", "Xx", "XX", "X1", "xX", "d", "x-x", "dxx", "x"]);
        assert_eq!((last_three("café"), last_three("à"), last_three("")), ("afé", "à", ""));
    }

    #[test]
    fn a_damaged_file_is_an_error() {
        for json in ["", "{}", "[1]", &MODEL[..80], r#"{"tags": [], "tagdict": {"a": "NN"}}"#] {
            assert!(Tagger::parse(json.as_bytes()).is_err(), "{json}");
        }
    }
}
