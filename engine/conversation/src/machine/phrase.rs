//! Cuts a stream of text into phrases for the TTS. The first phrase is cut as early as natural
//! speech allows. The others are whole sentences.

/// Words with a final period that does not end a sentence. "no." is one only before a digit.
const ABBREVIATIONS: [&str; 28] = [
    "dr", "mr", "mrs", "ms", "prof", "st", "sr", "jr", "vs", "e.g", "i.e", "cf", "approx", "inc",
    "ltd", "co", "corp", "dept", "est", "fig", "gen", "gov", "lt", "col", "mt", "no", "rev", "sgt",
];

/// Abbreviations that may also end a sentence. They do if a capital letter or a non-letter follows.
const AMBIGUOUS_ABBREVIATIONS: [&str; 6] = ["etc", "a.m", "p.m", "u.s", "u.k", "u.n"];

/// Minimum number of words in a first phrase that ends in the middle of a sentence.
const MIN_FIRST_PHRASE_WORDS: usize = 3;

/// A sentence longer than this many bytes is cut at a clause. At twice the length it is cut at
/// whitespace, at three times the length anywhere.
const LONG_SENTENCE_BYTES: usize = 220;

/// Length in bytes of the first sentence of a complete text, including the whitespace after it.
#[must_use]
pub fn first_sentence_len(text: &str) -> usize {
    next_phrase_len(text, false, true).unwrap_or(text.len())
}

/// Length in bytes of the next phrase of `text`, including the whitespace after it. `None`: more
/// text is needed.
///
/// `first`: no phrase of this utterance has been cut yet. `complete`: no more text will arrive.
pub(crate) fn next_phrase_len(text: &str, first: bool, complete: bool) -> Option<usize> {
    let mut clause = None;
    let mut blank = None;
    for (at, c) in text.char_indices() {
        let end = at + c.len_utf8();
        if c == '\n' && text[..at].chars().any(char::is_alphanumeric) {
            return Some(end);
        }
        if matches!(c, '。' | '！' | '？') {
            return Some(end);
        }
        if c.is_whitespace() {
            blank = Some(end);
        }
        let (closed, follows) = lookahead(text, end);
        let has_lookahead = follows.is_some();
        if has_lookahead
            && closed.1
            && matches!(c, '.' | '!' | '?' | '…')
            && ends_sentence(text, at, c, follows)
        {
            return Some(closed.0);
        }
        if has_lookahead
            && closed.1
            && matches!(c, ',' | ';' | ':' | '—' | '–')
            && text[..at].chars().any(char::is_alphanumeric)
        {
            if first && text[..at].split_whitespace().count() >= MIN_FIRST_PHRASE_WORDS {
                return Some(closed.0);
            }
            clause = Some(closed.0);
        }
        if end > LONG_SENTENCE_BYTES
            && let Some(cut) = clause
        {
            return Some(cut);
        }
        if end > 2 * LONG_SENTENCE_BYTES
            && let Some(cut) = blank
        {
            return Some(cut);
        }
        if end > 3 * LONG_SENTENCE_BYTES {
            return Some(end);
        }
    }
    (complete && !text.trim().is_empty()).then_some(text.len())
}

/// The text after `end`: (end of closing punctuation and whitespace, whether there was whitespace),
/// and the next character.
fn lookahead(text: &str, end: usize) -> ((usize, bool), Option<char>) {
    let rest = &text[end..];
    let closing = rest.trim_start_matches(['"', '\'', '”', '’', ')', ']', '*']);
    let follow = closing.trim_start();
    let at = text.len() - follow.len();
    ((at, follow.len() < closing.len()), follow.chars().next())
}

