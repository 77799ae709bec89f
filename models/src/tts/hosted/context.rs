//! The segments of a reply that a vendor is speaking: which samples and words belong to which of
//! them, and when one has ended. Pure.
//!
//! All segments of a reply are spoken in one context of the vendor. Its sound is one stream, and its
//! times count from the beginning of that stream. A segment ends with the first of these:
//!
//! 1. a mark of the vendor, after at least one of its samples,
//! 2. the first word of the next segment, as long as the vendor has never sent a mark,
//! 3. the end of the context,
//! 4. silence of [`END_SILENCE`] after all of its words.

use std::collections::VecDeque;
use std::time::Duration;

use tokio::time::Instant;

use super::Timeouts;
use super::spoken_text::SpokenText;
use crate::Sink;
use crate::tts::{Event, Request, Word};

/// Sample rate that is requested of all vendors, in Hz.
pub(in crate::tts) const SAMPLE_RATE: u32 = 24_000;
/// Time without sound after which a segment has ended, if all of it was spoken.
const END_SILENCE: Duration = Duration::from_secs(1);
/// Times that begin this much before the end of earlier ones, in seconds, count from another
/// beginning.
const TIME_TOLERANCE: f64 = 0.05;
/// The shortest sound of a letter, in seconds. A shorter sound of a text is not complete.
const MIN_LETTER_SECONDS: f64 = 0.04;
/// The latest time in a context, in seconds.
const MAX_SECONDS: f64 = 36_000.0;

/// A text on its way to the vendor and back.
pub(super) struct Segment {
    pub(super) id: u64,
    pub(super) reply: u64,
    pub(super) voice: String,
    pub(super) language: Option<String>,
    pub(super) text: SpokenText,
    /// `None` once the segment was cancelled.
    pub(super) sink: Option<Sink<Event>>,
    pub(super) queued_at: Instant,
    /// Whether it was sent over a connection that ended before its first sound.
    pub(super) was_repeated: bool,
    /// Position in the context at which its first word begins, in samples.
    pub(super) first_word_at: Option<u64>,
}

impl Segment {
    /// A segment that was requested at `queued_at`.
    pub(super) fn new(id: u64, request: Request, sink: Sink<Event>, queued_at: Instant) -> Self {
        Self {
            id,
            reply: request.reply,
            text: SpokenText::new(&request.text, &request.pronunciation),
            voice: request.voice,
            language: request.language,
            sink: Some(sink),
            queued_at,
            was_repeated: false,
            first_word_at: None,
        }
    }

    pub(super) fn send(&self, event: Event) {
        if let Some(sink) = &self.sink {
            sink.send(event);
        }
    }
}

/// Why a segment has failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// No sound came in time.
    Silent,
    /// The sound stopped before all of the text was spoken.
    Stopped,
    /// The sound does not end.
    Endless,
}

/// A context of the vendor.
pub(super) struct Context {
    pub(super) reply: u64,
    /// The first one is spoken now.
    segments: VecDeque<Segment>,
    /// Samples before the first segment.
    start: u64,
    /// Samples so far.
    samples: u64,
    /// What is added to the vendor's times, in seconds.
    offset: f64,
    /// End of the latest word, in seconds.
    reported_until: f64,
    has_marks: bool,
    /// Since when the first segment waits for its first sound.
    waiting_since: Instant,
    /// When the last sound arrived.
    last_sound: Option<Instant>,
}

impl Context {
    /// A context. `has_marks`: the vendor has marked the end of a segment.
    pub(super) fn new(now: Instant, reply: u64, has_marks: bool) -> Self {
        Self {
            reply,
            segments: VecDeque::new(),
            start: 0,
            samples: 0,
            offset: 0.0,
            reported_until: 0.0,
            has_marks,
            waiting_since: now,
            last_sound: None,
        }
    }

    /// Adds a segment that was sent.
    pub(super) fn push(&mut self, now: Instant, segment: Segment) {
        if self.segments.is_empty() {
            self.waiting_since = now;
        }
        self.segments.push_back(segment);
    }

    /// Whether no segment is being spoken.
    pub(super) fn is_idle(&self) -> bool {
        self.segments.is_empty()
    }

    /// Whether all of its segments were cancelled, and there are some.
    pub(super) fn is_cancelled(&self) -> bool {
        !self.is_idle() && self.segments.iter().all(|segment| segment.sink.is_none())
    }

    /// Whether a segment of it has sounded that has not ended.
    pub(super) fn has_sound(&self) -> bool {
        !self.is_idle() && self.samples > self.start
    }

    /// Whether the vendor has marked the end of a segment.
    pub(super) fn has_marks(&self) -> bool {
        self.has_marks
    }

    /// Time of the last sound, or of the last text.
    pub(super) fn last_activity(&self) -> Instant {
        self.last_sound.map_or(self.waiting_since, |sound| sound.max(self.waiting_since))
    }

    /// Whether the vendor may have forgotten the context, which it does `lifetime` after its sound.
    pub(super) fn is_expired(&self, now: Instant, lifetime: Duration) -> bool {
        let waits_for_sound = !self.is_idle() && !self.has_sound();
        let quiet_since = self.last_sound.filter(|_| !waits_for_sound);
        quiet_since.is_some_and(|since| now.saturating_duration_since(since) >= lifetime)
    }

    /// Cancels a segment, if it is one of the context.
    pub(super) fn cancel(&mut self, id: u64) {
        if let Some(segment) = self.segments.iter_mut().find(|segment| segment.id == id) {
            segment.sink = None;
        }
    }

