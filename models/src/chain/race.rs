//! The providers that work on one request: one, or two while the first one is slow.
//!
//! ```text
//! one runs ──the hedge's delay──► two run ──first part of an answer──► the winner runs
//!    │  ▲                            │
//!    │  └──────one of them fails─────┘
//!    └──failure──► the next entry of the chain, if there is one
//! ```

use std::time::Duration;

use tokio::runtime::Handle as Runtime;
use tokio::task::AbortHandle;
use tokio::time::Instant;

use crate::{Error, ErrorKind, Handle};

/// Hedging of requests: a request without an answer after some time is sent to the next provider,
/// too.
#[derive(Clone)]
pub(crate) struct Hedge {
    /// Time from the request.
    pub(crate) after: Duration,
    /// Runs the timers.
    pub(crate) runtime: Runtime,
}

impl Hedge {
    /// Calls `act` on the runtime after the delay, unless the timer is dropped before.
    pub(super) fn timer(&self, act: impl FnOnce() + Send + 'static) -> Timer {
        let after = self.after;
        let task = async move {
            tokio::time::sleep(after).await;
            act();
        };
        Timer(self.runtime.spawn(task).abort_handle())
    }

    /// Why a provider is replaced that was too slow. `what`: what it did not send.
    pub(super) fn reason(&self, name: &str, what: &str) -> String {
        format!("{name} {what} within {} s", self.after.as_secs_f64())
    }

    /// The failure of a provider that had sent nothing when the other one won: it is late if it had
    /// as much time as the hedge waits. `None` if it was only asked later. For `name` and `what`
    /// see [`reason`](Self::reason).
    pub(super) fn lateness(&self, loser: &Runner, name: &str, what: &str) -> Option<Error> {
        let is_late = loser.asked_at.elapsed() >= self.after;
        is_late.then(|| Error::new(ErrorKind::Timeout, self.reason(name, what)))
    }
}

/// A running timer. Dropping it stops it.
pub(super) struct Timer(AbortHandle);

impl Drop for Timer {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// A request to one entry of the chain.
pub(super) struct Runner {
    pub(super) number: usize,
    asked_at: Instant,
    /// `None` until the call that starts the request has returned.
    handle: Option<Handle>,
}

/// What the first part of an answer means.
pub(super) enum Decision {
    /// The answer is not delivered.
    Lost,
    /// This entry had won before.
    Known,
    /// This entry wins. The other one, if any, must be dropped without a lock.
    Won(Option<Runner>),
}

/// What a failure means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Failure {
    /// Nothing: the request is over, or another entry has won.
    Ignored,
    /// The entry with this number still runs.
    OtherRuns(usize),
    /// Nothing runs any more.
    Last {
        /// Whether a part of the answer was delivered.
        has_answered: bool,
    },
}

/// The requests of one chain that run. Entries are known by their numbers.
#[derive(Default)]
pub(super) struct Race {
    running: Vec<Runner>,
    /// The entry that has delivered a part of its answer.
    winner: Option<usize>,
    /// The entry that was started last.
    latest: usize,
    /// The first entry that was not tried.
    next: usize,
    is_over: bool,
    timer: Option<Timer>,
}

impl Race {
    /// The first entry that was not tried.
    pub(super) fn next(&self) -> usize {
        self.next
    }

    /// The entry that was started last.
    pub(super) fn latest(&self) -> usize {
        self.latest
    }

    pub(super) fn is_running(&self, number: usize) -> bool {
        !self.is_over && self.running.iter().any(|runner| runner.number == number)
    }

    /// Whether a part of the answer of `number` was delivered.
    pub(super) fn has_won(&self, number: usize) -> bool {
        self.winner == Some(number)
    }

    /// Whether `number` runs alone and has delivered nothing.
    pub(super) fn is_waiting(&self, number: usize) -> bool {
        let is_alone = self.running.len() == 1 && self.is_running(number);
        is_alone && self.winner.is_none()
    }

    /// Marks the entries before `next` as tried.
    pub(super) fn skip_to(&mut self, next: usize) {
        self.next = self.next.max(next);
    }

    /// Adds an entry whose request is about to be sent. False if it must not be sent.
    pub(super) fn add(&mut self, number: usize) -> bool {
        if self.is_over || self.winner.is_some() {
            return false;
        }
        self.running.push(Runner { number, asked_at: Instant::now(), handle: None });
        self.latest = number;
        self.skip_to(number + 1);
        true
    }

