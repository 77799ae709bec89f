//! Selects the sentences that answer a turn, or finds that none does or that the turn makes no
//! sense.

use conversation::event::Role;
use knowledge::normalize_words;

use super::candidates::{Candidate, CandidateReader, Origin};
use super::encoder::{CachedEncoder, cosine};
use super::follow_up::{self, Reference};
use super::lexicon::Lexicon;
use super::phrases::Phrases;
use super::question::{Form, Question, content_words};
use super::ranking::{AskedEmbeddings, CandidateTable, Embeddings, Level, Ranking};
use super::speakable::truncate_at_clause;
use super::{MAX_ANSWER_BYTES, TurnContext, prompt};

/// A second candidate is told, too, if the share of the first one is less, and the odds of the second one
/// against the first one are higher.
const MAX_DOUBTFUL_SHARE: f32 = 0.5;
const MIN_SECOND_ODDS: f32 = 0.5;

/// Candidates that are told if none of them is surely the answer: their number, their total length, and
/// the minimum odds against the best one.
const MAX_RELATED_CANDIDATES: usize = 2;
const MAX_RELATED_BYTES: usize = 250;
const MIN_RELATED_ODDS: f32 = 0.2;

/// Score added to candidates of the section that the agent spoke of, and to what it said last, if the
/// user's text refers to it.
const SAME_SECTION_BONUS: f32 = 0.5;
const JUST_SAID_PENALTY: f32 = -1.5;

/// Number of headings of the first level up to which they are titles of documents.
const MAX_TITLES: usize = 2;

/// Similarity of the user's question to a written one whose "Yes" or "No" applies to it, too.
const MIN_SAME_QUESTION: f32 = 0.6;

/// Share of a question that a statement of the user must have.
const MIN_USER_COVERAGE: f32 = 0.5;

/// Sentences that a turn may encode, each in some 10 ms.
const MAX_ENCODED_IN_A_TURN: usize = 32;

/// What the knowledge has for a turn.
#[derive(Debug, PartialEq)]
pub(super) enum Finding {
    /// The answer.
    Answer(String),
    /// A sentence of the user that answers.
    UserStatement(String),
    /// A sentence that may not be the answer.
    Related(String),
    /// No answer is known.
    Unknown,
    /// The words make no sense.
    Garbled,
    /// No reason is known.
    NoReason,
    /// All was said.
    NoMore,
}

/// The candidates of a request, and the subjects of its knowledge.
pub(super) struct Candidates {
    candidates: Vec<Candidate>,
    /// Headings without those of whole documents, unless there are no others.
    pub(super) subjects: Vec<String>,
}

impl Candidates {
    /// The candidates in this order: knowledge, context, the prompt's statements about the agent, notes
    /// of the user's client, the user's earlier statements.
    pub(super) fn collect(talk: &TurnContext<'_>) -> Self {
        let mut reader = CandidateReader::default();
        reader.read_passages(&talk.request.snippets);
        for item in talk.history.iter().filter(|item| item.role == Role::System) {
            reader.read_sentences(&item.text, Origin::Knowledge, |text| Some(text.to_owned()));
        }
        reader.read_sentences(&talk.request.prompt, Origin::Prompt, prompt::to_first_person);
        let Phrases { question, knowledge, .. } = Phrases::english();
        let asked = normalize_words(talk.user_text);
        if asked.iter().any(|word| question.about_user.contains(word)) {
            let content = content_words(talk.user_text);
            let is_about = |text: &str| {
                let said = content_words(text);
                let lexicon = Lexicon::english();
                let covered = content
                    .iter()
                    .filter(|word| said.iter().any(|known| lexicon.likeness(word, known) >= 1.0));
                !content.is_empty()
                    && covered.count() as f32 / content.len() as f32 >= MIN_USER_COVERAGE
            };
            let notes = talk.request.history.iter().map(AsRef::as_ref);
            let notes = notes.filter(|item| item.role == Role::Visitor && item.in_context);
            let asks = |text: &str| {
                text.contains('?')
                    || normalize_words(text)
                        .first()
                        .is_some_and(|word| knowledge.question_openers.contains(word))
            };
            let said = talk.history.iter().copied();
            let said = said.filter(|item| item.role == Role::User && !asks(&item.text));
            for item in notes.chain(said) {
                reader.read_sentences(&item.text, Origin::User, |text| {
                    is_about(text).then(|| text.to_owned())
                });
            }
        }
        let (candidates, headings) = reader.finish();
        // Headings of the first level are titles of documents, unless there are many.
        let titles = headings.iter().filter(|(_, is_title)| *is_title).count();
        let named = |with_titles: bool| -> Vec<String> {
            headings
                .iter()
                .skip(usize::from(titles > MAX_TITLES && with_titles))
                .filter(|(_, is_title)| with_titles || !is_title)
                .filter_map(|(heading, _)| subject(heading))
                .collect()
        };
        let sections = named(titles > MAX_TITLES);
        let subjects = if sections.is_empty() { named(true) } else { sections };
        Self { candidates, subjects }
    }

