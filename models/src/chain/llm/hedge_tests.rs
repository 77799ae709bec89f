//! Hedged requests, in virtual time.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::time::sleep;

use super::*;
use crate::breaker::{BreakerKey, Breakers};

/// Time after which nothing happens any more; less than a breaker counts failures.
const LONG: Duration = Duration::from_secs(20);

/// What a model does with one request: its events, each with its time in milliseconds.
type Script = Vec<(u64, Event)>;

#[derive(Default)]
struct TimedLlm {
    scripts: Mutex<VecDeque<Script>>,
    asked: AtomicUsize,
    cancelled: Arc<AtomicUsize>,
}

impl Llm for TimedLlm {
    fn ask(&self, _: Request, sink: Sink<Event>) -> Handle {
        self.asked.fetch_add(1, Ordering::Relaxed);
        let script = self.scripts.lock().unwrap().pop_front().unwrap_or_default();
        let answering = async move {
            let start = Instant::now();
            for (at, event) in script {
                tokio::time::sleep_until(start + Duration::from_millis(at)).await;
                sink.send(event);
            }
        };
        let task = tokio::spawn(answering);
        let cancelled = Arc::clone(&self.cancelled);
        Handle::new(move || {
            cancelled.fetch_add(1, Ordering::Relaxed);
            task.abort();
        })
    }
}

fn model(scripts: Vec<Script>) -> Arc<TimedLlm> {
    Arc::new(TimedLlm { scripts: Mutex::new(scripts.into()), ..TimedLlm::default() })
}

/// An answer that starts at a time, and ends 100 ms later.
fn answer(at: u64, text: &str) -> Script {
    let end = Event::End { prompt_tokens: 5, cached_tokens: 0, completion_tokens: 7 };
    vec![(at, Event::Text(text.into())), (at + 100, end)]
}

fn failure(at: u64, kind: ErrorKind, words: &str) -> Script {
    vec![(at, Event::Failed(Error::new(kind, words)))]
}

fn breaker(name: &'static str) -> Arc<Breaker> {
    Breakers::default().get(BreakerKey::new("llm", name, "", None))
}

fn request() -> Request {
    Request {
        prompt: String::new(),
        history: Vec::new(),
        snippets: Vec::new(),
        tools: Vec::new(),
        model: String::new(),
    }
}

struct Harness {
    models: Vec<Arc<TimedLlm>>,
    breakers: Vec<Arc<Breaker>>,
    chain: LlmChain,
    /// Milliseconds, and the event in short.
    events: Arc<Mutex<Vec<(u128, String)>>>,
}

impl Harness {
    /// A chain whose requests are hedged after 1.5 s.
    fn new(models: &[Arc<TimedLlm>]) -> Self {
        let runtime = tokio::runtime::Handle::current();
        Self::with_hedge(models, Some(Hedge { after: Duration::from_millis(1_500), runtime }))
    }

    fn with_hedge(models: &[Arc<TimedLlm>], hedge: Option<Hedge>) -> Self {
        let breakers: Vec<_> = ["a", "b", "c"].into_iter().map(breaker).collect();
        let entry = |(n, model): (usize, &Arc<TimedLlm>)| ChainEntry {
            name: ["Alpha", "Beta", "Gamma"][n].into(),
            provider: ["a", "b", "c"][n],
            model: Arc::clone(model) as Arc<dyn Llm>,
            breaker: Some(Arc::clone(&breakers[n])),
        };
        let chain = LlmChain::new(models.iter().enumerate().map(entry).collect(), hedge);
        Self { models: models.to_vec(), breakers, chain, events: Arc::default() }
    }

    fn ask(&self) -> Handle {
        let (events, start) = (Arc::clone(&self.events), Instant::now());
        let sink = Sink::new(move |event| {
            let text = match event {
                Event::Provider(name) => format!("asks {name}"),
                Event::ServedBy(name) => format!("served by {name}"),
                Event::Text(text) => text,
                Event::Warning(text) => format!("warning: {text}"),
                Event::Failed(error) => format!("failed: {error}"),
                Event::End { completion_tokens, .. } => format!("end {completion_tokens}"),
                Event::ToolCall { name, .. } => format!("calls {name}"),
            };
            events.lock().unwrap().push((start.elapsed().as_millis(), text));
        });
        self.chain.ask(request(), sink)
    }

