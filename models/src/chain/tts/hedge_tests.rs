//! Hedged segments, in virtual time.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::time::{Instant, sleep};

use super::*;
use crate::ErrorKind;
use crate::breaker::{Breaker, BreakerKey, Breakers};
use crate::tts::Word;

/// Time after which nothing happens any more; less than a breaker counts failures.
const LONG: Duration = Duration::from_secs(20);

/// What a voice does with one segment: its events, each with its time in milliseconds.
type Script = Vec<(u64, Event)>;

/// A voice that sends scripted events.
#[derive(Default)]
struct TimedTts {
    scripts: Mutex<VecDeque<Result<Script, Error>>>,
    texts: Mutex<Vec<String>>,
    cancelled: Arc<AtomicUsize>,
}

impl Tts for TimedTts {
    fn speak(&self, request: Request, sink: Sink<Event>) -> Result<Handle, Error> {
        self.texts.lock().unwrap().push(request.text);
        let script = self.scripts.lock().unwrap().pop_front().unwrap_or(Ok(Vec::new()))?;
        let speaking = async move {
            let start = Instant::now();
            for (at, event) in script {
                tokio::time::sleep_until(start + Duration::from_millis(at)).await;
                sink.send(event);
            }
        };
        let task = tokio::spawn(speaking);
        let cancelled = Arc::clone(&self.cancelled);
        Ok(Handle::new(move || {
            cancelled.fetch_add(1, Ordering::Relaxed);
            task.abort();
        }))
    }
}

fn voice(scripts: Vec<Script>) -> Arc<TimedTts> {
    let scripts = scripts.into_iter().map(Ok).collect();
    Arc::new(TimedTts { scripts: Mutex::new(scripts), ..TimedTts::default() })
}

fn audio() -> Event {
    Event::Audio { pcm: vec![1; 800], sample_rate: 8_000 }
}

fn words(text: &str) -> Event {
    Event::Words(vec![Word { text: text.into(), begin: None, end: 0.1 }])
}

/// A segment of which 5 characters are sent at once. A word comes 50 ms before its sound.
fn speech(at: u64, word: &str) -> Script {
    let usage = Event::Usage { provider: "", characters: 5 };
    vec![(0, usage), (at - 50, words(word)), (at, audio()), (at + 10, Event::End)]
}

struct Harness {
    voices: Vec<Arc<TimedTts>>,
    breakers: Vec<Arc<Breaker>>,
    chain: TtsChain,
    start: Instant,
    /// Milliseconds, and the event in short, with the text of its segment.
    events: Arc<Mutex<Vec<(u128, String)>>>,
}

impl Harness {
    /// A chain whose first segments are hedged after 1.2 s.
    fn new(voices: &[Arc<TimedTts>]) -> Self {
        let runtime = tokio::runtime::Handle::current();
        Self::with_hedge(voices, Some(Hedge { after: Duration::from_millis(1_200), runtime }))
    }

    fn with_hedge(voices: &[Arc<TimedTts>], hedge: Option<Hedge>) -> Self {
        let breaker = |name| Breakers::default().get(BreakerKey::new("tts", name, "", None));
        let breakers: Vec<_> = ["a", "b", "c"].into_iter().map(breaker).collect();
        let entry = |(n, voice): (usize, &Arc<TimedTts>)| TtsEntry {
            entry: ChainEntry {
                name: ["Alpha", "Beta", "Gamma"][n].into(),
                provider: ["a", "b", "c"][n],
                model: Arc::clone(voice) as Arc<dyn Tts>,
                breaker: Some(Arc::clone(&breakers[n])),
            },
            voice: String::new(),
        };
        let chain = TtsChain::new(voices.iter().enumerate().map(entry).collect(), hedge);
        let (voices, start, events) = (voices.to_vec(), Instant::now(), Arc::default());
        Self { voices, breakers, chain, start, events }
    }

    fn speak(&self, reply: u64, text: &'static str) -> Handle {
        let (events, start) = (Arc::clone(&self.events), self.start);
        let sink = Sink::new(move |event| {
            let event = match event {
                Event::Provider(name) => format!("asks {name}"),
                Event::ServedBy(name) => format!("served by {name}"),
                Event::Audio { .. } => "sound".into(),
                Event::Words(words) => words[0].text.clone(),
                Event::Usage { provider, characters } => format!("{provider} {characters}"),
                Event::Warning(text) => text,
                Event::End => "end".into(),
                Event::Failed(error) => format!("failed: {error}"),
                Event::Phones(_) => "phones".into(),
            };
            events.lock().unwrap().push((start.elapsed().as_millis(), format!("{text}: {event}")));
        });
        let request = Request { text: text.into(), reply, ..Request::default() };
        self.chain.speak(request, sink).unwrap()
    }

