//! Ranks candidates by how well they answer a question, and estimates whether the best one does.
//!
//! Both are linear models. Their weights are fitted by logistic regression on the questions in
//! `models/tests/answers/dev`: a softmax over the candidates of a text for the ranking, and answerable
//! against unanswerable questions for the estimate. There is one pair of models with a sentence
//! encoder and one without.

use std::collections::{HashMap, HashSet};

use knowledge::{Index, Word};

use super::candidates::{Candidate, Origin};
use super::encoder::{CachedEncoder, SharedEmbedding, cosine};
use super::lexicon::Lexicon;
use super::phrases::Phrases;
use super::question::{Days, Question, content_words};

/// Number of features of a candidate: cosine, coverage, expected kind, days, cosine with context, cosine
/// of the last clause (at least that of the whole question).
const CANDIDATE_FEATURES: usize = 6;

/// Number of features of the estimate, in the order of [`Ranking::estimate`].
const ESTIMATE_FEATURES: usize = 13;

struct Weights {
    candidate: [f32; CANDIDATE_FEATURES],
    estimate: [f32; ESTIMATE_FEATURES],
    /// Confidence from which a candidate is the answer.
    min_answer: f32,
    /// Confidence from which a candidate is worth telling although it may not be the answer.
    min_related: f32,
}

const WITH_ENCODER: Weights = Weights {
    candidate: [6.58, 3.47, 0.74, 1.97, 4.32, 6.29],
    estimate: [-0.62, 1.03, 0.42, -0.62, 1.1, 0.29, 0.82, -0.29, 0.77, -2.41, 0.51, -1.33, 2.49],
    min_answer: 0.6,
    min_related: 0.15,
};

const WITHOUT_ENCODER: Weights = Weights {
    candidate: [0.0, 9.36, 0.96, 1.42, 0.0, 0.0],
    estimate: [-0.51, 0.0, 0.0, 1.53, 0.75, 0.61, -0.94, -0.17, 0.66, -1.89, 0.67, -1.54, 2.47],
    min_answer: 0.6,
    min_related: 0.3,
};

/// A candidate without a word of the question, and without a similar one, is the answer only from this
/// cosine. Most questions that are close to a candidate but ask something else have such a word.
const MIN_PARAPHRASE_COSINE: f32 = 0.75;

/// Nothing is related to a question whose best cosine is lower.
const MIN_RELATED_COSINE: f32 = 0.3;

/// A candidate with this share of the question is the answer if it has the expected kind.
const MIN_FULL_COVERAGE: f32 = 0.9;

/// Added to the score of candidates that are no knowledge.
const PROMPT_PENALTY: f32 = -0.5;
const USER_PENALTY: f32 = -1.0;

/// Weight of the coverage by words that are only spelled or pronounced similarly.
const FUZZY_WEIGHT: f32 = 0.9;

/// Minimum of this coverage if no word is the same.
const MIN_FUZZY_COVERAGE: f32 = 0.6;

/// Candidates with the words that are compared.
pub(super) struct CandidateTable<'a> {
    pub(super) candidates: &'a [Candidate],
    words: Vec<Vec<Word>>,
    days: Vec<Days>,
    /// By stem: the number of candidates that have it.
    frequency: HashMap<String, usize>,
    vocabulary: Vec<Word>,
    /// Words that the candidates write with a capital letter only.
    names: HashSet<String>,
    spelling: Index<usize>,
}

impl<'a> CandidateTable<'a> {
    pub(super) fn new(candidates: &'a [Candidate]) -> Self {
        let mut frequency: HashMap<String, usize> = HashMap::new();
        let mut vocabulary: HashMap<String, Word> = HashMap::new();
        let mut spelling = Index::new();
        let mut words = Vec::with_capacity(candidates.len());
        for (number, candidate) in candidates.iter().enumerate() {
            let text = candidate.with_topic();
            let content = content_words(&text);
            let stems: HashSet<&String> = content.iter().map(|word| &word.stem).collect();
            for stem in stems {
                *frequency.entry(stem.clone()).or_default() += 1;
            }
            for word in &content {
                vocabulary.entry(word.stem.clone()).or_insert_with(|| word.clone());
            }
            words.push(content);
            spelling.insert_chunk(&number, 0, text);
        }
        let days = candidates.iter().map(|candidate| Days::named_in(&candidate.body)).collect();
        let vocabulary = vocabulary.into_values().collect();
        Self { candidates, words, days, frequency, vocabulary, names: names(candidates), spelling }
    }

    /// Whether the candidates have a word with the stem of `word`.
    pub(super) fn knows(&self, word: &Word) -> bool {
        self.frequency.contains_key(&word.stem)
    }