    /// Asks, and waits until nothing can happen any more.
    async fn run(&self) -> Vec<(u128, String)> {
        let handle = self.ask();
        sleep(LONG).await;
        drop(handle);
        std::mem::take(&mut *self.events.lock().unwrap())
    }

    fn asked(&self) -> Vec<usize> {
        self.models.iter().map(|model| model.asked.load(Ordering::Relaxed)).collect()
    }

    fn cancelled(&self) -> Vec<usize> {
        self.models.iter().map(|model| model.cancelled.load(Ordering::Relaxed)).collect()
    }

    /// Whether the breaker of a model has counted a failure: two more open it.
    fn has_failure(&self, number: usize) -> bool {
        let error = Error::new(ErrorKind::Timeout, "late");
        (0..2).for_each(|_| self.breakers[number].failed(Instant::now(), &error));
        !self.breakers[number].is_closed()
    }
}

fn events(list: &[(u128, &str)]) -> Vec<(u128, String)> {
    list.iter().map(|(at, text)| (*at, (*text).to_owned())).collect()
}

const SLOW: &str = "warning: Alpha sent no answer within 1.5 s; Beta is used instead.";

#[tokio::test(start_paused = true)]
async fn the_next_model_answers_if_the_first_one_is_slow_and_nothing_of_that_one_follows() {
    let first = model(vec![answer(1_900, "A"), answer(1_900, "A")]);
    let second = model(vec![answer(300, "B"), answer(300, "B")]);
    let harness = Harness::new(&[first, second]);
    let expected =
        [(0, "asks a"), (1_500, "asks b"), (1_800, SLOW), (1_800, "B"), (1_900, "end 7")];
    assert_eq!(harness.run().await, events(&expected));
    assert_eq!(harness.cancelled()[0], 1);
    let again = harness.run().await;
    assert!(!again.iter().any(|(_, text)| text == SLOW), "told once: {again:?}");
    assert!(harness.has_failure(0), "it had sent nothing");
}

#[tokio::test(start_paused = true)]
async fn the_first_model_serves_if_it_answers_before_the_next_one() {
    let harness = Harness::new(&[model(vec![answer(1_700, "A")]), model(vec![answer(300, "B")])]);
    let expected =
        [(0, "asks a"), (1_500, "asks b"), (1_700, "served by a"), (1_700, "A"), (1_800, "end 7")];
    assert_eq!(harness.run().await, events(&expected));
    assert_eq!((harness.asked(), harness.cancelled()[1]), (vec![1, 1], 1));
    assert!(!harness.has_failure(1), "it has only lost");
}

#[tokio::test(start_paused = true)]
async fn a_model_that_answers_in_time_and_a_chain_without_hedging_cost_one_request() {
    let harness = Harness::new(&[model(vec![answer(1_400, "A")]), model(Vec::new())]);
    assert_eq!(harness.run().await, events(&[(0, "asks a"), (1_400, "A"), (1_500, "end 7")]));
    assert_eq!(harness.asked(), [1, 0]);
    let models = [model(vec![answer(4_000, "A")]), model(Vec::new())];
    let harness = Harness::with_hedge(&models, None);
    assert_eq!(harness.run().await, events(&[(0, "asks a"), (4_000, "A"), (4_100, "end 7")]));
    assert_eq!(harness.asked(), [1, 0]);
    let alone = Harness::new(&[model(vec![answer(4_000, "A")])]);
    assert_eq!(alone.run().await, events(&[(0, "asks a"), (4_000, "A"), (4_100, "end 7")]));
}

