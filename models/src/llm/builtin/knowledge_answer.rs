//! Selects the sentence that answers.

use std::collections::BTreeMap;

use conversation::event::Role;
use knowledge::{Index, is_stop_word, normalize_words, sentences, words};

use super::phrases::{ExpectedPhrases, Phrases, WordSet};
use super::template::Placeholder;
use super::{TurnContext, speakable};

/// Minimum share of the question that a sentence must contain to count as an answer.
const MIN_COVERAGE: f32 = 0.34;

/// Minimum share for a question that refers to the previous one.
const MIN_FOLLOW_UP_COVERAGE: f32 = 0.25;

/// Maximum length of an answer in bytes, because it is spoken.
const MAX_ANSWER_BYTES: usize = 320;

/// Source of a sentence, and its weight.
#[derive(Clone, Copy, PartialEq)]
struct Origin {
    /// Sentences with the same number follow each other.
    part: usize,
    bonus: f32,
    from_user: bool,
}

/// One or two sentences that answer the turn; `None` if none does.
pub(super) fn reply(talk: &TurnContext<'_>) -> Option<String> {
    let candidates = collect_facts(talk);
    let mut index: Index<usize> = Index::new();
    for (i, (_, sentence)) in candidates.iter().enumerate() {
        index.insert_chunk(&i, 0, sentence.clone());
        // An answer may need two sentences: "Doctor Ruiz is the head. Her room is 427."
        let part = candidates[i].0.part;
        if let Some((_, next)) = candidates.get(i + 1).filter(|(origin, _)| origin.part == part) {
            index.insert_chunk(&(candidates.len() + i), 0, format!("{sentence} {next}"));
        }
    }
    let user_words = normalize_words(talk.user_text);
    let is_follow_up = is_follow_up(&user_words) && !talk.history.is_empty();
    let (before_user, before_agent) = (
        talk.last_text(Role::User).unwrap_or_default(),
        talk.last_text(Role::Assistant).unwrap_or_default(),
    );
    let query: &[(&str, f32)] = if is_follow_up {
        &[(talk.user_text, 1.0), (before_user, 0.4), (before_agent, 0.2)]
    } else {
        &[(talk.user_text, 1.0)]
    };
    let hits = index.search_weighted(query, 16);
    let top = hits.first()?.score.max(f32::EPSILON);
    let expected = ExpectedAnswer::from_question(&user_words);
    let query_stems: Vec<String> =
        words(talk.user_text).into_iter().map(|word| word.stem).collect();
    let value = |hit: &knowledge::Hit<'_, usize>| {
        let pair = *hit.id >= candidates.len();
        let origin = candidates[*hit.id % candidates.len()].0;
        // A sentence that only repeats the question adds nothing.
        let adds_information = words(hit.text)
            .iter()
            .any(|word| !word.is_stop_word() && !query_stems.contains(&word.stem));
        hit.coverage
            + 0.3 * hit.score / top
            + origin.bonus
            + if expected.is_met_by(hit.text) { 0.1 } else { 0.0 }
            - if pair { 0.12 } else { 0.0 }
            - if adds_information { 0.0 } else { 0.4 }
    };
    let min_coverage = if is_follow_up { MIN_FOLLOW_UP_COVERAGE } else { MIN_COVERAGE };
    let best = hits
        .iter()
        .filter(|hit| hit.coverage >= min_coverage)
        .max_by(|a, b| value(a).total_cmp(&value(b)))?;
    let (at, pair) = (*best.id % candidates.len(), *best.id >= candidates.len());
    let (origin, first) = &candidates[at];
    let next = |at: usize| {
        candidates
            .get(at + 1)
            .filter(|(other, _)| other.part == origin.part)
            .map(|(_, sentence)| sentence.as_str())
    };
    let answer = match next(at) {
        // A heading, or a question of an FAQ, is answered by the text after it.
        Some(next_one) if is_title(first) => {
            let short = if first.ends_with('?') { 12 } else { 60 };
            match next(at + 1).filter(|after| next_one.len() < short && !is_title(after)) {
                Some(after) => format!("{} {}", speakable(next_one), speakable(after)),
                None => speakable(next_one),
            }
        }
        // A sentence that was just said is not repeated.
        Some(next_one) if pair && before_agent.contains(&speakable(first)) => speakable(next_one),
        Some(next_one) if pair => format!("{} {}", speakable(first), speakable(next_one)),
        _ => speakable(first),
    };
    let answer = truncate_at_clause(&answer);
    if !origin.from_user {
        return Some(answer);
    }
    Phrases::english().knowledge.user_statement.fill(|placeholder| match placeholder {
        Placeholder::Answer => Some(answer.as_str().into()),
        _ => None,
    })
}