    /// Computes the embeddings of all candidates, so that the first answer takes less time.
    pub(super) fn prepare(&self, encoder: &CachedEncoder) {
        for candidate in &self.candidates {
            drop(Embeddings::of(candidate, encoder));
        }
    }

    /// What the candidates have for the turn.
    pub(super) fn find(&self, talk: &TurnContext<'_>, encoder: Option<&CachedEncoder>) -> Finding {
        let last = talk.last_text(Role::Assistant).unwrap_or_default();
        let said = self
            .candidates
            .iter()
            .rposition(|candidate| last.contains(candidate.sentence.as_str()));
        match follow_up::reference(talk.user_text) {
            Some(Reference::More) => return self.more(talk, said),
            Some(Reference::Why) => return self.reason(talk, said),
            None => {}
        }
        // While many sentences are not encoded yet, only words are compared: the reply would be late.
        let encoder = encoder.filter(|encoder| {
            let texts: Vec<String> = self.candidates.iter().map(Candidate::with_topic).collect();
            encoder.knows_nearly_all(texts.iter().map(String::as_str), MAX_ENCODED_IN_A_TURN)
        });
        let table = CandidateTable::new(&self.candidates);
        let embeddings: Option<Vec<Embeddings>> = encoder.map(|encoder| {
            self.candidates.iter().map(|candidate| Embeddings::of(candidate, encoder)).collect()
        });
        let rank = |text: &str, bonus: &dyn Fn(usize) -> f32| {
            let question = Question::new(text);
            let asked = encoder.map(|encoder| AskedEmbeddings::of(&question, encoder));
            let embeddings = asked.as_ref().zip(embeddings.as_deref());
            Ranked { ranking: table.rank(&question, embeddings, bonus), asked }
        };
        let bonus = |number: usize| match said {
            Some(said) if said == number => JUST_SAID_PENALTY,
            Some(said) if self.candidates[said].section == self.candidates[number].section => {
                SAME_SECTION_BONUS
            }
            _ => 0.0,
        };
        let resolved = follow_up::resolve(talk.user_text, talk.history);
        let ranked = match &resolved {
            None => rank(talk.user_text, &|_| 0.0),
            Some(resolved) if follow_up::is_elliptical(talk.user_text) => rank(resolved, &bonus),
            // A pronoun need not refer to the question before: "How much does it cost?"
            Some(resolved) => {
                let plain = rank(talk.user_text, &|_| 0.0);
                let is_answer =
                    plain.ranking.as_ref().is_some_and(|best| best.level == Level::Answer);
                if is_answer { plain } else { plain.or_surer(rank(resolved, &bonus)) }
            }
        };
        let Ranked { ranking, asked } = ranked;
        if is_garbled(talk.user_text, resolved.is_some(), &table, ranking.as_ref(), encoder) {
            return Finding::Garbled;
        }
        let Some(ranking) = ranking else { return Finding::Unknown };
        if ranking.level == Level::Unrelated {
            return Finding::Unknown;
        }
        let Some((best, _)) = ranking.candidate(0) else { return Finding::Unknown };
        let similarity = |written: &str| match (&asked, encoder) {
            (Some(asked), Some(encoder)) => cosine(&asked.whole, &encoder.passage(written)),
            _ => ranking.coverage(),
        };
        let answer = self.compose(talk, &ranking, best, similarity);
        if self.candidates[best].origin == Origin::User {
            Finding::UserStatement(answer)
        } else if ranking.level == Level::Related {
            Finding::Related(answer)
        } else {
            Finding::Answer(answer)
        }
    }