/// Also a model that does not answer at all costs the delay of the hedge for three turns only.
#[tokio::test(start_paused = true)]
async fn a_model_that_loses_three_times_without_a_sign_is_skipped() {
    let harness =
        Harness::new(&[model(Vec::new()), model((0..4).map(|_| answer(300, "B")).collect())]);
    for asked in [1, 2, 3, 3] {
        let handle = harness.ask();
        sleep(Duration::from_secs(3)).await;
        drop(handle);
        assert_eq!(harness.asked()[0], asked);
    }
    let heard = harness.events.lock().unwrap();
    let times: Vec<u128> = heard.iter().filter(|(_, t)| t == "B").map(|(at, _)| *at).collect();
    assert_eq!(times, [1_800, 1_800, 1_800, 300]);
}

#[tokio::test(start_paused = true)]
async fn a_tool_call_is_an_answer() {
    let call = Event::ToolCall { id: "1".into(), name: "t".into(), arguments: Default::default() };
    let harness = Harness::new(&[model(Vec::new()), model(vec![vec![(100, call)]])]);
    let expected = [(0, "asks a"), (1_500, "asks b"), (1_600, SLOW), (1_600, "calls t")];
    assert_eq!(harness.run().await, events(&expected));
}

#[tokio::test(start_paused = true)]
async fn a_failure_of_one_is_no_failure_while_the_other_runs() {
    let late = |at| failure(at, ErrorKind::Timeout, "Alpha is late");
    let harness = Harness::new(&[model(vec![late(1_600)]), model(vec![answer(900, "B")])]);
    let warning = "warning: Alpha is late; Beta is used instead.";
    let expected =
        [(0, "asks a"), (1_500, "asks b"), (1_600, warning), (2_400, "B"), (2_500, "end 7")];
    assert_eq!(harness.run().await, events(&expected));
    assert!(harness.has_failure(0), "its time was over");

    let broken = failure(100, ErrorKind::Failed, "Beta broke off");
    let models = [model(vec![answer(2_000, "A")]), model(vec![broken]), model(Vec::new())];
    let harness = Harness::new(&models);
    let warning = "warning: Beta broke off; Alpha is used instead.";
    let expected = [(0, "asks a"), (1_500, "asks b"), (1_600, warning), (2_000, "served by a")];
    assert_eq!(harness.run().await[..4], events(&expected));
    assert_eq!(harness.asked(), [1, 1, 0]);
    assert!(harness.has_failure(1) && !harness.has_failure(0));
}

#[tokio::test(start_paused = true)]
async fn if_both_fail_the_next_one_answers_or_the_last_failure_is_reported() {
    let late = || failure(2_400, ErrorKind::Timeout, "Alpha is late");
    let broken = || failure(1_000, ErrorKind::Failed, "Beta broke off");
    let third = model(vec![answer(200, "C")]);
    let harness = Harness::new(&[model(vec![late()]), model(vec![broken()]), third]);
    let expected = [
        (0, "asks a"),
        (1_500, "asks b"),
        (2_400, "warning: Alpha is late; Beta is used instead."),
        (2_500, "warning: Beta broke off; Gamma is used instead."),
        (2_500, "asks c"),
        (2_700, "C"),
        (2_800, "end 7"),
    ];
    assert_eq!(harness.run().await, events(&expected));
    let harness = Harness::new(&[model(vec![late()]), model(vec![broken()])]);
    let expected = [(2_500, "warning: Beta broke off."), (2_500, "failed: Beta broke off")];
    assert_eq!(harness.run().await[3..], events(&expected));
    assert!(harness.has_failure(0) && harness.has_failure(1));
}

#[tokio::test(start_paused = true)]
async fn a_model_that_fails_after_it_has_won_is_not_replaced() {
    let mut broken = failure(400, ErrorKind::Failed, "Beta broke off");
    broken.insert(0, (300, Event::Text("B".into())));
    let harness = Harness::new(&[model(Vec::new()), model(vec![broken]), model(Vec::new())]);
    let warning = "warning: Beta broke off.";
    let expected = [(1_800, "B"), (1_900, warning), (1_900, "failed: Beta broke off")];
    assert_eq!(harness.run().await[3..], events(&expected));
    assert_eq!(harness.asked(), [1, 1, 0]);
}

