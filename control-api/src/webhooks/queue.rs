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
pub(super) const WINDOW: usize = 32;

/// The queue of one conversation.
#[derive(Default)]
pub(super) struct Lane {
    /// By sequence number.
    queue: VecDeque<Entry>,
    /// Sequence number of the newest delivery that was added without an attempt.
    last: i64,
    /// Whether newer deliveries are only in the store.
    more: bool,
}

struct Entry {
    row: Row,
    /// Whether an attempt is in flight.
    busy: bool,
}

/// Durations that control a queue.
#[derive(Clone, Copy, Debug)]
pub(super) struct Spans {
    /// How long a failing event holds the next one back.
    pub(super) hold: Micros,
    /// A retry that is further away is only in the store.
    pub(super) memory: Micros,
}

impl Lane {
    /// Adds a delivery, unless it is present already or has to stay in the store.
    pub(super) fn push(&mut self, row: Row) {
        if row.first_try.is_none() && row.sequence > self.last {
            self.more |= self.untried() >= WINDOW;
            if self.more {
                return;
            }
            self.last = row.sequence;
        } else if self.queue.iter().any(|known| known.row.id == row.id) {
            return;
        }
        let after = self.queue.iter().rposition(|entry| entry.row.sequence < row.sequence);
        self.queue.insert(after.map_or(0, |i| i + 1), Entry { row, busy: false });
    }

    /// Whether no delivery waits, here or in the store.
    pub(super) fn is_empty(&self) -> bool {
        self.queue.is_empty() && !self.more
    }

    /// The sequence number after which the store must be read, if at least half of the window is
    /// free. Pass the result to [`Self::refill`].
    pub(super) fn wants(&self) -> Option<i64> {
        (self.more && self.untried() <= WINDOW / 2).then_some(self.last)
    }

    fn untried(&self) -> usize {
        self.queue.iter().filter(|entry| entry.row.first_try.is_none()).count()
    }

    /// Takes the deliveries that the store holds after the newest one here: at most a window and
    /// one more, which shows that there are further ones.
    pub(super) fn refill(&mut self, rows: Vec<Row>) {
        self.more = false;
        rows.into_iter().for_each(|row| self.push(row));
    }

    /// Takes the deliveries to attempt at `now`. Also returns when the queue is due again.
    pub(super) fn due(&mut self, now: Micros, spans: Spans) -> (Vec<Row>, Option<Micros>) {
        let holds = |row: &Row| row.first_try.is_none_or(|first| first.saturating_add(spans.hold) > now);
        self.queue.retain(|entry| {
            entry.busy || holds(&entry.row) || entry.row.next_try <= now.saturating_add(spans.memory)
        });
        let mut due = Vec::new();
        let mut wake: Option<Micros> = None;
        let mut look = |at: Micros| wake = Some(wake.map_or(at, |w| w.min(at)));
        for entry in &mut self.queue {
            if !entry.busy {
                if entry.row.next_try <= now {
                    entry.busy = true;
                    entry.row.attempts += 1;
                    entry.row.first_try.get_or_insert(now);
                    due.push(entry.row.clone());
                } else {
                    look(entry.row.next_try);
                }
            }
            // Before its first attempt an event holds all later ones back.
            let Some(first) = entry.row.first_try else { break };
            let until = first.saturating_add(spans.hold);
            if until > now {
                look(until);
                break;
            }
        }
        (due, wake)
    }

    /// The event is delivered or given up.
    pub(super) fn settled(&mut self, id: &str) {
        self.queue.retain(|entry| entry.row.id != id);
    }

    /// The event is attempted again at `next`.
    pub(super) fn again(&mut self, id: &str, next: Micros) {
        if let Some(entry) = self.queue.iter_mut().find(|entry| entry.row.id == id) {
            entry.busy = false;
            entry.row.next_try = next;
        }
    }

