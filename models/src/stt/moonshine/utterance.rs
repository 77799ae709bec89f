//! One utterance: its samples, the parts that it is decoded in, and their text.
//!
//! ```text
//! samples:  │ part │ part │ tail ……… now
//!             text   text   text of its first samples: interim; of all speech in it: final
//! ```
//!
//! A long utterance is cut in pauses, so that little is left to decode at its end. The transcript
//! of the tail is final if no speech follows the samples that were decoded.

use super::activity::{Activity, FRAME};
use super::{SAMPLE_RATE, Transcription, transcript};

/// Samples of speech before the first interim transcript: .6 s.
const FIRST_INTERIM: usize = SAMPLE_RATE * 6 / 10;
/// Samples between two interim transcripts, if the machine is not busy: .5 s.
const INTERIM_INTERVAL: usize = SAMPLE_RATE / 2;
/// Samples of silence inside speech after which a final transcript is decoded in advance: .1 s.
pub(super) const SPECULATION_SILENCE: usize = SAMPLE_RATE / 10;
/// Samples of the shortest speech: .2 s. A shorter sound has no words.
const MIN_SPEECH: usize = SAMPLE_RATE / 5;
/// Level of the quietest speech in dB relative to full scale.
const MIN_SPEECH_LEVEL: f32 = -55.0;
/// A tail that is longer is cut in its longest pause: 6 s.
const MAX_TAIL: usize = 6 * SAMPLE_RATE;
/// Length of a tail from which shorter pauses suffice, and the pause in frames.
const PAUSES: [(usize, usize); 3] = [(15 * SAMPLE_RATE, 6), (10 * SAMPLE_RATE, 10), (MAX_TAIL, 20)];
/// A tail without such a pause is cut where it is quietest: 20 s. A decode of more takes seconds.
const MAX_UNCUT: usize = 20 * SAMPLE_RATE;
/// Samples of a part at least, and of the tail after a cut: 3 s and .3 s.
const MIN_PART: usize = 3 * SAMPLE_RATE;
const MIN_REST: usize = SAMPLE_RATE * 3 / 10;
/// Number of times that a decode is tried.
const MAX_ATTEMPTS: u8 = 2;

/// What a decode is for, the least urgent first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Purpose {
    /// Text while the user speaks.
    Interim,
    /// The final transcript, in advance: the user is silent, and the detector has not reported it.
    Speculative,
    /// A part of an utterance that goes on.
    Part,
    /// What is missing of the final transcript of an utterance that has ended.
    Final,
}

impl Purpose {
    /// All purposes, in order.
    pub(super) const ALL: [Self; 4] = [Self::Interim, Self::Speculative, Self::Part, Self::Final];

    /// Name in metrics.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Interim => "interim",
            Self::Speculative => "speculative",
            Self::Part => "part",
            Self::Final => "final",
        }
    }
}

/// What a decode decodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Target {
    /// Number of the part.
    Part(usize),
    /// The tail after this number of cuts, and its number of samples.
    Tail { cuts: usize, samples: usize },
}

/// A part that was cut off.
struct Part {
    pcm: Vec<i16>,
    /// Whether it ends in a pause.
    ends_in_pause: bool,
    is_running: bool,
    attempts: u8,
    text: Option<String>,
}

/// A transcript of the tail.
struct TailText {
    /// Number of samples that it covers.
    samples: usize,
    /// Whether these end in speech, so that the last word may be cut.
    ends_in_speech: bool,
    /// Whether it is good enough for the final transcript.
    is_certain: bool,
    text: String,
}

/// State of one utterance.
#[derive(Default)]
pub(super) struct Utterance {
    parts: Vec<Part>,
    tail: Vec<i16>,
    activity: Activity,
    /// Latest transcript of the tail.
    tail_text: Option<TailText>,
    tail_attempts: u8,
    /// Samples of the tail that a decode which is running covers.
    running_tail: Option<usize>,
    /// Whether these end in speech.
    running_ends_in_speech: bool,
    /// Samples of the tail that the latest decode covers.
    last_request: usize,
    /// End of the speech before the silence in which no decode in advance is wanted.
    forgone_at: Option<usize>,
    has_ended: bool,
    has_failed: bool,
    last_interim: String,
}

impl Utterance {
    /// Takes the next samples.
    pub(super) fn push(&mut self, pcm: &[i16]) {
        self.tail.extend_from_slice(pcm);
        self.activity.push(pcm);
        let length = self.tail.len();
        let Some((_, min_frames)) = PAUSES.iter().find(|(min, _)| length >= *min) else { return };
        let end = length - MIN_REST;
        match self.activity.longest_pause(MIN_PART, end, *min_frames) {
            Some(at) => self.cut(at, true),
            None if length >= MAX_UNCUT => {
                self.cut(self.activity.quietest(MAX_UNCUT / 2, end), false);
            }
            None => {}
        }
    }

