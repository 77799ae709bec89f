//! The utterances of a connection that have no final transcript, oldest first: their texts, and the
//! times at which the vendor must have answered.

use std::collections::VecDeque;
use std::time::Duration;

use tokio::time::Instant;

use super::{Output, Timeouts, duration_of};

/// Maximum addition to the time for a final transcript, for audio that was sent faster than real
/// time.
const MAX_BACKLOG_TIME: Duration = Duration::from_millis(1_300);
/// Maximum size of an utterance's text. The rest is dropped.
pub(in crate::stt) const MAX_TEXT_BYTES: usize = 32 << 10;

/// Number of end marks in a row without an answer after which the vendor has failed.
const MAX_MISSING_ANSWERS: u32 = 2;

/// How fast a vendor answers. [`Timeouts`] may change the times.
#[derive(Clone, Copy, Debug)]
pub(in crate::stt) struct Limits {
    /// Time for the answer to the end mark. Afterwards the last interim transcript is the final
    /// one.
    pub(in crate::stt) answer: Duration,
    /// The same if an answer is due and the vendor has sent nothing for the utterance, at least
    /// `answer`. Afterwards the vendor has failed.
    pub(in crate::stt) silent_answer: Duration,
    /// Amount of audio, in bytes, that a working server answers. `None`: it may send nothing
    /// while the user speaks.
    pub(in crate::stt) answered_audio: Option<usize>,
    /// Whether a working server answers each end mark.
    pub(in crate::stt) answers_each_end: bool,
}

/// Numbers of unusual messages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::stt) struct Counts {
    /// Messages of an unknown type.
    pub(in crate::stt) unknown: u32,
    /// Messages that cannot be read.
    pub(in crate::stt) malformed: u32,
    /// Errors about a message of ours; the connection goes on.
    pub(in crate::stt) errors: u32,
    /// Final segments of utterances that have their final transcript.
    pub(in crate::stt) late: u32,
    /// Segments and interim transcripts that were sent twice or out of order.
    pub(in crate::stt) repeated: u32,
    /// Utterances without an answer to the end mark.
    pub(in crate::stt) unanswered: u32,
    /// Empty final transcripts of utterances with interim transcripts.
    pub(in crate::stt) emptied: u32,
}

/// An utterance without a final transcript.
#[derive(Debug)]
pub(in crate::stt) struct Utterance {
    started_at: Instant,
    /// Position of its audio on the connection, in bytes.
    start: usize,
    /// Final segments, joined with blanks.
    segments: String,
    /// Text after them that may change.
    interim: String,
    /// The last interim transcript that was delivered, unless the vendor has retracted it.
    delivered: String,
    /// Whether words of its final segments did not fit into [`MAX_TEXT_BYTES`].
    is_cut: bool,
    /// The same for the text that may change.
    is_interim_cut: bool,
    /// Whether the vendor has sent anything for it.
    pub(in crate::stt) is_answered: bool,
    /// When an answer to the audio became due.
    answer_due_since: Option<Instant>,
    /// When the end mark was sent, and the position of the audio at that time.
    ended: Option<(Instant, usize)>,
    /// When its text is final unless the vendor sends more.
    settled_at: Option<Instant>,
}

impl Utterance {
    fn text(&self) -> String {
        let mut text = self.segments.clone();
        let _ = append(&mut text, &self.interim);
        text
    }

    /// Adds a final segment, which replaces the text that may change.
    pub(in crate::stt) fn add_segment(&mut self, text: &str) {
        self.is_cut |= !append(&mut self.segments, text);
        self.interim.clear();
        self.is_interim_cut = false;
    }

    /// Replaces the text that may change. An empty one retracts the previous one.
    pub(in crate::stt) fn set_interim(&mut self, text: &str) {
        if self.is_open() && self.segments.is_empty() && text.trim().is_empty() {
            self.delivered.clear();
        }
        self.interim.clear();
        self.is_interim_cut = !append(&mut self.interim, text);
    }

    /// Adds to the text that may change, without a blank.
    pub(in crate::stt) fn extend_interim(&mut self, text: &str) {
        let room = MAX_TEXT_BYTES.saturating_sub(self.interim.len());
        let part = &text[..text.floor_char_boundary(room)];
        self.is_interim_cut |= part.len() < text.len();
        self.interim.push_str(part);
    }

    /// Whether it has text that may change.
    pub(in crate::stt) fn is_open(&self) -> bool {
        !self.interim.is_empty()
    }

    /// Whether its text consists of final segments.
    pub(in crate::stt) fn is_segmented(&self) -> bool {
        !self.segments.is_empty() && !self.is_open()
    }

    /// The text becomes final at `at`, unless it is changed before; `None` = at the other limits.
    pub(in crate::stt) fn settle(&mut self, at: Option<Instant>) {
        self.settled_at = at;
    }

    /// Whether the end mark was sent.
    pub(in crate::stt) fn has_ended(&self) -> bool {
        self.ended.is_some()
    }

