//! Analysis of a question: its words, the kind of answer that it expects, the days that it names,
//! and whether it can be a question at all.

use std::collections::HashSet;

use knowledge::{Word, normalize_words, words};

use super::lexicon::Lexicon;
use super::phrases::{ExpectedKind, Phrases, WordSet, text_after_phrase};

/// A set of days of the week: bit 0 is Monday.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Days(u8);

impl Days {
    const ALL: Self = Self(0x7f);

    /// The days that a text names: days, ranges of days, weekends, weekdays.
    pub(super) fn named_in(text: &str) -> Self {
        let phrases = &Phrases::english().question;
        let to = phrases.day_ranges.iter().next().map_or("", String::as_str);
        let spaced = text.replace(['–', '-'], &format!(" {to} "));
        let stems: Vec<Word> = words(&spaced);
        let is_in =
            |set: &WordSet, word: &Word| set.contains(&word.normalized) || set.contains(&word.stem);
        let day = |word: &Word| {
            phrases
                .days
                .iter()
                .position(|names| names.contains(&word.stem) || names.contains(&word.normalized))
        };
        let mut days = Self::default();
        for (at, word) in stems.iter().enumerate() {
            if is_in(&phrases.weekend, word) {
                days.0 |= 0b110_0000;
            } else if is_in(&phrases.weekdays, word) {
                days.0 |= 0b001_1111;
            } else if is_in(&phrases.all_days, word) {
                days = Self::ALL;
            } else if let Some(first) = day(word) {
                days.0 |= 1 << first;
                let is_range =
                    stems.get(at + 1).is_some_and(|next| is_in(&phrases.day_ranges, next));
                if let Some(last) = stems.get(at + 2).filter(|_| is_range).and_then(day) {
                    let mut next = first;
                    while next != last {
                        next = (next + 1) % 7;
                        days.0 |= 1 << next;
                    }
                }
            }
        }
        if days.0 != 0 && stems.iter().any(|word| phrases.exceptions.contains(&word.normalized)) {
            return Self::ALL;
        }
        days
    }

    /// 1 if `candidate` covers these days, less if it covers some of them, -1 if it is about other days
    /// only, and 0 if one of them names none.
    pub(super) fn agreement(self, candidate: Self) -> f32 {
        if self.0 == 0 || candidate.0 == 0 {
            return 0.0;
        }
        match self.0 & candidate.0 {
            0 => -1.0,
            both => both.count_ones() as f32 / self.0.count_ones() as f32,
        }
    }
}

/// A question of the user.
pub(super) struct Question {
    /// The text, for the encoder.
    pub(super) text: String,
    /// The words that carry its meaning, each once.
    pub(super) content: Vec<Word>,
    pub(super) days: Days,
    /// Whether it asks if something exists or is permitted: "Do you have …".
    pub(super) asks_existence: bool,
    /// The kinds of answers, each with the word after its phrase.
    expected: Vec<(&'static ExpectedKind, Option<Word>)>,
}

impl Question {
    pub(super) fn new(text: &str) -> Self {
        let phrases = &Phrases::english().question;
        let text = without_interjection(text);
        let all = normalize_words(text);
        let joined = all.join(" ");
        let asked = |kind: &'static ExpectedKind| {
            let mut phrases = kind.phrases.iter();
            let after = phrases.find_map(|phrase| text_after_phrase(&joined, phrase))?;
            let next = after.split_whitespace().next().and_then(|next| words(next).pop());
            Some((kind, next))
        };
        let asks_existence = matches!(all.as_slice(), [verb, subject, ..]
            if phrases.existence_verbs.contains(verb)
                && phrases.existence_subjects.contains(subject));
        Self {
            text: text.to_owned(),
            content: content_words(text),
            days: Days::named_in(text),
            asks_existence,
            expected: phrases.expected.iter().filter_map(asked).collect(),
        }
    }

