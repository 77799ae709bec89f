//! Turn detection: the turn model in a whole call, scripted in virtual time, then the real model
//! with real voices.

#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a failure ends the test")]
#![allow(clippy::print_stderr)] // prints texts, probabilities and skipped parts

#[path = "support/allocations.rs"]
mod allocations;
mod support;

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use conversation::event::{Event, EventEnvelope};
use conversation::output::OpenTurn;
use conversation::settings::AgentTurnConfig;
use conversation::time::Time;
use engine::hear::turn_detector::TurnDetector;
use engine::hear::vad::BatchedVad;
use models::turn::{Config, SmartTurn, TurnModel, TurnRequest};
use models::{Handle, Sink, paths, tts, vad};
use support::{Harness, ScriptedTurnModel, VirtualTime, call_config, call_config_of, user_audio};

const SECOND: Duration = Duration::from_secs(1);
const EARLY_ANSWER: Duration = Duration::from_millis(60);
/// When this answer arrives, the turn is already committed.
const LATE_ANSWER: Duration = Duration::from_millis(400);

fn call_with_turn_model(id: u128) -> engine_api::CallConfig {
    call_config_of(id, AgentTurnConfig { turn_model: true, ..AgentTurnConfig::default() })
}

fn is_committed(event: &Event) -> bool {
    matches!(event, Event::UtteranceCommitted { .. })
}

/// Runs a call with one speech segment that ends at 1.5 s, and a turn model with this script.
/// Returns the model and the harness.
fn run_one_segment(script: &[Option<(Duration, f32)>]) -> (ScriptedTurnModel, Harness) {
    let mut harness = Harness::new();
    let oracle = ScriptedTurnModel::new(harness.time.clone(), script);
    harness.turn_model = Some(Arc::new(oracle.clone()));
    let client = harness.start_call(call_with_turn_model(1), &["What is new?"], "Nothing at all.");
    client.send_audio(user_audio(&[(0.5, 1.0), (6.0, 0.0)]));
    harness.run_for(7 * SECOND);
    (oracle, harness)
}

/// All events of the call except the join, which holds the wall clock.
fn events_without_join(harness: &Harness) -> Vec<EventEnvelope> {
    harness
        .recorder
        .events_of(1)
        .into_iter()
        .filter(|f| !matches!(f.event, Event::Joined { .. }))
        .collect()
}

#[test]
fn the_turn_model_shortens_or_prolongs_the_endpointing_delay() {
    for (p, wait) in [(0.9, 0.4), (0.4, 0.4), (0.3, 3.0), (0.0, 3.0)] {
        let (oracle, harness) = run_one_segment(&[Some((EARLY_ANSWER, p))]);
        let waited = harness.recorder.time_of(1, is_committed).unwrap() - 1.5;
        assert!(
            (waited - wait).abs() < 0.06,
            "P(turn is over) {p}: committed {waited:.3} s after the end"
        );
        let replied = harness
            .recorder
            .time_of(1, |e| matches!(e, Event::AgentStartedSpeaking { .. }))
            .unwrap()
            - 1.5;
        assert!(
            (replied - wait).abs() < 0.12,
            "P(turn is over) {p}: replied {replied:.3} s after the end"
        );
        assert_eq!(oracle.questions.lock().unwrap().len(), 1, "asked once, after the speech");
    }
}

#[test]
fn a_deadline_that_passes_without_an_answer_decides_and_a_late_answer_changes_nothing() {
    let mut without = Harness::new();
    let client = without.start_call(call_config(1), &["What is new?"], "Nothing at all.");
    client.send_audio(user_audio(&[(0.5, 1.0), (6.0, 0.0)]));
    without.run_for(7 * SECOND);
    let expected = events_without_join(&without);
    assert_eq!(expected.iter().filter(|f| is_committed(&f.event)).count(), 1);
    for script in [None, Some((LATE_ANSWER, 0.0)), Some((EARLY_ANSWER, f32::NAN))] {
        let (oracle, harness) = run_one_segment(&[script]);
        assert_eq!(events_without_join(&harness), expected, "{script:?}: as without a turn model");
        assert_eq!(*oracle.withdrawn.lock().unwrap(), [0], "an unused request is withdrawn");
    }
}

