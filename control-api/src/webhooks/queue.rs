//! The webhook queue of one conversation, in order: which delivery may be attempted now, and when
//! the queue is due again.
//!
//! An event holds the next one back until it is settled, but at most for `hold` after its first
//! attempt; its later attempts then run beside the next events. A receiver that is down for half a
//! day accumulates many deliveries. Memory therefore holds, per conversation, the next
//! [`QUEUE_WINDOW`] deliveries without an attempt and the retries that are due soon; all others are
//! only in the store. Pure: the caller supplies the time.
//!
//! ```text
//!                push, refill            take_due             remove_settled
//!   store only --------------> untried ----------> in flight ----------------> removed
//!    |      ^                                       |     ^
//!    |      |                           reschedule  v     | take_due
//!    |      +-- hold is over, and the next ---- waits for retry
//!    |          attempt is beyond the horizon         ^
//!    +-- push (retry due within the horizon) ---------+
//! ```

use std::collections::VecDeque;

use crate::clock::Micros;
use crate::store::delivery::Row;

/// Maximum number of deliveries of one conversation that wait in memory for their first attempt.
pub(super) const QUEUE_WINDOW: usize = 32;

/// The queue of one conversation.
#[derive(Default)]
pub(super) struct ConversationQueue {
    /// By sequence number.
    entries: VecDeque<Entry>,
    /// Sequence number of the newest delivery that was added without an attempt.
    last_sequence: i64,
    /// Whether newer deliveries are only in the store.
    more_in_store: bool,
}

struct Entry {
    row: Row,
    /// Whether an attempt is in flight.
    in_flight: bool,
}

/// Durations that control a queue.
#[derive(Clone, Copy, Debug)]
pub(super) struct QueueTiming {
    /// How long a failing event holds the next one back.
    pub(super) hold: Micros,
    /// A retry that is further away is only in the store.
    pub(super) memory_horizon: Micros,
}

impl ConversationQueue {
    /// Adds a delivery, unless it is present already or has to stay in the store.
    pub(super) fn push(&mut self, row: Row) {
        if row.first_attempt_at.is_none() && row.sequence > self.last_sequence {
            self.more_in_store |= self.untried_count() >= QUEUE_WINDOW;
            if self.more_in_store {
                return;
            }
            self.last_sequence = row.sequence;
        } else if self.entries.iter().any(|known| known.row.id == row.id) {
            return;
        }
        let after = self.entries.iter().rposition(|entry| entry.row.sequence < row.sequence);
        self.entries.insert(after.map_or(0, |i| i + 1), Entry { row, in_flight: false });
    }