    /// Sets the timer after which another entry is added.
    pub(super) fn set_timer(&mut self, timer: Timer) {
        self.timer = Some(timer);
    }

    /// Stores the handle of an entry. Returns it if the entry does not run any more.
    pub(super) fn set_handle(&mut self, number: usize, handle: Handle) -> Option<Handle> {
        let runner = self.running.iter_mut().find(|runner| runner.number == number);
        match runner.filter(|_| !self.is_over) {
            Some(runner) => {
                runner.handle = Some(handle);
                None
            }
            None => Some(handle),
        }
    }

    /// A part of the answer of an entry has come.
    pub(super) fn decide(&mut self, number: usize) -> Decision {
        if !self.is_running(number) {
            return Decision::Lost;
        }
        if self.winner == Some(number) {
            return Decision::Known;
        }
        self.winner = Some(number);
        self.timer = None;
        let other = self.running.iter().position(|runner| runner.number != number);
        Decision::Won(other.map(|index| self.running.swap_remove(index)))
    }

    /// An entry has failed. The handle must be dropped without a lock.
    pub(super) fn fail(&mut self, number: usize) -> (Failure, Option<Handle>) {
        let index = self.running.iter().position(|runner| runner.number == number);
        let Some(index) = index.filter(|_| !self.is_over) else { return (Failure::Ignored, None) };
        let handle = self.running.swap_remove(index).handle;
        self.timer = None;
        let failure = match self.running.first() {
            Some(other) => Failure::OtherRuns(other.number),
            None => Failure::Last { has_answered: self.winner.take().is_some() },
        };
        (failure, handle)
    }

    /// Takes an entry that runs alone and has delivered nothing, so that another one is started.
    pub(super) fn withdraw(&mut self, number: usize) -> Option<Runner> {
        if !self.is_waiting(number) {
            return None;
        }
        self.timer = None;
        self.running.pop()
    }

    /// The answer is complete, or has failed.
    pub(super) fn finish(&mut self) {
        self.is_over = true;
        self.timer = None;
    }

    /// Ends the request. Returns what runs, to be dropped without a lock; nothing if the request
    /// was over.
    pub(super) fn cancel(&mut self) -> Vec<Runner> {
        let was_over = self.is_over;
        self.finish();
        if was_over { Vec::new() } else { std::mem::take(&mut self.running) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn race(numbers: &[usize]) -> Race {
        let mut race = Race::default();
        assert!(numbers.iter().all(|number| race.add(*number)));
        race
    }

    #[test]
    fn the_first_part_of_an_answer_decides_once() {
        let mut race = race(&[0, 1]);
        let Decision::Won(Some(loser)) = race.decide(1) else { panic!("it has won") };
        assert_eq!(loser.number, 0);
        assert!(matches!(race.decide(1), Decision::Known));
        assert!(matches!(race.decide(0), Decision::Lost));
        assert_eq!(race.fail(0).0, Failure::Ignored);
        assert!(!race.add(2), "the answer has begun");
        assert_eq!(race.fail(1).0, Failure::Last { has_answered: true });
        assert!(race.add(2), "it goes on with the answer");
    }

    #[test]
    fn a_failure_is_the_last_one_if_nothing_else_runs() {
        let mut race = race(&[0, 2]);
        assert_eq!((race.next(), race.latest()), (3, 2));
        assert_eq!(race.fail(0).0, Failure::OtherRuns(2));
        assert!(race.is_waiting(2) && !race.is_waiting(0));
        assert_eq!(race.fail(2).0, Failure::Last { has_answered: false });
        assert!(!race.is_running(2));
    }

    #[test]
    fn a_handle_without_its_request_is_returned() {
        let mut race = race(&[0, 1]);
        assert!(race.set_handle(0, Handle::noop()).is_none());
        let _ = race.fail(1);
        assert!(race.set_handle(1, Handle::noop()).is_some());
        assert_eq!(race.withdraw(0).map(|runner| runner.number), Some(0));
        assert!(race.add(4));
        assert_eq!(race.cancel().len(), 1);
        assert!(race.cancel().is_empty() && !race.add(5));
        assert!(race.set_handle(4, Handle::noop()).is_some());
    }
}
