//! Decoder thread: serves the commands of one stream after another.
//!
//! ```text
//! no session ──Open──► idle ──StartSpeech──► in speech (Audio: Interim)
//!     ▲                 │ ▲                     │   │
//!     │                 │ └── EndSpeech: Final ─┘   │
//!     └───── Close ─────┴───────────────────────────┘
//! ```
//!
//! `Open` replaces a session in any state. Commands of an ended lease are ignored.
//!
//! The thread survives its decoder. If the decoder panics or cannot be loaded, the session is
//! informed, and the next decoder is loaded after a delay. During a long delay commands are read
//! without a decoder: audio is discarded, and the transcript of a speech is empty. During a short
//! one they wait, so that no audio is lost.

use std::cell::RefCell;
use std::ffi::{CStr, CString};
use std::sync::Weak;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender};

use super::super::transcript_cleanup::clean_transcript;
use super::ffi::Decoder;
use super::{Event, Slot};
use crate::panic_isolation::{RESTART_DELAY, catch_panic, run_until_done};
use crate::{Error, ErrorKind, Sink};

/// Samples between two interim hypotheses: .1 s.
const INTERIM_INTERVAL_SAMPLES: usize = 1_600;
/// An utterance is ended and restarted after this many samples (30 s), because its memory grows. A
/// word may be split there.
const MAX_UTTERANCE_SAMPLES: usize = 480_000;

/// Commands of a decoder, in order.
pub(super) enum Command {
    Open { lease: u64, sink: Sink<Event> },
    StartSpeech,
    Audio(Vec<i16>),
    EndSpeech,
    Close,
}

/// A speech decoder: PocketSphinx, or a test double.
pub(super) trait Recognizer {
    /// The estimate of the channel.
    fn cepstral_mean(&mut self) -> CString;
    /// Restores an estimate of the channel.
    fn set_cepstral_mean(&mut self, channel: &CStr);
    /// Starts an utterance.
    fn start_utterance(&mut self) -> Result<(), String>;
    /// Decodes the next samples, mono at 16 kHz.
    fn process(&mut self, pcm: &[i16]) -> Result<(), String>;
    /// Ends the utterance.
    fn end_utterance(&mut self) -> Result<(), String>;
    /// The most likely words so far, including markers.
    fn hypothesis(&mut self) -> String;
}

impl Recognizer for Decoder {
    fn cepstral_mean(&mut self) -> CString {
        Self::cepstral_mean(self)
    }

    fn set_cepstral_mean(&mut self, channel: &CStr) {
        Self::set_cepstral_mean(self, channel);
    }

    fn start_utterance(&mut self) -> Result<(), String> {
        Self::start_utterance(self)
    }

    fn process(&mut self, pcm: &[i16]) -> Result<(), String> {
        Self::process(self, pcm)
    }

    fn end_utterance(&mut self) -> Result<(), String> {
        Self::end_utterance(self)
    }

    fn hypothesis(&mut self) -> String {
        Self::hypothesis(self)
    }
}

/// What a decoder's thread has, whichever decoder it runs.
pub(super) struct DecoderThread {
    pub(super) slot: Weak<Slot>,
    pub(super) commands: Receiver<Command>,
    pub(super) used_buffers: Sender<Vec<i16>>,
}

impl DecoderThread {
    /// Serves commands until the pool and the streams are dropped. `load` loads a decoder, at first
    /// and after each failure. `wait` is how long the thread waits instead of a delay.
    pub(super) fn run<D: Recognizer>(
        self,
        load: impl Fn() -> Result<D, String>,
        wait: impl Fn(Duration) -> Duration,
    ) {
        let session = RefCell::new(None::<DecoderSession>);
        let work = || {
            let decoder = load()?;
            if let Some(slot) = self.slot.upgrade() {
                slot.set_working();
            }
            self.serve(decoder, &mut session.borrow_mut());
            Ok(())
        };
        let pause = |reason: &str, delay: Duration| {
            let Some(slot) = self.slot.upgrade() else { return false };
            slot.set_failed(reason);
            drop(slot);
            let mut session = session.borrow_mut();
            if let Some(session) = &mut *session {
                catch_panic(|| session.on_decoder_failure());
            }
            if delay > RESTART_DELAY {
                return self.discard_commands(&mut session, Instant::now() + wait(delay));
            }
            std::thread::sleep(wait(delay));
            true
        };
        run_until_done(Instant::now, work, pause);
    }

    fn serve<D: Recognizer>(&self, mut decoder: D, session: &mut Option<DecoderSession>) {
        let channel = decoder.cepstral_mean();
        if let Some(session) = session {
            session.resume(&mut decoder);
        }
        for command in &self.commands {
            match command {
                Command::Open { lease, sink } => {
                    // First, so that the new session is informed if the decoder panics here.
                    let new = DecoderSession { lease, sink, speech: None, failed: false };
                    if let Some(mut old) = session.replace(new) {
                        old.abandon(&mut decoder);
                    }
                    decoder.set_cepstral_mean(&channel);
                }
                Command::Close => {
                    // The `Open` of a later call may already be queued; its lease differs.
                    if let Some(mut old) = session.take() {
                        old.abandon(&mut decoder);
                    }
                }
                Command::Audio(buffer) => {
                    if let Some(session) = self.current(session) {
                        session.push_audio(&mut decoder, &buffer);
                    }
                    let _ = self.used_buffers.try_send(buffer);
                }
                Command::StartSpeech => {
                    if let Some(session) = self.current(session) {
                        session.start_speech(&mut decoder);
                    }
                }
                Command::EndSpeech => {
                    if let Some(session) = self.current(session) {
                        session.end_speech(&mut decoder);
                    }
                }
            }
        }
    }

