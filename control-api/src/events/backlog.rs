//! Events that wait in memory, within limits, while the store rejects writes or is slow.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};

use conversation::event::{Event, EventEnvelope};
use conversation::id::ConversationId;
use conversation::time::Time;

/// Maximum size of the waiting events, bytes of JSON.
const MAX_BYTES: usize = 256 << 20;
/// Maximum duration of one call that its waiting events cover, in seconds.
const MAX_CALL_SECONDS: f64 = 600.0;
/// Bytes of an event in addition to its JSON.
const EVENT_OVERHEAD_BYTES: usize = 128;

/// Limits of a backlog.
#[derive(Clone, Copy, Debug)]
pub(super) struct BacklogLimits {
    max_bytes: usize,
    max_call_seconds: f64,
}

impl Default for BacklogLimits {
    fn default() -> Self {
        Self { max_bytes: MAX_BYTES, max_call_seconds: MAX_CALL_SECONDS }
    }
}

/// Events in the order in which they arrived.
#[derive(Default)]
pub(super) struct Backlog {
    limits: BacklogLimits,
    events: VecDeque<(ConversationId, EventEnvelope, usize)>,
    bytes: usize,
    /// Times of a call's waiting events, in their order.
    event_times: HashMap<ConversationId, VecDeque<Time>>,
    /// Progress events are dropped: the size limit was reached.
    sheds_progress: bool,
}

impl Backlog {
    /// Adds an event. Returns the number of events that were dropped, which may include this one.
    pub(super) fn push(&mut self, conversation: ConversationId, envelope: EventEnvelope) -> u64 {
        let weight = EVENT_OVERHEAD_BYTES
            + serde_json::to_string(&envelope.event).map_or(0, |json| json.len());
        let first_event_at = self
            .event_times
            .get(&conversation)
            .and_then(VecDeque::front)
            .copied()
            .unwrap_or(envelope.at);
        let long =
            envelope.at.as_seconds() - first_event_at.as_seconds() > self.limits.max_call_seconds;
        let large = self.bytes + weight > self.limits.max_bytes;
        if (self.sheds_progress || long || large) && envelope.event.is_progress() {
            return 1;
        }
        let mut dropped = 0;
        if large && !self.sheds_progress {
            self.sheds_progress = true;
            dropped = self.drop_progress();
        }
        // The end of a call is always stored: a record without it would stay incomplete.
        let is_end = matches!(envelope.event, Event::CallEnded | Event::Ended { .. });
        if (long || self.bytes + weight > self.limits.max_bytes) && !is_end {
            return dropped + 1;
        }
        self.bytes += weight;
        self.event_times.entry(conversation).or_default().push_back(envelope.at);
        self.events.push_back((conversation, envelope, weight));
        dropped
    }

    fn drop_progress(&mut self) -> u64 {
        let before = self.events.len();
        self.events.retain(|(_, envelope, _)| !envelope.event.is_progress());
        self.bytes = self.events.iter().map(|(_, _, weight)| weight).sum();
        self.event_times.clear();
        for (conversation, envelope, _) in &self.events {
            self.event_times.entry(*conversation).or_default().push_back(envelope.at);
        }
        (before - self.events.len()) as u64
    }

    /// Whether no event waits.
    pub(super) fn is_empty(&self) -> bool {
        self.events.is_empty()
    }

