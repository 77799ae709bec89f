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

use super::super::clean::clean;
use super::ffi::Decoder;
use super::{Event, Slot};
use crate::{Error, Kind, Sink};

/// Samples between two interim hypotheses: .1 s.
const LOOK: usize = 1_600;
/// An utterance is ended and restarted after this many samples (30 s), because its memory grows. A
/// word may be split there.
const LONGEST: usize = 480_000;

/// Commands of a decoder, in order.
pub(super) enum Command {
    Open { lease: u64, sink: Sink<Event> },
    Begin,
    Audio(Vec<i16>),
    End,
    Close,
}

/// Serves commands until the pool and the streams are dropped. `session` holds the session that a
/// panicked decoder left, and then the current one.
pub(super) fn run(
    mut decoder: Decoder,
    slot: &Weak<Slot>,
    commands: &Receiver<Command>,
    used: &Sender<Vec<i16>>,
    call: &mut Option<Call>,
) {
    let channel = decoder.channel();
    if let Some(call) = call {
        call.lost_its_decoder();
    }
    for command in commands {
        let current =
            |lease: u64| slot.upgrade().is_some_and(|slot| slot.lease.load(Ordering::Acquire) == lease);
        match command {
            Command::Open { lease, sink } => {
                if let Some(mut old) = call.take() {
                    old.abandon(&mut decoder);
                }
                decoder.set_channel(&channel);
                *call = Some(Call { lease, sink, speech: None, broken: false });
            }
            Command::Close => {
                // The `Open` of a later call may already be queued; its lease differs.
                if let Some(mut old) = call.take() {
                    old.abandon(&mut decoder);
                }
            }
            Command::Audio(buffer) => {
                if let Some(call) = call.as_mut().filter(|call| current(call.lease)) {
                    call.audio(&mut decoder, &buffer);
                }
                let _ = used.try_send(buffer);
            }
            Command::Begin => {
                if let Some(call) = call.as_mut().filter(|call| current(call.lease)) {
                    call.begin(&mut decoder);
                }
            }
            Command::End => {
                if let Some(call) = call.as_mut().filter(|call| current(call.lease)) {
                    call.end(&mut decoder);
                }
            }
        }
    }
}

pub(super) struct Call {
    lease: u64,
    sink: Sink<Event>,
    speech: Option<Speech>,
    /// A failure was reported, and no recovery yet.
    broken: bool,
}

/// State between the start and the end of speech.
#[derive(Default)]
struct Speech {
    /// Transcript of utterances that were ended for their length.
    before: String,
    /// The last interim transcript.
    told: String,
    /// Samples of the utterance, and those since the last interim hypothesis.
    samples: usize,
    unseen: usize,
}

impl Speech {
    fn with(&self, words: &str) -> String {
        match (self.before.is_empty(), words.is_empty()) {
            (true, _) => words.to_owned(),
            (false, true) => self.before.clone(),
            (false, false) => format!("{} {words}", self.before),
        }
    }
}

impl Call {
    fn begin(&mut self, decoder: &mut Decoder) {
        if self.speech.is_some() {
            // Two starts without an end between them: no word is lost.
            self.end(decoder);
        }
        self.speech = Some(Speech::default());
        let begun = decoder.begin();
        self.judge(begun);
    }

    fn audio(&mut self, decoder: &mut Decoder, pcm: &[i16]) {
        let Some(speech) = &mut self.speech else { return };
        let processed = decoder.process(pcm);
        speech.samples += pcm.len();
        speech.unseen += pcm.len();
        if speech.unseen >= LOOK {
            speech.unseen = 0;
            let text = speech.with(&clean(&decoder.words()));
            if text != speech.told {
                speech.told.clone_from(&text);
                self.sink.send(Event::Interim(text));
            }
        }
        if speech.samples >= LONGEST {
            let ended = decoder.end();
            speech.before = speech.with(&clean(&decoder.words()));
            speech.samples = 0;
            let begun = decoder.begin();
            self.judge(ended.and(begun));
        } else {
            self.judge(processed);
        }
    }

    fn end(&mut self, decoder: &mut Decoder) {
        let Some(speech) = self.speech.take() else { return };
        let ended = decoder.end();
        let text = speech.with(&clean(&decoder.words()));
        self.judge(ended);
        self.sink.send(Event::Final(text));
    }

    /// The decoder panicked. Its last interim transcript is all that is known of the speech.
    fn lost_its_decoder(&mut self) {
        self.judge(Err("the speech recogniser failed".into()));
        if let Some(speech) = self.speech.take() {
            self.sink.send(Event::Final(speech.told));
        }
    }

    /// The call ended during speech: its transcript is discarded.
    fn abandon(&mut self, decoder: &mut Decoder) {
        if self.speech.take().is_some() {
            // The next start shows whether the decoder still works.
            let _ = decoder.end();
        }
    }

    /// Reports a failure once, and the recovery.
    fn judge(&mut self, result: Result<(), String>) {
        match (result, self.broken) {
            (Err(reason), false) => {
                self.broken = true;
                self.sink.send(Event::Failed(Error::new(Kind::Broken, reason)));
            }
            (Ok(()), true) => {
                self.broken = false;
                self.sink.send(Event::Recovered);
            }
            _ => {}
        }
    }
}