    /// Waits until nothing can happen any more.
    async fn finish(&self) -> Vec<(u128, String)> {
        sleep(LONG).await;
        std::mem::take(&mut *self.events.lock().unwrap())
    }

    fn texts(&self, number: usize) -> Vec<String> {
        self.voices[number].texts.lock().unwrap().clone()
    }

    fn cancelled(&self) -> Vec<usize> {
        self.voices.iter().map(|voice| voice.cancelled.load(Ordering::Relaxed)).collect()
    }

    /// Whether the breaker of a voice has counted a failure: two more open it.
    fn has_failure(&self, number: usize) -> bool {
        let error = Error::new(ErrorKind::Timeout, "late");
        (0..2).for_each(|_| self.breakers[number].failed(Instant::now(), &error));
        !self.breakers[number].is_closed()
    }
}

fn events(list: &[(u128, &str)]) -> Vec<(u128, String)> {
    list.iter().map(|(at, text)| (*at, (*text).to_owned())).collect()
}

#[tokio::test(start_paused = true)]
async fn the_first_voice_that_sounds_speaks_the_reply_to_its_end() {
    let first = voice(vec![speech(1_900, "early"), speech(100, "four")]);
    let second = voice(vec![speech(300, "one"), speech(100, "two"), speech(100, "three")]);
    let harness = Harness::new(&[Arc::clone(&first), second]);
    let _one = harness.speak(1, "One");
    let expected = [
        (0, "One: asks a"),
        (0, "One: a 5"),
        (1_200, "One: asks b"),
        (1_200, "One: b 5"),
        (1_500, "One: Alpha gave no sound within 1.2 s; Beta is used instead."),
        (1_500, "One: one"),
        (1_500, "One: sound"),
        (1_510, "One: end"),
    ];
    assert_eq!(harness.finish().await, events(&expected));
    assert_eq!(first.cancelled.load(Ordering::Relaxed), 1);
    drop([harness.speak(1, "Two"), harness.speak(1, "Three")]);
    assert_eq!(harness.texts(1), ["One", "Two", "Three"]);
    let _four = harness.speak(2, "Four");
    assert_eq!(harness.texts(0), ["One", "Four"]);
    assert!(harness.has_failure(0), "it had sent nothing");
}

#[tokio::test(start_paused = true)]
async fn a_voice_that_has_sent_words_was_only_slower() {
    let first = voice(vec![vec![(1_000, words("early")), (1_900, audio()), (2_000, Event::End)]]);
    let harness = Harness::new(&[first, voice(vec![speech(300, "one")])]);
    let _one = harness.speak(1, "One");
    assert!(harness.finish().await.contains(&(1_500, "One: sound".to_owned())));
    assert!(!harness.has_failure(0));
}

#[tokio::test(start_paused = true)]
async fn the_first_voice_serves_if_it_sounds_before_the_next_one() {
    let first = voice(vec![speech(1_300, "one"), speech(4_000, "two")]);
    let harness = Harness::new(&[first, voice(vec![speech(300, "other")])]);
    let _one = harness.speak(1, "One");
    let expected = [
        (1_200, "One: asks b"),
        (1_200, "One: b 5"),
        (1_300, "One: served by a"),
        (1_300, "One: one"),
        (1_300, "One: sound"),
        (1_310, "One: end"),
    ];
    assert_eq!(harness.finish().await[2..], events(&expected));
    assert_eq!(harness.cancelled()[1], 1);
    assert!(!harness.has_failure(1), "it has only lost");
    // Only the first segment of a reply is hedged.
    let _two = harness.speak(1, "Two");
    assert_eq!(harness.finish().await.len(), 5);
    assert_eq!(harness.texts(1), ["One"]);
}

#[tokio::test(start_paused = true)]
async fn a_voice_in_time_and_a_chain_without_hedging_cost_one_request() {
    for (at, hedged) in [(1_100, true), (2_400, false)] {
        let voices = [voice(vec![speech(at, "one")]), voice(Vec::new())];
        let harness =
            if hedged { Harness::new(&voices) } else { Harness::with_hedge(&voices, None) };
        let _one = harness.speak(1, "One");
        let heard = harness.finish().await;
        assert_eq!(heard[3], (at.into(), "One: sound".to_owned()), "{heard:?}");
        // Without hedging, words are sent before their sound.
        let words_at = if hedged { at } else { at - 50 };
        assert_eq!(heard[2], (words_at.into(), "One: one".to_owned()));
        assert!(harness.texts(1).is_empty());
    }
}