    /// Whether no delivery waits, here or in the store.
    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty() && !self.more_in_store
    }

    /// The sequence number after which the store must be read, if at least half of the window is
    /// free. Pass the result to [`Self::refill`].
    pub(super) fn refill_after(&self) -> Option<i64> {
        (self.more_in_store && self.untried_count() <= QUEUE_WINDOW / 2)
            .then_some(self.last_sequence)
    }

    fn untried_count(&self) -> usize {
        self.entries.iter().filter(|entry| entry.row.first_attempt_at.is_none()).count()
    }

    /// Takes the deliveries that the store holds after the newest one here: at most a window and
    /// one more, which shows that there are further ones.
    pub(super) fn refill(&mut self, rows: Vec<Row>) {
        self.more_in_store = false;
        rows.into_iter().for_each(|row| self.push(row));
    }

    /// Takes the deliveries to attempt at `now`. Also returns when the queue is due again.
    pub(super) fn take_due(
        &mut self,
        now: Micros,
        timing: QueueTiming,
    ) -> (Vec<Row>, Option<Micros>) {
        let blocks_next = |row: &Row| {
            row.first_attempt_at.is_none_or(|first| first.saturating_add(timing.hold) > now)
        };
        self.entries.retain(|entry| {
            entry.in_flight
                || blocks_next(&entry.row)
                || entry.row.next_attempt_at <= now.saturating_add(timing.memory_horizon)
        });
        let mut due = Vec::new();
        let mut wake: Option<Micros> = None;
        let mut wake_at = |at: Micros| wake = Some(wake.map_or(at, |w| w.min(at)));
        for entry in &mut self.entries {
            if !entry.in_flight {
                if entry.row.next_attempt_at <= now {
                    entry.in_flight = true;
                    entry.row.attempts += 1;
                    entry.row.first_attempt_at.get_or_insert(now);
                    due.push(entry.row.clone());
                } else {
                    wake_at(entry.row.next_attempt_at);
                }
            }
            // Before its first attempt an event holds all later ones back.
            let Some(first) = entry.row.first_attempt_at else { break };
            let until = first.saturating_add(timing.hold);
            if until > now {
                wake_at(until);
                break;
            }
        }
        (due, wake)
    }

    /// The event is delivered or given up.
    pub(super) fn remove_settled(&mut self, id: &str) {
        self.entries.retain(|entry| entry.row.id != id);
    }

    /// The event is attempted again at `next`.
    pub(super) fn reschedule(&mut self, id: &str, next: Micros) {
        if let Some(entry) = self.entries.iter_mut().find(|entry| entry.row.id == id) {
            entry.in_flight = false;
            entry.row.next_attempt_at = next;
        }
    }

    /// Removes the deliveries of an agent.
    pub(super) fn remove_agent(&mut self, agent: &str) {
        self.entries.retain(|entry| entry.row.agent != agent);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Micros = 1_000_000;
    const TIMING: QueueTiming = QueueTiming { hold: 30 * SECOND, memory_horizon: 400 * SECOND };

    fn row(sequence: i64) -> Row {
        Row {
            id: sequence.to_string(),
            workspace: String::new(),
            conversation: String::new(),
            agent: "a".into(),
            sequence,
            event: String::new(),
            url: String::new(),
            body: String::new(),
            attempts: 0,
            attempts_before_redelivery: 0,
            first_attempt_at: None,
            next_attempt_at: 0,
        }
    }

    fn queue_of(n: i64) -> ConversationQueue {
        let mut queue = ConversationQueue::default();
        (1..=n).for_each(|sequence| queue.push(row(sequence)));
        queue
    }

    fn take_due(queue: &mut ConversationQueue, seconds: i64) -> (Vec<i64>, Option<i64>) {
        let (rows, wake) = queue.take_due(seconds * SECOND, TIMING);
        (rows.iter().map(|r| r.sequence).collect(), wake.map(|w| w / SECOND))
    }

    #[test]
    fn events_go_one_after_the_other_as_they_are_taken() {
        let mut queue = queue_of(3);
        assert_eq!(take_due(&mut queue, 0), (vec![1], Some(30)));
        assert_eq!(take_due(&mut queue, 1), (vec![], Some(30)));
        queue.remove_settled("1");
        assert_eq!(take_due(&mut queue, 1), (vec![2], Some(31)));
        queue.remove_settled("2");
        assert_eq!(take_due(&mut queue, 2), (vec![3], Some(32)));
        queue.remove_settled("3");
        assert!(queue.is_empty());
        assert_eq!(take_due(&mut queue, 3), (vec![], None));
    }

    #[test]
    fn a_failing_event_holds_the_next_one_back_for_thirty_seconds_only() {
        let mut queue = queue_of(2);
        assert_eq!(take_due(&mut queue, 0), (vec![1], Some(30)));
        queue.reschedule("1", 5 * SECOND);
        assert_eq!(take_due(&mut queue, 1), (vec![], Some(5)));
        assert_eq!(take_due(&mut queue, 5), (vec![1], Some(30)));
        queue.reschedule("1", 305 * SECOND);
        assert_eq!(take_due(&mut queue, 30), (vec![2], Some(60)));
        queue.remove_settled("2");
        assert_eq!(take_due(&mut queue, 31), (vec![], Some(305)));
        assert_eq!(take_due(&mut queue, 305), (vec![1], None));
    }

    #[test]
    fn a_late_retry_waits_in_the_store_when_it_delays_no_other_event() {
        let mut queue = queue_of(2);
        assert_eq!(take_due(&mut queue, 0), (vec![1], Some(30)));
        queue.reschedule("1", 1800 * SECOND);
        assert_eq!(take_due(&mut queue, 29), (vec![], Some(30)), "it delays the second one");
        assert_eq!(take_due(&mut queue, 30), (vec![2], Some(60)));
        queue.remove_settled("2");
        assert!(queue.is_empty(), "the first one is not in memory");
        let again = Row {
            attempts: 1,
            first_attempt_at: Some(0),
            next_attempt_at: 1800 * SECOND,
            ..row(1)
        };
        queue.push(row(3));
        queue.push(again.clone());
        queue.push(again);
        assert_eq!(
            take_due(&mut queue, 1800),
            (vec![1, 3], Some(1830)),
            "it was read back once and delays no other"
        );
    }

    #[test]
    fn of_many_only_a_window_is_in_memory_and_all_come_in_order() {
        let all = 3 * QUEUE_WINDOW as i64 + 5;
        let mut queue = queue_of(all);
        let mut delivered: Vec<i64> = Vec::new();
        for second in 0.. {
            if let Some(last) = queue.refill_after() {
                queue.refill((last + 1..=all).take(QUEUE_WINDOW + 1).map(row).collect());
            }
            assert!(queue.entries.len() <= QUEUE_WINDOW, "{}", queue.entries.len());
            let (now, _) = take_due(&mut queue, second);
            let Some(one) = now.first() else { break };
            delivered.extend(&now);
            queue.remove_settled(&one.to_string());
        }
        assert_eq!(delivered, (1..=all).collect::<Vec<_>>());
        assert!(queue.is_empty());
    }

    #[test]
    fn an_older_one_comes_back_though_newer_ones_wait_in_the_store() {
        let mut queue = queue_of(2 * QUEUE_WINDOW as i64);
        queue.remove_settled("1");
        queue.push(row(1));
        assert_eq!(take_due(&mut queue, 0).0, [1]);
    }

    #[test]
    fn the_deliveries_of_an_agent_can_be_removed() {
        let mut queue = queue_of(2);
        queue.remove_agent("a");
        assert!(queue.is_empty());
    }
}