fn ends_sentence(text: &str, at: usize, punctuation: char, follows: Option<char>) -> bool {
    let before = &text[..at];
    if !before.chars().any(char::is_alphanumeric) {
        return false;
    }
    if punctuation == '!' || punctuation == '?' {
        return true;
    }
    let capital = follows.is_some_and(|c| c.is_uppercase() || !c.is_alphabetic());
    if punctuation == '…' || before.ends_with('.') {
        return capital && follows.is_some_and(char::is_uppercase);
    }
    let word = before
        .rsplit(|c: char| c.is_whitespace() || matches!(c, '(' | '"' | '“'))
        .next()
        .unwrap_or("");
    let lower = word.to_lowercase();
    if ABBREVIATIONS.contains(&lower.as_str())
        && (lower != "no" || follows.is_some_and(|c| c.is_ascii_digit()))
    {
        return false;
    }
    if AMBIGUOUS_ABBREVIATIONS.contains(&lower.as_str()) {
        return capital;
    }
    let mut letters = word.chars();
    let initial =
        letters.next().is_some_and(|c| c.is_uppercase() && c != 'I') && letters.next().is_none();
    // A number at the start of the text or of a line belongs to a list item: "1. Take an egg".
    let item = word.chars().all(|c| c.is_ascii_digit()) && before.trim() == word;
    !initial && !item
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Feeds the text character by character, as a model streams it.
    fn split_phrases(text: &str) -> Vec<String> {
        let (mut buffer, mut phrases) = (String::new(), Vec::<String>::new());
        for c in text.chars() {
            buffer.push(c);
            while let Some(len) = next_phrase_len(&buffer, phrases.is_empty(), false) {
                phrases.push(buffer.drain(..len).collect::<String>().trim().into());
            }
        }
        while let Some(len) = next_phrase_len(&buffer, phrases.is_empty(), true) {
            phrases.push(buffer.drain(..len).collect::<String>().trim().into());
        }
        phrases
    }

    #[test]
    fn the_first_phrase_may_end_at_a_clause_the_others_are_sentences() {
        assert_eq!(
            split_phrases("Of course I can, it is easy. First, open the door. Then go in!"),
            ["Of course I can,", "it is easy.", "First, open the door.", "Then go in!"]
        );
        assert_eq!(split_phrases("Well, it depends."), ["Well, it depends."]);
    }

    #[test]
    fn numbers_and_abbreviations_do_not_end_a_sentence() {
        assert_eq!(
            split_phrases("It costs 3.5 dollars. Ask Dr. Smith, e.g. at 5 p.m. tomorrow."),
            ["It costs 3.5 dollars.", "Ask Dr. Smith, e.g. at 5 p.m. tomorrow."]
        );
        assert_eq!(
            split_phrases("J. R. Tolkien wrote it. Yes."),
            ["J. R. Tolkien wrote it.", "Yes."]
        );
        assert_eq!(
            split_phrases("1. Take an egg. 2. Boil it."),
            ["1. Take an egg.", "2. Boil it."]
        );
    }

    #[test]
    fn an_ellipsis_goes_on_and_quotes_close_with_their_sentence() {
        assert_eq!(
            split_phrases("Wait ... there is more. \"Really?\" he said. \"Yes.\" Good."),
            ["Wait ... there is more.", "\"Really?\"", "he said.", "\"Yes.\"", "Good."]
        );
    }

    #[test]
    fn other_scripts_and_lines_end_at_once() {
        assert_eq!(split_phrases("你好。世界！"), ["你好。", "世界！"]);
        assert_eq!(split_phrases("A list:\none\ntwo"), ["A list:", "one", "two"]);
    }

    #[test]
    fn no_phrase_is_longer_than_a_breath_whatever_the_text() {
        for text in
            ["word ".repeat(500), "字".repeat(2_000), "x".repeat(5_000), ". . . ".repeat(500)]
        {
            let phrases = split_phrases(&text);
            let longest = phrases.iter().map(String::len).max();
            assert!(
                longest.is_some_and(|len| len <= 3 * LONG_SENTENCE_BYTES + 4),
                "{longest:?} of {:?}",
                &text[..12]
            );
            let squeezed = |text: &str| text.split_whitespace().collect::<String>();
            assert_eq!(squeezed(&phrases.concat()), squeezed(&text));
        }
    }

    #[test]
    fn nothing_is_lost_whatever_the_text() {
        let text = "word ".repeat(200);
        let squeezed = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
        assert_eq!(squeezed(&split_phrases(&text).join(" ")), squeezed(&text));
        assert!(split_phrases(&text).len() > 1);
    }
}
