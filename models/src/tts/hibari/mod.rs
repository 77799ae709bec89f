//! Hibari: a neural voice for American English, at 24 kHz. It takes a hundredth of a core, and some
//! tens of milliseconds to the first audio.
//!
//! ```text
//! text ─► sentences ─► front end ─► chunks ─► acoustic network ─► vocoder ─► audio
//!                                                  │
//!                                                  └─► phones and word ends
//! ```
//!
//! The network computes the durations of all phonemes of a chunk before its first sample. The phones
//! and word ends of a chunk are therefore sent before its audio.
//!
//! The dictionaries and the tagger are shared by all threads. Each thread has an acoustic network of
//! its own, because a session of ONNX Runtime runs one request at a time.

mod fast_math;
mod files;
mod frontend;
mod network;
mod pulses;
mod sentence;
mod speaker;
mod timing;
mod unknown_words;
mod vocoder;

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

pub use files::check_installed;

use self::speaker::{Speaker, TextModel};
use super::pool::{SynthesisJob, SynthesisPool};
use super::voice::{HEART, is_hibari_voice};
use super::{Event, Request, Tts};
use crate::{Error, ErrorKind, Handle, Sink};

/// Name of this TTS in configurations.
pub const PROVIDER: &str = "hibari";

/// A voice of Hibari.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Voice {
    /// Name in configurations.
    pub name: &'static str,
    /// Whether it sounds like a woman.
    pub is_female: bool,
    /// Language tag (BCP 47).
    pub language: &'static str,
}

/// All voices, the default first.
pub const VOICES: [Voice; 1] = [Voice { name: HEART, is_female: true, language: "en-US" }];

/// Samples per second of the audio.
pub const SAMPLE_RATE: u32 = vocoder::SAMPLE_RATE;

/// The voice, on threads of its own.
pub struct Hibari {
    pool: SynthesisPool,
}

impl Hibari {
    /// Loads the voice from the models' directory and starts `threads` threads (at least one).
    ///
    /// # Errors
    /// [`ErrorKind::NotAvailable`] if a file is missing or damaged: one sentence that says which,
    /// and what to do.
    pub fn load(models_dir: &Path, threads: usize) -> Result<Self, Error> {
        let missing = |reason: String| Error::new(ErrorKind::NotAvailable, reason);
        files::check_runtime(models_dir).map_err(missing)?;
        let text_model = Arc::new(TextModel::load(models_dir).map_err(missing)?);
        // The first network is loaded here, to report its errors. A thread that restarts, and any
        // other thread, loads one of its own.
        let first = Speaker::load(models_dir, Arc::clone(&text_model)).map_err(missing)?;
        let first = Arc::new(Mutex::new(Some(first)));
        let threads = threads.max(1);
        // The first inference allocates memory and would be late.
        let warm_ups = (0..threads).map(|_| SynthesisJob::warm_up(PROVIDER));
        let dir = models_dir.to_owned();
        let pool = SynthesisPool::start("model-hibari", threads, warm_ups, move || {
            let loaded = first.lock().unwrap_or_else(PoisonError::into_inner).take();
            let mut speaker = match loaded {
                Some(speaker) => speaker,
                None => Speaker::load(&dir, Arc::clone(&text_model))?,
            };
            Ok(move |job: &SynthesisJob, is_cancelled: &dyn Fn() -> bool| {
                speaker.speak(job, is_cancelled);
            })
        })?;
        Ok(Self { pool })
    }

    /// Number of texts that wait for a thread, and the maximum.
    #[must_use]
    pub fn queue_usage(&self) -> (usize, usize) {
        self.pool.queue_usage()
    }

    /// One sentence about its threads that have failed; `None` if all work.
    #[must_use]
    pub fn failure_message(&self) -> Option<String> {
        self.pool.failure_message()
    }
}

impl Tts for Hibari {
    fn speak(&self, request: Request, sink: Sink<Event>) -> Result<Handle, Error> {
        self.pool.speak(request, sink)
    }

    fn has_voice(&self, voice: &str) -> bool {
        has_voice(voice)
    }

    fn capacity_error(&self) -> Option<Error> {
        self.pool.failure().or_else(|| self.pool.full())
    }
}

/// Whether a voice of this name exists, in any case. The empty name is the default voice.
#[must_use]
pub fn has_voice(name: &str) -> bool {
    name.trim().is_empty() || is_hibari_voice(name)
}

#[cfg(test)]
mod tests {
    use super::super::queue;
    use super::*;

    fn request(text: &str) -> Request {
        Request { text: text.into(), voice: String::new(), ..Request::default() }
    }

    #[test]
    fn the_queue_is_bounded_and_a_cancelled_text_leaves_it() {
        let (pool, _health, jobs) = SynthesisPool::without_threads(1);
        let hibari = Hibari { pool };
        let speak = || hibari.speak(request("hello"), Sink::new(|_| ()));
        let mut handles: Vec<Handle> =
            (0..queue::MAX_WAITING_TEXTS).map(|_| speak().unwrap()).collect();
        let error = hibari.capacity_error().unwrap();
        assert_eq!(error.kind(), ErrorKind::Busy);
        assert_eq!(speak().map(drop).unwrap_err().to_string(), error.to_string());
        drop(handles.pop());
        assert!(hibari.capacity_error().is_none());
        assert!(speak().is_ok());
        drop(handles);
        assert_eq!(hibari.queue_usage(), (0, queue::MAX_WAITING_TEXTS));
        assert!(jobs.try_iter().all(|(_, ticket)| !ticket.start()), "all are cancelled");
    }

    #[test]
    fn it_refuses_at_once_while_all_its_threads_have_failed() {
        let (pool, health, _jobs) = SynthesisPool::without_threads(1);
        let hibari = Hibari { pool };
        health.set_failed(0, "it panicked");
        let error = hibari.speak(request("hello"), Sink::new(|_| ())).map(drop).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotAvailable);
        assert!(hibari.failure_message().unwrap().contains("it panicked"));
        health.set_working(0);
        assert!(hibari.capacity_error().is_none() && hibari.failure_message().is_none());
    }

    #[test]
    fn voices_are_found_by_name_in_any_case() {
        assert!(["heart", "Heart", " heart ", ""].into_iter().all(has_voice));
        assert!(["slt", "hear", "heart2"].into_iter().all(|name| !has_voice(name)));
    }
}
