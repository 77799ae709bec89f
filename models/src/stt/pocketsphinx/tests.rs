//! The pool with decoders that fail on demand. A thread that is due to wait blocks until the test
//! lets it go on, so no test waits for a clock.

use std::ffi::{CStr, CString};
use std::sync::atomic::AtomicUsize;

use crossbeam_channel::unbounded;

use super::*;
use crate::panic_isolation::RESTART_DELAY;

/// A sample that makes the decoder panic.
const POISON: i16 = i16::MAX;
/// 20 ms of audio.
const FRAME: [i16; 320] = [100; 320];
const TEST_TIMEOUT: Duration = Duration::from_secs(60);

/// Understands any sound as "hello".
struct FakeDecoder {
    samples: usize,
    ready: Sender<()>,
}

impl Recognizer for FakeDecoder {
    fn cepstral_mean(&mut self) -> CString {
        let _ = self.ready.send(());
        CString::default()
    }

    fn set_cepstral_mean(&mut self, _: &CStr) {}

    fn start_utterance(&mut self) -> Result<(), String> {
        self.samples = 0;
        Ok(())
    }

    fn process(&mut self, pcm: &[i16]) -> Result<(), String> {
        assert!(!pcm.contains(&POISON), "the test's own panic");
        self.samples += pcm.len();
        Ok(())
    }

    fn end_utterance(&mut self) -> Result<(), String> {
        Ok(())
    }

    fn hypothesis(&mut self) -> String {
        if self.samples > 0 { "hello".into() } else { String::new() }
    }
}

struct Harness {
    pool: PocketSphinxPool,
    /// Number of further loads that fail.
    failing_loads: Arc<AtomicUsize>,
    /// A decoder starts to serve.
    ready: Receiver<()>,
    /// A thread has failed and waits.
    delays: Receiver<Duration>,
    /// Ends the wait of a thread.
    resume: Sender<()>,
}

impl Harness {
    fn new(decoders: usize, failing_loads: usize) -> Self {
        let failing_loads = Arc::new(AtomicUsize::new(failing_loads));
        let ((now_ready, ready), (delayed, delays), (resume, resumed)) =
            (unbounded(), unbounded(), unbounded());
        let failing = Arc::clone(&failing_loads);
        let load = move || {
            let fails =
                failing.fetch_update(Ordering::AcqRel, Ordering::Acquire, |n| n.checked_sub(1));
            match fails {
                Ok(_) => Err("no memory".to_owned()),
                Err(_) => Ok(FakeDecoder { samples: 0, ready: now_ready.clone() }),
            }
        };
        // At the end of the test the other ends are gone.
        let wait = move |delay| {
            let _ = delayed.send(delay);
            let _ = resumed.recv();
            Duration::ZERO
        };
        let pool = PocketSphinxPool::start_with(decoders, load, wait);
        Self { pool, failing_loads, ready, delays, resume }
    }

    fn wait_ready(&self) {
        self.ready.recv_timeout(TEST_TIMEOUT).expect("a decoder");
    }

    /// Waits until a thread has failed.
    fn wait_failed(&self) -> Duration {
        self.delays.recv_timeout(TEST_TIMEOUT).expect("a failure")
    }

    fn open(&self) -> (Box<dyn SttStream>, Receiver<Event>) {
        let (sender, events) = unbounded();
        let stream = self.pool.open(Sink::new(move |event| sender.send(event).unwrap_or_default()));
        (stream.unwrap_or_else(|e| panic!("{e}")), events)
    }
}

/// The next event, in short.
fn next(events: &Receiver<Event>) -> String {
    match events.recv_timeout(TEST_TIMEOUT).expect("an event") {
        Event::Interim(text) => format!("interim {text:?}"),
        Event::Final(text) => format!("final {text:?}"),
        Event::Failed(_) => "failed".into(),
        Event::Recovered => "recovered".into(),
        Event::Warning(text) => format!("warning {text:?}"),
        other @ (Event::Turn(_) | Event::Usage(_) | Event::Provider(_)) => panic!("{other:?}"),
    }
}

#[test]
fn a_decoder_that_panics_again_and_again_is_replaced_each_time() {
    let harness = Harness::new(1, 0);
    let pool = &harness.pool;
    harness.wait_ready();
    for _ in 0..20 {
        let (mut stream, events) = harness.open();
        stream.start_speech();
        stream.push_audio(&[POISON; 320]);
        harness.wait_failed();
        assert_eq!([next(&events), next(&events)], ["failed", "final \"\""]);
        drop(stream);
        // No call gets it until a new one is loaded.
        assert_eq!((pool.loaded_count(), pool.free_count(), pool.failed_count()), (0, 0, 1));
        let error = pool.open(Sink::new(|_| ())).err().expect("refused");
        assert_eq!(error.kind(), ErrorKind::NotAvailable);
        assert_eq!(error.to_string(), "the STT decoders have failed: it panicked");
        harness.resume.send(()).unwrap();
        harness.wait_ready();
        assert_eq!((pool.free_count(), pool.failed_count(), pool.failure()), (1, 0, None));
    }
    let (mut stream, events) = harness.open();
    stream.start_speech();
    stream.push_audio(&FRAME);
    stream.end_speech();
    assert_eq!(next(&events), "final \"hello\"");
}

