//! Events that wait in memory, within limits, while the store rejects writes or is slow.

use std::collections::{HashMap, VecDeque};

use conversation::event::{Event, EventEnvelope};
use conversation::id::ConversationId;
use conversation::time::Time;

/// Maximum size of the waiting events, bytes of JSON.
const BYTES: usize = 256 << 20;
/// Maximum duration of one call that its waiting events cover, in seconds.
const TALK: f64 = 600.0;
/// Bytes of an event in addition to its JSON.
const BESIDE: usize = 128;

/// Limits of a backlog.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds {
    bytes: usize,
    talk: f64,
}

impl Default for Bounds {
    fn default() -> Self {
        Self { bytes: BYTES, talk: TALK }
    }
}

/// Events in the order in which they arrived.
#[derive(Default)]
pub(super) struct Backlog {
    bounds: Bounds,
    facts: VecDeque<(ConversationId, EventEnvelope, usize)>,
    bytes: usize,
    /// Time of a call's first waiting event.
    since: HashMap<ConversationId, Time>,
    /// Progress events are dropped: the size limit was reached.
    thin: bool,
}

impl Backlog {
    /// Adds an event. Returns the number of events that were dropped, which may include this one.
    pub(super) fn push(&mut self, conversation: ConversationId, fact: EventEnvelope) -> u64 {
        let weight = BESIDE + serde_json::to_string(&fact.event).map_or(0, |json| json.len());
        let since = *self.since.entry(conversation).or_insert(fact.at);
        let long = fact.at.as_seconds() - since.as_seconds() > self.bounds.talk;
        let large = self.bytes + weight > self.bounds.bytes;
        if (self.thin || long || large) && fact.event.is_progress() {
            return 1;
        }
        let mut dropped = 0;
        if large && !self.thin {
            self.thin = true;
            dropped = self.drop_progress();
        }
        // The end of a call is always stored: a record without it would stay incomplete.
        let ends = matches!(fact.event, Event::CallEnded | Event::Ended { .. });
        if (long || self.bytes + weight > self.bounds.bytes) && !ends {
            return dropped + 1;
        }
        self.bytes += weight;
        self.facts.push_back((conversation, fact, weight));
        dropped
    }

    fn drop_progress(&mut self) -> u64 {
        let before = self.facts.len();
        self.facts.retain(|(_, fact, _)| !fact.event.is_progress());
        self.bytes = self.facts.iter().map(|(_, _, weight)| weight).sum();
        (before - self.facts.len()) as u64
    }

    /// Whether no event waits.
    pub(super) fn is_empty(&self) -> bool {
        self.facts.is_empty()
    }

    /// Takes the oldest events, at most this many.
    pub(super) fn take(&mut self, most: usize) -> Vec<(ConversationId, EventEnvelope)> {
        let taken: Vec<_> = self.facts.drain(..most.min(self.facts.len())).collect();
        self.bytes -= taken.iter().map(|(_, _, weight)| weight).sum::<usize>();
        if self.facts.is_empty() {
            *self = Self { bounds: self.bounds, ..Self::default() };
        }
        taken.into_iter().map(|(conversation, fact, _)| (conversation, fact)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(n: u128) -> ConversationId {
        ConversationId(n)
    }

    fn said(seq: u64, seconds: f64, text: &str) -> EventEnvelope {
        let event = Event::UtteranceCommitted { text: text.into() };
        EventEnvelope { seq, at: Time::from_micros((seconds * 1e6) as u64), event }
    }

    fn progress(seq: u64, seconds: f64) -> EventEnvelope {
        EventEnvelope { event: Event::LlmText { text: "word".into() }, ..said(seq, seconds, "") }
    }

    fn ended(seq: u64, seconds: f64) -> EventEnvelope {
        EventEnvelope { event: Event::CallEnded, ..said(seq, seconds, "") }
    }

    fn numbers(backlog: &mut Backlog) -> Vec<u64> {
        backlog.take(usize::MAX).into_iter().map(|(_, fact)| fact.seq).collect()
    }

    #[test]
    fn facts_wait_in_their_order_and_leave_in_batches() {
        let mut backlog = Backlog::default();
        for n in 0..10 {
            assert_eq!(backlog.push(id(1), progress(n, n as f64)), 0);
        }
        let first: Vec<_> = backlog.take(4).into_iter().map(|(_, fact)| fact.seq).collect();
        assert_eq!(first, [0, 1, 2, 3]);
        assert_eq!(numbers(&mut backlog), [4, 5, 6, 7, 8, 9]);
        assert_eq!((backlog.bytes, backlog.since.len()), (0, 0));
    }

    #[test]
    fn progress_goes_first_where_memory_ends_and_the_end_of_a_call_never() {
        let bounds = Bounds { bytes: 3_000, ..Bounds::default() };
        let mut backlog = Backlog { bounds, ..Backlog::default() };
        let mut dropped = 0;
        for n in 0..40 {
            let fact = if n % 2 == 0 { progress(n, 1.0) } else { said(n, 1.0, "Hello.") };
            dropped += backlog.push(id(1), fact);
        }
        dropped += backlog.push(id(1), ended(40, 2.0));
        assert!(backlog.bytes <= 3_200, "{}", backlog.bytes);
        let kept = numbers(&mut backlog);
        assert!(kept.iter().all(|n| n % 2 == 1 || *n == 40), "{kept:?}");
        assert!(kept.len() > 14 && kept.last() == Some(&40), "{kept:?}");
        assert_eq!(dropped, 41 - kept.len() as u64);
    }

    #[test]
    fn a_call_waits_with_ten_minutes_of_talk_and_others_are_not_touched_by_it() {
        let mut backlog = Backlog::default();
        assert_eq!(backlog.push(id(1), said(0, 100.0, "one")), 0);
        assert_eq!(backlog.push(id(1), said(1, 699.0, "two")), 0);
        assert_eq!(backlog.push(id(1), progress(2, 701.0)), 1);
        assert_eq!(backlog.push(id(1), said(3, 701.0, "three")), 1);
        assert_eq!(backlog.push(id(2), said(0, 701.0, "another call")), 0);
        assert_eq!(backlog.push(id(1), ended(4, 702.0)), 0);
        assert_eq!(numbers(&mut backlog), [0, 1, 0, 4]);
    }
}