#[test]
fn the_model_has_as_long_as_the_detector_too_to_think() {
    // 200 ms is 0.15 s more than the time between the VAD's report and the commit.
    let (_, harness) = run_one_segment(&[Some((Duration::from_millis(200), 0.0))]);
    let waited = harness.recorder.time_of(1, is_committed).unwrap() - 1.5;
    assert!((waited - 3.0).abs() < 0.06, "committed {waited:.3} s after the end");
}

#[test]
fn a_turn_probability_is_discarded_when_the_user_continues() {
    let mut harness = Harness::new();
    let oracle = ScriptedTurnModel::new(
        harness.time.clone(),
        &[Some((Duration::from_millis(10), 0.0)), Some((EARLY_ANSWER, 0.9))],
    );
    harness.turn_model = Some(Arc::new(oracle.clone()));
    let client = harness.start_call(call_with_turn_model(1), &["I think we should go"], "So do I.");
    // A pause that is long enough for a question, but too short for the VAD.
    client.send_audio(user_audio(&[(0.5, 1.0), (0.21, 1.0), (6.0, 0.0)]));
    harness.run_for(7 * SECOND);
    assert_eq!(oracle.questions.lock().unwrap().len(), 2);
    assert_eq!(oracle.withdrawn.lock().unwrap()[0], 0);
    let waited = harness.recorder.time_of(1, is_committed).unwrap() - 2.71;
    assert!((waited - 0.4).abs() < 0.06, "committed {waited:.3} s after the end");
}

#[test]
fn a_question_is_withdrawn_as_soon_as_the_user_goes_on() {
    let mut harness = Harness::new();
    let oracle = ScriptedTurnModel::new(harness.time.clone(), &[]);
    harness.turn_model = Some(Arc::new(oracle.clone()));
    let client =
        harness.start_call(call_with_turn_model(1), &["I think", "we should go"], "So do I.");
    client.send_audio(user_audio(&[(0.5, 1.0), (0.35, 2.0)]));
    harness.run_for(Duration::from_millis(1_840));
    assert_eq!(oracle.questions.lock().unwrap().len(), 1);
    assert!(oracle.withdrawn.lock().unwrap().is_empty(), "the VAD still reports a pause");
    harness.run_for(Duration::from_millis(200));
    assert_eq!(*oracle.withdrawn.lock().unwrap(), [0]);
}

#[test]
fn the_turn_model_gets_the_audio_and_words_after_each_speech_segment() {
    let mut harness = Harness::new();
    let oracle = ScriptedTurnModel::new(
        harness.time.clone(),
        &[Some((EARLY_ANSWER, 0.1)), Some((EARLY_ANSWER, 0.9)), Some((EARLY_ANSWER, 0.9))],
    );
    harness.turn_model = Some(Arc::new(oracle.clone()));
    let script = ["Well, I think", "we should go.", "Now."];
    let client = harness.start_call(call_with_turn_model(1), &script, "Yes.");
    let sound = user_audio(&[(1.0, 1.0), (0.5, 0.7), (4.0, 0.5), (2.0, 0.0)]);
    client.send_audio(sound.clone());
    harness.run_for(11 * SECOND);
    let committed_texts: Vec<String> = events_without_join(&harness)
        .into_iter()
        .filter_map(|f| {
            if let Event::UtteranceCommitted { text, .. } = f.event { Some(text) } else { None }
        })
        .collect();
    assert_eq!(committed_texts, ["Well, I think we should go.", "Now."]);
    let asked = oracle.questions.lock().unwrap();
    let words: Vec<&str> = asked.iter().map(|q| q.transcript.as_str()).collect();
    assert_eq!(words, ["", "Well, I think", ""], "the last words come after the question");
    // Onset and end of the speech of each question, in seconds of the user's audio.
    for (question, (onset, end)) in asked.iter().zip([(1.0, 2.0), (1.0, 3.2), (7.2, 7.7)]) {
        let audio = &question.audio;
        let lead = audio.iter().position(|s| *s != 0).unwrap();
        let from = (onset * 16_000.0) as usize - lead;
        assert_eq!(audio[..], sound[from..from + audio.len()], "only the user's audio");
        let (lead, tail) = (lead as f64 / 16_000.0, (from + audio.len()) as f64 / 16_000.0 - end);
        assert!((0.5..0.54).contains(&lead), "from {lead:.3} s before the turn's first speech");
        assert!(
            (0.15..0.21).contains(&tail),
            "to {tail:.3} s after its end, before the detector is sure"
        );
    }
}