    fn cut(&mut self, at: usize, ends_in_pause: bool) {
        let rest = self.tail.split_off(at);
        let pcm = std::mem::replace(&mut self.tail, rest);
        self.parts.push(Part { pcm, ends_in_pause, is_running: false, attempts: 0, text: None });
        self.activity.forget(at);
        self.tail_text = None;
        self.running_tail = None;
        self.last_request = self.last_request.saturating_sub(at);
        self.forgone_at = None;
    }

    /// No samples follow.
    pub(super) fn end(&mut self) {
        self.has_ended = true;
    }

    pub(super) fn has_ended(&self) -> bool {
        self.has_ended
    }

    /// The most urgent decode that is missing and is not running.
    pub(super) fn next_decode(&self) -> Option<(Purpose, Target)> {
        let waiting = |part: &Part| part.text.is_none() && !part.is_running;
        if let Some(part) = self.parts.iter().position(waiting) {
            let purpose = if self.has_ended { Purpose::Final } else { Purpose::Part };
            return Some((purpose, Target::Part(part)));
        }
        let purpose = if self.has_ended {
            let is_covered = self.running_tail.is_some_and(|samples| self.covers(samples));
            (!is_covered && self.tail_result().is_none()).then_some(Purpose::Final)
        } else if self.wants_speculation() {
            Some(Purpose::Speculative)
        } else {
            self.wants_interim().then_some(Purpose::Interim)
        };
        let tail = Target::Tail { cuts: self.parts.len(), samples: self.tail.len() };
        purpose.map(|purpose| (purpose, tail))
    }

    /// Whether the first `samples` samples of the tail contain all its speech so far.
    fn covers(&self, samples: usize) -> bool {
        samples == self.tail.len()
            || self.activity.silence_samples().is_some()
                && self
                    .activity
                    .speech_range()
                    .is_some_and(|(_, end)| samples >= end + SPECULATION_SILENCE)
    }

    /// Text of the tail, if it is known.
    fn tail_result(&self) -> Option<&str> {
        if self.is_tail_speechless() {
            return Some("");
        }
        let tail = self.tail_text.as_ref()?;
        (tail.is_certain && self.covers(tail.samples)).then_some(&tail.text)
    }

    /// Whether the tail has no words for certain.
    fn is_tail_speechless(&self) -> bool {
        if self.tail.len() < MIN_SPEECH || self.activity.peak() < MIN_SPEECH_LEVEL {
            return true;
        }
        match self.activity.speech_range() {
            Some((onset, end)) => self.activity.is_reliable() && end - onset < MIN_SPEECH,
            // After a cut the levels of background and speech are known.
            None => !self.parts.is_empty() && self.activity.can_distinguish(),
        }
    }

    fn wants_speculation(&self) -> bool {
        let Some((onset, end)) = self.activity.speech_range() else { return false };
        let silence = self.activity.silence_samples();
        let is_covered = |samples: usize| samples >= end + SPECULATION_SILENCE;
        silence.is_some_and(|silence| silence >= SPECULATION_SILENCE)
            && end - onset >= MIN_SPEECH
            && self.forgone_at != Some(end)
            && !self
                .tail_text
                .as_ref()
                .is_some_and(|tail| tail.is_certain && is_covered(tail.samples))
            && !self.running_tail.is_some_and(is_covered)
    }

    fn wants_interim(&self) -> bool {
        if self.running_tail.is_some()
            || self.parts.iter().any(|part| part.text.is_none())
            || self.is_tail_speechless()
        {
            return false;
        }
        let length = self.tail.len();
        // In noise the onset is unknown; the speech begins after the pre-roll.
        let (onset, has_more) = match self.activity.speech_range() {
            Some((onset, end)) if self.activity.is_reliable() => (onset, end > self.last_request),
            _ if self.activity.can_distinguish() => return false,
            _ => (SAMPLE_RATE * 4 / 10, true),
        };
        has_more
            && length >= onset + FIRST_INTERIM
            && (self.last_request <= onset || length >= self.last_request + INTERIM_INTERVAL)
    }

    /// The final transcript is not decoded in advance in this silence.
    pub(super) fn forgo_speculation(&mut self) {
        self.forgone_at = self.activity.speech_range().map(|(_, end)| end);
    }

