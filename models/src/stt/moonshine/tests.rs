//! The threads, with decoders that fail on demand. A thread that is due to wait blocks until the
//! test lets it go on, so no test waits for a clock.

use std::sync::atomic::{AtomicBool, AtomicUsize};

use crossbeam_channel::{Receiver, Sender, unbounded};

use super::*;
use crate::panic_isolation::RESTART_DELAY;

/// A sample that makes the decoder panic.
const POISON: i16 = i16::MAX;
const TEST_TIMEOUT: Duration = Duration::from_secs(60);

/// Understands any sound as "Hello."
struct FakeDecoder;

impl SpeechDecoder for FakeDecoder {
    fn decode(
        &mut self,
        pcm: &[i16],
        _: bool,
        _: &AtomicBool,
    ) -> Result<Option<Transcription>, String> {
        assert!(!pcm.contains(&POISON), "the test's own panic");
        Ok(Some(Transcription { text: "Hello.".into(), mean_log_probability: -0.1 }))
    }
}

struct Harness {
    stt: Moonshine,
    /// Number of further loads that fail.
    failing_loads: Arc<AtomicUsize>,
    /// A thread has failed and waits.
    delays: Receiver<Duration>,
    /// Ends the wait of a thread.
    resume: Sender<()>,
}

impl Harness {
    fn new(failing_loads: usize) -> Self {
        let failing_loads = Arc::new(AtomicUsize::new(failing_loads));
        let ((delayed, delays), (resume, resumed)) = (unbounded(), unbounded());
        let failing = Arc::clone(&failing_loads);
        let load = move || {
            let fails =
                failing.fetch_update(Ordering::AcqRel, Ordering::Acquire, |n| n.checked_sub(1));
            fails.map_or(Ok(FakeDecoder), |_| Err("no memory".to_owned()))
        };
        // At the end of the test the other ends are gone.
        let pause = move |delay| {
            let _ = delayed.send(delay);
            let _ = resumed.recv();
        };
        let stt = Moonshine { context: pool::start(1, load, pause) };
        Self { stt, failing_loads, delays, resume }
    }

    fn wait_for(&self, done: impl Fn(&Moonshine) -> bool) {
        let deadline = std::time::Instant::now() + TEST_TIMEOUT;
        while !done(&self.stt) {
            assert!(std::time::Instant::now() < deadline, "the state was not reached");
            std::thread::yield_now();
        }
    }

    fn wait_failed(&self) -> Duration {
        self.delays.recv_timeout(TEST_TIMEOUT).expect("a failure")
    }

    fn open(&self) -> (Box<dyn SttStream>, Receiver<Event>) {
        self.wait_for(|stt| stt.capacity_error().is_none());
        let (sender, events) = unbounded();
        let stream = self.stt.open(Sink::new(move |event| sender.send(event).unwrap_or_default()));
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

/// Says something in one frame, whose first sample is `first`.
fn speak(stream: &mut dyn SttStream, first: i16) {
    let mut pcm = vec![0; SAMPLE_RATE / 5];
    pcm.extend((0..SAMPLE_RATE / 2).map(|n| if n % 8 < 4 { 9_000 } else { -9_000 }));
    pcm[SAMPLE_RATE / 5] = first;
    stream.start_speech();
    stream.push_audio(&pcm);
    stream.end_speech();
}

#[test]
fn what_is_said_is_transcribed_and_counted() {
    let harness = Harness::new(0);
    let (mut stream, events) = harness.open();
    stream.push_audio(&[9_000; 320]);
    stream.end_speech();
    for _ in 0..20 {
        speak(&mut *stream, 9_000);
        assert_eq!(next(&events), "final \"Hello.\"");
    }
    let [.., finals] = harness.stt.stats();
    assert_eq!((finals.purpose, finals.decodes, finals.discarded), ("final", 20, 0));
    assert_eq!((harness.stt.waiting_count(), harness.stt.failure_message()), (0, None));
}

#[test]
fn any_number_of_calls_shares_the_workers() {
    let harness = Harness::new(0);
    let mut calls: Vec<_> = (0..50).map(|_| harness.open()).collect();
    calls.iter_mut().for_each(|(stream, _)| speak(&mut **stream, 9_000));
    for (_, events) in &calls {
        assert_eq!(next(events), "final \"Hello.\"");
    }
}

#[test]
fn a_worker_that_panics_is_replaced_and_its_audio_tried_once_more() {
    let harness = Harness::new(0);
    let (mut stream, events) = harness.open();
    // Fewer failures than cause a long delay.
    for _ in 0..2 {
        speak(&mut *stream, POISON);
        for _ in 0..2 {
            assert!(harness.wait_failed() >= RESTART_DELAY);
            harness.resume.send(()).unwrap();
        }
        assert_eq!([next(&events), next(&events)], ["failed", "final \"\""]);
        speak(&mut *stream, 9_000);
        assert_eq!([next(&events), next(&events)], ["recovered", "final \"Hello.\""]);
    }
}

#[test]
fn a_network_that_cannot_be_loaded_is_tried_until_it_can() {
    let harness = Harness::new(12);
    for _ in 0..12 {
        harness.wait_failed();
        assert!(!harness.stt.is_loading());
        assert_eq!(
            harness.stt.failure_message().unwrap(),
            "STT workers that have failed and are restarting: 1 of 1 (no memory)"
        );
        let error = harness.stt.capacity_error().unwrap();
        assert_eq!(error.kind(), ErrorKind::NotAvailable);
        assert_eq!(error.to_string(), "the STT workers have failed: no memory");
        harness.resume.send(()).unwrap();
    }
    let (mut stream, events) = harness.open();
    speak(&mut *stream, 9_000);
    assert_eq!(next(&events), "final \"Hello.\"");
}

#[test]
fn a_call_goes_on_without_words_while_the_only_worker_is_gone() {
    let harness = Harness::new(0);
    let (mut stream, events) = harness.open();
    harness.failing_loads.store(usize::MAX, Ordering::Release);
    speak(&mut *stream, POISON);
    // In a short delay decodes wait, in a long one they are given up.
    while harness.wait_failed() == RESTART_DELAY {
        harness.resume.send(()).unwrap();
    }
    assert_eq!([next(&events), next(&events)], ["failed", "final \"\""]);
    speak(&mut *stream, 9_000);
    assert_eq!(next(&events), "final \"\"");
    harness.failing_loads.store(0, Ordering::Release);
    harness.resume.send(()).unwrap();
    harness.wait_for(|stt| stt.capacity_error().is_none());
    // The pool may know that the worker works before the scheduler does.
    let first = loop {
        speak(&mut *stream, 9_000);
        match next(&events) {
            text if text == "final \"\"" => {}
            other => break other,
        }
    };
    assert_eq!([first, next(&events)], ["recovered", "final \"Hello.\""]);
}

#[test]
fn the_threads_end_with_the_last_stream() {
    let loaded = Arc::new(());
    let held = Arc::clone(&loaded);
    let load = move || {
        let _held = &held;
        Ok(FakeDecoder)
    };
    let stt = Moonshine { context: pool::start(2, load, |_| ()) };
    let deadline = std::time::Instant::now() + TEST_TIMEOUT;
    while stt.is_loading() {
        std::thread::yield_now();
    }
    let stream = stt.open(Sink::new(|_| ())).unwrap_or_else(|e| panic!("{e}"));
    drop(stt);
    assert!(Arc::strong_count(&loaded) > 1);
    drop(stream);
    while Arc::strong_count(&loaded) > 1 {
        assert!(std::time::Instant::now() < deadline, "the threads go on");
        std::thread::yield_now();
    }
}
