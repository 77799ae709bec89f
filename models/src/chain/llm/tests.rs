use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};

use super::*;
use crate::breaker::{BreakerKey, Breakers};

/// What a model does with one request: its events. Without any, it waits for ever.
type Script = Vec<Event>;

#[derive(Default)]
struct FakeLlm {
    scripts: Mutex<VecDeque<Script>>,
    asked: Mutex<usize>,
    cancelled: Arc<AtomicBool>,
    follows_directions: bool,
}

impl Llm for FakeLlm {
    fn ask(&self, _: Request, sink: Sink<Event>) -> Handle {
        *self.asked.lock().unwrap() += 1;
        let script = self.scripts.lock().unwrap().pop_front().unwrap_or_default();
        script.into_iter().for_each(|event| sink.send(event));
        let cancelled = Arc::clone(&self.cancelled);
        Handle::new(move || cancelled.store(true, Ordering::Release))
    }

    fn follows_directions(&self) -> bool {
        self.follows_directions
    }
}

fn model(scripts: Vec<Script>) -> Arc<FakeLlm> {
    Arc::new(FakeLlm { scripts: Mutex::new(scripts.into()), ..FakeLlm::default() })
}

fn failed(kind: ErrorKind) -> Script {
    vec![Event::Failed(Error::new(kind, "The first one failed"))]
}

fn answer(text: &str) -> Script {
    let end = Event::End { prompt_tokens: 0, cached_tokens: 0, completion_tokens: 0 };
    vec![Event::Text(text.into()), end]
}

struct Harness {
    models: Vec<Arc<FakeLlm>>,
    chain: LlmChain,
    breaker: Arc<Breaker>,
    /// The providers that were told.
    providers: Arc<Mutex<Vec<&'static str>>>,
}

impl Harness {
    /// A chain of models; the first one has a breaker.
    fn new(models: &[Arc<FakeLlm>]) -> Self {
        let breaker = Breakers::default().get(BreakerKey::new("llm", "first", "", None));
        let entry = |(n, model): (usize, &Arc<FakeLlm>)| ChainEntry {
            name: format!("Model {n}"),
            provider: ["first", "second", "third"][n],
            model: Arc::clone(model) as Arc<dyn Llm>,
            breaker: (n == 0).then(|| Arc::clone(&breaker)),
        };
        let chain = LlmChain::new(models.iter().enumerate().map(entry).collect(), None);
        Self { models: models.to_vec(), chain, breaker, providers: Arc::default() }
    }

    /// Asks; the events in short.
    fn ask(&self) -> (Handle, Vec<String>) {
        let events = Arc::new(Mutex::new(Vec::new()));
        let (push, providers) = (Arc::clone(&events), Arc::clone(&self.providers));
        let sink = Sink::new(move |event| {
            if let Event::Provider(provider) = event {
                return providers.lock().unwrap().push(provider);
            }
            push.lock().unwrap().push(match event {
                Event::Text(text) => text,
                Event::Warning(text) => format!("warning: {text}"),
                Event::Failed(error) if error.is_exhausted() => format!("exhausted: {error}"),
                Event::Failed(error) => format!("failed: {error}"),
                Event::End { .. } => "end".into(),
                other => format!("{other:?}"),
            });
        });
        let request = Request {
            prompt: String::new(),
            history: Vec::new(),
            snippets: Vec::new(),
            tools: Vec::new(),
            model: String::new(),
        };
        let handle = self.chain.ask(request, sink);
        let events = events.lock().unwrap().clone();
        (handle, events)
    }

    fn providers(&self) -> Vec<&'static str> {
        std::mem::take(&mut *self.providers.lock().unwrap())
    }

    fn asked(&self) -> Vec<usize> {
        self.models.iter().map(|model| *model.asked.lock().unwrap()).collect()
    }
}

#[test]
fn a_chain_follows_directions_if_one_of_its_models_does() {
    let model = |follows_directions| Arc::new(FakeLlm { follows_directions, ..FakeLlm::default() });
    let follows = |models: &[Arc<FakeLlm>]| Harness::new(models).chain.follows_directions();
    assert!(follows(&[model(true), model(false)]) && follows(&[model(false), model(true)]));
    assert!(!follows(&[model(false), model(false)]));
}