#[test]
fn a_decoder_that_cannot_be_loaded_is_tried_until_it_can() {
    let harness = Harness::new(1, 12);
    let pool = &harness.pool;
    for _ in 0..12 {
        harness.wait_failed();
        assert!(!pool.is_loading());
        assert_eq!(
            pool.failure_message().unwrap(),
            "STT decoders that have failed and are restarting: 1 of 1 (no memory)"
        );
        assert_eq!(pool.capacity_error().unwrap().kind(), ErrorKind::NotAvailable);
        harness.resume.send(()).unwrap();
    }
    harness.wait_ready();
    assert_eq!((pool.free_count(), pool.failure_message()), (1, None));
    assert!(pool.capacity_error().is_none());
}

#[test]
fn a_call_that_comes_while_a_decoder_loads_waits_for_it() {
    let (loaded, loading) = unbounded::<()>();
    let (ready, _ready) = unbounded();
    let load = move || {
        loading.recv().map_err(|error| error.to_string())?;
        Ok(FakeDecoder { samples: 0, ready: ready.clone() })
    };
    let pool = PocketSphinxPool::start_with(1, load, |delay| delay);
    assert!(pool.is_loading());
    let (sender, events) = unbounded();
    let sink = Sink::new(move |event| sender.send(event).unwrap_or_default());
    let mut stream = pool.open(sink).unwrap_or_else(|e| panic!("{e}"));
    stream.start_speech();
    stream.push_audio(&FRAME);
    stream.end_speech();
    let refusal = pool.open(Sink::new(|_| ())).err().map(|error| error.to_string());
    assert_eq!(refusal.as_deref(), Some("all 1 STT decoders are in use"));
    assert!(events.is_empty());
    loaded.send(()).unwrap();
    assert_eq!(next(&events), "final \"hello\"");
    drop(stream);
    assert_eq!((pool.free_count(), pool.is_loading()), (1, false));
}

#[test]
fn a_failed_decoder_leaves_the_others_to_new_calls() {
    let harness = Harness::new(2, 0);
    let pool = &harness.pool;
    harness.wait_ready();
    harness.wait_ready();
    let (mut first, _first_events) = harness.open();
    first.start_speech();
    first.push_audio(&[POISON; 320]);
    harness.wait_failed();
    assert_eq!((pool.free_count(), pool.taken_count(), pool.failed_count()), (1, 0, 1));
    let (mut second, events) = harness.open();
    second.start_speech();
    second.push_audio(&FRAME);
    second.end_speech();
    assert_eq!(next(&events), "final \"hello\"");
    assert_eq!(pool.capacity_error().unwrap().to_string(), "all 1 STT decoders are in use");
    assert!(pool.failure_message().unwrap().contains("1 of 2 (it panicked)"));
}

#[test]
fn a_call_goes_on_without_words_while_its_decoder_is_gone_and_with_the_next_one() {
    let harness = Harness::new(1, 0);
    harness.wait_ready();
    harness.failing_loads.store(usize::MAX, Ordering::Release);
    let (mut stream, events) = harness.open();
    stream.start_speech();
    stream.push_audio(&[POISON; 320]);
    assert_eq!([next(&events), next(&events)], ["failed", "final \"\""]);
    // In a short delay commands wait, in a long one they are read.
    while harness.wait_failed() == RESTART_DELAY {
        harness.resume.send(()).unwrap();
    }
    stream.end_speech();
    stream.start_speech();
    stream.push_audio(&FRAME);
    stream.end_speech();
    stream.start_speech();
    stream.push_audio(&FRAME);
    harness.failing_loads.store(0, Ordering::Release);
    harness.resume.send(()).unwrap();
    assert_eq!([next(&events), next(&events)], ["final \"\"", "recovered"]);
    assert_eq!(
        (harness.pool.free_count(), harness.pool.taken_count()),
        (0, 1),
        "the call still has it"
    );
    stream.push_audio(&FRAME);
    stream.end_speech();
    assert_eq!(next(&events), "final \"hello\"");
    drop(stream);
    assert_eq!(harness.pool.free_count(), 1);
}
