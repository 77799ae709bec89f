//! The stream of one call: its utterances in order, and the events of each.

use std::collections::VecDeque;

use super::utterance::{Purpose, Target, Utterance};
use super::{Event, Transcription};
use crate::{Error, ErrorKind};

/// Maximum number of utterances that wait for their final transcript. Of further ones, the oldest
/// gets its last interim transcript.
const MAX_WAITING_UTTERANCES: usize = 8;

/// A decode of a stream.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ticket {
    utterance: u64,
    target: Target,
    pub(super) purpose: Purpose,
    /// Number of samples.
    pub(super) samples: usize,
}

impl Ticket {
    /// Whether an uncertain result is worth a second attempt.
    pub(super) fn is_careful(&self) -> bool {
        self.purpose != Purpose::Interim
    }
}

/// State of one stream. Events collect in it until they are taken.
#[derive(Default)]
pub(super) struct Stream {
    /// Utterances without a final transcript, oldest first, with their numbers. Only the last one
    /// may still go on.
    utterances: VecDeque<(u64, Utterance)>,
    next_number: u64,
    /// A failure was reported, and no recovery yet.
    has_failed: bool,
    events: Vec<Event>,
}

impl Stream {
    /// The user starts to speak.
    pub(super) fn start_speech(&mut self) {
        // Two starts without an end between them: no word is lost.
        self.end_speech();
        if self.utterances.len() >= MAX_WAITING_UTTERANCES
            && let Some((_, mut oldest)) = self.utterances.pop_front()
        {
            self.events.push(Event::Final(oldest.give_up()));
        }
        self.utterances.push_back((self.next_number, Utterance::default()));
        self.next_number += 1;
    }

    /// The next samples of the speech.
    pub(super) fn push_audio(&mut self, pcm: &[i16]) {
        if let Some(utterance) = self.current() {
            utterance.push(pcm);
        }
    }

    /// The speech ended.
    pub(super) fn end_speech(&mut self) {
        if let Some(utterance) = self.current() {
            utterance.end();
            self.collect();
        }
    }

    /// The utterance that goes on.
    fn current(&mut self) -> Option<&mut Utterance> {
        let (_, last) = self.utterances.back_mut()?;
        (!last.has_ended()).then_some(last)
    }

    /// Purpose of the most urgent decode that is missing and is not running.
    pub(super) fn wanted(&self) -> Option<Purpose> {
        self.next_decode().map(|(purpose, ..)| purpose)
    }

    fn next_decode(&self) -> Option<(Purpose, usize, Target)> {
        let decodes = self.utterances.iter().enumerate().filter_map(|(index, (_, utterance))| {
            utterance.next_decode().map(|(purpose, target)| (purpose, index, target))
        });
        // The first of equals: of the oldest utterance.
        decodes.reduce(|best, next| if next.0 > best.0 { next } else { best })
    }

    /// Begins the most urgent decode and appends its samples to `pcm`.
    pub(super) fn begin_decode(&mut self, pcm: &mut Vec<i16>) -> Option<Ticket> {
        let (purpose, index, target) = self.next_decode()?;
        let (number, utterance) = &mut self.utterances[index];
        utterance.begin(target, pcm);
        Some(Ticket { utterance: *number, target, purpose, samples: pcm.len() })
    }

    /// Whether the result of a decode which is running can still be used.
    pub(super) fn is_current(&self, ticket: &Ticket) -> bool {
        self.utterances
            .iter()
            .find(|(number, _)| *number == ticket.utterance)
            .is_some_and(|(_, utterance)| utterance.is_current(ticket.target))
    }

    /// Takes the result of a decode. `Ok(None)` means that it was cancelled. Returns whether the
    /// result is of use.
    pub(super) fn finish_decode(
        &mut self,
        ticket: &Ticket,
        result: Result<Option<&Transcription>, &str>,
    ) -> bool {
        match (&result, self.has_failed) {
            (Err(reason), false) => self.fail(reason),
            (Ok(Some(_)), true) => {
                self.has_failed = false;
                self.events.push(Event::Recovered);
            }
            _ => {}
        }
        let found = self.utterances.iter_mut().find(|(number, _)| *number == ticket.utterance);
        let Some((_, utterance)) = found else { return false };
        let is_used = utterance.finish(ticket.target, ticket.is_careful(), result.map_err(|_| ()));
        self.collect();
        is_used
    }

    /// The final transcript is not decoded in advance in this silence.
    pub(super) fn forgo_speculation(&mut self) {
        if let Some(utterance) = self.current() {
            utterance.forgo_speculation();
        }
    }

    /// No worker is left: each utterance that has ended gets its last interim transcript.
    pub(super) fn give_up(&mut self) {
        while self.utterances.front().is_some_and(|(_, utterance)| utterance.has_ended())
            && let Some((_, mut utterance)) = self.utterances.pop_front()
        {
            if !self.has_failed {
                self.fail("the STT failed");
            }
            self.events.push(Event::Final(utterance.give_up()));
        }
    }

    fn fail(&mut self, reason: &str) {
        self.has_failed = true;
        self.events.push(Event::Failed(Error::new(ErrorKind::Failed, reason)));
    }

    /// Sends what is known, in the order of the utterances.
    fn collect(&mut self) {
        while let Some((_, utterance)) = self.utterances.front_mut() {
            if let Some(text) = utterance.final_text() {
                self.events.push(Event::Final(text));
                self.utterances.pop_front();
                continue;
            }
            if !utterance.has_ended()
                && let Some(text) = utterance.new_interim()
            {
                self.events.push(Event::Interim(text));
            }
            return;
        }
    }

    /// The events since the last call.
    pub(super) fn take_events(&mut self) -> impl Iterator<Item = Event> {
        self.events.drain(..)
    }
}
