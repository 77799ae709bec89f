//! The text of a segment as a vendor gets it, and the way back from the vendor's times to the words
//! as they are written.
//!
//! Special pronunciations are inserted before the text is sent. The vendor's times are those of the
//! letters that it got. They are matched in order, so a vendor may cut the text in any way: into
//! characters, words, or groups of words. Letters that the vendor changed (`one hundred` for `100`)
//! extend the word that is being spoken.

use std::ops::Range;

use crate::tts::Word;
use crate::tts::text::apply_pronunciation;

/// Maximum number of letters that a vendor may leave out before its times are attributed to the
/// current word.
const MAX_SKIPPED_LETTERS: usize = 60;

/// A word as written.
#[derive(Debug, PartialEq)]
struct WrittenWord {
    text: String,
    /// Its letters in [`SpokenText::letters`]; none for a word of punctuation.
    letters: Range<usize>,
    begin: Option<f64>,
    end: Option<f64>,
}

/// The text of a segment.
#[derive(Debug)]
pub(in crate::tts) struct SpokenText {
    /// What is sent: words with one blank between them.
    sent: String,
    /// Letters and digits of it, in lower case.
    letters: Vec<char>,
    words: Vec<WrittenWord>,
    /// Number of letters whose times are known.
    at: usize,
    /// Number of words that were returned.
    returned: usize,
    /// The latest time that was returned, in seconds from the first sample of the segment.
    latest: f64,
    has_times: bool,
}

impl SpokenText {
    /// The text with the pronunciations of `list`: (as written, as it should sound).
    pub(in crate::tts) fn new(text: &str, list: &[(String, String)]) -> Self {
        let mut spoken = Self {
            sent: String::with_capacity(text.len() + 1),
            letters: Vec::with_capacity(text.len()),
            words: Vec::new(),
            at: 0,
            returned: 0,
            latest: 0.0,
            has_times: false,
        };
        for written in text.split_whitespace() {
            let sound = apply_pronunciation(written, list);
            if !spoken.sent.is_empty() {
                spoken.sent.push(' ');
            }
            spoken.sent.push_str(&sound);
            if sound == written {
                split_ideographs(written, |word| spoken.add_word(word, word));
            } else {
                spoken.add_word(written, &sound);
            }
        }
        spoken
    }

    fn add_word(&mut self, written: &str, sound: &str) {
        let first = self.letters.len();
        self.letters.extend(letters(sound));
        self.words.push(WrittenWord {
            text: written.to_owned(),
            letters: first..self.letters.len(),
            begin: None,
            end: None,
        });
    }

    /// What is sent, without a blank at its end.
    pub(in crate::tts) fn sent(&self) -> &str {
        &self.sent
    }

    /// Whether there is nothing to speak.
    pub(in crate::tts) fn is_silent(&self) -> bool {
        self.letters.is_empty()
    }

    /// Number of letters and digits to be spoken.
    pub(in crate::tts) fn letter_count(&self) -> usize {
        self.letters.len()
    }

    /// The longest sound of the text that is not endless, in seconds. Slow speech has .17 s per
    /// letter. A digit may have several words, and a sign of other scripts a whole one.
    pub(in crate::tts) fn max_seconds(&self) -> f64 {
        let longest = |letter: &char| match letter {
            '0'..='9' => 1.0,
            letter if letter.is_ascii() => 0.2,
            _ => 0.5,
        };
        4.0 + self.letters.iter().map(longest).sum::<f64>()
    }

    /// Whether the times of all letters are known.
    pub(in crate::tts) fn is_complete(&self) -> bool {
        self.at >= self.letters.len()
    }

    /// Whether the vendor has reported any time.
    pub(in crate::tts) fn has_times(&self) -> bool {
        self.has_times
    }

    /// Takes the time of the next part of the text: characters, a word, or several words. Nothing
    /// happens if the text is complete. Times may count from any origin.
    pub(in crate::tts) fn push(&mut self, part: &Word) {
        let spoken: Vec<char> = letters(&part.text).collect();
        if spoken.is_empty() || self.is_complete() {
            return;
        }
        self.has_times = true;
        let begin = part.begin.unwrap_or(part.end);
        let Some(first) = self.find(&spoken) else {
            self.extend_current(begin, part.end);
            return;
        };
        self.at = first;
        let duration = (part.end - begin).max(0.0) / spoken.len() as f64;
        for n in 0..spoken.len() {
            let start = begin + duration * n as f64;
            self.extend_current(start, start + duration);
            self.at += 1;
        }
    }

