//! What the calls measure.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use models::{llm, stt, tts};
use serde_json::{Value, json};

use crate::stamp::{self, Latencies, MESSAGE_SAMPLES, STAMP_SAMPLES};

/// What all calls measure.
#[derive(Default)]
pub(crate) struct Measured {
    /// From a transcript that the vendor wrote to its event.
    stt_in: Latencies,
    /// From a token that the vendor wrote to its event.
    llm_in: Latencies,
    /// From a message with sound that the vendor wrote to the event that completes it.
    tts_in: Latencies,
    pub(crate) utterances: AtomicU64,
    finals: AtomicU64,
    pub(crate) questions: AtomicU64,
    ended_answers: AtomicU64,
    tokens: AtomicU64,
    pub(crate) segments: AtomicU64,
    ended_segments: AtomicU64,
    samples: AtomicU64,
    pub(crate) resampled: AtomicU64,
    words: AtomicU64,
    failures: AtomicU64,
}

pub(crate) fn add(counter: &AtomicU64, n: usize) {
    counter.fetch_add(n as u64, Ordering::Relaxed);
}

/// The messages in the sound of a segment, which may arrive in other pieces than they were sent.
#[derive(Default)]
pub(crate) struct SegmentReader(Mutex<(usize, [i16; STAMP_SAMPLES])>);

impl SegmentReader {
    /// Takes the next samples, and passes the stamp of each message that they complete.
    fn push(&self, pcm: &[i16], mut complete: impl FnMut(u64)) {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (position, stamp) = &mut *state;
        let mut rest = pcm;
        while let Some(sample) = rest.first() {
            let taken = match stamp.get_mut(*position) {
                Some(place) => {
                    *place = *sample;
                    1
                }
                None => rest.len().min(MESSAGE_SAMPLES - *position),
            };
            rest = &rest[taken..];
            *position += taken;
            if *position == MESSAGE_SAMPLES {
                *position = 0;
                complete(stamp::read(stamp));
            }
        }
    }
}

/// The text of an answer after its last blank: the beginning of a token.
#[derive(Default)]
pub(crate) struct AnswerReader(Mutex<String>);

impl AnswerReader {
    /// Takes more text, and passes the stamp of each token that it completes.
    fn push(&self, text: &str, mut complete: impl FnMut(u64)) {
        let mut rest = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        rest.push_str(text);
        while let Some((token, after)) = rest.split_once(' ') {
            complete(token.parse().unwrap_or_default());
            *rest = after.to_owned();
        }
    }
}

impl Measured {
    fn fail(&self, what: &str) {
        eprintln!("{what}");
        add(&self.failures, 1);
    }

    pub(crate) fn on_stt_event(&self, event: stt::Event) {
        let stamp = |text: &str| text.rsplit(' ').next().and_then(|word| word.parse().ok());
        match event {
            stt::Event::Interim(text) => self.stt_in.record(stamp(&text).unwrap_or_default()),
            stt::Event::Final(text) => {
                self.stt_in.record(stamp(&text).unwrap_or_default());
                add(&self.finals, 1);
            }
            stt::Event::Failed(error) => self.fail(&format!("STT: {error}")),
            stt::Event::Warning(text) => self.fail(&format!("STT: {text}")),
            _ => {}
        }
    }

    pub(crate) fn on_llm_event(&self, event: &llm::Event, reader: &AnswerReader) {
        match event {
            llm::Event::Text(text) => reader.push(text, |stamp| {
                self.llm_in.record(stamp);
                add(&self.tokens, 1);
            }),
            llm::Event::End { .. } => add(&self.ended_answers, 1),
            llm::Event::Failed(error) => self.fail(&format!("LLM: {error}")),
            llm::Event::Warning(text) => self.fail(&format!("LLM: {text}")),
            _ => {}
        }
    }

    pub(crate) fn on_tts_event(&self, event: &tts::Event, reader: &SegmentReader) {
        match event {
            tts::Event::Audio { pcm, .. } => {
                reader.push(pcm, |stamp| self.tts_in.record(stamp));
                add(&self.samples, pcm.len());
            }
            tts::Event::Words(words) => add(&self.words, words.len()),
            tts::Event::End => add(&self.ended_segments, 1),
            tts::Event::Failed(error) => self.fail(&format!("TTS: {error}")),
            tts::Event::Warning(text) => self.fail(&format!("TTS: {text}")),
            _ => {}
        }
    }

    /// The latencies of messages with stamps in this range.
    pub(crate) fn latencies(&self, from: u64, to: u64) -> Value {
        json!({
            "stt_in": self.stt_in.summary(from, to),
            "llm_in": self.llm_in.summary(from, to),
            "tts_in": self.tts_in.summary(from, to),
        })
    }

    pub(crate) fn counts(&self) -> Value {
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        json!({
            "utterances": count(&self.utterances),
            "finals": count(&self.finals),
            "questions": count(&self.questions),
            "ended_answers": count(&self.ended_answers),
            "tokens": count(&self.tokens),
            "segments": count(&self.segments),
            "ended_segments": count(&self.ended_segments),
            "words": count(&self.words),
            "samples": count(&self.samples),
            "resampled": count(&self.resampled),
            "failures": count(&self.failures),
        })
    }
}
