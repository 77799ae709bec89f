//! The words of a segment with their times, as the conversation takes them. Runs on the thread of
//! the TTS.

use conversation::time::Position;
use models::tts::{Phone, Word};

/// Name of the phone of a pause.
const PAUSE: &str = "pau";
/// Maximum distance in seconds between the end of a word and the pause that follows it.
const TOLERANCE: f64 = 0.02;

/// Adds the pauses between the words of one segment, for recordings.
pub(super) struct WordTimes {
    /// Whether pauses are reported, as words without text.
    with_pauses: bool,
    /// Start and end of each pause that the TTS reports by its phones, in seconds.
    pauses: Vec<(f64, f64)>,
    /// End of the last phone.
    phones_end: f64,
    /// End of the last word.
    words_end: f64,
}

impl WordTimes {
    pub(super) fn new(with_pauses: bool) -> Self {
        Self { with_pauses, pauses: Vec::new(), phones_end: 0.0, words_end: 0.0 }
    }

    /// The TTS reports phones. They come before the words that consist of them.
    pub(super) fn add_phones(&mut self, phones: &[Phone]) {
        if !self.with_pauses {
            return;
        }
        for phone in phones {
            let end = f64::from(phone.end);
            if phone.name == PAUSE {
                self.pauses.push((self.phones_end, end));
            }
            self.phones_end = end;
        }
    }

    /// The words with the positions of their ends.
    pub(super) fn place(&mut self, words: Vec<Word>) -> Vec<(String, Position)> {
        let mut placed = Vec::with_capacity(words.len());
        for word in words {
            if let Some(begin) = self.begin(&word).filter(|_| self.with_pauses) {
                placed.push((String::new(), Position::from_seconds(begin)));
            }
            self.words_end = self.words_end.max(word.end);
            placed.push((word.text, Position::from_seconds(word.end)));
        }
        placed
    }

    /// Where the word begins, if there is a pause before it.
    fn begin(&self, word: &Word) -> Option<f64> {
        let by_phones = || {
            let mut pauses = self.pauses.iter();
            let pause = pauses.find(|(start, _)| (start - self.words_end).abs() < TOLERANCE);
            pause.map(|(_, end)| *end)
        };
        word.begin.or_else(by_phones).filter(|begin| *begin > self.words_end && *begin < word.end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn word(text: &str, begin: Option<f64>, end: f64) -> Word {
        Word { text: text.into(), begin, end }
    }

    fn phones(names_and_ends: [(&str, f32); 3]) -> [Phone; 3] {
        names_and_ends.map(|(name, end)| Phone::new(name, end))
    }

    fn seconds(placed: Vec<(String, Position)>) -> Vec<(String, f64)> {
        placed.into_iter().map(|(text, end)| (text, end.as_seconds())).collect()
    }

    fn expected(list: &[(&str, f64)]) -> Vec<(String, f64)> {
        list.iter().map(|(text, end)| ((*text).to_owned(), *end)).collect()
    }

    #[test]
    fn a_pause_before_a_word_is_a_word_without_text() {
        let words = || {
            vec![word("Yes,", Some(0.25), 0.5), word("I", Some(0.5), 0.75), word("do.", None, 1.0)]
        };
        let mut times = WordTimes::new(true);
        let first = [("", 0.25), ("Yes,", 0.5), ("I", 0.75), ("do.", 1.0)];
        assert_eq!(seconds(times.place(words())), expected(&first));
        // More words of the same segment.
        let more = vec![word("Do", Some(1.5), 1.75), word("you?", Some(1.25), 2.0)];
        let more = seconds(times.place(more));
        assert_eq!(more, expected(&[("", 1.5), ("Do", 1.75), ("you?", 2.0)]));
        let unrecorded = seconds(WordTimes::new(false).place(words()));
        assert_eq!(unrecorded, expected(&[("Yes,", 0.5), ("I", 0.75), ("do.", 1.0)]));
    }

    #[test]
    fn phones_of_a_voice_contain_its_pauses() {
        let mut times = WordTimes::new(true);
        times.add_phones(&phones([("pau", 0.125), ("ay", 0.5), ("pau", 0.75)]));
        times.add_phones(&phones([("y", 0.875), ("uw", 1.0), ("pau", 1.25)]));
        let placed = seconds(times.place(vec![word("I,", None, 0.5), word("you.", None, 1.0)]));
        assert_eq!(placed, expected(&[("", 0.125), ("I,", 0.5), ("", 0.75), ("you.", 1.0)]));
    }
}
