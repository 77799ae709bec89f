use std::collections::VecDeque;

use super::*;
use crate::ErrorKind;
use crate::breaker::{Breaker, BreakerKey, Breakers};
use crate::tts::Word;

/// A voice that sends scripted events.
struct FakeTts {
    voices: &'static [&'static str],
    scripts: Mutex<VecDeque<Result<Vec<Event>, Error>>>,
    requests: Mutex<Vec<(String, String)>>,
}

impl Tts for FakeTts {
    fn speak(&self, request: Request, sink: Sink<Event>) -> Result<Handle, Error> {
        self.requests.lock().unwrap().push((request.text, request.voice));
        let script = self.scripts.lock().unwrap().pop_front().unwrap_or(Ok(Vec::new()))?;
        std::thread::spawn(move || script.into_iter().for_each(|event| sink.send(event)))
            .join()
            .unwrap();
        Ok(Handle::noop())
    }

    fn open_call(&self, like: &Request) -> Option<Arc<dyn Tts>> {
        self.requests.lock().unwrap().push(("open".into(), like.voice.clone()));
        None
    }

    fn has_voice(&self, voice: &str) -> bool {
        self.voices.contains(&voice)
    }
}

fn voice(voices: &'static [&'static str], scripts: Vec<Result<Vec<Event>, Error>>) -> Arc<FakeTts> {
    Arc::new(FakeTts { voices, scripts: Mutex::new(scripts.into()), requests: Mutex::default() })
}

fn audio(seconds: f64) -> Event {
    Event::Audio { pcm: vec![1; (seconds * 8_000.0) as usize], sample_rate: 8_000 }
}

fn words(list: &[(&str, f64)]) -> Event {
    let word = |(text, end): &(&str, f64)| Word { text: (*text).into(), begin: None, end: *end };
    Event::Words(list.iter().map(word).collect())
}

fn failure(kind: ErrorKind) -> Event {
    Event::Failed(Error::new(kind, "The first one failed"))
}

struct Harness {
    chain: TtsChain,
    voices: Vec<Arc<FakeTts>>,
    breaker: Arc<Breaker>,
    /// The providers that were told.
    providers: Arc<Mutex<Vec<&'static str>>>,
}

impl Harness {
    fn new(voices: &[Arc<FakeTts>]) -> Self {
        let breaker = Breakers::default().get(BreakerKey::new("tts", "first", "", None));
        let entry = |(n, voice): (usize, &Arc<FakeTts>)| TtsEntry {
            entry: ChainEntry {
                name: format!("Voice {n}"),
                provider: ["first", "second", "third"][n],
                model: Arc::clone(voice) as Arc<dyn Tts>,
                breaker: (n == 0).then(|| Arc::clone(&breaker)),
            },
            voice: String::new(),
        };
        let chain = TtsChain::new(voices.iter().enumerate().map(entry).collect(), None);
        Self { chain, voices: voices.to_vec(), breaker, providers: Arc::default() }
    }

    /// Speaks a text of a reply; the events in short.
    fn speak(&self, reply: u64, text: &str) -> Vec<String> {
        let events = Arc::new(Mutex::new(Vec::new()));
        let (push, providers) = (Arc::clone(&events), Arc::clone(&self.providers));
        let sink = Sink::new(move |event| {
            if let Event::Provider(provider) = event {
                return providers.lock().unwrap().push(provider);
            }
            push.lock().unwrap().push(match event {
                Event::Audio { pcm, sample_rate } => {
                    format!("{} s", pcm.len() as f64 / f64::from(sample_rate))
                }
                Event::Words(words) => {
                    let word = |w: &Word| format!("{} {}", w.text, w.end);
                    words.iter().map(word).collect::<Vec<_>>().join(", ")
                }
                Event::Warning(text) => text,
                Event::End => "end".into(),
                other => format!("{other:?}"),
            });
        });
        let request = Request {
            text: text.into(),
            voice: "ada".into(),
            avatar_voice: "slt".into(),
            reply,
            ..Request::default()
        };
        let result = self.chain.speak(request, sink);
        let mut events = events.lock().unwrap().clone();
        events.extend(result.err().map(|error| format!("refused: {error}")));
        events
    }

    fn providers(&self) -> Vec<&'static str> {
        std::mem::take(&mut *self.providers.lock().unwrap())
    }

    fn requests(&self, number: usize) -> Vec<(String, String)> {
        self.voices[number].requests.lock().unwrap().clone()
    }
}

fn request(text: &str, voice: &str) -> (String, String) {
    (text.into(), voice.into())
}

const WARNING: &str = "The first one failed; Voice 1 is used instead.";

#[test]
fn the_next_voice_speaks_a_segment_that_has_not_sounded_and_the_rest_of_the_reply() {
    let first = voice(&["ada"], vec![Ok(vec![failure(ErrorKind::Timeout)])]);
    let whole = || Ok(vec![audio(1.0), Event::End]);
    let harness = Harness::new(&[first, voice(&["slt"], vec![whole(), whole()])]);
    assert_eq!(harness.speak(1, "One two."), [WARNING, "1 s", "end"]);
    assert_eq!(harness.providers(), ["first", "second"]);
    assert_eq!(harness.speak(1, "Three."), ["1 s", "end"]);
    assert_eq!(harness.providers(), ["second"]);
    harness.speak(2, "Four.");
    assert_eq!(harness.requests(0), [request("One two.", "ada"), request("Four.", "ada")]);
    assert_eq!(harness.requests(1), [request("One two.", "slt"), request("Three.", "slt")]);
}