    /// Whether `part` is the next part of the text, or one that comes soon.
    pub(in crate::tts) fn continues_with(&self, part: &str) -> bool {
        self.find(&letters(part).collect::<Vec<_>>()).is_some()
    }

    /// Whether the text begins with `part`, and nothing of it was pushed.
    pub(in crate::tts) fn begins_with(&self, part: &str) -> bool {
        let part: Vec<char> = letters(part).collect();
        !self.has_times && !part.is_empty() && self.letters.starts_with(&part)
    }

    /// The vendor reports no more times of this text.
    pub(in crate::tts) fn complete(&mut self) {
        self.at = self.letters.len();
    }

    /// Position of `spoken` in the letters: the current one, or a word in front of it.
    fn find(&self, spoken: &[char]) -> Option<usize> {
        let matches = |at: usize| self.letters[at..].starts_with(spoken);
        if matches(self.at) {
            return Some(self.at);
        }
        // A single letter would match almost anywhere.
        if spoken.len() < 2 {
            return None;
        }
        let end = self.letters.len().min(self.at + MAX_SKIPPED_LETTERS);
        let next = self.words.partition_point(|word| word.letters.start <= self.at);
        let starts = self.words[next..].iter().map(|word| word.letters.start);
        starts.take_while(|start| *start < end).find(|start| matches(*start))
    }

    fn extend_current(&mut self, begin: f64, end: f64) {
        // The words are in the order of their letters, which none of them shares.
        let current = self.words.partition_point(|word| word.letters.end <= self.at);
        if let Some(word) = self.words.get_mut(current) {
            word.begin.get_or_insert(begin);
            word.end = Some(word.end.map_or(end, |known| known.max(end)));
        }
    }

    /// The next words whose letters have passed. `start` is the time of the first sample of the
    /// segment.
    pub(in crate::tts) fn take_words(&mut self, start: f64) -> Vec<Word> {
        let passed = |word: &WrittenWord| word.letters.end <= self.at && self.has_times;
        let count = self.words[self.returned..].iter().take_while(|word| passed(word)).count();
        let range = self.returned..self.returned + count;
        self.returned = range.end;
        let mut taken = Vec::with_capacity(count);
        for word in &self.words[range] {
            let valid = |time: Option<f64>| {
                time.map(|time| (time - start).max(self.latest)).filter(|time| time.is_finite())
            };
            let begin = valid(word.begin);
            let end = valid(word.end).unwrap_or(self.latest).max(begin.unwrap_or(0.0));
            self.latest = end;
            taken.push(Word { text: word.text.clone(), begin, end });
        }
        taken
    }

    /// The rest of the words, when the segment has ended after `duration` seconds; none if the
    /// vendor has reported no time at all.
    pub(in crate::tts) fn finish(&mut self, start: f64, duration: f64) -> Vec<Word> {
        if !self.has_times {
            return Vec::new();
        }
        let mut words = self.take_words(start);
        let from = self.latest;
        let rest = &self.words[self.returned..];
        let letters: usize = rest.iter().map(|word| word.letters.len()).sum();
        let room = (duration - from).max(0.0);
        let mut passed = 0;
        for word in rest {
            passed += word.letters.len();
            let end = from + room * passed as f64 / letters.max(1) as f64;
            words.push(Word { text: word.text.clone(), begin: None, end });
        }
        self.returned = self.words.len();
        self.at = self.letters.len();
        words
    }
}

/// What a vendor's words are compared by.
fn letters(text: &str) -> impl Iterator<Item = char> + '_ {
    text.chars().filter(|c| c.is_alphanumeric()).flat_map(char::to_lowercase)
}