    fn information(&self, word: &Word) -> f32 {
        let frequency = self.frequency.get(&word.stem).copied().unwrap_or(0);
        (1.0 + self.candidates.len() as f32 / (1.0 + frequency as f32)).ln()
    }

    /// Ranks all candidates. `bonus` is added to the score of each.
    pub(super) fn rank(
        &self,
        question: &Question,
        embeddings: Option<(&AskedEmbeddings, &[Embeddings])>,
        bonus: impl Fn(usize) -> f32,
    ) -> Option<Ranking> {
        let weights = if embeddings.is_some() { &WITH_ENCODER } else { &WITHOUT_ENCODER };
        let mut fuzzy = vec![0.0_f32; self.candidates.len()];
        for hit in self.spelling.search(&question.text, self.candidates.len()) {
            fuzzy[*hit.id] = FUZZY_WEIGHT * hit.coverage;
        }
        let information: Vec<f32> =
            question.content.iter().map(|word| self.information(word)).collect();
        let total: f32 = information.iter().sum();
        let mut best_cosine = 0.0_f32;
        let mut rows = Vec::with_capacity(self.candidates.len());
        for (number, candidate) in self.candidates.iter().enumerate() {
            let covered: f32 = question
                .content
                .iter()
                .zip(&information)
                .map(|(word, information)| information * likeness(word, &self.words[number]))
                .sum();
            let coverage = if total > 0.0 { covered / total } else { 0.0 };
            // Alone, a similar sound proves little.
            let is_likely = coverage > 0.0 || fuzzy[number] >= MIN_FUZZY_COVERAGE;
            let fuzzy = if is_likely { fuzzy[number] } else { 0.0 };
            let [with_topic, with_context, clause] = embeddings
                .map_or([0.0; 3], |(question, candidates)| question.cosines(&candidates[number]));
            best_cosine = best_cosine.max(with_topic).max(with_context);
            let features: [f32; CANDIDATE_FEATURES] = [
                with_topic,
                coverage.max(fuzzy),
                question.expectation(&candidate.body, &self.names),
                question.days.agreement(self.days[number]),
                with_context,
                clause,
            ];
            let origin = match candidate.origin {
                Origin::Knowledge => 0.0,
                Origin::Prompt => PROMPT_PENALTY,
                Origin::User => USER_PENALTY,
            };
            let score = product(&features, &weights.candidate) + origin + bonus(number);
            rows.push(Row { number, score, features });
        }
        rows.sort_by(|a, b| b.score.total_cmp(&a.score).then(a.number.cmp(&b.number)));
        let best = rows.first()?;
        let sum: f32 = rows.iter().map(|row| (row.score - best.score).exp()).sum();
        let share = 1.0 / sum;
        let estimate = self.estimate(question, best, share, best_cosine);
        let confidence = 1.0 / (1.0 + (-product(&estimate, &weights.estimate)).exp());
        let [.., missing, _, _, _] = estimate;
        let lacks_word = missing >= 1.0 && best_cosine < MIN_PARAPHRASE_COSINE;
        let [_, coverage, expectation, ..] = best.features;
        let lacks_kind = expectation < 0.0;
        let is_far = embeddings.is_some() && best_cosine < MIN_RELATED_COSINE;
        let level = match confidence {
            _ if coverage >= MIN_FULL_COVERAGE && !lacks_kind => Level::Answer,
            confidence if confidence < weights.min_related || is_far => Level::Unrelated,
            _ if embeddings.is_none() && coverage <= 0.0 => Level::Unrelated,
            confidence if confidence < weights.min_answer => Level::Related,
            _ if lacks_word || lacks_kind => Level::Related,
            _ => Level::Answer,
        };
        Some(Ranking { level, confidence, share, best_cosine, rows })
    }

    fn estimate(
        &self,
        question: &Question,
        best: &Row,
        share: f32,
        best_cosine: f32,
    ) -> [f32; ESTIMATE_FEATURES] {
        let generic_words = &Phrases::english().question.generic_words;
        let is_subject = |word: &&Word| !generic_words.contains(&word.normalized);
        let mut subjects: Vec<&Word> = question.content.iter().filter(is_subject).collect();
        if subjects.is_empty() {
            subjects.extend(&question.content);
        }
        let in_best = |word: &&Word| likeness(word, &self.words[best.number]);
        let in_all = |word: &&Word| likeness(word, &self.vocabulary);
        let lowest = |values: &mut dyn Iterator<Item = f32>| {
            values.reduce(f32::min).map_or(1.0, |lowest| 1.0 - lowest)
        };
        let last_missing = subjects.last().map_or(1.0, |word| 1.0 - in_best(word));
        let missing = lowest(&mut subjects.iter().map(in_best));
        let unknown = lowest(&mut subjects.iter().map(in_all));
        let exists = f32::from(u8::from(question.asks_existence));
        let [cosine, coverage, expectation, days, ..] = best.features;
        let length = question.content.len().min(5) as f32 / 5.0;
        [
            1.0,
            cosine,
            best_cosine,
            coverage,
            expectation,
            days,
            share,
            exists * last_missing,
            exists,
            missing,
            unknown,
            exists * unknown,
            length,
        ]
    }
}

