//! The network that pronounces words which are in no dictionary: characters in, phonemes out.
//!
//! ```text
//! characters [1, L] ─► network ─► phoneme numbers [1, T]
//! ```
//!
//! The output is that of connectionist temporal classification (Graves et al., 2006): repeated
//! numbers are one, and 0 is a blank.

use std::collections::HashMap;

use ort::environment::Environment;
use ort::session::Session;
use ort::value::TensorRef;
use serde::Deserialize;

/// A longer word is read in parts.
const MAX_PARTS: usize = 3;

#[derive(Deserialize)]
struct Alphabet {
    #[serde(rename = "in")]
    characters: Vec<char>,
    #[serde(rename = "out")]
    phonemes: Vec<char>,
    /// Maximum number of characters.
    maxlen: usize,
}

/// The loaded network.
pub(super) struct UnknownWords {
    session: Session,
    characters: HashMap<char, i64>,
    phonemes: Vec<char>,
    max_characters: usize,
}

impl UnknownWords {
    /// From the contents of the network and its alphabet.
    ///
    /// # Errors
    /// The reason, without the name of the file.
    pub(super) fn load(
        environment: &Environment,
        network: &[u8],
        alphabet: &[u8],
    ) -> Result<Self, String> {
        let Alphabet { characters, phonemes, maxlen } =
            serde_json::from_slice(alphabet).map_err(|error| error.to_string())?;
        let session = super::network::open_session(environment, network)
            .map_err(|error| error.to_string())?;
        let characters = characters.into_iter().zip(1..).collect();
        Ok(Self { session, characters, phonemes, max_characters: maxlen.max(1) })
    }

    /// Phonemes of a word; `None` if it has no character of the alphabet, or the network fails.
    ///
    /// Other scripts are left out: the network names their letters one by one.
    pub(super) fn pronounce(&mut self, word: &str) -> Option<String> {
        let readable = word.chars().filter(|c| is_latin(*c));
        let ids: Vec<i64> = readable.filter_map(|c| self.characters.get(&c).copied()).collect();
        let parts = ids.chunks(self.max_characters).take(MAX_PARTS);
        let sounds: Vec<String> = parts.filter_map(|part| self.run(part).ok()).collect();
        let sound = sounds.concat();
        (!sound.is_empty()).then_some(sound)
    }

    fn run(&mut self, ids: &[i64]) -> ort::Result<String> {
        let input = TensorRef::from_array_view(([1usize, ids.len()], ids))?;
        let outputs = self.session.run(ort::inputs!["chars" => input])?;
        let output = outputs.get("ids").ok_or_else(|| ort::Error::new("there is no output"))?;
        let (_, numbers) = output.try_extract_tensor::<i64>()?;
        Ok(collapse(numbers, &self.phonemes))
    }
}

fn is_latin(c: char) -> bool {
    c <= '\u{24f}' || ('\u{1e00}'..='\u{1eff}').contains(&c)
}

/// The phonemes of a sequence with repetitions and blanks.
fn collapse(numbers: &[i64], phonemes: &[char]) -> String {
    let mut last = 0;
    let mut sound = String::new();
    for &number in numbers {
        if number != last {
            let at = usize::try_from(number).ok().and_then(|number| number.checked_sub(1));
            sound.extend(at.and_then(|at| phonemes.get(at)));
        }
        last = number;
    }
    sound
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repetitions_are_one_and_blanks_separate() {
        assert_eq!(collapse(&[1, 1, 0, 1, 2, 0, 0, 3], &['a', 'b', 'c']), "aabc");
        assert_eq!(collapse(&[0, 9, -1], &['a']), "");
    }
}
