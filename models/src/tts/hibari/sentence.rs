//! Splits a text into sentences, and the symbols of a sentence into the chunks that are synthesized
//! at a time.

use std::ops::Range;

use super::frontend::Symbol;
use super::frontend::normalize::is_before_name;

/// A longer sentence is split after a clause, in written words.
const CLAUSE_SPLIT_WORDS: usize = 50;
/// A sentence ends here in any case, in written words.
const MAX_SENTENCE_WORDS: usize = 80;
/// Symbols of the first chunk of a text, and of the others. The first sound waits for the work on
/// the first chunk; 120 symbols are about 7 s of speech.
const FIRST_CHUNK_SYMBOLS: usize = 120;
const CHUNK_SYMBOLS: usize = 200;

/// Words that begin a sentence even behind an abbreviation.
const SENTENCE_STARTS: &[&str] = &[
    "A", "After", "All", "An", "And", "As", "At", "But", "Can", "Do", "For", "From", "He", "How",
    "I", "I'm", "If", "In", "Is", "It", "It's", "My", "No", "Now", "On", "Our", "Please", "She",
    "So", "That", "The", "Then", "There", "These", "They", "This", "To", "We", "What", "When",
    "Where", "Which", "Who", "Why", "With", "Would", "Yes", "You", "Your",
];

/// Ranges of the words of each sentence. `starts_line` is whether a word begins a line: a line, such
/// as an entry of a list, ends a sentence.
pub(super) fn sentences(words: &[&str], starts_line: &[bool]) -> Vec<Range<usize>> {
    let mut ranges = Vec::new();
    let mut start = 0;
    for at in 0..words.len() {
        let next = words.get(at + 1).copied();
        let length = at + 1 - start;
        let line = starts_line.get(at + 1).is_some_and(|starts| *starts);
        let clause = words[at].ends_with([',', ';', ':', '—']);
        if next.is_none()
            || line
            || ends_sentence(words[at], next.unwrap_or_default())
            || length >= CLAUSE_SPLIT_WORDS && clause
            || length >= MAX_SENTENCE_WORDS
        {
            ranges.push(start..at + 1);
            start = at + 1;
        }
    }
    ranges
}

fn ends_sentence(word: &str, next: &str) -> bool {
    let closing = ['"', '\'', ')', ']', '”', '’', '*', '_', '»'];
    let bare = word.trim_end_matches(closing);
    if bare.ends_with(['!', '?', '…', '。', '！', '？']) {
        return true;
    }
    let Some(core) = bare.strip_suffix('.') else { return false };
    let core = core.trim_start_matches(['(', '"', '\'', '“', '‘', '[', '*', '_']);
    let follows = next.trim_start_matches(['(', '"', '\'', '“', '‘', '[', '*', '_']);
    let continues = follows.starts_with(char::is_lowercase)
        // "No. 5" and "Jan. 5".
        || follows.starts_with(|c: char| c.is_ascii_digit()) && core.len() <= 4
            && core.chars().all(char::is_alphabetic);
    // "Dr. Smith" and "the U.S. Navy", but "on Elm Dr. He" and "in the U.S. The".
    let has_own_period = is_before_name(core) || core.contains('.');
    !continues && (!has_own_period || SENTENCE_STARTS.contains(&follows))
}

/// Ranges of the symbols of a sentence that are synthesized at a time. A chunk ends after a clause
/// if it can, else between words. `is_first`: whether the text begins with it.
pub(super) fn chunks(symbols: &[Symbol], is_first: bool) -> Vec<Range<usize>> {
    let mut ranges = Vec::new();
    let mut start = 0;
    let mut limit = if is_first { FIRST_CHUNK_SYMBOLS } else { CHUNK_SYMBOLS };
    while symbols.len() - start > limit {
        let window = &symbols[start..start + limit];
        let after = |test: fn(char) -> bool| {
            let at = window.iter().rposition(|symbol| test(symbol.symbol))?;
            // A very short chunk would have a melody of its own.
            (at >= limit / 3).then_some(at + 1)
        };
        let end = after(|c| ",;:—.!?…".contains(c)).or_else(|| after(|c| c == ' '));
        let end = start + end.unwrap_or(limit);
        ranges.push(start..end);
        start = end;
        limit = CHUNK_SYMBOLS;
    }
    if start < symbols.len() || ranges.is_empty() {
        ranges.push(start..symbols.len());
    }
    ranges
}

#[cfg(test)]
mod tests {
    use super::*;

    fn split(text: &str) -> Vec<String> {
        let words: Vec<&str> = text.split_whitespace().collect();
        let ranges = sentences(&words, &vec![false; words.len()]);
        ranges.into_iter().map(|range| words[range].join(" ")).collect()
    }

    #[test]
    fn sentences_end_at_their_marks_and_not_at_abbreviations() {
        for whole in [
            "Dr. Smith met J. K. Rowling in St. Louis.",
            "See No. 5 and Fig. 3 on Jan. 5 at 5 p.m. in the hall.",
            "It is approx. 5 km, e.g. by bus.",
        ] {
            assert_eq!(split(whole), [whole]);
        }
        assert_eq!(
            split("Hi! How are you? “Fine.” Good… Bye."),
            ["Hi!", "How are you?", "“Fine.”", "Good…", "Bye."]
        );
        assert_eq!(split("He left at 5 p.m. Then we ate."), ["He left at 5 p.m.", "Then we ate."]);
        assert_eq!(
            split("The U.S. Navy left the U.S. It did."),
            ["The U.S. Navy left the U.S.", "It did."]
        );
        assert_eq!(
            split("See Dr. Lee on Elm Dr. He is in."),
            ["See Dr. Lee on Elm Dr.", "He is in."]
        );
        assert_eq!(split("That was 1984. 5 of us came."), ["That was 1984.", "5 of us came."]);
        assert!(split("").is_empty());
    }

    #[test]
    fn lines_end_sentences_and_endless_ones_are_cut() {
        assert_eq!(sentences(&["one", "two", "three"], &[true, false, true]), [0..2, 2..3]);
        let words = vec!["word"; 1_000];
        let ranges = sentences(&words, &vec![false; 1_000]);
        assert!(ranges.iter().all(|range| range.len() <= MAX_SENTENCE_WORDS));
        assert_eq!(ranges.iter().map(Range::len).sum::<usize>(), 1_000);
    }

    fn symbols(text: &str) -> Vec<Symbol> {
        text.chars().map(|symbol| Symbol { symbol, word: 0 }).collect()
    }

    #[test]
    fn chunks_end_after_clauses_and_lose_nothing() {
        let text = "abcd efgh ijkl, ".repeat(40);
        let all = symbols(&text);
        let ranges = chunks(&all, true);
        assert!(ranges[0].len() <= FIRST_CHUNK_SYMBOLS && ranges.len() == 4);
        assert!(ranges[..3].iter().all(|range| text[..range.end].ends_with(',')), "{ranges:?}");
        assert_eq!(ranges.last().unwrap().end, all.len());
        assert!(ranges.windows(2).all(|pair| pair[0].end == pair[1].start));
        let endless = chunks(&symbols(&"a".repeat(1_000)), false);
        assert_eq!(endless, [0..200, 200..400, 400..600, 600..800, 800..1_000]);
        let whole = |text| chunks(&symbols(text), true).into_iter().map(|range| range.len());
        assert!(whole("").eq([0]) && whole("həlˈO.").eq([6]));
    }
}