    /// Position of its first sample, in seconds of audio on the connection.
    pub(in crate::stt) fn start(&self) -> f64 {
        seconds(self.start)
    }

    /// Position of its last sample; `None` before its end.
    pub(in crate::stt) fn end(&self) -> Option<f64> {
        self.ended.map(|(_, end)| seconds(end))
    }

    /// Time that audio which was sent faster than real time takes.
    fn backlog_time(&self, ended_at: Instant, end: usize) -> Duration {
        let spoken = ended_at.saturating_duration_since(self.started_at);
        let ahead = duration_of(end - self.start).saturating_sub(spoken);
        // The pre-roll is always ahead.
        (ahead.saturating_sub(Duration::from_secs(1)) / 5).min(MAX_BACKLOG_TIME)
    }

    /// When it is over, and why.
    fn deadline(&self, limits: &Limits, first_timeout: Duration) -> Option<(Instant, Expiry)> {
        let first = self.answer_due_since.filter(|_| !self.is_answered);
        let first = first.map(|since| since + first_timeout);
        let Some((ended_at, end)) = self.ended else {
            return first.map(|first| (first, Expiry::Stalled));
        };
        let is_due = first.is_some() || (limits.answers_each_end && !self.is_answered);
        let (time, expiry) = if is_due {
            (limits.silent_answer, Expiry::Stalled)
        } else {
            (limits.answer, Expiry::Unanswered)
        };
        let finalized = ended_at + time + self.backlog_time(ended_at, end);
        let last = first.map_or(finalized, |first| first.min(finalized));
        match self.settled_at {
            Some(settled_at) if settled_at < last => Some((settled_at, Expiry::Settled)),
            _ => Some((last, expiry)),
        }
    }
}

/// Why an utterance is over.
#[derive(Clone, Copy, Debug)]
enum Expiry {
    /// The vendor has failed.
    Stalled,
    /// The end mark was not answered.
    Unanswered,
    /// Nothing follows.
    Settled,
}

/// The utterances of a connection.
#[derive(Debug)]
pub(in crate::stt) struct Utterances {
    limits: Limits,
    /// Time for anything after an answer to the audio has become due.
    first_timeout: Duration,
    queue: VecDeque<Utterance>,
    /// Audio that was sent on this connection.
    sent_bytes: usize,
    /// Whether the current connection has sent a transcript, perhaps an empty one.
    pub(in crate::stt) has_answered: bool,
    /// Successive utterances of all connections whose end mark was not answered, although an answer
    /// was due.
    missing_answers: u32,
    /// [`Counts::late`] at the last of them.
    late_at_missing: u32,
    /// Unusual messages of all connections.
    pub(in crate::stt) counts: Counts,
}

impl Utterances {
    pub(in crate::stt) fn new(limits: Limits) -> Self {
        Self {
            limits,
            first_timeout: Timeouts::default().first,
            queue: VecDeque::new(),
            sent_bytes: 0,
            has_answered: false,
            missing_answers: 0,
            late_at_missing: 0,
            counts: Counts::default(),
        }
    }

    /// Replaces the vendor's times by those that are configured.
    pub(in crate::stt) fn set_timeouts(&mut self, timeouts: &Timeouts) {
        self.first_timeout = timeouts.first;
        if let Some(time) = timeouts.final_transcript {
            self.limits.answer = time;
            self.limits.silent_answer = self.limits.silent_answer.max(time);
        }
    }

    /// A new connection is open.
    pub(in crate::stt) fn reset(&mut self) {
        self.queue.clear();
        self.sent_bytes = 0;
        self.has_answered = false;
    }

    /// An utterance begins.
    pub(in crate::stt) fn start(&mut self, now: Instant) {
        self.queue.push_back(Utterance {
            started_at: now,
            start: self.sent_bytes,
            segments: String::new(),
            interim: String::new(),
            delivered: String::new(),
            is_cut: false,
            is_interim_cut: false,
            is_answered: false,
            answer_due_since: None,
            ended: None,
            settled_at: None,
        });
    }

    /// Audio of the last utterance is sent.
    pub(in crate::stt) fn push_audio(&mut self, now: Instant, bytes: usize) {
        self.sent_bytes += bytes;
        if let Some(current) = self.queue.back_mut()
            && self.limits.answered_audio.is_some_and(|n| self.sent_bytes - current.start >= n)
        {
            current.answer_due_since.get_or_insert(now);
        }
    }

    /// Silence that belongs to no utterance is sent.
    pub(in crate::stt) fn push_silence(&mut self, bytes: usize) {
        self.sent_bytes += bytes;
    }

    /// The end mark of the last utterance is sent.
    pub(in crate::stt) fn end(&mut self, now: Instant) {
        if let Some(current) = self.queue.back_mut() {
            current.ended = Some((now, self.sent_bytes));
        }
    }