    /// The last clause, if the text has several. The others often tell why the user asks.
    pub(super) fn last_clause(&self) -> Option<String> {
        const MIN_WORDS: usize = 3;
        let conjunctions = &Phrases::english().question.clause_words;
        let mut clauses = vec![Vec::new()];
        for token in self.text.split_whitespace() {
            if conjunctions.contains(&token.to_lowercase()) {
                clauses.push(Vec::new());
                continue;
            }
            if let Some(clause) = clauses.last_mut() {
                clause.push(token);
            }
            if token.ends_with([',', ';', '.', '!']) {
                clauses.push(Vec::new());
            }
        }
        let last = clauses.iter().rfind(|clause| clause.len() >= MIN_WORDS)?;
        let all = self.text.split_whitespace().count();
        (last.len() < all).then(|| last.join(" "))
    }

    /// Share of the expected kinds of answers that a sentence has, minus the share that it lacks.
    pub(super) fn expectation(&self, sentence: &str, names: &HashSet<String>) -> f32 {
        if self.expected.is_empty() {
            return 0.0;
        }
        let plain = words(sentence);
        let number = plain.iter().any(|word| word.is_number() || word.normalized.contains('.'));
        let has = |set: &WordSet| plain.iter().any(|word| set.contains(&word.normalized));
        let is_met = |(kind, next): &&(&ExpectedKind, Option<Word>)| {
            let is_unit = || has(&kind.with_number) || sentence.contains(kind.symbols.as_slice());
            (number && (kind.number || is_unit()))
                || has(&kind.alone)
                || (kind.counted && next.as_ref().is_some_and(|next| counts(&plain, next)))
                || (kind.name && names_person(sentence, names))
        };
        let met = self.expected.iter().filter(is_met).count();
        (2.0 * met as f32 - self.expected.len() as f32) / self.expected.len() as f32
    }
}

/// The text without one or two words of their own before it: "Stop. When do you open?"
fn without_interjection(text: &str) -> &str {
    const MAX_WORDS: usize = 2;
    const MIN_REST: usize = 3;
    let count = |text: &str| text.split_whitespace().count();
    match text.split_once(['.', '!', ',', ';']) {
        Some((before, rest)) if count(before) <= MAX_WORDS && count(rest) >= MIN_REST => {
            rest.trim()
        }
        _ => text,
    }
}

/// Whether a number is followed by `counted` or a similar word, with at most two words between.
fn counts(sentence: &[Word], counted: &Word) -> bool {
    const REACH: usize = 4;
    let lexicon = Lexicon::english();
    let is_counted = |word: &Word| !word.is_stop_word() && lexicon.likeness(counted, word) > 0.0;
    sentence.windows(2).enumerate().any(|(at, pair)| {
        let is_number = pair[0].is_number() || pair[0].normalized == "one";
        is_number && sentence.iter().skip(at + 1).take(REACH - 1).any(is_counted)
    })
}

/// Whether a sentence has two names in a row, or starts with one.
fn names_person(sentence: &str, names: &HashSet<String>) -> bool {
    let conjunction = |word: &String| Lexicon::english().is_in_class(word, "conjunction");
    let all = normalize_words(sentence);
    let is_name = |at: usize| all.get(at).is_some_and(|word| names.contains(word));
    let pair = |at: usize| {
        is_name(at)
            && (is_name(at + 1) || (all.get(at + 1).is_some_and(conjunction) && is_name(at + 2)))
    };
    is_name(0) || (0..all.len()).any(pair)
}

/// The words of a text that carry its meaning, each once.
pub(super) fn content_words(text: &str) -> Vec<Word> {
    let mut seen = HashSet::new();
    let is_new = |word: &Word| !word.is_stop_word() && seen.insert(word.normalized.clone());
    words(text).into_iter().filter(is_new).collect()
}