#[tokio::test(start_paused = true)]
async fn segments_that_wait_move_to_the_voice_that_has_won() {
    let first = voice(vec![speech(3_000, "one"), speech(4_000, "two")]);
    let second = voice(vec![speech(300, "one"), speech(100, "two")]);
    let harness = Harness::new(&[first, second]);
    let _both = [harness.speak(1, "One"), harness.speak(1, "Two")];
    let heard = harness.finish().await;
    let expected = [
        (1_500, "One: sound"),
        (1_500, "Two: asks b"),
        (1_500, "Two: b 5"),
        (1_510, "One: end"),
        (1_600, "Two: two"),
        (1_600, "Two: sound"),
        (1_610, "Two: end"),
    ];
    let begin = heard.iter().position(|(_, text)| text == "One: sound").unwrap();
    assert_eq!(heard[begin..], events(&expected));
    assert_eq!(harness.cancelled(), [2, 0]);
    assert!(harness.has_failure(0));
}

#[tokio::test(start_paused = true)]
async fn a_failure_of_one_is_no_failure_while_the_other_runs() {
    let failed = |at, words: &str| vec![(at, Event::Failed(Error::new(ErrorKind::Timeout, words)))];
    let first = voice(vec![failed(1_300, "Alpha is silent"), speech(100, "no")]);
    let second = voice(vec![speech(900, "one"), speech(100, "two")]);
    let harness = Harness::new(&[first, second]);
    let _one = harness.speak(1, "One");
    let expected = [
        (1_300, "One: Alpha is silent; Beta is used instead."),
        (2_100, "One: one"),
        (2_100, "One: sound"),
        (2_110, "One: end"),
    ];
    assert_eq!(harness.finish().await[3..], events(&expected)[..]);
    let _two = harness.speak(1, "Two");
    assert_eq!((harness.texts(0).len(), harness.texts(1).len()), (1, 2));
    assert!(harness.has_failure(0));

    // Both fail: the third voice speaks.
    let third = voice(vec![speech(100, "one")]);
    let late = voice(vec![failed(2_500, "Alpha is silent")]);
    let harness = Harness::new(&[late, voice(vec![failed(300, "Beta broke off")]), third]);
    let _one = harness.speak(1, "One");
    let heard = harness.finish().await;
    let expected = [
        (1_500, "One: Beta broke off; Alpha is used instead."),
        (2_500, "One: Alpha is silent; Gamma is used instead."),
        (2_500, "One: asks c"),
    ];
    assert_eq!(heard[2..5], events(&expected));
    assert_eq!(heard.last(), Some(&(2_610, "One: end".to_owned())));
}

#[tokio::test(start_paused = true)]
async fn a_voice_that_refuses_the_hedge_leaves_the_segment_to_the_first_one() {
    let busy = Err(Error::new(ErrorKind::Busy, "Too many texts wait"));
    let second = TimedTts { scripts: Mutex::new([busy].into()), ..TimedTts::default() };
    let harness = Harness::new(&[voice(vec![speech(2_000, "one")]), Arc::new(second)]);
    let _one = harness.speak(1, "One");
    let expected = [
        (1_200, "One: asks b"),
        (1_200, "One: Too many texts wait; Alpha is used instead."),
        (2_000, "One: served by a"),
        (2_000, "One: one"),
        (2_000, "One: sound"),
        (2_010, "One: end"),
    ];
    assert_eq!(harness.finish().await[2..], events(&expected));
}

#[tokio::test(start_paused = true)]
async fn a_cancellation_stops_both_and_the_timer() {
    let voices = || [voice(vec![speech(1_900, "one")]), voice(vec![speech(900, "one")])];
    let harness = Harness::new(&voices());
    let one = harness.speak(1, "One");
    sleep(Duration::from_millis(1_300)).await;
    drop(one);
    assert_eq!(harness.cancelled(), [1, 1]);
    assert_eq!(harness.finish().await.len(), 4, "nothing follows");
    assert!(!harness.has_failure(0) && !harness.has_failure(1));

    let harness = Harness::new(&voices());
    let one = harness.speak(1, "One");
    sleep(Duration::from_millis(1_100)).await;
    drop(one);
    assert_eq!(harness.finish().await.len(), 2);
    assert!(harness.texts(1).is_empty());
}