    /// The oldest utterance.
    pub(in crate::stt) fn front_mut(&mut self) -> Option<&mut Utterance> {
        self.queue.front_mut()
    }

    /// All, oldest first.
    pub(in crate::stt) fn iter(&self) -> impl DoubleEndedIterator<Item = &Utterance> {
        self.queue.iter()
    }

    /// Amount of audio of the last utterance so far, in bytes.
    pub(in crate::stt) fn current_bytes(&self) -> usize {
        self.queue.back().map_or(0, |current| self.sent_bytes - current.start)
    }

    /// Whether the last utterance has not ended.
    pub(in crate::stt) fn is_speaking(&self) -> bool {
        self.queue.back().is_some_and(|current| !current.has_ended())
    }

    /// Delivers the text of the oldest utterance so far, if it has changed.
    pub(in crate::stt) fn deliver_interim(&mut self, outputs: &mut Vec<Output>) {
        let Some(front) = self.queue.front_mut() else { return };
        let text = front.text();
        if !text.is_empty() && text != front.delivered {
            front.delivered.clone_from(&text);
            outputs.push(Output::Interim(text));
        }
    }

    /// The oldest utterance gets its final transcript. If the vendor's is empty although it has sent
    /// words and has not retracted them, the last interim transcript is the final one: the user was
    /// heard.
    pub(in crate::stt) fn finish(
        &mut self,
        now: Instant,
        outputs: &mut Vec<Output>,
    ) -> Option<Utterance> {
        self.missing_answers = 0;
        self.deliver_final(now, outputs)
    }

    fn deliver_final(&mut self, now: Instant, outputs: &mut Vec<Output>) -> Option<Utterance> {
        let finished = self.queue.pop_front()?;
        let mut text = finished.text();
        if text.is_empty() && !finished.delivered.is_empty() {
            text.clone_from(&finished.delivered);
            self.counts.emptied += 1;
        }
        if finished.is_cut || finished.is_interim_cut {
            outputs.push(Output::Cut);
        }
        outputs.push(Output::Final(text));
        // The vendor transcribes in order: the next utterance had no answer yet.
        if let Some(next) = self.queue.front_mut()
            && let Some(since) = &mut next.answer_due_since
        {
            *since = now;
        }
        Some(finished)
    }

    /// When [`Utterances::expire`] is due.
    pub(in crate::stt) fn deadline(&self) -> Option<Instant> {
        Some(self.front_deadline()?.0)
    }

    fn front_deadline(&self) -> Option<(Instant, Expiry)> {
        self.queue.front()?.deadline(&self.limits, self.first_timeout)
    }

    /// Whether the vendor has left several end marks unanswered in a row: another connection does
    /// not help.
    pub(in crate::stt) fn misses_answers(&self) -> bool {
        self.missing_answers >= MAX_MISSING_ANSWERS
    }

    /// Counts an end mark that was not answered in time. Returns whether the vendor has failed: it
    /// has sent no words where an answer was due, or it finishes no transcript.
    fn has_failed_to_answer(&mut self) -> bool {
        let Some(front) = self.queue.front() else { return false };
        let has_words = !front.text().is_empty() || !front.delivered.is_empty();
        let is_due = self.limits.answers_each_end || front.answer_due_since.is_some();
        if !has_words && !is_due {
            return false;
        }
        if self.counts.late != self.late_at_missing {
            self.missing_answers = 0;
        }
        self.late_at_missing = self.counts.late;
        self.missing_answers += 1;
        !has_words || self.misses_answers()
    }

    /// Handles the deadlines that are over, until an utterance is given up, and returns it.
    pub(in crate::stt) fn expire(
        &mut self,
        now: Instant,
        outputs: &mut Vec<Output>,
    ) -> Option<Utterance> {
        loop {
            let (deadline, expiry) = self.front_deadline()?;
            if deadline > now {
                return None;
            }
            match expiry {
                Expiry::Stalled => {
                    self.missing_answers += 1;
                    outputs.push(Output::Stalled);
                    return None;
                }
                Expiry::Settled => drop(self.finish(now, outputs)),
                Expiry::Unanswered => {
                    self.counts.unanswered += 1;
                    if self.has_failed_to_answer() {
                        outputs.push(Output::Stalled);
                        return None;
                    }
                    return self.deliver_final(now, outputs);
                }
            }
        }
    }
}

/// Appends a text after a blank, up to [`MAX_TEXT_BYTES`]. Returns whether all of it fits.
fn append(text: &mut String, more: &str) -> bool {
    let more = more.trim();
    if more.is_empty() {
        return true;
    }
    let room = MAX_TEXT_BYTES.saturating_sub(text.len() + 1);
    let part = &more[..more.floor_char_boundary(room)];
    if !text.is_empty() && !part.is_empty() {
        text.push(' ');
    }
    text.push_str(part);
    part.len() == more.len()
}

/// Duration of audio, in seconds.
fn seconds(bytes: usize) -> f64 {
    duration_of(bytes).as_secs_f64()
}
