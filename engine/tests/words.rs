//! The words of a recorded call have the times at which their samples left.

#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a failure ends the test")]

mod support;

use std::sync::Arc;
use std::time::{Duration, Instant};

use conversation::event::{Event, HeardWord};
use conversation::settings::AgentTurnConfig;
use conversation::time::Position;
use engine::transport::loopback::LoopbackOutput;
use models::{Handle, Sink, tts};
use serde_json::json;
use support::{Harness, VirtualTime, call_config_of, sample_at, user_audio};

const SAMPLE_RATE: u64 = 48_000;
/// Samples of a word: 0.3 s, after a pause of 0.1 s.
const WORD: u64 = SAMPLE_RATE * 3 / 10;
const PAUSE: u64 = SAMPLE_RATE / 10;
/// A frame of audio has up to 20 ms, and the words are known to the frame.
const TOLERANCE: f64 = 0.025;

/// Reports its words with their starts, as hosted voices do.
struct TimedTts(VirtualTime);

impl tts::Tts for TimedTts {
    fn speak(
        &self,
        request: tts::Request,
        sink: Sink<tts::Event>,
    ) -> Result<Handle, models::Error> {
        let seconds = |samples: u64| samples as f64 / SAMPLE_RATE as f64;
        let word = |(n, text): (u64, &str)| {
            let end = (n + 1) * (PAUSE + WORD);
            tts::Word { text: text.into(), begin: Some(seconds(end - WORD)), end: seconds(end) }
        };
        let words: Vec<_> = (0..).zip(request.text.split_whitespace()).map(word).collect();
        self.0.schedule_after(Duration::from_millis(16), move || {
            let pcm = (0..words.len() as u64 * (PAUSE + WORD)).map(sample_at).collect();
            sink.send(tts::Event::Words(words));
            sink.send(tts::Event::Audio { pcm, sample_rate: SAMPLE_RATE as u32 });
            sink.send(tts::Event::End);
        });
        Ok(Handle::noop())
    }
}

/// A call in which a noise pauses the answer: the words of the answer with their times, and the
/// times at which the first and last sample of each word left. All in seconds after the first
/// sample of the answer.
fn call_with_a_noise(records: bool) -> (Vec<HeardWord>, Vec<(f64, f64)>) {
    let turn = json!({"echo_warmup": 0});
    let agent =
        AgentTurnConfig { turn: Some(&turn), record_words: records, ..AgentTurnConfig::default() };
    let mut harness = Harness::new();
    let voice = Arc::new(TimedTts(harness.time.clone()));
    let client = harness.start_call_with_tts(
        call_config_of(1, agent),
        &["What is new?", ""],
        "One two three four five six seven eight nine ten.",
        voice,
        None,
    );
    client.send_audio(user_audio(&[(0.5, 1.0), (1.5, 0.8), (9.0, 0.0)]));
    harness.run_for(Duration::from_secs(12));

    let frames: Vec<(Instant, Position, usize)> = client
        .drain_outputs()
        .filter_map(|output| match output {
            LoopbackOutput::Audio { at, segment: Some((_, position)), pcm, .. } => {
                Some((at, position, pcm.len()))
            }
            _ => None,
        })
        .collect();
    let first = frames[0].0;
    let left = |sample: u64| {
        let frame = frames.iter().find(|(_, position, length)| {
            (position.as_samples()..position.as_samples() + *length as u64).contains(&sample)
        });
        let (at, position, _) = frame.expect("it was sent");
        let offset = (sample - position.as_samples()) as f64 / SAMPLE_RATE as f64;
        at.saturating_duration_since(first).as_secs_f64() + offset
    };
    let spans = (1..=10).map(|n| n * (PAUSE + WORD)).map(|end| (left(end - WORD), left(end - 1)));
    let events = harness.recorder.events_of(1);
    let is_start = |e: &Event| matches!(e, Event::AgentStartedSpeaking { .. });
    let start = harness.recorder.time_of(1, is_start).unwrap();
    let words = events.into_iter().filter_map(|envelope| match envelope.event {
        Event::AgentWords { words, .. } => Some(words),
        _ => None,
    });
    let relative = |w: HeardWord| HeardWord { start: w.start - start, end: w.end - start, ..w };
    (words.flatten().map(relative).collect(), spans.collect())
}

#[test]
fn words_stand_where_their_samples_left() {
    let (words, spans) = call_with_a_noise(true);
    assert_eq!(words.len(), spans.len(), "{words:?}");
    for (word, (start, end)) in words.iter().zip(&spans) {
        assert!(
            (word.start - start).abs() < TOLERANCE && (word.end - end).abs() < TOLERANCE,
            "{word:?} left from {start} to {end}"
        );
    }
    let longest = spans.iter().map(|(start, end)| end - start).fold(0.0, f64::max);
    let gaps = spans.windows(2).map(|pair| pair[1].0 - pair[0].1).fold(0.0, f64::max);
    assert!(longest.max(gaps) > 1.5, "the noise paused the answer: {spans:?}");
}

#[test]
fn a_call_that_is_not_recorded_has_no_words() {
    let (words, spans) = call_with_a_noise(false);
    assert_eq!((words.len(), spans.len()), (0, 10));
}
