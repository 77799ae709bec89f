//! The built-in answerer on texts with questions, as in a call: the whole text is the knowledge, and
//! each question is the first one of a call.
//!
//! A folder has for each text a file `NAME.md`, and `NAME.json` with its questions. A question is
//!
//! - `direct`: about a fact, with words of the text;
//! - `paraphrased`: about a fact, in other words;
//! - `absent`: about something that the text does not say;
//! - `garbled`: words as of a failed recognition.
//!
//! `answer` lists groups of alternatives. A reply is right if it has an alternative of each group.
//! `wrong` lists what a reply must not contain. Of an absent question, only a reply that says that
//! the answer is not known is right, and any other one is a wrong fact. Of a garbled one, only a
//! reply that asks to say it again is right.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "test code")]
#![allow(clippy::print_stdout, reason = "the test prints its counts")]

mod common;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use conversation::event::{HistoryItem, Role, Snippet};
use knowledge::{Index, normalize_words, words};
use models::Sink;
use models::llm::builtin::{BuiltinLlm, CachedEncoder, TextEncoder};
use models::llm::{Event, Llm, Request};
use models::sentence_encoder::SentenceEncoder;
use serde::Deserialize;
use tokio::runtime::Runtime;
use tokio::sync::mpsc;

const PROMPT: &str = "You are Ada, a friendly assistant. Answer briefly, from what you know.";

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Kind {
    Direct,
    Paraphrased,
    Absent,
    Garbled,
}

#[derive(Deserialize)]
struct Case {
    kind: Kind,
    question: String,
    #[serde(default)]
    answer: Vec<Vec<String>>,
    #[serde(default)]
    wrong: Vec<String>,
}

#[derive(Deserialize)]
struct Text {
    questions: Vec<Case>,
}

/// The templates that show what kind of reply the answerer gives.
#[derive(Deserialize)]
struct Phrases {
    not_understood: Vec<String>,
    unknown: Unknown,
}

#[derive(Deserialize)]
struct Unknown {
    replies: Vec<String>,
    hedges: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Reply {
    Answer,
    /// It says that the answer is not known, and tells something related.
    Hedged,
    Unknown,
    AsksAgain,
}

impl Phrases {
    fn kind_of(&self, reply: &str) -> Reply {
        let starts = |templates: &[String]| {
            let start = |template: &String| template.split('{').next().unwrap_or("").to_owned();
            templates.iter().any(|template| reply.starts_with(&start(template)))
        };
        if starts(&self.unknown.hedges) {
            Reply::Hedged
        } else if starts(&self.unknown.replies) {
            Reply::Unknown
        } else if starts(&self.not_understood) {
            Reply::AsksAgain
        } else {
            Reply::Answer
        }
    }
}

#[derive(Default)]
struct Count {
    all: usize,
    right: usize,
    wrong: usize,
    /// Numbers of replies, and of right ones, by kind.
    replies: BTreeMap<Reply, (usize, usize)>,
}

/// Whether `text` contains `part` as whole words, numbers as words or digits.
fn contains(text: &str, part: &str) -> bool {
    let has = |all: Vec<String>, part: Vec<String>| {
        !part.is_empty() && all.windows(part.len()).any(|window| window == part)
    };
    let digits = |text: &str| words(text).into_iter().map(|word| word.normalized).collect();
    has(normalize_words(text), normalize_words(part)) || has(digits(text), digits(part))
}

/// The passages that a call gives to the answerer.
fn snippets(index: &Index<&str>, limit: usize, question: &str) -> Vec<Snippet> {
    let hits = index.all_chunks(limit).unwrap_or_else(|| index.search(question, limit));
    let snippet = |hit: &knowledge::Hit<'_, &str>| Snippet {
        kb_id: "kb".into(),
        doc_id: (*hit.id).into(),
        text: hit.text.into(),
        score: hit.score,
    };
    hits.iter().map(snippet).collect()
}

struct Evaluator {
    runtime: Runtime,
    encoder: Option<Arc<CachedEncoder>>,
    phrases: Phrases,
}

impl Evaluator {
    fn new(encoder: Option<SentenceEncoder>) -> Self {
        let phrases = include_str!("../../assets/answers/en.toml");
        Self {
            runtime: Runtime::new().unwrap(),
            encoder: encoder.map(|encoder| {
                Arc::new(CachedEncoder::new(Arc::new(encoder) as Arc<dyn TextEncoder>))
            }),
            phrases: toml::from_str(phrases).unwrap(),
        }
    }

    /// The reply, as the engine requests it.
    fn ask(&self, llm: &BuiltinLlm, index: &Index<&str>, question: &str) -> String {
        let request = Request {
            prompt: PROMPT.into(),
            history: vec![Arc::new(HistoryItem {
                role: Role::User,
                speaker: None,
                name: None,
                arguments: None,
                text: question.into(),
                interrupted: false,
                utterance: None,
                started_at: None,
                ended_at: None,
                in_context: true,
            })],
            snippets: snippets(index, llm.max_passages().unwrap(), question),
            tools: Vec::new(),
            model: String::new(),
        };
        let (sender, mut receiver) = mpsc::unbounded_channel();
        let _handle = llm.ask(request, Sink::new(move |event| drop(sender.send(event))));
        let mut reply = String::new();
        loop {
            match receiver.blocking_recv().expect("the reply ends") {
                Event::Text(text) => reply.push_str(&text),
                Event::End { .. } => return reply,
                other => panic!("{other:?}"),
            }
        }
    }

