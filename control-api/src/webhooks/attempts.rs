//! Records the results of attempts. All results that wait are stored in one transaction: on a disk
//! a commit costs the same for one row as for a hundred, and there is only one writer at a time.

use std::time::Duration;

use rand::Rng as _;
use tokio::sync::{mpsc, oneshot};

use super::{Outcome, Row, SPEAKING_SCHEDULE, signing};
use crate::clock;
use crate::state::supervise::catch_panic;
use crate::store::delivery::{self, Attempt, State};
use crate::store::{self, Lock, Store, json_record};

/// Maximum number of attempts recorded in one transaction.
const MAX_BATCH: usize = 256;
/// Delay before the next attempt if a result cannot be stored. Receivers must tolerate duplicates.
const STORE_RETRY_DELAY: Duration = Duration::from_secs(5);

/// An attempt that was made.
pub(super) struct AttemptReport {
    pub(super) row: Row,
    pub(super) attempt: Attempt,
    /// The request cannot be sent at all.
    pub(super) fatal: bool,
    /// Receives the outcome.
    pub(super) reply: oneshot::Sender<Outcome>,
}

/// Records attempts.
pub(super) struct AttemptRecorder {
    pub(super) store: Store,
    /// `webhooks.schedule`
    pub(super) schedule: Vec<Duration>,
}

impl AttemptRecorder {
    /// Records attempts until all senders are dropped.
    pub(super) async fn run(self, mut reports: mpsc::UnboundedReceiver<AttemptReport>) {
        let mut batch = Vec::with_capacity(MAX_BATCH);
        while reports.recv_many(&mut batch, MAX_BATCH).await > 0 {
            let outcomes = match catch_panic(self.record_attempts(&batch)).await {
                Ok(outcomes) => outcomes,
                Err(_) => self.record_one_by_one(&batch).await,
            };
            for (reports, outcome) in batch.drain(..).zip(outcomes) {
                // The task that made the attempt may have been stopped.
                let _ = reports.reply.send(outcome);
            }
        }
    }

    /// Records each attempt in its own transaction, so that one that cannot be stored does not
    /// affect the others.
    async fn record_one_by_one(&self, batch: &[AttemptReport]) -> Vec<Outcome> {
        let mut outcomes = Vec::with_capacity(batch.len());
        for report in batch {
            let outcome = catch_panic(self.record_attempts(std::slice::from_ref(report)))
                .await
                .map(|mut outcome| outcome.remove(0));
            outcomes.push(outcome.unwrap_or_else(|error| {
                let conversation = &report.row.conversation;
                tracing::error!(
                    %conversation,
                    %error,
                    "cannot store the result of a webhook attempt"
                );
                Outcome::Retry(clock::now() + clock::to_micros(STORE_RETRY_DELAY))
            }));
        }
        outcomes
    }

    async fn record_attempts(&self, batch: &[AttemptReport]) -> store::Result<Vec<Outcome>> {
        let now = clock::now();
        let mut tx = self.store.begin_write(Lock::Rows).await?;
        let mut outcomes = Vec::with_capacity(batch.len());
        let mut given_up = Vec::new();
        for AttemptReport { row, attempt, fatal, .. } in batch {
            let mut row = row.clone();
            let reason = attempt
                .error
                .clone()
                .or_else(|| attempt.status.map(|s| format!("responded with status {s}")))
                .unwrap_or_default();
            let speaking = signing::is_speaking_event(&row.event);
            let attempts = row.attempts - row.attempts_before_redelivery;
            let disposition =
                classify_attempt(&self.schedule, speaking, attempts, attempt.status, *fatal);
            let (delivery_state, outcome) = match disposition {
                Disposition::Delivered => (State::Done, Outcome::Settled),
                Disposition::Gone => (State::Dead, Outcome::Gone),
                Disposition::Retry(wait) => {
                    row.next_attempt_at = now + clock::to_micros(wait);
                    (State::Pending, Outcome::Retry(row.next_attempt_at))
                }
                Disposition::DeadLetter => (State::Dead, Outcome::Settled),
                Disposition::Dropped => (State::Dropped, Outcome::Settled),
            };
            delivery::record_attempt(
                &mut tx,
                &row,
                attempt,
                delivery_state,
                (delivery_state != State::Done).then_some(&*reason),
            )
            .await?;
            if disposition == Disposition::Gone {
                delivery::give_up_for_agent(&mut tx, &row.agent, "responded with status 410")
                    .await?;
                json_record::set_webhooks_stopped(&mut tx, &row.agent, true).await?;
            }
            if matches!(delivery_state, State::Dead | State::Dropped) {
                given_up.push((row, reason));
            }
            outcomes.push(outcome);
        }
        tx.commit().await?;
        for (row, reason) in given_up {
            tracing::warn!(
                conversation = %row.conversation,
                event = %row.event,
                %reason,
                "webhook delivery abandoned"
            );
        }
        Ok(outcomes)
    }
}

/// What follows from an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Disposition {
    Delivered,
    /// 410: no more deliveries for this agent's receiver.
    Gone,
    /// Another attempt after this delay.
    Retry(Duration),
    /// The last attempt failed, or no attempt can succeed (`fatal`).
    DeadLetter,
    /// A speaking event whose last attempt failed.
    Dropped,
}

/// Classifies the last of `attempts` attempts by its HTTP status. `fatal`: the request cannot be
/// sent at all.
pub(super) fn classify_attempt(
    schedule: &[Duration],
    speaking: bool,
    attempts: i64,
    status: Option<u16>,
    fatal: bool,
) -> Disposition {
    match (status, retry_delay(schedule, speaking, attempts)) {
        (Some(200..=299), _) => Disposition::Delivered,
        (Some(410), _) => Disposition::Gone,
        (_, Some(wait)) if !fatal => Disposition::Retry(wait),
        _ if speaking && !fatal => Disposition::Dropped,
        _ => Disposition::DeadLetter,
    }
}

/// The delay after `attempts` failed attempts, with ±10 % jitter. `None`: give up.
fn retry_delay(schedule: &[Duration], speaking: bool, attempts: i64) -> Option<Duration> {
    let index = usize::try_from(attempts).unwrap_or(usize::MAX);
    let wait = *schedule.get(index)?;
    let wait = if speaking { wait.min(*SPEAKING_SCHEDULE.get(index)?) } else { wait };
    Some(wait.mul_f64(rand::rng().random_range(0.9..=1.1)))
}
