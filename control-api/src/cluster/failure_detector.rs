//! Declares servers lost. At any time one server does it: the one with the lock of the leader.
//!
//! A server is lost if its process has ended, which its session at the database shows: it ends while
//! the lease is valid, and the lease runs out without a renewal. A connection that is only cut for a
//! moment is opened again before. A machine that is cut off or frozen may keep its session and come
//! back. It is lost when its lease has run out for as long as a call waits for a silent client.

use std::collections::HashMap;
use std::time::Duration;

use super::presence::Observation;
use crate::clock::{self, Micros};
use crate::store::server::Row;

/// Finds lost servers by what it has seen before.
pub(crate) struct FailureDetector {
    lease: Micros,
    silence: Micros,
    /// Servers whose session has ended before their lease, with the end of that lease.
    absent: HashMap<String, Micros>,
}

impl FailureDetector {
    /// `lease`: of this server. `silence`: how much longer the calls of a server that may come back
    /// are its own.
    pub(crate) fn new(lease: Duration, silence: Duration) -> Self {
        let (lease, silence) = (clock::to_micros(lease), clock::to_micros(silence));
        Self { lease, silence, absent: HashMap::new() }
    }

    /// The lost ones of the servers that `own` sees. None while this server itself has not renewed
    /// its lease for a whole lease without a gap, since `renewed_since`: after a restart of the
    /// database all servers look lost to the first one that is back.
    pub(crate) fn find_lost<'a>(
        &mut self,
        own: &str,
        renewed_since: Micros,
        seen: &Observation,
        servers: &'a [Row],
    ) -> Vec<&'a Row> {
        let since = renewed_since.max(seen.since);
        let mut absent = HashMap::new();
        let mut lost = Vec::new();
        for row in servers.iter().filter(|row| row.id != own && row.lease_until > 0) {
            // A server of the release before has no session, and does not report its renewals.
            let has_sessions = row.lease_until - row.renewed_at <= 2 * self.lease;
            let was_absent = self.absent.get(&row.id) == Some(&row.lease_until);
            let is_expired = row.now >= row.lease_until;
            // The database ends the session of a machine that is cut off after its lease.
            let is_absent =
                has_sessions && !seen.is_present(&row.id) && (was_absent || !is_expired);
            if is_absent {
                absent.insert(row.id.clone(), row.lease_until);
            }
            let has_ended = is_absent && is_expired;
            let is_silent = row.now - row.lease_until > self.silence;
            if (has_ended || is_silent) && row.now - since >= self.lease {
                lost.push(row);
            }
        }
        self.absent = absent;
        lost
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Micros = 1_000_000;

    /// A server that renewed its lease of 10 s at `renewed`, seen at `now`; both in seconds.
    fn server(id: &str, renewed: i64, now: i64) -> Row {
        Row {
            id: id.into(),
            lease_until: (renewed + 10) * SECOND,
            renewed_at: renewed * SECOND,
            report: "{}".into(),
            now: now * SECOND,
        }
    }

    fn detector() -> FailureDetector {
        FailureDetector::new(Duration::from_secs(10), Duration::from_secs(30))
    }

    fn lost(
        detector: &mut FailureDetector,
        since: i64,
        present: &[&str],
        servers: &[Row],
    ) -> Vec<String> {
        let seen = Observation::of(present, since * SECOND);
        detector.find_lost("own", 0, &seen, servers).into_iter().map(|row| row.id.clone()).collect()
    }

    #[test]
    fn a_process_that_ended_is_lost_when_its_lease_runs_out() {
        let mut detector = detector();
        assert!(lost(&mut detector, 0, &["a", "b"], &[server("a", 99, 100)]).is_empty());
        for now in [102, 104, 106, 108] {
            let ended = [server("a", 99, now), server("b", now - 1, now)];
            assert!(lost(&mut detector, 0, &["b"], &ended).is_empty(), "{now}");
        }
        let ended = [server("a", 99, 109), server("b", 108, 109)];
        assert_eq!(lost(&mut detector, 0, &["b"], &ended), ["a"]);
    }

    #[test]
    fn a_session_that_is_opened_again_is_no_end_and_neither_is_a_renewed_lease() {
        let mut detector = detector();
        assert!(lost(&mut detector, 0, &[], &[server("a", 99, 102)]).is_empty());
        assert!(lost(&mut detector, 0, &["a"], &[server("a", 99, 104)]).is_empty());
        assert!(lost(&mut detector, 0, &[], &[server("a", 99, 108)]).is_empty());
        assert!(lost(&mut detector, 0, &[], &[server("a", 109, 110)]).is_empty());
    }

    #[test]
    fn a_session_that_ends_after_the_lease_is_no_end_of_the_process() {
        let mut detector = detector();
        assert!(lost(&mut detector, 0, &["a"], &[server("a", 100, 109)]).is_empty());
        for now in [115, 120, 140] {
            assert!(lost(&mut detector, 0, &[], &[server("a", 100, now)]).is_empty(), "{now}");
        }
        assert_eq!(lost(&mut detector, 0, &[], &[server("a", 100, 141)]), ["a"]);
    }

    #[test]
    fn a_frozen_or_separated_server_is_lost_after_its_lease_and_the_silence() {
        let mut detector = detector();
        for now in [105, 111, 140] {
            assert!(lost(&mut detector, 0, &["a"], &[server("a", 100, now)]).is_empty(), "{now}");
        }
        assert_eq!(lost(&mut detector, 0, &["a"], &[server("a", 100, 141)]), ["a"]);
    }

    #[test]
    fn nobody_is_lost_before_the_leader_has_a_whole_lease_behind_it() {
        let mut detector = detector();
        let servers = [server("a", 100, 200)];
        assert!(lost(&mut detector, 191, &["a"], &servers).is_empty(), "its session is new");
        let seen = Observation::of(&["a"], 0);
        assert!(
            detector.find_lost("own", 191 * SECOND, &seen, &servers).is_empty(),
            "so is its lease"
        );
        assert_eq!(detector.find_lost("own", 190 * SECOND, &seen, &servers).len(), 1);
    }

    #[test]
    fn a_server_without_sessions_is_lost_by_its_lease_alone() {
        let mut detector = detector();
        let old = |now: i64| [Row { renewed_at: 0, ..server("a", 100, now) }];
        for now in [102, 104, 106] {
            assert!(lost(&mut detector, 0, &[], &old(now)).is_empty(), "{now}");
        }
        assert_eq!(lost(&mut detector, 0, &[], &old(141)), ["a"]);
    }
}
