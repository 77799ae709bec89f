//! How far a segment has been spoken, and which of its words remain.

use crate::tts::Word;

/// Maximum time of words whose audio has not come, in seconds, with which another voice can go on.
/// Words that were announced further ahead cannot be taken back.
const MAX_AHEAD: f64 = 0.3;

/// How far a segment has been spoken.
pub(super) struct Progress {
    text: String,
    /// Duration of the audio, in seconds.
    duration: f64,
    /// Bytes of the text whose words were announced; `None` if a word was not found in it.
    spoken_bytes: Option<usize>,
    /// Latest end of a word, in seconds.
    last_end: f64,
}

impl Progress {
    pub(super) fn new(text: &str) -> Self {
        Self { text: text.to_owned(), duration: 0.0, spoken_bytes: Some(0), last_end: 0.0 }
    }

    pub(super) fn add_audio(&mut self, samples: usize, sample_rate: u32) {
        self.duration += samples as f64 / f64::from(sample_rate.max(1));
    }

    pub(super) fn add_words(&mut self, words: &[Word]) {
        for word in words {
            self.last_end = self.last_end.max(word.end);
            self.spoken_bytes = self.spoken_bytes.and_then(|start| {
                let found = self.text.get(start..)?.find(word.text.as_str())?;
                Some(start + found + word.text.len())
            });
        }
    }

    pub(super) fn has_sounded(&self) -> bool {
        self.duration > 0.0
    }

    /// Whether it is known which words remain.
    pub(super) fn can_continue(&self) -> bool {
        let is_in_step = self.last_end <= self.duration + MAX_AHEAD;
        let knows_words = self.spoken_bytes.is_some_and(|bytes| bytes > 0);
        !self.has_sounded() || (knows_words && is_in_step)
    }

    /// Whether all words have sounded: what comes after them is no speech of this text.
    pub(super) fn is_complete(&self) -> bool {
        let is_spoken = |rest: &str| !rest.chars().any(char::is_alphanumeric);
        self.has_sounded()
            && self.can_continue()
            && self.spoken_bytes.and_then(|start| self.text.get(start..)).is_some_and(is_spoken)
    }

    /// The words that remain, and the time at which they begin, in seconds. If nothing has sounded,
    /// the whole text.
    pub(super) fn remaining(&mut self) -> (String, f64) {
        if !self.has_sounded() {
            // Words that were announced without audio are announced again.
            (self.spoken_bytes, self.last_end) = (Some(0), 0.0);
            return (self.text.clone(), 0.0);
        }
        let start = self.spoken_bytes.unwrap_or(0);
        let rest = self.text.get(start..).unwrap_or_default();
        (rest.trim().to_owned(), self.duration)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn word(text: &str, end: f64) -> Word {
        Word { text: text.into(), begin: None, end }
    }

    #[test]
    fn words_that_have_sounded_do_not_remain() {
        let mut progress = Progress::new("One, two, and one more.");
        assert_eq!(progress.remaining(), ("One, two, and one more.".into(), 0.0));
        progress.add_audio(24_000, 24_000);
        assert!(!progress.can_continue(), "the words are not known");
        progress.add_words(&[word("One,", 0.4), word("two,", 1.1)]);
        assert!(progress.can_continue());
        assert_eq!(progress.remaining(), ("and one more.".into(), 1.0));
        assert!(!progress.is_complete());
        progress.add_words(&[word("and", 1.15), word("one", 1.2), word("more", 1.25)]);
        assert!(progress.is_complete(), "only a full stop remains");
    }

    #[test]
    fn words_far_ahead_of_the_audio_and_unknown_words_cannot_be_continued() {
        let mut progress = Progress::new("One two three.");
        progress.add_words(&[word("One", 0.4), word("two", 0.8), word("three.", 1.2)]);
        assert!(progress.can_continue(), "nothing has sounded");
        progress.add_audio(16_000, 32_000);
        assert!(!progress.can_continue());
        let mut other = Progress::new("One two three.");
        other.add_audio(16_000, 16_000);
        other.add_words(&[word("Four", 0.4)]);
        assert!(!other.can_continue());
    }
}