    /// Asks all questions of a folder, and returns the counts. Prints replies if they are `shown`.
    fn evaluate(&self, folder: &Path, shown: bool) -> BTreeMap<Kind, Count> {
        let mut counts: BTreeMap<Kind, Count> = BTreeMap::new();
        let (mut time, mut slowest, mut questions) = (Duration::ZERO, Duration::ZERO, 0);
        let files = questions_in(folder);
        assert!(!files.is_empty(), "no questions in {}", folder.display());
        for file in files {
            let body = std::fs::read_to_string(file.with_extension("md")).unwrap();
            let text: Text =
                serde_json::from_str(&std::fs::read_to_string(&file).unwrap()).unwrap();
            let mut index = Index::new();
            index.insert(&"document", &body);
            let llm = BuiltinLlm::new("Ada", self.runtime.handle().clone(), self.encoder.clone());
            llm.prepare_now(snippets(&index, llm.max_passages().unwrap(), ""), PROMPT);
            for case in &text.questions {
                let start = Instant::now();
                let reply = self.ask(&llm, &index, &case.question);
                time += start.elapsed();
                slowest = slowest.max(start.elapsed());
                questions += 1;
                let kind = self.phrases.kind_of(&reply);
                let has_content = matches!(kind, Reply::Answer | Reply::Hedged);
                let has_answer = case
                    .answer
                    .iter()
                    .all(|group| group.iter().any(|alternative| contains(&reply, alternative)));
                let has_wrong =
                    has_content && case.wrong.iter().any(|wrong| contains(&reply, wrong));
                let (right, wrong) = match case.kind {
                    Kind::Direct | Kind::Paraphrased => {
                        (has_content && has_answer && !has_wrong, has_wrong)
                    }
                    Kind::Absent => (
                        matches!(kind, Reply::Unknown | Reply::Hedged) && !has_wrong,
                        kind == Reply::Answer || has_wrong,
                    ),
                    Kind::Garbled => (kind == Reply::AsksAgain, has_wrong),
                };
                let count = counts.entry(case.kind).or_default();
                count.all += 1;
                count.right += usize::from(right);
                count.wrong += usize::from(wrong);
                let replies = count.replies.entry(kind).or_default();
                replies.0 += 1;
                replies.1 += usize::from(right);
                if shown && !right {
                    println!("{:?} {:?}: {:?} {reply}", case.kind, kind, case.question);
                }
            }
        }
        for (kind, Count { all, right, wrong, replies }) in &counts {
            println!("{kind:?}: {right} of {all} right, {wrong} wrong facts");
            for (reply, (all, right)) in replies {
                println!("    {reply:?}: {right} of {all} right");
            }
        }
        println!("{:?} per answer, at most {slowest:?}", time / questions.max(1));
        counts
    }
}

fn questions_in(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let mut files: Vec<PathBuf> =
        entries.filter(|path| path.extension().is_some_and(|end| end == "json")).collect();
    files.sort();
    files
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("answers")
}

fn with_encoder() -> Evaluator {
    Evaluator::new(Some(SentenceEncoder::load(&common::models_dir()).unwrap()))
}

/// Asserts the share of right replies by kind, in percent, and that of wrong facts.
fn assert_shares(counts: &BTreeMap<Kind, Count>, minimums: [(Kind, usize); 4], max_wrong: usize) {
    for (kind, percent) in minimums {
        let Count { all, right, .. } = counts[&kind];
        assert!(right * 100 >= all * percent, "{kind:?}: {right} of {all}, {percent} % needed");
    }
    let all: usize = counts.values().map(|count| count.all).sum();
    let wrong: usize = counts.values().map(|count| count.wrong).sum();
    assert!(wrong * 100 <= all * max_wrong, "{wrong} wrong facts in {all} replies");
}

#[test]
fn questions_about_texts_of_the_development_are_answered() {
    let counts = with_encoder().evaluate(&folder().join("dev"), true);
    let minimums =
        [(Kind::Direct, 95), (Kind::Paraphrased, 75), (Kind::Absent, 90), (Kind::Garbled, 90)];
    assert_shares(&counts, minimums, 3);
}

/// The goals are those of the development. Questions that are close to a fact but ask something
/// else, and paraphrases without a word of the text, do not reach them yet.
#[test]
fn questions_about_unseen_texts_are_answered() {
    let counts = with_encoder().evaluate(&folder(), false);
    let minimums =
        [(Kind::Direct, 95), (Kind::Paraphrased, 55), (Kind::Absent, 75), (Kind::Garbled, 90)];
    assert_shares(&counts, minimums, 5);
}

#[test]
fn without_the_encoder_direct_questions_are_answered() {
    let counts = Evaluator::new(None).evaluate(&folder().join("dev"), true);
    let minimums =
        [(Kind::Direct, 85), (Kind::Paraphrased, 50), (Kind::Absent, 85), (Kind::Garbled, 90)];
    assert_shares(&counts, minimums, 5);
}