    /// Takes the oldest events, at most this many.
    pub(super) fn take(&mut self, max: usize) -> Vec<(ConversationId, EventEnvelope)> {
        let taken: Vec<_> = self.events.drain(..max.min(self.events.len())).collect();
        self.bytes -= taken.iter().map(|(_, _, weight)| weight).sum::<usize>();
        for (conversation, ..) in &taken {
            if let Entry::Occupied(mut times) = self.event_times.entry(*conversation) {
                times.get_mut().pop_front();
                if times.get().is_empty() {
                    times.remove();
                }
            }
        }
        if self.events.is_empty() {
            *self = Self { limits: self.limits, ..Self::default() };
        }
        taken.into_iter().map(|(conversation, envelope, _)| (conversation, envelope)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(n: u128) -> ConversationId {
        ConversationId(n)
    }

    fn utterance(seq: u64, seconds: f64, text: &str) -> EventEnvelope {
        let event = Event::UtteranceCommitted { text: text.into(), speaker: None };
        EventEnvelope { seq, at: Time::from_micros((seconds * 1e6) as u64), event }
    }

    fn progress_event(seq: u64, seconds: f64) -> EventEnvelope {
        EventEnvelope {
            event: Event::LlmText { text: "word".into() },
            ..utterance(seq, seconds, "")
        }
    }

    fn call_ended(seq: u64, seconds: f64) -> EventEnvelope {
        EventEnvelope { event: Event::CallEnded, ..utterance(seq, seconds, "") }
    }

    fn take_seqs(backlog: &mut Backlog) -> Vec<u64> {
        backlog.take(usize::MAX).into_iter().map(|(_, envelope)| envelope.seq).collect()
    }

    #[test]
    fn events_are_queued_in_order_and_taken_in_batches() {
        let mut backlog = Backlog::default();
        for n in 0..10 {
            assert_eq!(backlog.push(id(1), progress_event(n, n as f64)), 0);
        }
        let first: Vec<_> = backlog.take(4).into_iter().map(|(_, envelope)| envelope.seq).collect();
        assert_eq!(first, [0, 1, 2, 3]);
        assert_eq!(take_seqs(&mut backlog), [4, 5, 6, 7, 8, 9]);
        assert_eq!((backlog.bytes, backlog.event_times.len()), (0, 0));
    }

    #[test]
    fn progress_goes_first_where_memory_ends_and_the_end_of_a_call_never() {
        let limits = BacklogLimits { max_bytes: 3_000, ..BacklogLimits::default() };
        let mut backlog = Backlog { limits, ..Backlog::default() };
        let mut dropped = 0;
        for n in 0..40 {
            let envelope =
                if n % 2 == 0 { progress_event(n, 1.0) } else { utterance(n, 1.0, "Hello.") };
            dropped += backlog.push(id(1), envelope);
        }
        dropped += backlog.push(id(1), call_ended(40, 2.0));
        assert!(backlog.bytes <= 3_200, "{}", backlog.bytes);
        let remaining = take_seqs(&mut backlog);
        assert!(remaining.iter().all(|n| n % 2 == 1 || *n == 40), "{remaining:?}");
        assert!(remaining.len() > 14 && remaining.last() == Some(&40), "{remaining:?}");
        assert_eq!(dropped, 41 - remaining.len() as u64);
    }

    #[test]
    fn a_call_waits_with_ten_minutes_of_talk_and_others_are_not_touched_by_it() {
        let mut backlog = Backlog::default();
        assert_eq!(backlog.push(id(1), utterance(0, 100.0, "one")), 0);
        assert_eq!(backlog.push(id(1), utterance(1, 699.0, "two")), 0);
        assert_eq!(backlog.push(id(1), progress_event(2, 701.0)), 1);
        assert_eq!(backlog.push(id(1), utterance(3, 701.0, "three")), 1);
        assert_eq!(backlog.push(id(2), utterance(0, 701.0, "another call")), 0);
        assert_eq!(backlog.push(id(1), call_ended(4, 702.0)), 0);
        assert_eq!(take_seqs(&mut backlog), [0, 1, 0, 4]);
    }

    #[test]
    fn a_taken_event_does_not_count_towards_the_limit_of_its_call() {
        let mut backlog = Backlog::default();
        for (n, seconds) in [(0, 0.0), (1, 300.0), (2, 600.0)] {
            assert_eq!(backlog.push(id(1), utterance(n, seconds, "one call")), 0);
            assert_eq!(backlog.push(id(2), utterance(n, seconds, "another call")), 0);
        }
        // The recovery is slower than the calls, so the backlog never is empty.
        assert_eq!(backlog.take(2).len(), 2);
        assert_eq!(
            backlog.push(id(1), utterance(3, 900.0, "ten minutes after the oldest that waits")),
            0
        );
        assert_eq!(backlog.push(id(1), utterance(4, 901.0, "too late")), 1);
        assert_eq!(backlog.take(2).len(), 2);
        assert_eq!(backlog.push(id(1), utterance(5, 901.0, "soon enough again")), 0);
        assert_eq!(take_seqs(&mut backlog), [2, 2, 3, 5]);
        assert!(backlog.event_times.is_empty());
    }

    #[test]
    fn a_dropped_progress_event_does_not_count_towards_the_limit() {
        let limits = BacklogLimits { max_bytes: 2_000, ..BacklogLimits::default() };
        let mut backlog = Backlog { limits, ..Backlog::default() };
        for n in 0..5 {
            assert_eq!(backlog.push(id(1), progress_event(n, 0.0)), 0);
        }
        assert_eq!(backlog.push(id(1), utterance(5, 500.0, &"x".repeat(900))), 0);
        assert_eq!(
            backlog.push(id(1), utterance(6, 500.0, &"x".repeat(100))),
            5,
            "all progress events"
        );
        assert_eq!(backlog.push(id(1), utterance(7, 700.0, "700 s after what was dropped")), 0);
        assert_eq!(take_seqs(&mut backlog), [5, 6, 7]);
    }
}