#[test]
fn the_next_model_answers_if_the_first_one_fails_before_its_answer() {
    let first = model(vec![failed(ErrorKind::Failed), failed(ErrorKind::Failed), answer("A")]);
    let second = model(vec![answer("B"), answer("B")]);
    let harness = Harness::new(&[first, second]);
    let warning = "warning: The first one failed; Model 1 is used instead.";
    assert_eq!(harness.ask().1, [warning, "B", "end"]);
    assert_eq!(harness.ask().1, ["B", "end"], "told once");
    assert_eq!(harness.ask().1, ["A", "end"]);
    assert_eq!(harness.providers(), ["first", "second", "first", "second", "first"]);
    assert!(harness.breaker.is_closed());
}

#[test]
fn a_model_that_fails_within_its_answer_is_not_replaced() {
    let failure = failed(ErrorKind::Failed).remove(0);
    let first = model(vec![vec![Event::Text("A".into()), failure]]);
    let harness = Harness::new(&[first, model(vec![answer("B")])]);
    let events = ["A", "warning: The first one failed.", "failed: The first one failed"];
    assert_eq!(harness.ask().1, events);
    assert_eq!(harness.asked(), [1, 0]);
}

#[test]
fn only_an_answer_that_ends_forgets_failures() {
    let stalled = || vec![Event::Text("A".into()), failed(ErrorKind::Timeout).remove(0)];
    let first = model(vec![stalled(), stalled(), stalled(), answer("A")]);
    let harness = Harness::new(&[first, model(vec![answer("B")])]);
    (0..3).for_each(|_| drop(harness.ask()));
    // The same reason was told without a model that serves instead.
    let warning = "warning: The first one failed; Model 1 is used instead.";
    assert_eq!(harness.ask().1, [warning, "B", "end"]);
    assert_eq!(harness.asked(), [3, 1]);

    let first = model(vec![stalled(), stalled(), answer("A"), stalled()]);
    let harness = Harness::new(&[first, model(Vec::new())]);
    (0..4).for_each(|_| drop(harness.ask()));
    assert!(harness.breaker.is_closed());
}

/// The fallback model has the account of the first one.
#[test]
fn a_model_that_stalls_is_skipped_although_another_one_of_its_account_answers() {
    let breakers = Breakers::default();
    let first = model((0..4).map(|_| failed(ErrorKind::Timeout)).collect());
    let second = model((0..4).map(|_| answer("B")).collect());
    let entry = |model: &Arc<FakeLlm>, name: &str| ChainEntry {
        name: name.into(),
        provider: "first",
        model: Arc::clone(model) as Arc<dyn Llm>,
        breaker: Some(breakers.get(BreakerKey::new("llm", "first", "", None).of_model(name))),
    };
    let chain = LlmChain::new(vec![entry(&first, "large"), entry(&second, "small")], None);
    let harness = Harness { chain, models: vec![first, second], ..Harness::new(&[]) };
    (0..4).for_each(|_| drop(harness.ask()));
    assert_eq!(harness.asked(), [3, 4]);
}

#[test]
fn a_model_with_an_open_breaker_is_skipped() {
    let first = model(vec![failed(ErrorKind::InvalidKey)]);
    let harness = Harness::new(&[first, model(vec![answer("B"), answer("C")])]);
    drop(harness.ask());
    assert_eq!(harness.ask().1, ["C", "end"]);
    assert_eq!(harness.asked(), [1, 2]);
}

#[test]
fn the_last_failure_is_reported_with_each_reason() {
    let second = vec![Event::Failed(Error::new(ErrorKind::Timeout, "The second one is late"))];
    let harness = Harness::new(&[model(vec![failed(ErrorKind::NoCredit)]), model(vec![second])]);
    let expected = [
        "warning: The first one failed; Model 1 is used instead.",
        "warning: The second one is late.",
        "exhausted: The second one is late",
    ];
    assert_eq!(harness.ask().1, expected);
    // Alone, a model that is skipped fails at once.
    let alone = Harness::new(&[model(vec![failed(ErrorKind::NoCredit)])]);
    drop(alone.ask());
    assert_eq!(alone.ask().1, ["exhausted: The first one failed"]);
    assert_eq!(alone.asked(), [1]);
}

#[test]
fn a_cancelled_request_stops_the_model_that_answers_and_is_no_failure() {
    let first = model(vec![failed(ErrorKind::Failed)]);
    let second = model(Vec::new());
    let harness = Harness::new(&[first, Arc::clone(&second)]);
    let (handle, _) = harness.ask();
    assert!(!second.cancelled.load(Ordering::Acquire));
    drop(handle);
    assert!(second.cancelled.load(Ordering::Acquire));
}
