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

use std::sync::Weak;
use std::sync::atomic::Ordering;

use crossbeam_channel::{Receiver, Sender};

use super::super::transcript_cleanup::clean_transcript;
use super::ffi::Decoder;
use super::{Event, Slot};
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

/// Serves commands until the pool and the streams are dropped. `session` holds the session that a
/// panicked decoder left, and then the current one.
pub(super) fn run_decoder(
    mut decoder: Decoder,
    slot: &Weak<Slot>,
    commands: &Receiver<Command>,
    used_buffers: &Sender<Vec<i16>>,
    session: &mut Option<DecoderSession>,
) {
    let channel = decoder.cepstral_mean();
    if let Some(session) = session {
        session.on_decoder_panic();
    }
    for command in commands {
        let current =
            |lease: u64| slot.upgrade().is_some_and(|slot| slot.lease.load(Ordering::Acquire) == lease);
        match command {
            Command::Open { lease, sink } => {
                if let Some(mut old) = session.take() {
                    old.abandon(&mut decoder);
                }
                decoder.set_cepstral_mean(&channel);
                *session = Some(DecoderSession { lease, sink, speech: None, failed: false });
            }
            Command::Close => {
                // The `Open` of a later call may already be queued; its lease differs.
                if let Some(mut old) = session.take() {
                    old.abandon(&mut decoder);
                }
            }
            Command::Audio(buffer) => {
                if let Some(session) = session.as_mut().filter(|session| current(session.lease)) {
                    session.push_audio(&mut decoder, &buffer);
                }
                let _ = used_buffers.try_send(buffer);
            }
            Command::StartSpeech => {
                if let Some(session) = session.as_mut().filter(|session| current(session.lease)) {
                    session.start_speech(&mut decoder);
                }
            }
            Command::EndSpeech => {
                if let Some(session) = session.as_mut().filter(|session| current(session.lease)) {
                    session.end_speech(&mut decoder);
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
    fn start_speech(&mut self, decoder: &mut Decoder) {
        if self.speech.is_some() {
            // Two starts without an end between them: no word is lost.
            self.end_speech(decoder);
        }
        self.speech = Some(SpeechSegment::default());
        let started = decoder.start_utterance();
        self.report_result(started);
    }

    fn push_audio(&mut self, decoder: &mut Decoder, pcm: &[i16]) {
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

    fn end_speech(&mut self, decoder: &mut Decoder) {
        let Some(speech) = self.speech.take() else { return };
        let ended = decoder.end_utterance();
        let text = speech.full_text(&clean_transcript(&decoder.hypothesis()));
        self.report_result(ended);
        self.sink.send(Event::Final(text));
    }

    /// The decoder panicked. Its last interim transcript is all that is known of the speech.
    fn on_decoder_panic(&mut self) {
        self.report_result(Err("the speech recogniser failed".into()));
        if let Some(speech) = self.speech.take() {
            self.sink.send(Event::Final(speech.last_interim));
        }
    }

    /// The call ended during speech: its transcript is discarded.
    fn abandon(&mut self, decoder: &mut Decoder) {
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