    /// The spoken answer: the best candidate, with the rest of the answer to a written question, or with
    /// the second candidate if both are nearly as good.
    fn compose(
        &self,
        talk: &TurnContext<'_>,
        ranking: &Ranking,
        best: usize,
        similarity: impl Fn(&str) -> f32,
    ) -> String {
        let candidate = &self.candidates[best];
        let mut answer = spoken(candidate, talk).to_owned();
        if let Some(written) = &candidate.question {
            let of_question =
                self.candidates.iter().filter(|other| other.section == candidate.section);
            let parts: Vec<&str> = of_question.map(|other| other.sentence.as_str()).collect();
            let whole = parts.join(" ");
            if whole.len() <= MAX_ANSWER_BYTES {
                answer = whole;
            }
            if similarity(written) < MIN_SAME_QUESTION {
                answer = without_certainty(answer);
            }
        } else if ranking.level == Level::Related {
            for (number, odds) in
                (1..MAX_RELATED_CANDIDATES).map_while(|rank| ranking.candidate(rank))
            {
                let mut other = spoken(&self.candidates[number], talk);
                let before = self.candidates[number].before.as_deref();
                if before.is_some_and(|before| answer.contains(before)) {
                    other = &self.candidates[number].sentence;
                }
                if odds > MIN_RELATED_ODDS
                    && self.candidates[number].origin == candidate.origin
                    && !answer.contains(&self.candidates[number].sentence)
                    && answer.len() + other.len() < MAX_RELATED_BYTES
                {
                    answer = format!("{answer} {other}");
                }
            }
        } else if ranking.share < MAX_DOUBTFUL_SHARE
            && let Some((second, odds)) = ranking.candidate(1)
            && odds > MIN_SECOND_ODDS
            && self.candidates[second].origin == candidate.origin
        {
            let other = &self.candidates[second];
            if other.question.is_none()
                && !answer.contains(&other.spoken)
                && !other.spoken.contains(&answer)
                && answer.len() + other.spoken.len() < MAX_ANSWER_BYTES
            {
                answer = match second > best {
                    true => format!("{answer} {}", other.spoken),
                    false => format!("{} {answer}", other.spoken),
                };
            }
        }
        truncate_at_clause(&answer)
    }

    /// The next candidates of the section that the agent spoke of.
    fn more(&self, talk: &TurnContext<'_>, said: Option<usize>) -> Finding {
        let Some(said) = said else { return Finding::NoMore };
        let section = self.candidates[said].section;
        let texts = || talk.history.iter().filter(|item| item.role == Role::Assistant);
        let is_new = |candidate: &&Candidate| {
            !texts().any(|item| item.text.contains(candidate.sentence.as_str()))
        };
        let in_section = || self.candidates.iter().filter(|candidate| candidate.section == section);
        let after = self.candidates[said..].iter().filter(|candidate| candidate.section == section);
        let next = after.clone().find(is_new).or_else(|| in_section().find(is_new));
        next.map_or(Finding::NoMore, |candidate| {
            Finding::Answer(truncate_at_clause(spoken(candidate, talk)))
        })
    }

    /// A candidate of the same section that gives a reason.
    fn reason(&self, talk: &TurnContext<'_>, said: Option<usize>) -> Finding {
        let reasons = &Phrases::english().follow_up.reasons;
        let gives_reason = |candidate: &&Candidate| {
            normalize_words(&candidate.sentence).iter().any(|word| reasons.contains(word))
        };
        let Some(said) = said.map(|said| &self.candidates[said]) else { return Finding::NoReason };
        let in_section =
            || self.candidates.iter().filter(|candidate| candidate.section == said.section);
        let reason = Some(said).filter(gives_reason).or_else(|| in_section().find(gives_reason));
        reason.map_or(Finding::NoReason, |candidate| {
            Finding::Answer(truncate_at_clause(spoken(candidate, talk)))
        })
    }
}

/// The candidates for one reading of the user's text, and the embeddings of that reading.
struct Ranked {
    ranking: Option<Ranking>,
    asked: Option<AskedEmbeddings>,
}

impl Ranked {
    /// The one of both whose best candidate is more probably an answer.
    fn or_surer(self, other: Self) -> Self {
        let confidence =
            |ranked: &Self| ranked.ranking.as_ref().map_or(0.0, |ranking| ranking.confidence);
        if confidence(&other) > confidence(&self) { other } else { self }
    }
}