/// How much a text looks like a question or a request that was recognized correctly.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Form {
    /// Number of its words.
    pub(super) words: usize,
    /// Whether it has the form of a question or of a request.
    pub(super) is_question: bool,
    /// Number of places where words do not follow each other in a sentence.
    pub(super) implausible: usize,
}

impl Form {
    pub(super) fn of(text: &str) -> Self {
        let Phrases { filler_words, question, .. } = Phrases::english();
        let all = normalize_words(text);
        let joined = all.join(" ");
        let mut start = all.iter().skip_while(|word| filler_words.contains(*word));
        let opens = start.next().is_some_and(|word| question.openers.contains(word));
        let verb_and_subject = all
            .windows(2)
            .any(|pair| question.verbs.contains(&pair[0]) && question.subjects.contains(&pair[1]));
        let requests = question.requests.iter();
        let has_request =
            requests.into_iter().any(|request| text_after_phrase(&joined, request).is_some());
        Self {
            words: all.len(),
            is_question: opens || verb_and_subject || has_request,
            implausible: Lexicon::english().implausible_places(&all),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_are_named_alone_in_ranges_and_together() {
        let days = |text: &str| Days::named_in(text).0;
        assert_eq!(days("on Saturdays and Sunday"), 0b110_0000);
        assert_eq!(days("Monday to Thursday"), 0b000_1111);
        assert_eq!(days("Mon-Fri"), 0b001_1111);
        assert_eq!(days("Saturday through Monday"), 0b110_0001);
        assert_eq!(days("at the weekend"), 0b110_0000);
        assert_eq!(days("on weekdays"), 0b001_1111);
        assert_eq!(days("every evening except Monday"), 0x7f);
        assert_eq!(days("sunny"), 0);
        assert_eq!(Days(0b1).agreement(Days(0b10)), -1.0);
        assert_eq!(Days(0b11).agreement(Days(0b10)), 0.5);
        assert_eq!(Days(0).agreement(Days(0b10)), 0.0);
    }

    #[test]
    fn a_question_expects_a_kind_of_answer() {
        let names = HashSet::from(["mira".to_owned()]);
        let fits =
            |question: &str, sentence: &str| Question::new(question).expectation(sentence, &names);
        assert_eq!(fits("What does it cost?", "It is nine euros."), 1.0);
        assert_eq!(fits("What does it cost?", "It has nine wheels."), -1.0);
        assert_eq!(fits("What does it cost?", "Only $9."), 1.0);
        assert_eq!(fits("How many wheels are there?", "It has nine big wheels."), 1.0);
        assert_eq!(fits("How many seats are there?", "It has nine wheels."), -1.0);
        assert_eq!(fits("How old is it?", "It costs nine euros."), -1.0);
        assert_eq!(fits("When is it?", "At noon."), 1.0);
        assert_eq!(fits("Who is it?", "Mira runs it."), 1.0);
        assert_eq!(fits("Is it green?", "It is Mira."), 0.0);
        assert!(Question::new("do you have wheels").asks_existence);
        assert!(!Question::new("which wheels do you have").asks_existence);
    }

    #[test]
    fn the_last_clause_is_the_question() {
        let clause = |text: &str| Question::new(text).last_clause();
        assert_eq!(
            clause("I lost my hat, where could it be?").as_deref(),
            Some("where could it be?")
        );
        assert_eq!(
            clause("we are late and when do you close").as_deref(),
            Some("when do you close")
        );
        assert_eq!(clause("When do you close?"), None);
        assert_eq!(clause("do you have it, please"), Some("do you have it,".into()));
    }

    #[test]
    fn questions_have_a_form_and_word_salad_has_none() {
        for text in [
            "When are you open?",
            "uh do you sell skis",
            "I lost my hat, where could it be?",
            "I'd like to know the price",
        ] {
            let form = Form::of(text);
            assert!(form.is_question && form.implausible == 0, "{text}: {form:?}");
        }
        assert!(!Form::of("purple mop sandwich lane").is_question);
    }
}