/// Splits a word of a script without blanks into its characters. Marks stay with the character
/// before them.
fn split_ideographs(word: &str, mut part: impl FnMut(&str)) {
    let ideograph = |c: char| matches!(c, '\u{3040}'..='\u{30ff}' | '\u{3400}'..='\u{9fff}' | '\u{f900}'..='\u{faff}');
    let mut start = 0;
    let mut previous = None;
    for (at, c) in word.char_indices() {
        let is_letter = c.is_alphanumeric();
        let new = previous.is_some_and(|before: char| {
            is_letter && (ideograph(c) || (ideograph(before) && before.is_alphanumeric()))
        });
        if new {
            part(&word[start..at]);
            start = at;
        }
        if is_letter {
            previous = Some(c);
        }
    }
    if start < word.len() {
        part(&word[start..]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(text: &str, begin: f64, end: f64) -> Word {
        Word { text: text.into(), begin: Some(begin), end }
    }

    fn pushed(spoken: &mut SpokenText, parts: &[(&str, f64, f64)]) {
        for (text, begin, end) in parts {
            spoken.push(&part(text, *begin, *end));
        }
    }

    fn in_short(words: &[Word]) -> Vec<(&str, i64, i64)> {
        let ms = |t: f64| (t * 1e3).round() as i64;
        words.iter().map(|w| (w.text.as_str(), w.begin.map_or(-1, ms), ms(w.end))).collect()
    }

    #[test]
    fn times_of_a_special_pronunciation_are_those_of_the_written_word() {
        let list = [("kubectl".to_owned(), "cube control".to_owned())];
        let mut spoken = SpokenText::new("Use kubectl's\n  logs!", &list);
        assert_eq!(spoken.sent(), "Use cube control's logs!");
        pushed(&mut spoken, &[("Use", 2.0, 2.2), ("cube", 2.2, 2.5)]);
        assert_eq!(in_short(&spoken.take_words(2.0)), [("Use", 0, 200)]);
        pushed(&mut spoken, &[("control's", 2.5, 3.0), ("logs!", 3.1, 3.4)]);
        assert_eq!(
            in_short(&spoken.take_words(2.0)),
            [("kubectl's", 200, 1_000), ("logs!", 1_100, 1_400)]
        );
        spoken.push(&part("Next", 3.5, 3.6));
        assert!(spoken.is_complete());
        assert!(spoken.finish(2.0, 1.5).is_empty());
    }

    #[test]
    fn a_text_may_be_cut_anywhere() {
        for size in 1..12 {
            let text = "Well, it's — 5 o'clock.";
            let mut spoken = SpokenText::new(text, &[]);
            let characters: Vec<char> = text.chars().collect();
            for (n, chunk) in characters.chunks(size).enumerate() {
                let begin = (n * size) as f64 / 10.0;
                let cut = part(&chunk.iter().collect::<String>(), begin, begin + 0.1);
                spoken.push(&cut);
            }
            let words = spoken.take_words(0.0);
            let texts: Vec<&str> = words.iter().map(|word| word.text.as_str()).collect();
            assert_eq!(texts, ["Well,", "it's", "—", "5", "o'clock."], "{size}");
            assert!(words.is_sorted_by(|a, b| a.end <= b.end), "{size}: {words:?}");
        }
    }

    #[test]
    fn changed_and_missing_words_lose_no_written_word() {
        let mut spoken = SpokenText::new("I owe you 100 dollars, really.", &[]);
        let reported = [
            ("I", 0.0, 0.1),
            ("you", 0.5, 0.6),
            ("one", 0.6, 0.8),
            ("hundred", 0.8, 1.0),
            ("dollars,", 1.0, 1.4),
        ];
        pushed(&mut spoken, &reported);
        assert_eq!(
            in_short(&spoken.take_words(0.0)),
            [
                ("I", 0, 100),
                ("owe", -1, 100),
                ("you", 500, 600),
                ("100", 600, 1_000),
                ("dollars,", 1_000, 1_400),
            ]
        );
        assert!(!spoken.is_complete());
        assert_eq!(in_short(&spoken.finish(0.0, 2.0)), [("really.", -1, 2_000)]);
        assert!(spoken.is_complete());
    }

    #[test]
    fn times_that_are_none_do_not_reach_the_words() {
        for bad in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, -3.0] {
            let mut spoken = SpokenText::new("One two three", &[]);
            pushed(&mut spoken, &[("One", bad, bad), ("two", 0.5, bad), ("three", bad, 0.9)]);
            let words = spoken.finish(0.0, 1.0);
            assert_eq!(words.len(), 3, "{bad}");
            assert!(words.iter().all(|word| word.end.is_finite()), "{bad}: {words:?}");
            assert!(words.is_sorted_by(|a, b| a.end <= b.end), "{bad}: {words:?}");
        }
    }

    #[test]
    fn a_script_without_blanks_has_a_word_for_each_character() {
        let mut spoken = SpokenText::new("「你好」，GPT世界。", &[]);
        for (n, c) in "「你好」，GPT世界。".chars().enumerate() {
            spoken.push(&part(&c.to_string(), n as f64, n as f64 + 1.0));
        }
        let words = spoken.take_words(0.0);
        let texts: Vec<&str> = words.iter().map(|word| word.text.as_str()).collect();
        assert_eq!(texts, ["「你", "好」，", "GPT", "世", "界。"]);
    }

    #[test]
    fn a_text_without_letters_is_silent() {
        assert!(SpokenText::new(" — … 👍 ", &[]).is_silent());
        let mut unreported = SpokenText::new("Hello.", &[]);
        assert!(!unreported.is_silent() && !unreported.has_times());
        assert!(unreported.finish(0.0, 1.0).is_empty());
    }
}