#[test]
fn a_long_turn_is_judged_by_its_last_seconds_and_a_model_that_only_reads_keeps_no_sound() {
    for (span, length) in [(8 * SECOND, 128_000), (Duration::ZERO, 0)] {
        let mut harness = Harness::new();
        let oracle =
            ScriptedTurnModel { span, ..ScriptedTurnModel::new(harness.time.clone(), &[]) };
        harness.turn_model = Some(Arc::new(oracle.clone()));
        let client = harness.start_call(call_with_turn_model(1), &["And so on."], "Yes.");
        client.send_audio(user_audio(&[(0.5, 12.0), (1.0, 0.0)]));
        harness.run_for(14 * SECOND);
        let asked = oracle.questions.lock().unwrap();
        assert_eq!(asked.iter().map(|q| q.audio.len()).collect::<Vec<_>>(), [length]);
    }
}

#[test]
fn an_agent_without_a_turn_model_requests_no_probability() {
    let mut harness = Harness::new();
    let oracle = ScriptedTurnModel::new(harness.time.clone(), &[Some((EARLY_ANSWER, 0.0))]);
    harness.turn_model = Some(Arc::new(oracle.clone()));
    let client = harness.start_call(call_config(1), &["What is new?"], "Nothing at all.");
    client.send_audio(user_audio(&[(0.5, 1.0)]));
    harness.run_for(3 * SECOND);
    assert!(oracle.questions.lock().unwrap().is_empty());
    assert!(harness.recorder.time_of(1, is_committed).is_some());
}

#[test]
fn keeping_the_sound_for_the_model_allocates_nothing() {
    let mut turn_detector =
        TurnDetector::new(Arc::new(ScriptedTurnModel::new(Harness::new().time, &[])));
    let block = [7; 320];
    let before = allocations::allocation_count();
    for i in 1..=1_000u64 {
        turn_detector.push_audio(&block, Time::from_micros(i * 20_000));
    }
    assert_eq!(allocations::allocation_count(), before);
    turn_detector.prefetch(OpenTurn::default(), |_| Sink::new(|_| {}));
    assert!(allocations::allocation_count() > before, "it counts");
}

fn models_dir() -> PathBuf {
    std::env::var_os(paths::MODELS_DIR_VARIABLE).map_or_else(
        || Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(paths::DEFAULT_MODELS_DIR),
        PathBuf::from,
    )
}

