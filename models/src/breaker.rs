//! Circuit breakers: a model at a vendor that has failed is skipped, so that a failure costs one turn
//! and not every turn. A failure of the key or the credit skips all models of the account.
//!
//! ```text
//! closed ──3 failures in 30 s, or 1 of key or credit──► open ──delay over──► probing
//!   ▲                                                    ▲                      │ │
//!   │                                                    └──────────failure─────┘ │
//!   └───────────────────────────────success───────────────────────────────────────┘
//! ```
//!
//! The probe is the next real request; others are skipped until it has a result. For STT it is the
//! audio of an utterance that another provider serves. Each further failure doubles the delay.

use std::collections::HashMap;
use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher as _};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use crate::{Error, ErrorKind};

/// Number of failures that open a breaker, and the time in which they occur.
const MAX_FAILURES: usize = 3;
const FAILURE_WINDOW: Duration = Duration::from_secs(30);

/// Delay before the first probe, and the longest one.
const FIRST_DELAY: Duration = Duration::from_secs(10);
const MAX_DELAY: Duration = Duration::from_secs(300);

/// A probe without a result is forgotten after this time, and the next request is the probe. Longer
/// than any probe takes.
const MAX_PROBE: Duration = Duration::from_secs(70);

/// Number of breakers above which those that are closed are removed.
const MAX_BREAKERS: usize = 4_096;

/// What a breaker is for.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct BreakerKey {
    /// `stt`, `llm` or `tts`.
    kind: &'static str,
    /// Name of the vendor, as agents write it.
    vendor: &'static str,
    /// Hash of address and key: keys are not stored.
    account: u64,
    /// Hash of the model's name; `None` = the account itself.
    model: Option<u64>,
}

impl BreakerKey {
    /// The breaker of an account. `url`: base address, empty = the vendor's own.
    pub(crate) fn new(
        kind: &'static str,
        vendor: &'static str,
        url: &str,
        token: Option<&str>,
    ) -> Self {
        Self { kind, vendor, account: hash_of((url, token)), model: None }
    }

    /// The breaker of one model of the account; empty = the default model.
    pub(crate) fn of_model(self, model: &str) -> Self {
        Self { model: Some(hash_of(model)), ..self }
    }
}

fn hash_of(value: impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}

/// The breakers of a process, shared by all calls.
#[derive(Clone, Default)]
pub(crate) struct Breakers(Arc<Mutex<HashMap<BreakerKey, Arc<Breaker>>>>);

impl Breakers {
    /// The breaker of `key`; a new one is closed.
    pub(crate) fn get(&self, key: BreakerKey) -> Arc<Breaker> {
        let mut breakers = lock(&self.0);
        if breakers.len() >= MAX_BREAKERS && !breakers.contains_key(&key) {
            // The models of an account share its breaker: it remains while one has it.
            let is_unused = |b: &Arc<Breaker>| b.is_closed() && Arc::strong_count(b) == 1;
            breakers.retain(|_, breaker| !is_unused(breaker));
        }
        let mut add = |key: BreakerKey, account| {
            let new = || Arc::new(Breaker { key: key.clone(), account, state: Mutex::default() });
            Arc::clone(breakers.entry(key.clone()).or_insert_with(new))
        };
        let account = key.model.is_some().then(|| add(BreakerKey { model: None, ..key }, None));
        add(key, account)
    }

    /// Closes the breakers of an account and of its models. Arguments as in [`BreakerKey::new`].
    pub(crate) fn close_account(&self, vendor: &str, url: &str, token: Option<&str>) {
        let account = hash_of((url, token));
        let of_account: Vec<Arc<Breaker>> = lock(&self.0)
            .iter()
            .filter(|(key, _)| key.vendor == vendor && key.account == account)
            .map(|(_, breaker)| Arc::clone(breaker))
            .collect();
        of_account.iter().for_each(|breaker| breaker.succeeded());
    }