    /// The segments that have not ended.
    pub(super) fn into_segments(self) -> VecDeque<Segment> {
        self.segments
    }

    /// Takes samples, in order.
    pub(super) fn push_samples(&mut self, now: Instant, mut pcm: Vec<i16>) -> Result<(), Fault> {
        while !pcm.is_empty() {
            // Sound after the mark of the last segment is silence. The times count it.
            if self.is_idle() {
                self.samples += pcm.len() as u64;
                self.start = self.samples;
                return Ok(());
            }
            let end = if self.has_marks { None } else { self.segments.get(1) };
            let end = end.and_then(|next| next.first_word_at).map(|end| end.max(self.start));
            if let Some(end) = end.filter(|end| *end <= self.samples) {
                // A segment whose sound is over; or the words came later than their sound.
                self.end_first(now, end.min(self.samples));
                continue;
            }
            let room = end.map_or(usize::MAX, |end| (end - self.samples) as usize);
            let later = if room < pcm.len() { pcm.split_off(room) } else { Vec::new() };
            self.samples += pcm.len() as u64;
            self.last_sound = Some(now);
            let first = &self.segments[0];
            if seconds(self.samples - self.start) > first.text.max_seconds() {
                return Err(Fault::Endless);
            }
            first.send(Event::Audio { pcm, sample_rate: SAMPLE_RATE });
            pcm = later;
        }
        Ok(())
    }

    /// Takes words with the vendor's times, in order: those of one message.
    pub(super) fn push_words(&mut self, words: &[Word]) {
        let Some(first) = words.first() else { return };
        let begin = first.begin.unwrap_or(first.end);
        self.offset = if begin + TIME_TOLERANCE < self.reported_until {
            // The times count from the current position, or from the segment.
            let starts = self.segments.front().is_some_and(|segment| !segment.text.has_times());
            seconds(if starts { self.start } else { self.samples })
        } else {
            0.0
        };
        for word in words {
            let time = |time: f64| (time + self.offset).clamp(0.0, MAX_SECONDS);
            let word = Word {
                text: word.text.clone(),
                begin: word.begin.map(time),
                end: time(word.end).max(word.begin.map_or(0.0, time)),
            };
            self.reported_until = self.reported_until.max(word.end);
            self.push_word(&word);
        }
        self.send_words();
    }

    fn push_word(&mut self, word: &Word) {
        let Some(mut at) = self.segments.iter().position(|segment| !segment.text.is_complete())
        else {
            return;
        };
        let opens_next =
            self.segments.get(at + 1).is_some_and(|next| next.text.begins_with(&word.text));
        if opens_next && !self.segments[at].text.continues_with(&word.text) {
            self.segments[at].text.complete();
            at += 1;
        }
        let segment = &mut self.segments[at];
        segment.text.push(word);
        if segment.text.has_times() {
            let begin = word.begin.unwrap_or(word.end);
            segment.first_word_at.get_or_insert((begin * f64::from(SAMPLE_RATE)) as u64);
        }
    }

    /// Sends the words of the first segment that are known.
    fn send_words(&mut self) {
        if let Some(first) = self.segments.front_mut() {
            let words = first.text.take_words(seconds(self.start));
            if !words.is_empty() {
                first.send(Event::Words(words));
            }
        }
    }

    /// The vendor marks the end of a segment.
    pub(super) fn mark(&mut self, now: Instant) {
        self.has_marks = true;
        // Some vendors mark each message and each flush.
        self.end_sounding(now);
    }

    /// The vendor speaks nothing more: ends the segment that sounds.
    pub(super) fn end_sounding(&mut self, now: Instant) {
        if self.has_sound() {
            self.end_first(now, self.samples);
        }
    }

    /// Ends the first segment at a position in samples.
    fn end_first(&mut self, now: Instant, end: u64) {
        let Some(mut first) = self.segments.pop_front() else { return };
        let words = first.text.finish(seconds(self.start), seconds(end - self.start));
        if !words.is_empty() {
            first.send(Event::Words(words));
        }
        first.send(Event::End);
        self.start = end;
        self.waiting_since = now;
        self.send_words();
    }

    /// When [`Context::expire`] is due.
    pub(super) fn deadline(&self, timeouts: &Timeouts) -> Option<Instant> {
        if self.is_idle() {
            return None;
        }
        Some(match self.last_sound.filter(|_| self.has_sound()) {
            Some(sound) if self.is_first_complete() => sound + END_SILENCE,
            Some(sound) => sound + timeouts.gap,
            None => self.waiting_since + timeouts.first_sound,
        })
    }

    /// Handles the deadline if it is over.
    pub(super) fn expire(&mut self, now: Instant, timeouts: &Timeouts) -> Result<(), Fault> {
        if self.deadline(timeouts).is_none_or(|deadline| deadline > now) {
            return Ok(());
        }
        if !self.has_sound() {
            return Err(Fault::Silent);
        }
        if !self.is_first_complete() {
            return Err(Fault::Stopped);
        }
        tracing::debug!("a hosted TTS has not marked the end of a segment");
        self.end_first(now, self.samples);
        Ok(())
    }

    fn is_first_complete(&self) -> bool {
        let Some(first) = self.segments.front() else { return false };
        let is_reported = !first.text.has_times() || first.text.is_complete();
        let shortest = MIN_LETTER_SECONDS * first.text.letter_count() as f64;
        is_reported && seconds(self.samples - self.start) >= shortest
    }
}

/// Duration of samples.
fn seconds(samples: u64) -> f64 {
    samples as f64 / f64::from(SAMPLE_RATE)
}

#[cfg(test)]
mod tests;
