//! Text front end: from written words to phonemes.
//!
//! ```text
//! written words ─► normalize ─► tokens ─► tagger ─► lexicon ─► phonemes of each written word
//!                                                      │ ▲
//!                                       unknown words  ▼ │
//!                                                 small network
//! ```
//!
//! The alphabet is that of misaki and Kokoro-82M: American English, see [`stress`].

mod lexicon;
pub(super) mod normalize;
pub(super) mod stress;
mod suffix;
mod table;
mod tagger;
mod tokens;

use self::lexicon::{Following, Lexicon};
use self::stress::balance;
use self::tagger::Tagger;
use self::tokens::{Kind, Token};

/// Number of parts of a compound that are looked up as one word.
const MAX_JOINED_PARTS: usize = 6;

/// A phoneme, a stress mark, a punctuation mark or a blank, with the written word that it is part
/// of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Symbol {
    pub(super) symbol: char,
    pub(super) word: usize,
}

/// Pronounces a word that is in no dictionary; `None` if it has no letters that are known.
pub(super) type PronounceUnknown<'a> = dyn Fn(&str) -> Option<String> + 'a;

/// Dictionaries and tagger.
pub(super) struct Frontend {
    lexicon: Lexicon,
    tagger: Tagger,
}

impl Frontend {
    /// From the contents of the files, in JSON.
    ///
    /// # Errors
    /// The name of the damaged part and the reason.
    pub(super) fn parse(gold: &[u8], silver: &[u8], tagger: &[u8]) -> Result<Self, String> {
        let lexicon = Lexicon::parse(gold, silver).map_err(|why| format!("lexicon: {why}"))?;
        if lexicon.len() == 0 {
            return Err("lexicon: it is empty".to_owned());
        }
        let tagger = Tagger::parse(tagger).map_err(|why| format!("tagger: {why}"))?;
        Ok(Self { lexicon, tagger })
    }

    /// The symbols of a sentence of written words.
    pub(super) fn symbols(&self, words: &[&str], unknown: &PronounceUnknown<'_>) -> Vec<Symbol> {
        let tokens = tokens::tokenize(&normalize::normalize(words));
        let texts: Vec<&str> = tokens.iter().map(|token| token.text.as_str()).collect();
        let tags = self.tagger.tag(&texts);
        // From the end, because the sound of some words depends on the next one.
        let mut following = Following::default();
        let mut spoken: Vec<(usize, Vec<String>)> = Vec::new();
        let mut end = tokens.len();
        while end > 0 {
            let mut start = end - 1;
            while tokens[start].kind == Kind::Part {
                start -= 1;
            }
            let phonemes = match tokens[start].kind {
                Kind::Mark { .. } => {
                    following = following.before("", &tokens[start].text);
                    vec![tokens[start].text.clone()]
                }
                Kind::Word { .. } | Kind::Part => {
                    self.word(&tokens[start..end], &tags[start..end], &mut following, unknown)
                }
            };
            spoken.push((start, phonemes));
            end = start;
        }
        join(&tokens, spoken)
    }

    /// The phonemes of the parts of a word. `following` is updated to what precedes the word sees.
    fn word(
        &self,
        tokens: &[Token],
        tags: &[&str],
        following: &mut Following,
        unknown: &PronounceUnknown<'_>,
    ) -> Vec<String> {
        let mut parts: Vec<(&str, &str)> = Vec::new();
        for (token, tag) in tokens.iter().zip(tags) {
            parts.extend(tokens::split_case(&token.text).into_iter().map(|part| (part, *tag)));
        }
        let mut phonemes = vec![String::new(); parts.len()];
        let mut possessive = false;
        let mut end = parts.len();
        while end > 0 {
            let mut joined_starts = end.saturating_sub(MAX_JOINED_PARTS)..end;
            let clitic = tokens::clitic_sound(parts[end - 1].0).filter(|_| end > 1);
            let found = joined_starts.find_map(|start| {
                if start + 1 == end && clitic.is_some() {
                    return None;
                }
                let text: String = parts[start..end].iter().map(|(text, _)| *text).collect();
                let sound = self.lexicon.pronounce(&text, main_tag(&parts[start..end]), *following);
                sound.map(|sound| (start, text, sound))
            });
            let (start, text, mut sound) = found.unwrap_or_else(|| {
                let text = parts[end - 1].0;
                let sound = match clitic {
                    Some(sound) => sound.to_owned(),
                    None => unknown(text).unwrap_or_default(),
                };
                (end - 1, text.to_owned(), sound)
            });
            *following = following.before(&text, &sound);
            // The possessive of an unknown word.
            let waits_for_stem = clitic == Some("") && sound.is_empty();
            if std::mem::replace(&mut possessive, waits_for_stem) {
                sound = suffix::attach_s(&sound);
            }
            phonemes[start] = sound;
            end = start;
        }
        let letters: Vec<usize> = parts.iter().map(|(text, _)| text.chars().count()).collect();
        balance(&mut phonemes, &letters);
        phonemes
    }
}

/// The tag of the part with the largest number of letters, where capitals count twice.
fn main_tag<'a>(parts: &[(&str, &'a str)]) -> &'a str {
    let weight =
        |text: &str| -> usize { text.chars().map(|c| if c.is_uppercase() { 2 } else { 1 }).sum() };
    // The first of equal ones.
    let main = parts.iter().rev().max_by_key(|(text, _)| weight(text));
    main.map_or("NN", |(_, tag)| *tag)
}

/// The symbols of all tokens, in order. `spoken`: first token and phonemes of each word, from the
/// last to the first.
fn join(tokens: &[Token], spoken: Vec<(usize, Vec<String>)>) -> Vec<Symbol> {
    let mut symbols: Vec<Symbol> = Vec::new();
    for (start, phonemes) in spoken.into_iter().rev() {
        let Token { word, kind, .. } = tokens[start];
        if phonemes.iter().all(String::is_empty) {
            continue;
        }
        if kind.is_after_blank() && !symbols.is_empty() {
            let before = symbols.last().map_or(word, |last| last.word);
            symbols.push(Symbol { symbol: ' ', word: before });
        }
        // The network was trained with these symbols for the flap and the glottal stop.
        let plain = phonemes.iter().flat_map(|part| part.chars()).map(|c| match c {
            'ɾ' => 'T',
            'ʔ' => 't',
            c => c,
        });
        symbols.extend(plain.map(|symbol| Symbol { symbol, word }));
    }
    symbols
}

#[cfg(test)]
mod tests;
#[cfg(test)]
pub(super) use self::tests::models_dir as test_models_dir;
