//! Words that a gesture of the head accompanies: a nod with "yes", a shake with "no".

use conversation::time::Position;

/// Words with which one nods anywhere in a sentence.
const YES_WORDS: [&str; 4] = ["yeah", "yep", "yes", "yup"];
/// Words with which one nods if they stand alone: "Exactly." but not "exactly five".
const CONSENTING_WORDS: [&str; 5] = ["absolutely", "certainly", "definitely", "exactly", "indeed"];
/// Words with which one shakes the head if they stand alone: "No, …" but not "no problem".
const NO_WORDS: [&str; 3] = ["nah", "no", "nope"];
/// Words with which one shakes the head at the end of a sentence.
const FINAL_NO_WORDS: [&str; 2] = ["never", "not"];

/// A gesture of the head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gesture {
    /// The head goes down and up: yes.
    Nod,
    /// The head turns to both sides: no.
    Shake,
}

/// A word with a gesture. Times are seconds from the segment's first sample.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GestureWord {
    /// The gesture.
    pub gesture: Gesture,
    /// End of the word before it, or of the pause between them if the voice reports it.
    pub start: f32,
    /// End of the word.
    pub end: f32,
    /// Whether it is the first word of the segment.
    pub is_first: bool,
}

/// The words of one segment with a gesture, in order. Words arrive in batches.
#[derive(Clone, Debug, Default)]
pub struct GestureWords {
    found: Vec<GestureWord>,
    /// End of the last word, seconds.
    words_end: f32,
    has_words: bool,
}

impl GestureWords {
    /// Adds words after the existing ones, as written, with the positions of their ends. A word
    /// without text is a pause.
    pub fn extend(&mut self, words: &[(String, Position)]) {
        for (word, end) in words {
            let (start, end) = (self.words_end, end.as_seconds() as f32);
            if let Some(gesture) = gesture_of_word(word) {
                let is_first = !self.has_words;
                self.found.push(GestureWord { gesture, start, end, is_first });
            }
            self.has_words |= !word.is_empty();
            self.words_end = end;
        }
    }

    /// The words with a gesture.
    #[must_use]
    pub fn as_slice(&self) -> &[GestureWord] {
        &self.found
    }
}

/// The gesture of the first word of a text.
pub(super) fn opening_gesture(text: &str) -> Option<Gesture> {
    text.split_whitespace().next().and_then(gesture_of_word)
}

fn gesture_of_word(written: &str) -> Option<Gesture> {
    let is_quote = |c: char| matches!(c, '"' | '\'' | '”' | '’' | ')');
    let last = written.trim_end_matches(is_quote).chars().next_back()?;
    let ends_sentence = matches!(last, '.' | '!' | '?' | '…');
    let ends_clause = ends_sentence || matches!(last, ',' | ';' | ':' | '—' | '–');
    let word = written.trim_matches(|c: char| !c.is_alphanumeric()).to_lowercase();
    let is_in = |words: &[&str]| words.contains(&word.as_str());
    if is_in(&YES_WORDS) || ends_clause && is_in(&CONSENTING_WORDS) {
        Some(Gesture::Nod)
    } else if ends_clause && is_in(&NO_WORDS) || ends_sentence && is_in(&FINAL_NO_WORDS) {
        Some(Gesture::Shake)
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Gestures of words that last .25 s each.
    fn gestures(text: &str) -> Vec<(Gesture, f32)> {
        let ends = (1..).map(|n| Position::from_seconds(f64::from(n) * 0.25));
        let words: Vec<(String, Position)> =
            text.split_whitespace().map(str::to_owned).zip(ends).collect();
        let mut found = GestureWords::default();
        words.chunks(2).for_each(|batch| found.extend(batch));
        found.as_slice().iter().map(|word| (word.gesture, word.start)).collect()
    }

    #[test]
    fn yes_and_no_have_gestures_where_they_are_answers() {
        use Gesture::{Nod, Shake};
        assert_eq!(gestures("Well, yes it is. “Exactly!”"), [(Nod, 0.25), (Nod, 1.0)]);
        assert_eq!(gestures("No, I know. It is not."), [(Shake, 0.0), (Shake, 1.25)]);
        assert_eq!(gestures("No problem, exactly five of them, not six, nor noon."), []);
    }

    #[test]
    fn a_gesture_begins_after_the_pause_before_its_word() {
        let at = Position::from_seconds;
        let mut words = GestureWords::default();
        words.extend(&[("Well,".into(), at(0.5)), (String::new(), at(0.75))]);
        words.extend(&[("yes.".into(), at(1.0))]);
        let expected =
            GestureWord { gesture: Gesture::Nod, start: 0.75, end: 1.0, is_first: false };
        assert_eq!(words.as_slice(), [expected]);
    }

    #[test]
    fn the_first_word_is_known_from_the_text_and_from_the_times() {
        use Gesture::{Nod, Shake};
        for (text, gesture) in [
            ("Yes, of course.", Some(Nod)),
            (" “No.” That is all.", Some(Shake)),
            ("No problem.", None),
            ("Well, yes.", None),
            ("", None),
        ] {
            assert_eq!(opening_gesture(text), gesture, "{text}");
        }
        let at = Position::from_seconds;
        let mut words = GestureWords::default();
        words.extend(&[(String::new(), at(0.1)), ("No,".into(), at(0.4)), ("no.".into(), at(0.7))]);
        let first: Vec<bool> = words.as_slice().iter().map(|word| word.is_first).collect();
        assert_eq!(first, [true, false]);
    }
}