/// The embeddings of a candidate.
pub(super) struct Embeddings {
    with_topic: SharedEmbedding,
    with_context: SharedEmbedding,
}

impl Embeddings {
    /// The embeddings of `candidate`, from the cache if they are known.
    pub(super) fn of(candidate: &Candidate, encoder: &CachedEncoder) -> Self {
        // What users say is not kept.
        if candidate.origin == Origin::User {
            let embedding: SharedEmbedding = encoder.question(&candidate.body).into();
            return Self { with_topic: embedding.clone(), with_context: embedding };
        }
        let with_topic = encoder.passage(&candidate.with_topic());
        let with_context = encoder.passage(&candidate.with_context());
        Self { with_topic, with_context }
    }
}

/// The embeddings of a question: of the whole, and of its last clause if there are several.
pub(super) struct AskedEmbeddings {
    pub(super) whole: Vec<f32>,
    clause: Option<Vec<f32>>,
}

impl AskedEmbeddings {
    pub(super) fn of(question: &Question, encoder: &CachedEncoder) -> Self {
        let clause = question.last_clause().map(|clause| encoder.question(&clause));
        Self { whole: encoder.question(&question.text), clause }
    }

    /// The cosines with a candidate, in the order of its features.
    fn cosines(&self, candidate: &Embeddings) -> [f32; 3] {
        let with_topic = cosine(&self.whole, &candidate.with_topic);
        let with_context = cosine(&self.whole, &candidate.with_context);
        let of_clause = |clause: &Vec<f32>| cosine(clause, &candidate.with_topic).max(with_topic);
        [with_topic, with_context, self.clause.as_ref().map_or(with_topic, of_clause)]
    }
}

struct Row {
    number: usize,
    score: f32,
    features: [f32; CANDIDATE_FEATURES],
}

/// How likely the best candidate is the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Level {
    Unrelated,
    /// It is related to the question at least.
    Related,
    Answer,
}

/// Candidates in the order of their scores.
pub(super) struct Ranking {
    /// Whether the best candidate answers, by the estimated probability of it.
    pub(super) level: Level,
    /// Estimated probability that the best candidate answers.
    pub(super) confidence: f32,
    /// Probability of the best candidate among all candidates, if one of them answers.
    pub(super) share: f32,
    /// Largest cosine of a candidate, 0 without an encoder.
    pub(super) best_cosine: f32,
    rows: Vec<Row>,
}

impl Ranking {
    /// The number of the candidate at a rank, and its odds against the best one (at most 1).
    pub(super) fn candidate(&self, rank: usize) -> Option<(usize, f32)> {
        let best = self.rows.first()?.score;
        self.rows.get(rank).map(|row| (row.number, (row.score - best).exp()))
    }

    /// Share of the question's words that the best candidate has.
    pub(super) fn coverage(&self) -> f32 {
        self.rows.first().map_or(0.0, |row| row.features[1])
    }
}

fn likeness(word: &Word, known: &[Word]) -> f32 {
    let lexicon = Lexicon::english();
    known.iter().map(|known| lexicon.likeness(word, known)).fold(0.0, f32::max)
}

fn product<const N: usize>(features: &[f32; N], weights: &[f32; N]) -> f32 {
    features.iter().zip(weights).map(|(feature, weight)| feature * weight).sum()
}

/// The words that the candidates write with a capital letter only, except days and months.
fn names(candidates: &[Candidate]) -> HashSet<String> {
    let capitalized = &Phrases::english().knowledge.capitalized;
    let (mut upper, mut lower) = (HashSet::new(), HashSet::new());
    for token in candidates.iter().flat_map(|candidate| candidate.body.split_whitespace()) {
        let is_upper = token.chars().find(|c| c.is_alphabetic()).is_some_and(char::is_uppercase);
        let words = knowledge::normalize_words(token);
        if is_upper { upper.extend(words) } else { lower.extend(words) }
    }
    let lexicon = Lexicon::english();
    upper.retain(|word| {
        !lower.contains(word) && !capitalized.contains(word) && !lexicon.is_function_word(word)
    });
    upper
}