/// All candidate sentences, in this order: knowledge, context, the prompt's statements about the
/// agent, notes of the user's client, the user's earlier statements.
fn collect_facts(talk: &TurnContext<'_>) -> Vec<(Origin, String)> {
    let mut candidates = Vec::new();
    let mut part = 0;
    let mut add =
        |text: &str, bonus: f32, users: bool, transform: &dyn Fn(&str) -> Option<String>| {
            part += 1;
            candidates.extend(
                sentences(text)
                    .iter()
                    .filter_map(|sentence| transform(sentence))
                    .map(|sentence| (Origin { part, bonus, from_user: users }, sentence)),
            );
        };
    let whole = |sentence: &str| Some(sentence.to_owned());
    for (rank, snippet) in talk.request.snippets.iter().enumerate() {
        add(&snippet.text, -0.01 * rank as f32, false, &whole);
    }
    for item in talk.history.iter().filter(|item| item.role == Role::System) {
        add(&item.text, 0.0, false, &whole);
    }
    add(&talk.request.prompt, -0.05, false, &to_first_person);
    for item in
        talk.request.history.iter().filter(|item| item.role == Role::Visitor && item.in_context)
    {
        add(&item.text, -0.2, true, &whole);
    }
    let question_openers = &Phrases::english().knowledge.question_openers;
    for item in talk.history.iter().filter(|item| item.role == Role::User) {
        let question =
            normalize_words(&item.text).first().is_some_and(|word| question_openers.contains(word))
                || item.text.contains('?');
        if !question {
            add(&item.text, -0.2, true, &whole);
        }
    }
    candidates
}

/// A sentence of the prompt in the first person: "You are Ada." becomes "I am Ada." Instructions
/// are not spoken: `None`.
fn to_first_person(sentence: &str) -> Option<String> {
    let phrases = &Phrases::english().prompt;
    let words = normalize_words(sentence);
    let first = words.first()?;
    let is_directive = |word: &String| phrases.directives.contains(word);
    if phrases.instruction_openers.contains(first)
        || (phrases.addresses.contains(first) && words.get(1).is_some_and(is_directive))
    {
        return None;
    }
    let replaced: Vec<String> =
        sentence.split(' ').map(|word| mirror_pronoun(word, &phrases.first_person)).collect();
    let mirrored = replaced.join(" ");
    Some(phrases.corrections.iter().fold(mirrored, |text, (from, to)| text.replace(from, to)))
}

fn mirror_pronoun(word: &str, first_person: &BTreeMap<String, String>) -> String {
    let bare = word.trim_end_matches(|c: char| !c.is_alphanumeric());
    let after = &word[bare.len()..];
    let mirror = first_person.get(bare).map_or(bare, String::as_str);
    format!("{mirror}{after}")
}

/// The prompt's statement about the agent's identity: "You are Ada, the receptionist." becomes "I
/// am Ada, the receptionist."
pub(super) fn identity(prompt: &str) -> Option<String> {
    let starts = &Phrases::english().prompt.identity_starts;
    let sentence = sentences(prompt)
        .into_iter()
        .find(|sentence| starts.iter().any(|start| sentence.starts_with(start)))?;
    to_first_person(&sentence).filter(|sentence| sentence.len() <= MAX_ANSWER_BYTES)
}

/// Whether the text refers to the previous turn: it has a pronoun, an opener ("and on sunday"), or
/// at most one content word.
fn is_follow_up(user_words: &[String]) -> bool {
    let phrases = &Phrases::english().knowledge;
    let content_words = user_words.iter().filter(|word| !is_stop_word(word)).count();
    content_words <= 1
        || user_words.first().is_some_and(|word| phrases.follow_up_openers.contains(word))
        || user_words.iter().any(|word| phrases.follow_up_pronouns.contains(word))
}

/// Kind of information that a question requests.
struct ExpectedAnswer {
    phrases: &'static ExpectedPhrases,
    number: bool,
    time: bool,
    place: bool,
    person: bool,
}

impl ExpectedAnswer {
    fn from_question(question: &[String]) -> Self {
        let phrases = &Phrases::english().knowledge.expected;
        let has = |words: &WordSet| question.iter().any(|word| words.contains(word));
        Self {
            phrases,
            number: has(&phrases.number_questions),
            time: has(&phrases.time_questions),
            place: has(&phrases.place_questions),
            person: has(&phrases.person_questions),
        }
    }

    fn is_met_by(&self, sentence: &str) -> bool {
        let plain = words(sentence);
        let any = |list: &WordSet| plain.iter().any(|word| list.contains(&word.normalized));
        let number = plain.iter().any(knowledge::Word::is_number);
        let name = sentence
            .split_whitespace()
            .skip(1)
            .any(|word| word.chars().next().is_some_and(char::is_uppercase));
        (self.number && number)
            || (self.time && (number || any(&self.phrases.time_answers)))
            || (self.place && any(&self.phrases.place_answers))
            || (self.person && name)
    }
}

/// A heading, a label or a question: the answer follows it.
fn is_title(sentence: &str) -> bool {
    sentence.ends_with(['?', ':'])
        || (sentence.len() < 60
            && !sentence.ends_with(['.', '!', ';', '…'])
            && !sentence.contains(": ")
            && normalize_words(sentence).len() <= 6)
}

/// Limits an answer to [`MAX_ANSWER_BYTES`] bytes and a final period, cut after a clause if
/// necessary.
fn truncate_at_clause(answer: &str) -> String {
    if answer.len() <= MAX_ANSWER_BYTES {
        return answer.to_owned();
    }
    let end = (0..=MAX_ANSWER_BYTES).rev().find(|i| answer.is_char_boundary(*i)).unwrap_or(0);
    let head = &answer[..end];
    let at = head
        .rfind(['.', ';', ','])
        .filter(|at| *at > MAX_ANSWER_BYTES / 3)
        .or_else(|| head.rfind(' '))
        .unwrap_or(end);
    format!("{}.", head[..at].trim_end_matches([',', ';', '.', ' ']))
}
