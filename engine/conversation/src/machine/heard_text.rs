//! How much of a segment's text was heard at a playout position: a prefix of whole words.

use crate::words::is_ideograph;
use unicode_normalization::UnicodeNormalization;

use crate::contract::time::Position;

/// Length in bytes of the prefix of `text` whose words were played completely at `position`.
///
/// Word timestamps decide if they spell the text. Otherwise the syllables decide. A word is heard
/// if the share of the syllables up to its end, times `duration`, does not exceed `position`.
/// Without a duration, the estimate is impossible and the length is 0.
pub(crate) fn heard_prefix_len(
    text: &str,
    times: &[(String, Position)],
    duration: Option<Position>,
    position: Position,
) -> usize {
    if !times.is_empty()
        && let Some(len) = heard_len_by_word_times(text, times, position)
    {
        return len;
    }
    duration.map_or(0, |duration| heard_len_by_syllables(text, duration, position))
}

/// `None` if the words do not spell the text, neither with punctuation nor without.
fn heard_len_by_word_times(
    text: &str,
    times: &[(String, Position)],
    position: Position,
) -> Option<usize> {
    let to_the_letter = match_word_times(text, times, position, |c| !c.is_whitespace());
    if to_the_letter.is_some() {
        return to_the_letter;
    }
    let heard = match_word_times(text, times, position, char::is_alphanumeric)?;
    Some(with_punctuation(text, heard))
}

/// The end of a word with its punctuation, from the end of its letters.
fn with_punctuation(text: &str, heard: usize) -> usize {
    if heard == 0 {
        return 0;
    }
    // Punctuation belongs to the preceding word if it touches that word or stands alone.
    // Punctuation that touches the next word belongs to the next word.
    let next = text[heard..].find(char::is_alphanumeric).map(|at| heard + at);
    let punctuation = &text[heard..next.unwrap_or(text.len())];
    let own = match (punctuation.rfind(char::is_whitespace), next) {
        (_, None) => punctuation.trim_end().len(),
        (Some(blank), Some(_)) => punctuation[..blank].trim_end().len(),
        (None, Some(_)) => 0,
    };
    heard + own
}

/// End of the last word that was played. `None` if the words do not spell the text in the counted
/// characters.
fn match_word_times(
    text: &str,
    times: &[(String, Position)],
    position: Position,
    is_counted: fn(char) -> bool,
) -> Option<usize> {
    let mut rest = text.char_indices().filter(|(_, c)| is_counted(*c));
    let mut heard = 0;
    for (word, end) in times {
        for expected in word.chars().filter(|c| is_counted(*c)) {
            let (at, c) = rest.next()?;
            if !c.to_lowercase().eq(expected.to_lowercase()) {
                return None;
            }
            if *end <= position {
                heard = at + c.len_utf8();
            }
        }
    }
    Some(heard)
}

/// A word of a segment's text with its positions.
pub(crate) struct TimedWord<'a> {
    pub(crate) text: &'a str,
    pub(crate) start: Position,
    pub(crate) end: Position,
}

/// The words in the first `heard` bytes of `text`, with their punctuation, by the word timestamps.
/// A word starts at the end of the previous one, or of the pause before it. Empty if the words do
/// not spell the text: estimates by syllables are too coarse for single words.
pub(crate) fn timed_words<'a>(
    text: &'a str,
    times: &[(String, Position)],
    heard: usize,
) -> Vec<TimedWord<'a>> {
    let ends = word_ends(text, times, |c| !c.is_whitespace()).or_else(|| {
        let ends = word_ends(text, times, char::is_alphanumeric)?;
        Some(ends.into_iter().map(|end| with_punctuation(text, end)).collect())
    });
    let (mut words, mut from, mut start) = (Vec::new(), 0, Position::ZERO);
    for (to, (_, end)) in ends.unwrap_or_default().into_iter().zip(times) {
        let to = to.min(heard);
        let word = text.get(from..to).unwrap_or_default().trim();
        if word.contains(char::is_alphanumeric) {
            words.push(TimedWord { text: word, start, end: *end });
        }
        (from, start) = (from.max(to), *end);
    }
    words
}

/// The end of each word in `text`, in bytes. `None` if the words do not spell the text in the
/// counted characters.
fn word_ends(
    text: &str,
    times: &[(String, Position)],
    is_counted: fn(char) -> bool,
) -> Option<Vec<usize>> {
    let mut rest = text.char_indices().filter(|(_, c)| is_counted(*c));
    let mut ends = Vec::with_capacity(times.len());
    let mut end = 0;
    for (word, _) in times {
        for expected in word.chars().filter(|c| is_counted(*c)) {
            let (at, c) = rest.next()?;
            if !c.to_lowercase().eq(expected.to_lowercase()) {
                return None;
            }
            end = at + c.len_utf8();
        }
        ends.push(end);
    }
    Some(ends)
}

fn heard_len_by_syllables(text: &str, duration: Position, position: Position) -> usize {
    let total: u64 = words_with_syllables(text).map(|(_, syllables)| syllables).sum();
    let mut sum = 0;
    let mut heard = 0;
    for (end, syllables) in words_with_syllables(text) {
        sum += syllables;
        let due = u128::from(sum) * u128::from(duration.as_samples());
        if sum == 0 || due > u128::from(total) * u128::from(position.as_samples()) {
            if sum > 0 {
                break;
            }
            continue;
        }
        heard = end;
    }
    heard
}