#[tokio::test(start_paused = true)]
async fn a_cancellation_stops_both_and_the_timer() {
    let models = || [model(vec![answer(1_900, "A")]), model(vec![answer(900, "B")])];
    let harness = Harness::new(&models());
    let handle = harness.ask();
    sleep(Duration::from_millis(1_600)).await;
    drop(handle);
    assert_eq!(harness.cancelled(), [1, 1]);
    sleep(LONG).await;
    let expected = events(&[(0, "asks a"), (1_500, "asks b")]);
    assert_eq!(*harness.events.lock().unwrap(), expected);
    assert!(!harness.has_failure(0) && !harness.has_failure(1));

    let harness = Harness::new(&models());
    let handle = harness.ask();
    sleep(Duration::from_millis(1_400)).await;
    drop(handle);
    sleep(LONG).await;
    assert_eq!(harness.asked(), [1, 0]);
}

#[tokio::test(start_paused = true)]
async fn a_model_that_is_skipped_is_not_asked_and_a_lost_probe_is_left_to_the_next_request() {
    let third = model(vec![answer(300, "C")]);
    let harness = Harness::new(&[model(Vec::new()), model(Vec::new()), third]);
    harness.breakers[1].failed(Instant::now(), &Error::new(ErrorKind::NoCredit, "no credit"));
    let warning = "warning: Alpha sent no answer within 1.5 s; Gamma is used instead.";
    let expected =
        [(0, "asks a"), (1_500, "asks c"), (1_800, warning), (1_800, "C"), (1_900, "end 7")];
    assert_eq!(harness.run().await, events(&expected));

    let harness = Harness::new(&[model(vec![answer(1_700, "A")]), model(Vec::new())]);
    harness.breakers[1].failed(Instant::now(), &Error::new(ErrorKind::NoCredit, "no credit"));
    sleep(Duration::from_secs(300)).await;
    assert_eq!(harness.run().await[1], (1_500, "asks b".to_owned()), "the probe");
    assert_eq!(harness.breakers[1].admit(Instant::now()), Ok(()), "it has no result");
}

/// A model that answers from a thread of its own, in three parts.
struct ThreadedLlm(&'static str);

impl Llm for ThreadedLlm {
    fn ask(&self, _: Request, sink: Sink<Event>) -> Handle {
        let name = self.0;
        std::thread::spawn(move || {
            (0..3).for_each(|_| sink.send(Event::Text(name.into())));
            sink.send(Event::End { prompt_tokens: 0, cached_tokens: 0, completion_tokens: 3 });
        });
        Handle::noop()
    }
}

/// Whichever of two threads is the first one, the caller gets one answer and the name of its model.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_models_that_answer_at_the_same_time_give_one_answer() {
    let runtime = tokio::runtime::Handle::current();
    let hedge = Hedge { after: Duration::ZERO, runtime };
    for round in 0..200 {
        let entry = |name| ChainEntry {
            name: format!("Model {name}"),
            provider: name,
            model: Arc::new(ThreadedLlm(name)) as Arc<dyn Llm>,
            breaker: None,
        };
        let chain = LlmChain::new(vec![entry("a"), entry("b")], Some(hedge.clone()));
        let (sender, mut events) = tokio::sync::mpsc::unbounded_channel();
        let handle = chain.ask(request(), Sink::new(move |event| drop(sender.send(event))));
        let (mut serving, mut texts, mut ends) = ("", Vec::new(), 0);
        // Until both have ended, and nothing holds the sink any more.
        let mut handle = Some(handle);
        while let Some(event) = events.recv().await {
            match event {
                Event::Provider(name) | Event::ServedBy(name) => serving = name,
                Event::Text(text) => texts.push((serving, text)),
                Event::End { .. } => {
                    ends += 1;
                    handle.take();
                }
                Event::Warning(_) => {}
                other => panic!("{other:?}"),
            }
        }
        assert_eq!((ends, texts.len()), (1, 3), "round {round}: {texts:?}");
        let (first, _) = texts[0].clone();
        assert!(texts.iter().all(|(by, text)| *by == first && text == first), "{texts:?}");
    }
}
