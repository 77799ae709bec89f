//! Splits spoken text into the tokens that the tagger knows: words, the parts of contractions and
//! compounds, and punctuation marks.

/// Marks that are audible, as a pause or in the melody.
const MARKS: &str = "()“”.,!?;:…—";
/// Ends of contractions, which are tokens of their own, and their sound behind a word without an
/// entry. That of the possessive depends on the word.
const CLITICS: &[(&str, &str)] = &[
    ("n't", "ᵊnt"),
    ("'s", ""),
    ("'re", "əɹ"),
    ("'ve", "əv"),
    ("'ll", "ᵊl"),
    ("'d", "əd"),
    ("'m", "əm"),
];
/// Words that are two tokens.
const JOINED: &[(&str, usize)] = &[("cannot", 3), ("gonna", 3), ("gotta", 3)];

/// A token.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Token {
    pub(super) text: String,
    /// Index of the written word.
    pub(super) word: usize,
    pub(super) kind: Kind,
}

/// Kind of token, and how it follows the previous one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// The first part of a word. A blank may precede it.
    Word { after_blank: bool },
    /// A further part of the same word.
    Part,
    /// A punctuation mark.
    Mark { after_blank: bool },
}

impl Kind {
    pub(super) fn is_after_blank(self) -> bool {
        matches!(self, Self::Word { after_blank: true } | Self::Mark { after_blank: true })
    }
}

/// Tokens of the spoken forms of all written words of a sentence.
pub(super) fn tokenize(spoken: &[String]) -> Vec<Token> {
    let mut tokens = Vec::new();
    for (word, text) in spoken.iter().enumerate() {
        for chunk in text.split(' ').filter(|chunk| !chunk.is_empty()) {
            split_chunk(chunk, word, &mut tokens);
        }
    }
    tokens
}

fn split_chunk(chunk: &str, word: usize, tokens: &mut Vec<Token>) {
    let mut after_blank = !tokens.is_empty();
    let core = chunk.trim_matches(|c| MARKS.contains(c));
    let start = if core.is_empty() { chunk.len() } else { chunk.find(core).unwrap_or(0) };
    let mark = |c: char, after_blank: bool| Token {
        text: c.to_string(),
        word,
        kind: Kind::Mark { after_blank },
    };
    for c in chunk[..start].chars() {
        // A mark that closes something follows it directly.
        tokens.push(mark(c, after_blank && "(“—".contains(c)));
        after_blank = false;
    }
    if !core.is_empty() {
        let mut kind = Kind::Word { after_blank };
        for part in split_word(core) {
            tokens.push(Token { text: part.to_owned(), word, kind });
            kind = Kind::Part;
        }
    }
    let closing = chunk[start + core.len()..].chars();
    tokens.extend(closing.map(|c| mark(c, false)));
}

/// The parts of a word: around hyphens, and before the end of a contraction.
fn split_word(word: &str) -> Vec<&str> {
    let mut parts = Vec::new();
    let mut rest = word;
    while let Some(at) = rest.find('-') {
        parts.extend([&rest[..at], &rest[at..=at]]);
        rest = &rest[at + 1..];
    }
    parts.push(rest);
    parts.retain(|part| !part.is_empty());
    let Some(last) = parts.pop() else { return parts };
    let lower = last.to_ascii_lowercase();
    let joined = JOINED.iter().find(|(joined, _)| *joined == lower).map(|(_, at)| *at);
    let clitic = CLITICS.iter().find(|(clitic, _)| lower.ends_with(clitic));
    let clitic = clitic.map(|(clitic, _)| last.len() - clitic.len());
    match joined.or(clitic).filter(|at| *at > 0) {
        Some(at) => parts.extend([&last[..at], &last[at..]]),
        None => parts.push(last),
    }
    parts
}

/// The sound of the end of a contraction; `None` for other texts.
pub(super) fn clitic_sound(text: &str) -> Option<&'static str> {
    let clitic = CLITICS.iter().find(|(clitic, _)| text.eq_ignore_ascii_case(clitic));
    clitic.map(|(_, sound)| *sound)
}

/// The parts of a token in mixed case: `iPhone` and `XMLFile` have two.
pub(super) fn split_case(text: &str) -> Vec<&str> {
    let chars: Vec<(usize, char)> = text.char_indices().collect();
    let mut parts = Vec::new();
    let mut start = 0;
    for window in chars.windows(2) {
        let [(_, a), (at, b)] = window else { continue };
        let next = text[*at..].chars().nth(1);
        let starts_word = a.is_uppercase()
            && b.is_uppercase()
            && next.is_some_and(char::is_lowercase)
            // The plural of an initialism: "GPUs".
            && text[*at..].chars().nth(2).is_some();
        if a.is_lowercase() && b.is_uppercase() || starts_word {
            parts.push(&text[start..*at]);
            start = *at;
        }
    }
    parts.push(&text[start..]);
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(spoken: &str) -> String {
        let tokens = tokenize(&[spoken.to_owned()]);
        tokens.iter().map(|token| token.text.as_str()).collect::<Vec<_>>().join("|")
    }

    #[test]
    fn contractions_compounds_and_marks_are_tokens() {
        assert_eq!(
            texts("“Don't stop,” (it's well-known)."),
            "“|Do|n't|stop|,|”|(|it|'s|well|-|known|)|."
        );
        assert_eq!(texts("cannot o'clock 'twas"), "can|not|o'clock|'twas");
        assert_eq!(texts("U.S A.M. — x"), "U.S|A.M|.|—|x");
        assert_eq!(texts(""), "");
    }

    #[test]
    fn blanks_and_words_are_recorded() {
        let tokens = tokenize(&["five P.M,".into(), String::new(), "it's".into()]);
        let found: Vec<_> = tokens.iter().map(|t| (t.word, t.kind)).collect();
        let word = |after_blank| Kind::Word { after_blank };
        let expected = [
            (0, word(false)),
            (0, word(true)),
            (0, Kind::Mark { after_blank: false }),
            (2, word(true)),
            (2, Kind::Part),
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn mixed_case_has_parts() {
        assert_eq!(split_case("iPhone"), ["i", "Phone"]);
        assert_eq!(split_case("XMLFile"), ["XML", "File"]);
        assert_eq!(split_case("OpenAI"), ["Open", "AI"]);
        for whole in ["GPUs", "Hello", "GPU", "é", ""] {
            assert_eq!(split_case(whole), [whole]);
        }
    }
}