/// For each word, its end in bytes and its number of syllables. In a script without spaces, each
/// character is a word.
fn words_with_syllables(text: &str) -> impl Iterator<Item = (usize, u64)> {
    let mut rest = text.char_indices().peekable();
    core::iter::from_fn(move || {
        while rest.next_if(|(_, c)| c.is_whitespace()).is_some() {}
        let (start, first) = rest.next()?;
        let mut end = start + first.len_utf8();
        let alone = is_ideograph(first);
        while let Some((at, c)) = rest.next_if(|(_, c)| {
            !(c.is_whitespace() || is_ideograph(*c) || alone && c.is_alphanumeric())
        }) {
            end = at + c.len_utf8();
        }
        Some((end, count_syllables(&text[start..end])))
    })
}

/// Number of syllables in a word: its vowel groups, minus one for a final e (except in -le), and at
/// least 1. An ideograph is one syllable. The number is 0 without letters or digits.
fn count_syllables(word: &str) -> u64 {
    if !word.chars().any(char::is_alphanumeric) {
        return 0;
    }
    let ideographs = word.chars().filter(|c| is_ideograph(*c)).count() as u64;
    if ideographs > 0 {
        return ideographs;
    }
    let mut groups = 0;
    let mut in_group = false;
    let mut last = [' ', ' '];
    for c in word.nfd().flat_map(char::to_lowercase) {
        if unicode_normalization::char::is_combining_mark(c) {
            continue;
        }
        if c.is_alphanumeric() {
            last = [last[1], c];
        }
        let vowel = is_vowel(c);
        groups += u64::from(vowel && !in_group);
        in_group = vowel;
    }
    if last[1] == 'e' && last[0] != 'l' && groups > 1 {
        groups -= 1;
    }
    groups.max(1)
}

fn is_vowel(c: char) -> bool {
    matches!(
        c,
        'a' | 'e'
            | 'i'
            | 'o'
            | 'u'
            | 'y'
            | 'æ'
            | 'ø'
            | 'œ'
            | 'ı'
            | 'α'
            | 'ε'
            | 'η'
            | 'ι'
            | 'ο'
            | 'υ'
            | 'ω'
            | 'а'
            | 'е'
            | 'и'
            | 'о'
            | 'у'
            | 'ы'
            | 'э'
            | 'ю'
            | 'я'
            | 'і'
            | 'є'
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn heard(text: &str, duration: f64, position: f64) -> &str {
        &text[..heard_prefix_len(
            text,
            &[],
            Some(Position::from_seconds(duration)),
            Position::from_seconds(position),
        )]
    }

    #[test]
    fn a_word_is_heard_when_its_last_syllable_was_played() {
        let story = "Here is a long story for you ... the end.";
        assert_eq!(heard(story, 10.0, 2.35), "Here is");
        assert_eq!(heard(story, 10.0, 0.99), "");
        assert_eq!(heard(story, 10.0, 8.0), "Here is a long story for you ...");
        assert_eq!(heard(story, 10.0, 10.0), story);
    }

    #[test]
    fn syllables_are_groups_of_vowels() {
        let count = |word| count_syllables(word);
        assert_eq!(
            ["the", "table", "Here", "story", "3.5", "...", "coffee", "naïve", "x"].map(count),
            [1, 2, 1, 2, 1, 0, 1, 1, 1]
        );
        assert_eq!(count("日本語"), 3);
    }

    #[test]
    fn word_times_decide_where_there_are_any() {
        let at = Position::from_seconds;
        let times = [
            ("Hello".to_owned(), at(0.5)),
            ("there".to_owned(), at(1.5)),
            ("you".to_owned(), at(1.75)),
        ];
        let text = "Hello, there ... (you)!";
        let heard = |position| &text[..heard_prefix_len(text, &times, None, at(position))];
        assert_eq!([0.4, 0.5, 1.6, 1.75].map(heard), ["", "Hello,", "Hello, there ...", text]);
    }

    #[test]
    fn words_have_their_punctuation_and_pauses_have_no_words() {
        let at = Position::from_seconds;
        let words = |text, times: &[(&str, f64)], heard| {
            let times: Vec<_> =
                times.iter().map(|(word, end)| ((*word).to_owned(), at(*end))).collect();
            let words = timed_words(text, &times, heard).into_iter();
            let seconds = |position: Position| position.as_seconds();
            words
                .map(|word| (word.text, seconds(word.start), seconds(word.end)))
                .collect::<Vec<_>>()
        };
        let text = "Hello, there ... (you)!";
        let times = [("", 0.25), ("hello", 0.5), ("", 0.75), ("there", 1.5), ("you", 1.75)];
        let all = [("Hello,", 0.25, 0.5), ("there ...", 0.75, 1.5), ("(you)!", 1.5, 1.75)];
        assert_eq!(words(text, &times, text.len()), all);
        assert_eq!(words(text, &times, "Hello, there ...".len()), all[..2]);
        assert_eq!(words(text, &times, 0), []);
        let first = [("Hello", 0.25, 0.5)];
        assert_eq!(words(text, &times[..3], text.len()), first, "the rest has no times yet");
        assert_eq!(words(text, &[("Goodbye", 1.0)], text.len()), []);
        assert_eq!(
            words("Yes - no", &[("Yes", 0.5), ("-", 0.75), ("no", 1.0)], 9),
            [("Yes", 0.0, 0.5), ("no", 0.75, 1.0),]
        );
    }

    #[test]
    fn words_of_a_script_without_blanks_are_its_characters() {
        assert_eq!(heard("你好，世界。", 4.0, 2.0), "你好，");
    }

    #[test]
    fn without_times_and_duration_nothing_is_claimed() {
        assert_eq!(heard_prefix_len("Hello there", &[], None, Position::from_seconds(9.0)), 0);
    }
}