/// A sentence in a voice of flite, at 16 kHz, without the silence around it.
fn synthesize(text: &str) -> Vec<i16> {
    let flite = tts::Flite::start(1).unwrap_or_else(|e| panic!("{e}"));
    let (sender, events) = crossbeam_channel::unbounded();
    let request =
        tts::Request { text: text.into(), voice: "rms".into(), ..tts::Request::default() };
    let _handle =
        tts::Tts::speak(&flite, request, Sink::new(move |event| drop(sender.send(event))));
    let mut pcm = Vec::new();
    for event in events {
        match event {
            tts::Event::Audio { pcm: more, .. } => pcm.extend(more),
            tts::Event::End => break,
            tts::Event::Failed(error) => panic!("{error}"),
            tts::Event::Phones(_)
            | tts::Event::Words(_)
            | tts::Event::Usage { .. }
            | tts::Event::Provider(_)
            | tts::Event::ServedBy(_)
            | tts::Event::Warning(_) => {}
        }
    }
    let loud = |s: &i16| s.unsigned_abs() > 300;
    let (from, to) = (pcm.iter().position(loud).unwrap(), pcm.iter().rposition(loud).unwrap());
    pcm[from..to].to_vec()
}

/// The real model in virtual time: its answer arrives after 60 ms, however long it took.
struct RealTurnModel {
    model: SmartTurn,
    time: VirtualTime,
    probabilities: Arc<Mutex<Vec<f32>>>,
}

impl TurnModel for RealTurnModel {
    fn prepare(&self) -> Result<(), models::Error> {
        self.model.prepare()
    }

    fn max_audio(&self) -> Duration {
        self.model.max_audio()
    }

    fn predict(&self, question: TurnRequest, answer: Sink<f32>) -> Handle {
        let (tell, received) = crossbeam_channel::bounded(1);
        let asked = self.model.predict(question, Sink::new(move |p| tell.send(p).unwrap()));
        let p = received.recv().expect("an answer");
        drop(asked);
        self.probabilities.lock().unwrap().push(p);
        self.time.schedule_after(EARLY_ANSWER, move || answer.send(p));
        Handle::noop()
    }
}

/// With the real VAD and a real voice, an order is answered at once, and an unfinished sentence is
/// waited for. For most sentences in synthetic voices the model's answer is not definite; for these
/// two it is, in every run.
#[test]
fn a_whole_sentence_is_answered_at_once_and_one_that_breaks_off_is_waited_for() {
    let dir = models_dir();
    let mut waits = Vec::new();
    for (text, wait) in [("Tell me a story.", 0.4), ("So what I mean is", 3.0)] {
        let found = SmartTurn::open(Config { dir: dir.clone(), threads: 1 });
        let Ok(model) =
            found.inspect_err(|why| eprintln!("LEFT OUT, it proves nothing here: {why}"))
        else {
            return;
        };
        model.prepare().unwrap();
        let network = vad::Network::load(&paths::vad(&dir)).unwrap_or_else(|e| panic!("{e}"));
        let mut harness = Harness::with_vad(Box::new(BatchedVad::new(Arc::new(network))));
        let probabilities = Arc::<Mutex<Vec<f32>>>::default();
        let real = RealTurnModel {
            model,
            time: harness.time.clone(),
            probabilities: Arc::clone(&probabilities),
        };
        harness.turn_model = Some(Arc::new(real));
        let client = harness.start_call(call_with_turn_model(1), &[text], "Yes.");
        let mut sound = vec![0; 16_000];
        sound.extend(synthesize(text));
        let end = sound.len() as f64 / 16_000.0;
        sound.extend([0; 5 * 16_000]);
        client.send_audio(sound);
        harness.run_for(9 * SECOND);
        let probabilities = probabilities.lock().unwrap().clone();
        let waited = harness.recorder.time_of(1, is_committed).unwrap() - end;
        eprintln!(
            "{text:?}: P(turn is over) {probabilities:?}, committed {waited:.2} s after its end"
        );
        assert_eq!(
            probabilities.len(),
            1,
            "one speech segment: {:?}",
            harness.recorder.event_names(1)
        );
        waits.push((text, waited, wait));
    }
    // The VAD reports the end of speech within two windows of the last loud sample.
    assert!(waits.iter().all(|(_, waited, wait)| (waited - wait).abs() < 0.15), "{waits:?}");
}