    /// The session, if its lease has not ended.
    fn current<'a>(
        &self,
        session: &'a mut Option<DecoderSession>,
    ) -> Option<&'a mut DecoderSession> {
        let lease = self.slot.upgrade()?.lease.load(Ordering::Acquire);
        session.as_mut().filter(|session| session.lease == lease)
    }

    /// Reads commands without a decoder until `end`. Returns false if the pool and the streams are
    /// dropped.
    fn discard_commands(&self, session: &mut Option<DecoderSession>, end: Instant) -> bool {
        loop {
            match self.commands.recv_deadline(end) {
                Ok(command) => {
                    catch_panic(|| self.discard(session, command));
                }
                Err(RecvTimeoutError::Timeout) => return true,
                Err(RecvTimeoutError::Disconnected) => return false,
            }
        }
    }

    fn discard(&self, session: &mut Option<DecoderSession>, command: Command) {
        match command {
            Command::Open { lease, sink } => {
                let mut new = DecoderSession { lease, sink, speech: None, failed: false };
                new.on_decoder_failure();
                *session = Some(new);
            }
            Command::Close => *session = None,
            Command::Audio(buffer) => drop(self.used_buffers.try_send(buffer)),
            Command::StartSpeech => {
                if let Some(session) = self.current(session) {
                    session.end_speech_without_decoder();
                    session.speech = Some(SpeechSegment::default());
                }
            }
            Command::EndSpeech => {
                if let Some(session) = self.current(session) {
                    session.end_speech_without_decoder();
                }
            }
        }
    }
}

pub(super) struct DecoderSession {
    lease: u64,
    sink: Sink<Event>,
    speech: Option<SpeechSegment>,
    /// A failure was reported, and no recovery yet.
    failed: bool,
}

/// State between the start and the end of speech.
#[derive(Default)]
struct SpeechSegment {
    /// Transcript of utterances that were ended for their length.
    previous_text: String,
    /// The last interim transcript.
    last_interim: String,
    /// Samples of the utterance, and those since the last interim hypothesis.
    samples: usize,
    samples_since_interim: usize,
}

impl SpeechSegment {
    fn full_text(&self, words: &str) -> String {
        match (self.previous_text.is_empty(), words.is_empty()) {
            (true, _) => words.to_owned(),
            (false, true) => self.previous_text.clone(),
            (false, false) => format!("{} {words}", self.previous_text),
        }
    }
}

impl DecoderSession {
    fn start_speech(&mut self, decoder: &mut impl Recognizer) {
        if self.speech.is_some() {
            // Two starts without an end between them: no word is lost.
            self.end_speech(decoder);
        }
        self.speech = Some(SpeechSegment::default());
        let started = decoder.start_utterance();
        self.report_result(started);
    }

    fn push_audio(&mut self, decoder: &mut impl Recognizer, pcm: &[i16]) {
        let Some(speech) = &mut self.speech else { return };
        let processed = decoder.process(pcm);
        speech.samples += pcm.len();
        speech.samples_since_interim += pcm.len();
        if speech.samples_since_interim >= INTERIM_INTERVAL_SAMPLES {
            speech.samples_since_interim = 0;
            let text = speech.full_text(&clean_transcript(&decoder.hypothesis()));
            if text != speech.last_interim {
                speech.last_interim.clone_from(&text);
                self.sink.send(Event::Interim(text));
            }
        }
        if speech.samples >= MAX_UTTERANCE_SAMPLES {
            let ended = decoder.end_utterance();
            speech.previous_text = speech.full_text(&clean_transcript(&decoder.hypothesis()));
            speech.samples = 0;
            let started = decoder.start_utterance();
            self.report_result(ended.and(started));
        } else {
            self.report_result(processed);
        }
    }

    fn end_speech(&mut self, decoder: &mut impl Recognizer) {
        let Some(speech) = self.speech.take() else { return };
        let ended = decoder.end_utterance();
        let text = speech.full_text(&clean_transcript(&decoder.hypothesis()));
        self.report_result(ended);
        self.sink.send(Event::Final(text));
    }

    /// The decoder failed. Its last interim transcript is all that is known of the speech.
    fn on_decoder_failure(&mut self) {
        self.report_result(Err("the STT failed".into()));
        self.end_speech_without_decoder();
    }

    fn end_speech_without_decoder(&mut self) {
        if let Some(speech) = self.speech.take() {
            self.sink.send(Event::Final(speech.last_interim));
        }
    }

    /// A new decoder takes over a speech that started without one.
    fn resume(&mut self, decoder: &mut impl Recognizer) {
        if self.speech.is_some() {
            let started = decoder.start_utterance();
            self.report_result(started);
        }
    }

    /// The call ended during speech: its transcript is discarded.
    fn abandon(&mut self, decoder: &mut impl Recognizer) {
        if self.speech.take().is_some() {
            // The next start shows whether the decoder still works.
            let _ = decoder.end_utterance();
        }
    }

    /// Reports a failure once, and the recovery.
    fn report_result(&mut self, result: Result<(), String>) {
        match (result, self.failed) {
            (Err(reason), false) => {
                self.failed = true;
                self.sink.send(Event::Failed(Error::new(ErrorKind::Failed, reason)));
            }
            (Ok(()), true) => {
                self.failed = false;
                self.sink.send(Event::Recovered);
            }
            _ => {}
        }
    }
}
