//! A written word with its punctuation, and its neighbors.

use unicode_normalization::UnicodeNormalization as _;

/// Marks before a word.
const OPENING: &str = "(\"'“‘„«[{<*_~`¿¡…•·|\\";
/// Marks behind a word.
const CLOSING: &str = ".,!?;:)\"'”’»]}>*_~`…—–-|\\";
/// Characters whose compatibility form has another meaning: `½` would become `1⁄2`.
const PRESERVED: &str = "½¼¾²³™®©℃℉№…′″";

/// A written word: `prefix`, `core` and `suffix`.
#[derive(Debug)]
pub(super) struct Written {
    text: String,
    core: std::ops::Range<usize>,
}

impl Written {
    pub(super) fn new(word: &str) -> Self {
        let mut text = String::with_capacity(word.len());
        for c in word.chars() {
            match c {
                '’' | '‘' | 'ʼ' | '′' => text.push('\''),
                '‐' | '‑' | '‒' => text.push('-'),
                '―' => text.push('—'),
                c if PRESERVED.contains(c) => text.push(c),
                c => text.extend(std::iter::once(c).nfkc().filter(|c| !c.is_whitespace())),
            }
        }
        let trimmed = text.trim_start_matches(|c| OPENING.contains(c));
        // A period or a hyphen may belong to a number.
        let bare = trimmed.trim_start_matches(['.', '-', '—', '–', '−']);
        let signed = bare.starts_with(|c: char| c.is_ascii_digit() || "$£€¥".contains(c));
        let start = text.len()
            - match trimmed.chars().nth_back(bare.chars().count()) {
                Some(sign) if signed && sign != '—' => bare.len() + sign.len_utf8(),
                _ => bare.len(),
            };
        let end = start + text[start..].trim_end_matches(|c| CLOSING.contains(c)).len();
        Self { core: start..end, text }
    }

    /// The word without marks around it; empty if there are only marks.
    pub(super) fn core(&self) -> &str {
        &self.text[self.core.clone()]
    }

    pub(super) fn prefix(&self) -> &str {
        &self.text[..self.core.start]
    }

    pub(super) fn suffix(&self) -> &str {
        &self.text[self.core.end..]
    }

    fn has_capital(&self) -> bool {
        self.core().starts_with(char::is_uppercase)
    }

    fn ends_clause(&self) -> bool {
        self.suffix().contains(['!', '?', ';', ':', ','])
    }
}

/// A word and its neighbors in the sentence.
#[derive(Clone, Copy)]
pub(super) struct Context<'a> {
    pub(super) words: &'a [Written],
    pub(super) at: usize,
}

impl<'a> Context<'a> {
    pub(super) fn word(&self) -> Option<&'a Written> {
        self.words.get(self.at)
    }

    /// The next word, unless a mark separates it.
    pub(super) fn next(&self) -> &'a str {
        match self.words.get(self.at + 1) {
            Some(next) if self.word().is_some_and(|word| !word.ends_clause()) => next.core(),
            _ => "",
        }
    }

    /// The previous word, unless a mark separates it.
    pub(super) fn previous(&self) -> &'a str {
        let previous = self.at.checked_sub(1).and_then(|at| self.words.get(at));
        previous.filter(|word| !word.ends_clause()).map_or("", Written::core)
    }

    /// Whether the next word begins with a capital.
    pub(super) fn precedes_capital(&self) -> bool {
        self.words.get(self.at + 1).is_some_and(Written::has_capital)
    }

    /// Whether the previous word is a name: it has a capital, and not as the first of the sentence.
    pub(super) fn follows_name(&self) -> bool {
        self.at >= 2 && self.words[self.at - 1].has_capital()
    }

    pub(super) fn is_last(&self) -> bool {
        self.at + 1 == self.words.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_are_separated_from_the_word() {
        for (word, prefix, core, suffix) in [
            ("“Hello!”", "“", "Hello", "!”"),
            ("(it’s)", "(", "it's", ")"),
            ("**bold**,", "**", "bold", "**,"),
            ("...", "...", "", ""),
            ("-", "-", "", ""),
            ("-5", "", "-5", ""),
            (".5", "", ".5", ""),
            ("...5", "..", ".5", ""),
            ("-$5.", "", "-$5", "."),
            ("C++", "", "C++", ""),
            ("５０％", "", "50%", ""),
            ("½", "", "½", ""),
        ] {
            let written = Written::new(word);
            assert_eq!(
                (written.prefix(), written.core(), written.suffix()),
                (prefix, core, suffix),
                "{word}"
            );
        }
    }
}