    /// For each kind and vendor: whether all of its accounts and models work.
    pub(crate) fn states(&self) -> Vec<(&'static str, &'static str, bool)> {
        let mut states: Vec<(&str, &str, bool)> = Vec::new();
        for (key, breaker) in lock(&self.0).iter() {
            let works = breaker.is_closed();
            let same = states.iter_mut().find(|s| (s.0, s.1) == (key.kind, key.vendor));
            match same {
                Some(state) => state.2 &= works,
                None => states.push((key.kind, key.vendor, works)),
            }
        }
        states.sort_unstable();
        states
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The breaker of one model, or of one account.
#[derive(Debug)]
pub(crate) struct Breaker {
    key: BreakerKey,
    /// That of the model's account: failures of key and credit are counted there. `None` for the
    /// account itself, which counts them all.
    account: Option<Arc<Breaker>>,
    state: Mutex<State>,
}

#[derive(Debug)]
enum State {
    Closed {
        /// Times of the latest failures, oldest first.
        failures: Vec<Instant>,
    },
    Open {
        /// When the next request is the probe.
        until: Instant,
        delay: Duration,
        /// The sentence about the failure.
        reason: String,
    },
    Probing {
        since: Instant,
        delay: Duration,
        reason: String,
    },
}

impl Default for State {
    fn default() -> Self {
        Self::Closed { failures: Vec::new() }
    }
}

impl State {
    /// The sentence about the failure; `None` if the breaker is closed.
    fn skip_reason(&self) -> Option<&str> {
        match self {
            Self::Closed { .. } => None,
            Self::Open { reason, .. } | Self::Probing { reason, .. } => Some(reason),
        }
    }

    /// Begins a probe if one is due.
    fn start_probe(&mut self, now: Instant) -> bool {
        let (due_at, delay, reason) = match self {
            Self::Closed { .. } => return false,
            Self::Open { until, delay, reason } => (*until, *delay, reason),
            Self::Probing { since, delay, reason } => (*since + MAX_PROBE, *delay, reason),
        };
        if now < due_at {
            return false;
        }
        *self = Self::Probing { since: now, delay, reason: std::mem::take(reason) };
        true
    }
}

impl Breaker {
    /// Whether a request may be sent.
    ///
    /// # Errors
    /// The sentence about the failure because of which this model or account is skipped.
    pub(crate) fn admit(&self, now: Instant) -> Result<(), String> {
        self.admit_own(now)?;
        let admitted = self.account.as_ref().map_or(Ok(()), |account| account.admit(now));
        if admitted.is_err() {
            self.abandon_own();
        }
        admitted
    }

    fn admit_own(&self, now: Instant) -> Result<(), String> {
        let mut state = lock(&self.state);
        if state.start_probe(now) {
            return Ok(());
        }
        state.skip_reason().map_or(Ok(()), |reason| Err(reason.to_owned()))
    }

    /// The sentence about the failure because of which this model or account is skipped, also while
    /// a probe is due; `None` if it is not skipped.
    pub(crate) fn skip_reason(&self) -> Option<String> {
        let of_account = self.account.as_ref().and_then(|account| account.skip_reason());
        of_account.or_else(|| lock(&self.state).skip_reason().map(str::to_owned))
    }

    /// Whether a probe is due. It is then that of the caller, who must report its result.
    pub(crate) fn start_probe(&self, now: Instant) -> bool {
        !self.is_closed() && self.admit(now).is_ok()
    }

    /// A request succeeded: the model works, and so does the account.
    pub(crate) fn succeeded(&self) {
        self.account.iter().for_each(|account| account.succeeded());
        let mut state = lock(&self.state);
        if !matches!(&*state, State::Closed { failures } if failures.is_empty()) {
            if !matches!(&*state, State::Closed { .. }) {
                tracing::info!(
                    provider = self.key.vendor,
                    kind = self.key.kind,
                    "a provider works again"
                );
            }
            *state = State::default();
        }
    }

    /// A request failed. Rejected requests do not count: another one may be accepted.
    pub(crate) fn failed(&self, now: Instant, error: &Error) {
        let is_account = matches!(error.kind(), ErrorKind::InvalidKey | ErrorKind::NoCredit);
        if !is_account && !error.kind().is_retryable() {
            return self.abandoned();
        }
        if let Some(account) = &self.account {
            match is_account {
                true => {
                    account.failed(now, error);
                    return self.abandon_own();
                }
                false => account.abandoned(),
            }
        }
        let mut state = lock(&self.state);
        let delay = match &mut *state {
            State::Closed { failures } => {
                failures.retain(|at| now.duration_since(*at) < FAILURE_WINDOW);
                failures.push(now);
                if !is_account && failures.len() < MAX_FAILURES {
                    return;
                }
                if is_account { MAX_DELAY } else { FIRST_DELAY }
            }
            // Requests that were sent before.
            State::Open { .. } => return,
            State::Probing { .. } if is_account => MAX_DELAY,
            State::Probing { delay, .. } => (*delay * 2).min(MAX_DELAY),
        };
        let reason = error.to_string();
        let (provider, kind) = (self.key.vendor, self.key.kind);
        tracing::warn!(
            provider,
            kind,
            reason,
            delay_s = delay.as_secs(),
            "a provider is skipped until it works again"
        );
        *state = State::Open { until: now + delay, delay, reason };
    }

    /// A request ended without a result. If it was the probe, the next request is one.
    pub(crate) fn abandoned(&self) {
        self.account.iter().for_each(|account| account.abandoned());
        self.abandon_own();
    }

    fn abandon_own(&self) {
        let mut state = lock(&self.state);
        if let State::Probing { since, delay, reason } = &*state {
            *state = State::Open { until: *since, delay: *delay, reason: reason.clone() };
        }
    }

    /// Whether no request is skipped.
    pub(crate) fn is_closed(&self) -> bool {
        self.account.as_ref().is_none_or(|account| account.is_closed())
            && matches!(*lock(&self.state), State::Closed { .. })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn breaker() -> Arc<Breaker> {
        Breakers::default().get(BreakerKey::new("llm", "openai", "", Some("k")))
    }

    fn error(kind: ErrorKind) -> Error {
        Error::new(kind, "OpenAI failed")
    }

    #[test]
    fn three_failures_in_thirty_seconds_open_it_and_a_probe_closes_it() {
        let (breaker, start) = (breaker(), Instant::now());
        let at = |seconds: u64| start + Duration::from_secs(seconds);
        for seconds in [0, 20, 40] {
            assert_eq!(breaker.admit(at(seconds)), Ok(()));
            breaker.failed(at(seconds), &error(ErrorKind::Timeout));
        }
        assert_eq!(breaker.admit(at(41)), Ok(()), "the first failure is too old");
        breaker.failed(at(41), &error(ErrorKind::Failed));
        assert_eq!(breaker.admit(at(50)), Err("OpenAI failed".into()));
        assert_eq!(breaker.admit(at(51)), Ok(()), "the probe");
        assert!(breaker.admit(at(52)).is_err(), "one probe at a time");
        breaker.failed(at(53), &error(ErrorKind::Busy));
        assert!(breaker.admit(at(72)).is_err() && breaker.admit(at(73)).is_ok());
        breaker.succeeded();
        assert!(breaker.is_closed());
        breaker.failed(at(80), &error(ErrorKind::Failed));
        assert_eq!(breaker.admit(at(81)), Ok(()), "earlier failures are forgotten");
    }

    #[test]
    fn the_delay_is_doubled_up_to_five_minutes() {
        let (breaker, mut now) = (breaker(), Instant::now());
        for _ in 0..3 {
            breaker.failed(now, &error(ErrorKind::Failed));
        }
        for seconds in [10, 20, 40, 80, 160, 300, 300] {
            let delay = Duration::from_secs(seconds);
            assert!(breaker.admit(now + delay - Duration::from_millis(1)).is_err(), "{seconds}");
            now += delay;
            assert_eq!(breaker.admit(now), Ok(()), "{seconds}");
            breaker.failed(now, &error(ErrorKind::Failed));
        }
    }

    #[test]
    fn a_wrong_key_and_an_empty_account_open_it_at_once_and_a_bad_request_does_not() {
        for (kind, is_open) in [
            (ErrorKind::InvalidKey, true),
            (ErrorKind::NoCredit, true),
            (ErrorKind::Rejected, false),
            (ErrorKind::NotAvailable, false),
        ] {
            let (breaker, now) = (breaker(), Instant::now());
            for _ in 0..5 {
                breaker.failed(now, &error(kind));
            }
            assert_eq!(breaker.admit(now + Duration::from_secs(299)).is_err(), is_open, "{kind:?}");
            assert_eq!(breaker.admit(now + Duration::from_secs(300)), Ok(()));
        }
    }

    #[test]
    fn an_abandoned_probe_leaves_the_probe_to_the_next_request() {
        let (breaker, now) = (breaker(), Instant::now());
        breaker.failed(now, &error(ErrorKind::NoCredit));
        let later = now + MAX_DELAY;
        assert_eq!(breaker.admit(later), Ok(()));
        breaker.abandoned();
        assert_eq!(breaker.admit(later), Ok(()));
        assert!(breaker.admit(later).is_err());
        assert_eq!(breaker.admit(later + MAX_PROBE), Ok(()), "the probe was lost");
    }

    #[test]
    fn a_probe_is_started_by_one_caller_when_it_is_due() {
        let (breaker, now) = (breaker(), Instant::now());
        assert_eq!((breaker.skip_reason(), breaker.start_probe(now)), (None, false));
        breaker.failed(now, &error(ErrorKind::InvalidKey));
        let reason = || Some("OpenAI failed".to_owned());
        let due = now + MAX_DELAY;
        assert!(!breaker.start_probe(due - Duration::from_millis(1)));
        assert_eq!(breaker.skip_reason(), reason());
        assert!(breaker.start_probe(due) && !breaker.start_probe(due));
        assert_eq!(breaker.skip_reason(), reason(), "it is skipped during the probe");
        breaker.failed(due, &error(ErrorKind::InvalidKey));
        assert!(!breaker.start_probe(due + Duration::from_secs(299)));
        assert!(breaker.start_probe(due + MAX_DELAY));
        breaker.succeeded();
        assert_eq!((breaker.skip_reason(), breaker.start_probe(due + MAX_DELAY)), (None, false));
    }

    #[test]
    fn a_failing_model_is_skipped_and_a_wrong_key_skips_all_models_of_the_account() {
        let (breakers, now) = (Breakers::default(), Instant::now());
        let of =
            |model| breakers.get(BreakerKey::new("llm", "openai", "", Some("k")).of_model(model));
        let (slow, other) = (of("slow"), of("other"));
        for _ in 0..3 {
            slow.failed(now, &error(ErrorKind::Timeout));
            other.succeeded();
        }
        assert!(slow.admit(now).is_err() && other.admit(now).is_ok());
        assert_eq!(breakers.states(), [("llm", "openai", false)]);
        other.failed(now, &error(ErrorKind::InvalidKey));
        assert!(other.admit(now).is_err() && of("third").skip_reason().is_some());
        // The model's probe is due, the account's is not: it remains due.
        let due = now + MAX_DELAY - Duration::from_millis(1);
        assert!(!slow.start_probe(due) && !slow.start_probe(due));
        assert!(slow.start_probe(now + MAX_DELAY) && other.admit(now + MAX_DELAY).is_err());
        slow.succeeded();
        assert!(slow.is_closed() && other.is_closed() && of("third").is_closed());
    }

    #[test]
    fn each_account_has_its_own_breaker_and_states_are_by_vendor() {
        let breakers = Breakers::default();
        let key = |token: &str| BreakerKey::new("stt", "deepgram", "", Some(token));
        let wrong = breakers.get(key("a"));
        assert!(Arc::ptr_eq(&wrong, &breakers.get(key("a"))));
        wrong.failed(Instant::now(), &error(ErrorKind::InvalidKey));
        assert_eq!(breakers.get(key("b")).admit(Instant::now()), Ok(()));
        let _ = breakers.get(BreakerKey::new("llm", "openai", "", None));
        assert_eq!(breakers.states(), [("llm", "openai", true), ("stt", "deepgram", false)]);
        assert!(!format!("{wrong:?}").contains("Some"), "keys are not stored");
    }
}