#[test]
fn the_next_voice_goes_on_after_the_words_that_have_sounded() {
    let first = [audio(0.5), words(&[("One", 0.5)]), failure(ErrorKind::Failed)];
    let second = [words(&[("two.", 0.25)]), audio(0.25), Event::End];
    let harness = Harness::new(&[
        voice(&["ada"], vec![Ok(first.into())]),
        voice(&[], vec![Ok(second.into())]),
    ]);
    let events = harness.speak(1, "One two.");
    assert_eq!(events, ["0.5 s", "One 0.5", WARNING, "two. 0.75", "0.25 s", "end"]);
    assert_eq!(harness.requests(1), [request("two.", "")]);
}

#[test]
fn a_voice_that_fails_after_all_words_ends_its_segment() {
    let first = [words(&[("One", 0.3), ("two", 0.5)]), audio(9.0), failure(ErrorKind::Failed)];
    let harness = Harness::new(&[
        voice(&["ada"], vec![Ok(first.into())]),
        voice(&["slt"], vec![Ok(vec![Event::End])]),
    ]);
    let events = harness.speak(1, "One two.");
    assert_eq!(events, ["One 0.3, two 0.5", "9 s", WARNING, "end"]);
    harness.speak(1, "Three.");
    assert_eq!(harness.requests(1), [request("Three.", "slt")], "nothing remained of the first");
}

#[test]
fn without_word_times_the_next_voice_begins_with_the_next_segment() {
    let first = voice(&["ada"], vec![Ok(vec![audio(0.5), failure(ErrorKind::Failed)])]);
    let second = voice(&["slt"], vec![Ok(vec![Event::End])]);
    let harness = Harness::new(&[first, second]);
    assert_eq!(harness.speak(1, "One two."), ["0.5 s", WARNING, "end"]);
    harness.speak(1, "Three.");
    assert_eq!(harness.requests(1), [request("Three.", "slt")]);
}

#[test]
fn a_voice_that_is_skipped_or_refuses_costs_no_request() {
    let busy = || Err(Error::new(ErrorKind::Busy, "Too many texts wait"));
    let first = voice(&["ada"], vec![Ok(vec![failure(ErrorKind::InvalidKey)])]);
    let end = || Ok(vec![Event::End]);
    let harness = Harness::new(&[first, voice(&["slt"], vec![end(), end(), busy()])]);
    assert_eq!(harness.speak(1, "One."), [WARNING, "end"]);
    assert!(!harness.breaker.is_closed());
    assert_eq!(harness.speak(2, "Two."), ["end"]);
    assert_eq!(harness.requests(0).len(), 1, "skipped");
    assert_eq!(harness.speak(3, "Three."), ["refused: Too many texts wait"]);
}

#[test]
fn a_voice_that_fails_in_its_sound_opens_its_breaker() {
    for kind in [ErrorKind::Timeout, ErrorKind::Failed] {
        let broken = || Ok(vec![audio(0.5), failure(kind)]);
        let first = voice(&["ada"], vec![broken(), broken(), broken()]);
        let harness = Harness::new(&[first, voice(&["slt"], Vec::new())]);
        for reply in 1..=3 {
            assert!(harness.breaker.is_closed(), "{reply}");
            harness.speak(reply, "One two.");
        }
        assert!(!harness.breaker.is_closed(), "{kind:?}");
    }
}

#[test]
fn only_a_segment_that_ends_well_resets_the_breaker() {
    for (middle, is_open) in [(vec![audio(0.5)], true), (vec![audio(0.5), Event::End], false)] {
        let broken = || Ok(vec![audio(0.5), failure(ErrorKind::Failed)]);
        let first = voice(&["ada"], vec![broken(), broken(), Ok(middle), broken()]);
        let harness = Harness::new(&[first, voice(&["slt"], Vec::new())]);
        (1..=4).for_each(|reply| drop(harness.speak(reply, "One two.")));
        assert_eq!(!harness.breaker.is_closed(), is_open);
    }
}

#[test]
fn the_first_voice_of_a_call_is_opened_with_its_name() {
    let harness = Harness::new(&[voice(&["ada"], Vec::new()), voice(&["slt"], Vec::new())]);
    let like = Request { voice: "ada".into(), ..Request::default() };
    assert!(harness.chain.open_call(&like).is_some());
    assert_eq!(harness.requests(0), [request("open", "ada")]);
    assert_eq!(harness.requests(1), []);
}

#[test]
fn the_failure_of_the_last_voice_is_reported() {
    let failed = || Ok(vec![failure(ErrorKind::Failed)]);
    let harness = Harness::new(&[voice(&[], vec![failed()]), voice(&[], vec![failed()])]);
    let events = harness.speak(1, "One.");
    // The second one fails for the same reason, and nobody serves instead.
    assert_eq!((events.len(), &*events[0], &*events[1]), (3, WARNING, "The first one failed."));
    assert!(events[2].starts_with("Failed("), "{events:?}");
    assert!(harness.chain.capacity_error().is_none());
}