    /// Removes the deliveries of an agent.
    pub(super) fn forget(&mut self, agent: &str) {
        self.queue.retain(|entry| entry.row.agent != agent);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Micros = 1_000_000;
    const SPANS: Spans = Spans { hold: 30 * SECOND, memory: 400 * SECOND };

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
            tries_before: 0,
            first_try: None,
            next_try: 0,
        }
    }

    fn lane(n: i64) -> Lane {
        let mut lane = Lane::default();
        (1..=n).for_each(|sequence| lane.push(row(sequence)));
        lane
    }

    fn due(lane: &mut Lane, seconds: i64) -> (Vec<i64>, Option<i64>) {
        let (rows, wake) = lane.due(seconds * SECOND, SPANS);
        (rows.iter().map(|r| r.sequence).collect(), wake.map(|w| w / SECOND))
    }

    #[test]
    fn events_go_one_after_the_other_as_they_are_taken() {
        let mut lane = lane(3);
        assert_eq!(due(&mut lane, 0), (vec![1], Some(30)));
        assert_eq!(due(&mut lane, 1), (vec![], Some(30)));
        lane.settled("1");
        assert_eq!(due(&mut lane, 1), (vec![2], Some(31)));
        lane.settled("2");
        assert_eq!(due(&mut lane, 2), (vec![3], Some(32)));
        lane.settled("3");
        assert!(lane.is_empty());
        assert_eq!(due(&mut lane, 3), (vec![], None));
    }

    #[test]
    fn a_failing_event_holds_the_next_one_back_for_thirty_seconds_only() {
        let mut lane = lane(2);
        assert_eq!(due(&mut lane, 0), (vec![1], Some(30)));
        lane.again("1", 5 * SECOND);
        assert_eq!(due(&mut lane, 1), (vec![], Some(5)));
        assert_eq!(due(&mut lane, 5), (vec![1], Some(30)));
        lane.again("1", 305 * SECOND);
        assert_eq!(due(&mut lane, 30), (vec![2], Some(60)));
        lane.settled("2");
        assert_eq!(due(&mut lane, 31), (vec![], Some(305)));
        assert_eq!(due(&mut lane, 305), (vec![1], None));
    }

    #[test]
    fn what_is_tried_again_much_later_waits_in_the_store_once_it_holds_nothing_back() {
        let mut lane = lane(2);
        assert_eq!(due(&mut lane, 0), (vec![1], Some(30)));
        lane.again("1", 1800 * SECOND);
        assert_eq!(due(&mut lane, 29), (vec![], Some(30)), "it holds the second one back");
        assert_eq!(due(&mut lane, 30), (vec![2], Some(60)));
        lane.settled("2");
        assert!(lane.is_empty(), "nothing of the first one is left in memory");
        let again = Row { attempts: 1, first_try: Some(0), next_try: 1800 * SECOND, ..row(1) };
        lane.push(row(3));
        lane.push(again.clone());
        lane.push(again);
        assert_eq!(
            due(&mut lane, 1800),
            (vec![1, 3], Some(1830)),
            "it came back once, and holds nothing back"
        );
    }

    #[test]
    fn of_many_only_a_window_is_in_memory_and_all_come_in_order() {
        let all = 3 * WINDOW as i64 + 5;
        let mut lane = lane(all);
        let mut came: Vec<i64> = Vec::new();
        for second in 0.. {
            if let Some(last) = lane.wants() {
                lane.refill((last + 1..=all).take(WINDOW + 1).map(row).collect());
            }
            assert!(lane.queue.len() <= WINDOW, "{}", lane.queue.len());
            let (now, _) = due(&mut lane, second);
            let Some(one) = now.first() else { break };
            came.extend(&now);
            lane.settled(&one.to_string());
        }
        assert_eq!(came, (1..=all).collect::<Vec<_>>());
        assert!(lane.is_empty());
    }

    #[test]
    fn an_older_one_comes_back_though_newer_ones_wait_in_the_store() {
        let mut lane = lane(2 * WINDOW as i64);
        lane.settled("1");
        lane.push(row(1));
        assert_eq!(due(&mut lane, 0).0, [1]);
    }

    #[test]
    fn what_waits_for_an_agent_can_be_forgotten() {
        let mut lane = lane(2);
        lane.forget("a");
        assert!(lane.is_empty());
    }
}
