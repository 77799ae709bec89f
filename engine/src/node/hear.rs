//! The user's sound: from the connection to the detector's windows, and what the detector says to the conversation.

use std::time::{Duration, Instant};

use conversation::input::Input;
use conversation::time::Time;

use super::Node;
use crate::hear::Hearing;
use crate::hear::decode::SILENCE;
use crate::hear::vad::Change;
use crate::link::Link;

/// A detector that hears speech while no packet comes for this long hears it no more.
const GAP: Duration = Duration::from_millis(600);

impl Node {
    /// Takes the sound that has come; windows may become ready.
    pub(crate) fn hear(&mut self, now: Instant) {
        if self.ended.is_some() || self.origin.is_none() {
            return;
        }
        let Some(link) = self.links.iter_mut().find(|l| Some(l.number) == self.current) else { return };
        let origin = self.origin.unwrap_or(now);
        while let Some(end) = link.hear(now, &mut self.pcm) {
            let end = end.min(now).saturating_duration_since(origin);
            self.hearing.take(&self.pcm, Time::from_micros(end.as_micros() as u64));
            self.pcm.clear();
        }
        let silent = link.voice.is_none_or(|at| now.saturating_duration_since(at) >= GAP);
        if silent && self.hearing.hears() {
            let change = self.hearing.gap();
            self.heard(now, change);
        }
        if let Some(level) = self.hearing.level() {
            self.told_silence = false;
            self.tell_level(now, level);
        }
        // Where no packet comes there is nothing to measure: that is told once.
        if silent && !self.told_silence && self.is_heard_of(now) {
            self.told_silence = true;
            self.tell_level(now, SILENCE);
        }
    }

    /// Packets of users' voices since the last call that came faster than real time.
    pub(crate) fn take_excess(&mut self) -> u64 {
        self.links.iter_mut().map(Link::take_excess).sum()
    }

    /// Whether the client's channel has been open for long enough that a packet of the user's voice would have come.
    fn is_heard_of(&self, now: Instant) -> bool {
        let link = self.links.iter().find(|l| Some(l.number) == self.current);
        link.is_some_and(|l| l.talks.is_some_and(|at| now.saturating_duration_since(at) >= GAP))
    }

    /// Windows that wait for the detector.
    pub(crate) fn hearing(&mut self) -> &mut Hearing {
        &mut self.hearing
    }

    /// The oldest window was judged.
    pub(crate) fn judged(&mut self, now: Instant, p: f32) {
        let change = self.hearing.judged(p);
        self.heard(now, change);
        if self.hearing.may_have_finished() {
            self.ask_turn_ahead();
        }
    }

    fn heard(&mut self, now: Instant, change: Option<Change>) {
        match change {
            Some(Change::Started { onset, until }) => {
                self.feed(now, Input::SpeechStarted { onset });
                self.feed(now, Input::SpeechContinued { until });
            }
            Some(Change::Heard { until }) => self.feed(now, Input::SpeechContinued { until }),
            Some(Change::Stopped { end }) => {
                self.feed(now, Input::SpeechStopped { end });
                // What an STT promises (`models::stt::Stream::end`).
                self.feed(now, Input::FinalTranscriptPending);
            }
            None => {}
        }
    }
}
