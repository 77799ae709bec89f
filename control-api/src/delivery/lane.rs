//! The webhooks of one conversation, in order: which one may be tried now, and when to look again.
//!
//! An event holds the next one back until it is settled, but for no longer than `hold` from its first try; then its later tries go on
//! beside. Pure: time is a parameter.

use std::collections::VecDeque;

use crate::clock::Micros;
use crate::store::delivery::Row;

/// What waits in one conversation.
#[derive(Default)]
pub(super) struct Lane {
    queue: VecDeque<Entry>,
}

struct Entry {
    row: Row,
    /// Whether a try is under way.
    busy: bool,
}

impl Lane {
    /// Adds the newest, unless it is there already.
    pub(super) fn push(&mut self, row: Row) {
        if self.queue.iter().any(|known| known.row.id == row.id) {
            return;
        }
        self.queue.push_back(Entry { row, busy: false });
    }

    /// Whether nothing waits.
    pub(super) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Takes what is to be tried at `now`, and tells when to look again.
    pub(super) fn due(&mut self, now: Micros, hold: Micros) -> (Vec<Row>, Option<Micros>) {
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
            // Before its first try an event holds back whatever follows.
            let Some(first) = entry.row.first_try else { break };
            let until = first.saturating_add(hold);
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

    /// The event is tried again at `next`.
    pub(super) fn again(&mut self, id: &str, next: Micros) {
        if let Some(entry) = self.queue.iter_mut().find(|entry| entry.row.id == id) {
            entry.busy = false;
            entry.row.next_try = next;
        }
    }

    /// Forgets what waits for an agent.
    pub(super) fn forget(&mut self, agent: &str) {
        self.queue.retain(|entry| entry.row.agent != agent);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Micros = 1_000_000;
    const HOLD: Micros = 30 * SECOND;

    fn lane(n: i64) -> Lane {
        let mut lane = Lane::default();
        for sequence in 1..=n {
            lane.push(Row {
                id: sequence.to_string(),
                workspace: String::new(),
                conversation: String::new(),
                agent: "a".into(),
                sequence,
                event: String::new(),
                url: String::new(),
                body: String::new(),
                attempts: 0,
                first_try: None,
                next_try: 0,
            });
        }
        lane
    }

    fn due(lane: &mut Lane, seconds: i64) -> (Vec<i64>, Option<i64>) {
        let (rows, wake) = lane.due(seconds * SECOND, HOLD);
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
    fn what_waits_for_an_agent_can_be_forgotten() {
        let mut lane = lane(2);
        lane.forget("a");
        assert!(lane.is_empty());
    }
}