    /// Begins a decode: appends its samples to `pcm`.
    pub(super) fn begin(&mut self, target: Target, pcm: &mut Vec<i16>) {
        match target {
            Target::Part(number) => {
                let part = &mut self.parts[number];
                part.is_running = true;
                pcm.extend_from_slice(&part.pcm);
            }
            Target::Tail { samples, .. } => {
                self.running_tail = Some(samples);
                self.last_request = samples;
                let silence = self.activity.silence_samples().unwrap_or(0);
                self.running_ends_in_speech = silence < SPECULATION_SILENCE / 2;
                pcm.extend_from_slice(&self.tail[..samples]);
            }
        }
    }

    /// Whether the result of a decode which is running can still be used: a part, or what the tail
    /// begins with.
    pub(super) fn is_current(&self, target: Target) -> bool {
        match target {
            Target::Part(_) => true,
            Target::Tail { cuts, samples } => {
                cuts == self.parts.len() && (!self.has_ended || self.covers(samples))
            }
        }
    }

    /// Takes the result of a decode, which was `careful` unless it is an interim transcript.
    /// `Ok(None)` means that it was cancelled. Returns whether the result is of use.
    pub(super) fn finish(
        &mut self,
        target: Target,
        careful: bool,
        result: Result<Option<&Transcription>, ()>,
    ) -> bool {
        let is_current = self.is_current(target);
        match target {
            Target::Part(number) => {
                let part = &mut self.parts[number];
                part.is_running = false;
                match result {
                    Ok(Some(found)) => {
                        part.text = Some(transcript::clean(found, part.pcm.len()));
                        part.pcm = Vec::new();
                    }
                    Ok(None) => {}
                    Err(()) => {
                        part.attempts += 1;
                        if part.attempts >= MAX_ATTEMPTS {
                            part.text = Some(String::new());
                            self.has_failed = true;
                        }
                    }
                }
            }
            Target::Tail { cuts, samples } if cuts == self.parts.len() => {
                if self.running_tail == Some(samples) {
                    self.running_tail = None;
                }
                match result {
                    // Of two decodes, the one of more samples counts.
                    Ok(Some(found))
                        if self.tail_text.as_ref().is_none_or(|tail| tail.samples <= samples) =>
                    {
                        let text = transcript::clean(found, samples);
                        let ends_in_speech = self.running_ends_in_speech;
                        let is_certain = careful || !found.is_uncertain();
                        self.tail_text =
                            Some(TailText { samples, ends_in_speech, is_certain, text });
                    }
                    Ok(Some(_)) => {}
                    Ok(None) => {}
                    Err(()) if self.has_ended => {
                        self.tail_attempts += 1;
                        if self.tail_attempts >= MAX_ATTEMPTS {
                            let (samples, text) = (self.tail.len(), String::new());
                            let (ends_in_speech, is_certain) = (false, true);
                            self.tail_text =
                                Some(TailText { samples, ends_in_speech, is_certain, text });
                            self.has_failed = true;
                        }
                    }
                    Err(()) => {}
                }
            }
            Target::Tail { .. } => {}
        }
        is_current && matches!(result, Ok(Some(_)))
    }

    /// No decode is possible: the last interim transcript is all that is known.
    pub(super) fn give_up(&mut self) -> String {
        std::mem::take(&mut self.last_interim)
    }

    /// The transcript of an utterance that has ended, once all of it is known.
    pub(super) fn final_text(&self) -> Option<String> {
        let text = self.has_ended.then(|| self.joined(self.tail_result()?)).flatten()?;
        let is_better = !self.has_failed || text.len() >= self.last_interim.len();
        Some(if is_better { text } else { self.last_interim.clone() })
    }

    /// The transcript so far, if it has changed and is not empty.
    pub(super) fn new_interim(&mut self) -> Option<String> {
        let tail = self.tail_text.as_ref();
        let words = tail.map_or("", |tail| match tail.ends_in_speech {
            true => transcript::certain_words(&tail.text),
            false => &tail.text,
        });
        let mut text = self.joined(words)?;
        text.truncate(transcript::without_end(&text).len());
        // After a cut, the text of the new tail is missing at first.
        let is_shorter = self.tail_text.is_none() && text.len() < self.last_interim.len();
        if text.is_empty() || text == self.last_interim || is_shorter {
            return None;
        }
        self.last_interim.clone_from(&text);
        Some(text)
    }

    /// Text of all parts and `tail`, once the parts are known.
    fn joined(&self, tail: &str) -> Option<String> {
        let (mut text, mut is_pause) = (String::new(), true);
        for part in &self.parts {
            transcript::append(&mut text, part.text.as_ref()?, is_pause);
            is_pause = part.ends_in_pause;
        }
        transcript::append(&mut text, tail, is_pause);
        Some(text)
    }
}

// A cut lies between two frames, so that levels and samples stay aligned.
const _: () = assert!(MIN_PART.is_multiple_of(FRAME) && MAX_UNCUT.is_multiple_of(FRAME));