/// The candidate as it is spoken, without the sentence before it if the agent just said that one.
fn spoken<'a>(candidate: &'a Candidate, talk: &TurnContext<'_>) -> &'a str {
    let last = talk.last_text(Role::Assistant).unwrap_or_default();
    match candidate.before.as_ref().is_some_and(|before| last.contains(before.as_str())) {
        true => &candidate.sentence,
        false => &candidate.spoken,
    }
}

/// Limits of texts that make no sense.
const MIN_IMPLAUSIBLE_PLACES: usize = 2;
const MIN_CLEAR_COSINE: f32 = 0.6;
const MIN_CLEAR_COVERAGE: f32 = 0.8;
const MIN_STATEMENT_COSINE: f32 = 0.33;
const MIN_STATEMENT_COVERAGE: f32 = 0.5;
const MIN_QUESTION_COSINE: f32 = 0.3;
const MIN_UNKNOWN_SHARE: f32 = 0.4;
/// An unknown word has at least this many tokens, or one less if it is short.
const MIN_UNKNOWN_TOKENS: usize = 3;
const MAX_SHORT_WORD: usize = 6;

/// Whether the text is no sentence, or is neither a question nor close to any candidate.
fn is_garbled(
    text: &str,
    is_follow_up: bool,
    table: &CandidateTable<'_>,
    ranking: Option<&Ranking>,
    encoder: Option<&CachedEncoder>,
) -> bool {
    let form = Form::of(text);
    let (cosine, coverage, level) = ranking.map_or((0.0, 0.0, Level::Unrelated), |best| {
        (best.best_cosine, best.coverage(), best.level)
    });
    let is_question = form.is_question || (is_follow_up && form.implausible == 0);
    let is_clear =
        coverage >= MIN_CLEAR_COVERAGE && (encoder.is_none() || cosine >= MIN_CLEAR_COSINE);
    // Also a statement may ask: "I need a place for my bicycle".
    let is_related = match encoder {
        Some(_) => level >= Level::Related && cosine >= MIN_STATEMENT_COSINE,
        None => level == Level::Answer && coverage >= MIN_STATEMENT_COVERAGE,
    };
    if form.implausible >= MIN_IMPLAUSIBLE_PLACES && !is_clear {
        return true;
    }
    if form.implausible > 0 && !is_clear {
        let is_close = encoder.is_none() || cosine >= MIN_QUESTION_COSINE;
        if !(is_question && is_close) {
            return true;
        }
    }
    if !is_question && !is_clear && !is_related {
        return true;
    }
    let Some(encoder) = encoder else { return false };
    let is_unknown = |word: &&knowledge::Word| {
        let tokens = encoder.token_count(&word.normalized);
        let is_short = word.normalized.len() <= MAX_SHORT_WORD;
        !word.is_number()
            && !table.knows(word)
            && tokens + usize::from(is_short) >= MIN_UNKNOWN_TOKENS
            && tokens > 1
    };
    let unknown = content_words(text).iter().filter(is_unknown).count();
    unknown > 1 && unknown as f32 >= MIN_UNKNOWN_SHARE * form.words as f32 && !is_clear
}

/// The answer without a "Yes" or "No" at its start.
fn without_certainty(answer: String) -> String {
    let openers = &Phrases::english().knowledge.certain_openers;
    match openers.iter().find_map(|opener| answer.strip_prefix(opener.as_str())) {
        Some(rest) => super::speakable::speakable(rest),
        None => answer,
    }
}

/// The subject of a heading, as part of a sentence.
fn subject(heading: &str) -> Option<String> {
    let phrases = &Phrases::english().knowledge;
    let words = normalize_words(heading);
    let is_phrase = words.first().is_none_or(|word| phrases.no_subject_openers.contains(word));
    if is_phrase || words.iter().any(|word| phrases.no_subjects.contains(word)) {
        return None;
    }
    let opener = phrases.subject_openers.contains(&words[0]);
    let rest = match heading.split_once(' ') {
        Some((_, rest)) if opener && words.len() > 1 => rest,
        _ => heading,
    };
    Some(super::candidates::lower_first(rest.trim()))
}
