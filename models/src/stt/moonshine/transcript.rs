//! From what the network writes to the text of a transcript.

use super::super::transcript_cleanup::replace_profanity;
use super::{SAMPLE_RATE, Transcription};

/// Words that the network writes, alone and without punctuation, for noise, breath and coughs, in
/// lower case. After a word that was said it writes a full stop or a question mark.
const NOISE_WORDS: &[&str] = &["a", "and", "i", "it", "m", "of", "so", "the", "to", "you"];
/// Minimum mean log probability of one word without punctuation. Measured: from -1.2 for speech,
/// from -1.9 for loud breath.
const MIN_WORD_LOG_PROBABILITY: f32 = -1.4;
/// Minimum mean log probability of any transcript. Measured: from -.9 for speech, also in noise.
const MIN_LOG_PROBABILITY: f32 = -1.8;
/// Maximum number of words per second. More are invented.
const MAX_WORDS_PER_SECOND: f32 = 8.0;

/// Spellings of the network, each with the usual one, which the built-in answerer knows.
const SPELLINGS: [(&str, &str); 6] = [
    ("to-morrow", "tomorrow"),
    ("To-morrow", "Tomorrow"),
    ("to-day", "today"),
    ("To-day", "Today"),
    ("to-night", "tonight"),
    ("To-night", "Tonight"),
];

/// Text of the transcript of `samples` samples, without profanity; empty if the network most likely
/// invented it.
pub(super) fn clean(transcription: &Transcription, samples: usize) -> String {
    let seconds = samples as f32 / SAMPLE_RATE as f32;
    let text = transcription.text.as_str();
    let (plain, count) = (plain(text), text.split_whitespace().count());
    let is_bare_word = count <= 1 && !text.ends_with(['.', '?', '!', ',']);
    let min = if is_bare_word { MIN_WORD_LOG_PROBABILITY } else { MIN_LOG_PROBABILITY };
    let is_invented = plain.is_empty()
        || is_bare_word && NOISE_WORDS.contains(&plain.as_str())
        || transcription.mean_log_probability < min
        || count as f32 > (seconds * MAX_WORDS_PER_SECOND).max(2.0);
    if is_invented { String::new() } else { replace_profanity(&usual_spelling(text)) }
}

fn usual_spelling(text: &str) -> String {
    SPELLINGS.iter().fold(text.to_owned(), |text, (found, usual)| text.replace(found, usual))
}

/// Text before the end of an utterance: the punctuation at its end is a guess.
pub(super) fn without_end(text: &str) -> &str {
    text.trim_end_matches(['.', '?', '!', ','])
}

/// Words of a transcript that are not affected by the end of its audio inside a word. The network
/// replaces a word that is cut by a similar one, or repeats what it has written.
pub(super) fn certain_words(text: &str) -> &str {
    let starts: Vec<usize> = word_starts(text).collect();
    let words: Vec<String> = text.split_whitespace().map(plain).collect();
    // Without the last word, and without all passes of a loop at the end.
    let mut end = words.len().saturating_sub(1);
    for length in 1..=words.len() / 2 {
        let mut start = words.len() - length;
        while start >= length && words[start - length..start] == words[words.len() - length..] {
            start -= length;
        }
        if start + length < words.len() {
            end = end.min(start);
        }
    }
    starts.get(end).map_or("", |end| text[..*end].trim_end())
}

/// Positions of the first letters of all words.
fn word_starts(text: &str) -> impl Iterator<Item = usize> {
    let mut was_blank = true;
    text.char_indices().filter_map(move |(at, c)| {
        let starts = was_blank && !c.is_whitespace();
        was_blank = c.is_whitespace();
        starts.then_some(at)
    })
}

/// Appends the transcript of the next part. `is_pause` tells whether the parts were cut in a pause.
/// Otherwise a word at the cut may be in both.
pub(super) fn append(text: &mut String, part: &str, is_pause: bool) {
    let mut part = part.trim();
    if text.is_empty() || part.is_empty() {
        text.push_str(part);
        return;
    }
    let last = text.split_whitespace().next_back().unwrap_or_default();
    let (first, rest) = part.split_once(char::is_whitespace).unwrap_or((part, ""));
    if !is_pause && plain(last) == plain(first) && !plain(first).is_empty() {
        text.truncate(text.len() - last.len() + without_end(last).len());
        part = rest.trim_start();
    }
    if !part.is_empty() {
        text.push(' ');
        text.push_str(part);
    }
}

/// Letters, digits and blanks of a text, in lower case.
fn plain(text: &str) -> String {
    let letters = text.chars().filter(|c| c.is_alphanumeric() || c.is_whitespace());
    letters.flat_map(char::to_lowercase).collect::<String>().trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn clean_text(text: &str, mean_log_probability: f32) -> String {
        clean(&Transcription { text: text.to_owned(), mean_log_probability }, SAMPLE_RATE)
    }

    #[test]
    fn what_noise_looks_like_is_nothing() {
        for noise in ["You", "The", "M", "♪", "", "♪♪ \u{fffd}"] {
            assert_eq!(clean_text(noise, -0.1), "", "{noise}");
        }
        assert_eq!(clean_text("Yeah", -1.9), "", "the network is unsure");
        assert_eq!(clean_text("one two three four five six seven eight nine", -0.1), "");
        for speech in ["Yes.", "Stop!", "You know?", "You?", "Thank you.", "Yes"] {
            assert_eq!(clean_text(speech, -1.2), speech);
        }
    }

    #[test]
    fn words_are_spelled_as_usual() {
        assert_eq!(clean_text("To-morrow, or to-night?", -0.1), "Tomorrow, or tonight?");
    }

    #[test]
    fn parts_are_joined_with_one_blank() {
        let mut text = String::new();
        append(&mut text, " Hello there. ", true);
        append(&mut text, "", true);
        append(&mut text, "How are you?", true);
        assert_eq!(text, "Hello there. How are you?");
    }

    #[test]
    fn a_word_that_a_cut_doubles_is_kept_once_and_one_that_is_said_twice_remains() {
        let mut text = "I would like some coffee.".to_owned();
        append(&mut text, "coffee and bread", false);
        assert_eq!(text, "I would like some coffee and bread");
        append(&mut text, "bread", false);
        assert_eq!(text, "I would like some coffee and bread");
        append(&mut text, "bread", true);
        assert_eq!(text, "I would like some coffee and bread bread");
    }

    #[test]
    fn a_word_that_may_be_cut_and_a_loop_at_the_end_are_uncertain() {
        for (text, certain) in [
            ("My order number is 470-470-470.", "My order number is"),
            ("How long dun dun dun.", "How long"),
            ("How long does it take to get to get to get", "How long does it take"),
            ("What is the word? What is the", "What is the word? What is"),
            ("Stop talking", "Stop"),
            ("No", ""),
            ("", ""),
        ] {
            assert_eq!(certain_words(text), certain);
        }
    }

    #[test]
    fn the_end_of_an_interim_has_no_punctuation() {
        assert_eq!(without_end("What time does the next?"), "What time does the next");
    }
}
