//! What a listener reacts to in the user's words: joy and thanks with a smile, the end of a clause
//! with a nod.
//!
//! The word lists are English. Punctuation ends clauses in all languages in which the recognizer
//! writes it.

/// Something that the user said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cue {
    /// Thanks, praise or laughter.
    Joy,
    /// A clause has ended, or the next one begins.
    ClauseEnd,
}

/// Words of joy anywhere in a sentence.
const JOYFUL_WORDS: [&str; 14] = [
    "amazing",
    "awesome",
    "brilliant",
    "excellent",
    "fantastic",
    "haha",
    "hahaha",
    "hehe",
    "hooray",
    "lol",
    "perfect",
    "thanks",
    "wonderful",
    "yay",
];
/// Words that are joyful at the start of a clause: "Great, …" but not "a great many".
const JOYFUL_OPENERS: [&str; 4] = ["cool", "great", "lovely", "nice"];
/// Words after which the words of joy are not meant: "not perfect", "no thanks".
const NEGATIONS: [&str; 8] = ["cannot", "hardly", "isnt", "less", "never", "no", "not", "without"];
/// Words with which a clause begins.
const CONJUNCTIONS: [&str; 7] = ["and", "because", "but", "or", "so", "then", "which"];
/// Minimum number of words of a clause at whose end one nods.
const MIN_CLAUSE_WORDS: usize = 4;

/// Follows the transcript of what the user says. Interim transcripts grow, and are corrected.
#[derive(Clone, Debug, Default)]
pub(super) struct ListenerCues {
    /// Number of words up to the last clause end, and up to the last word of joy, in the current
    /// utterance.
    clause_words: usize,
    joyful_words: usize,
}

impl ListenerCues {
    /// Handles a transcript. A final one ends the utterance.
    pub(super) fn on_transcript(&mut self, text: &str, is_final: bool) -> Option<Cue> {
        let (mut words, mut clause_end, mut joy) = (0, 0, 0);
        let (mut previous, mut opens) = (String::new(), true);
        for written in text.split_whitespace() {
            words += 1;
            let word: String = written
                .chars()
                .filter(|c| c.is_alphanumeric())
                .flat_map(char::to_lowercase)
                .collect();
            let negated = NEGATIONS.contains(&previous.as_str());
            let joyful = JOYFUL_WORDS.contains(&word.as_str())
                || (opens && JOYFUL_OPENERS.contains(&word.as_str()))
                || (word == "you" && previous == "thank");
            if joyful && !negated {
                joy = words;
            }
            if CONJUNCTIONS.contains(&word.as_str()) && words > clause_end + MIN_CLAUSE_WORDS {
                clause_end = words - 1;
            }
            opens = written
                .ends_with([',', '.', '!', '?', ';', ':', '…', '，', '。', '！', '？', '、']);
            if opens && words >= clause_end + MIN_CLAUSE_WORDS {
                clause_end = words;
            }
            previous = word;
        }
        if is_final && words >= clause_end + MIN_CLAUSE_WORDS {
            clause_end = words;
        }
        let cue = if joy > self.joyful_words {
            Some(Cue::Joy)
        } else {
            (clause_end > self.clause_words).then_some(Cue::ClauseEnd)
        };
        self.joyful_words = self.joyful_words.max(joy);
        self.clause_words = self.clause_words.max(clause_end);
        if is_final {
            *self = Self::default();
        }
        cue
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cues(transcripts: &[&str]) -> Vec<Option<Cue>> {
        let mut cues = ListenerCues::default();
        let last = transcripts.len() - 1;
        let cue = |(n, text): (usize, &&str)| cues.on_transcript(text, n == last);
        transcripts.iter().enumerate().map(cue).collect()
    }

    #[test]
    fn thanks_praise_and_laughter_are_joy_once() {
        for text in [
            "Thank you!",
            "Oh thanks.",
            "Great, go on.",
            "Well, great!",
            "That is awesome",
            "hahaha",
        ] {
            assert_eq!(cues(&[text, text, text])[..2], [Some(Cue::Joy), None], "{text}");
        }
        for text in
            ["A great many", "It is not perfect", "No thanks", "thank goodness", "¡Gracias!", ""]
        {
            assert!(!cues(&[text]).contains(&Some(Cue::Joy)), "{text}");
        }
    }

    #[test]
    fn a_clause_ends_with_punctuation_or_before_a_conjunction() {
        use Cue::ClauseEnd;
        let interims = [
            "I would like",
            "I would like to book",
            "I would like to book a table,",
            "I would like to book a table, please,",
            "I would like to book a table, please, for four people and",
            "I would like to book a table, please, for four people and two dogs",
        ];
        let expected = [None, None, Some(ClauseEnd), None, Some(ClauseEnd), None];
        assert_eq!(cues(&interims), expected);
        assert_eq!(cues(&["je voudrais une table pour deux"]), [Some(ClauseEnd)], "the end");
        assert_eq!(cues(&["salt and pepper"]), [None]);
    }

    #[test]
    fn each_utterance_has_its_own_cues_and_a_correction_repeats_none() {
        let mut cues = ListenerCues::default();
        assert_eq!(cues.on_transcript("thanks", false), Some(Cue::Joy));
        assert_eq!(cues.on_transcript("thanks a", false), None);
        assert_eq!(cues.on_transcript("tanks", false), None);
        assert_eq!(cues.on_transcript("thanks", true), None);
        assert_eq!(cues.on_transcript("thanks", false), Some(Cue::Joy));
    }
}
