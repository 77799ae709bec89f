//! Records the results of attempts. All results that wait are stored in one transaction: on a disk
//! a commit costs the same for one row as for a hundred, and there is only one writer at a time.

use std::sync::Arc;
use std::time::Duration;

use rand::Rng as _;
use tokio::sync::{mpsc, oneshot};

use super::{Outcome, Row, SPEAKING, signing};
use crate::clock;
use crate::state::AppState;
use crate::state::supervise::contained;
use crate::store::delivery::{self, State, Try};
use crate::store::{self, document};

/// Maximum number of attempts recorded in one transaction.
const BATCH: usize = 256;
/// Delay before the next attempt if a result cannot be stored. Receivers must tolerate duplicates.
const UNKEPT: Duration = Duration::from_secs(5);

/// An attempt that was made.
pub(super) struct Made {
    pub(super) row: Row,
    pub(super) tried: Try,
    /// The request cannot be sent at all.
    pub(super) fatal: bool,
    /// Receives the outcome.
    pub(super) reply: oneshot::Sender<Outcome>,
}

/// Records attempts until all senders are dropped.
pub(super) async fn run(shared: Arc<AppState>, mut made: mpsc::UnboundedReceiver<Made>) {
    let mut batch = Vec::with_capacity(BATCH);
    while made.recv_many(&mut batch, BATCH).await > 0 {
        let outcomes = match contained(keep(&shared, &batch)).await {
            Ok(outcomes) => outcomes,
            Err(_) => one_by_one(&shared, &batch).await,
        };
        for (made, outcome) in batch.drain(..).zip(outcomes) {
            // The task that made the attempt may have been stopped.
            let _ = made.reply.send(outcome);
        }
    }
}

/// Records each attempt in its own transaction, so that one that cannot be stored does not affect
/// the others.
async fn one_by_one(shared: &AppState, batch: &[Made]) -> Vec<Outcome> {
    let mut outcomes = Vec::with_capacity(batch.len());
    for made in batch {
        let kept = contained(keep(shared, std::slice::from_ref(made))).await.map(|mut kept| kept.remove(0));
        outcomes.push(kept.unwrap_or_else(|error| {
            tracing::error!(conversation = %made.row.conversation, %error, "cannot store the result of a webhook attempt");
            Outcome::Again(clock::now() + clock::micros(UNKEPT))
        }));
    }
    outcomes
}

async fn keep(shared: &AppState, batch: &[Made]) -> store::Result<Vec<Outcome>> {
    let now = clock::now();
    let mut tx = shared.store.write().await?;
    let mut outcomes = Vec::with_capacity(batch.len());
    let mut given_up = Vec::new();
    for Made { row, tried, fatal, .. } in batch {
        let mut row = row.clone();
        let reason =
            tried.error.clone().or_else(|| tried.status.map(|s| format!("answered {s}"))).unwrap_or_default();
        let speaking = signing::is_speaking(&row.event);
        let attempts = row.attempts - row.tries_before;
        let verdict = verdict(&shared.config.webhooks.schedule, speaking, attempts, tried.status, *fatal);
        let (state, outcome) = match verdict {
            Verdict::Done => (State::Done, Outcome::Settled),
            Verdict::Gone => (State::Dead, Outcome::Gone),
            Verdict::Again(wait) => {
                row.next_try = now + clock::micros(wait);
                (State::Pending, Outcome::Again(row.next_try))
            }
            Verdict::Dead => (State::Dead, Outcome::Settled),
            Verdict::Dropped => (State::Dropped, Outcome::Settled),
        };
        delivery::tried(&mut tx, &row, tried, state, (state != State::Done).then_some(&*reason)).await?;
        if verdict == Verdict::Gone {
            delivery::give_up_agent(&mut tx, &row.agent, "the receiver answered 410").await?;
            document::set_stopped(&mut tx, &row.agent, true).await?;
        }
        if matches!(state, State::Dead | State::Dropped) {
            given_up.push((row, reason));
        }
        outcomes.push(outcome);
    }
    tx.commit().await?;
    for (row, reason) in given_up {
        tracing::warn!(conversation = %row.conversation, event = %row.event, %reason, "webhook delivery abandoned");
    }
    Ok(outcomes)
}

/// What follows from an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Done,
    /// 410: no more deliveries for this agent's receiver.
    Gone,
    /// Another attempt after this delay.
    Again(Duration),
    /// The last attempt failed, or no attempt can succeed (`fatal`).
    Dead,
    /// A speaking event whose last attempt failed.
    Dropped,
}

/// Classifies the last of `attempts` attempts by its HTTP status. `fatal`: the request cannot be
/// sent at all.
pub(super) fn verdict(
    schedule: &[Duration],
    speaking: bool,
    attempts: i64,
    status: Option<u16>,
    fatal: bool,
) -> Verdict {
    match (status, wait(schedule, speaking, attempts)) {
        (Some(200..=299), _) => Verdict::Done,
        (Some(410), _) => Verdict::Gone,
        (_, Some(wait)) if !fatal => Verdict::Again(wait),
        _ if speaking && !fatal => Verdict::Dropped,
        _ => Verdict::Dead,
    }
}

/// The delay after `attempts` failed attempts, with ±10 % jitter. `None`: give up.
fn wait(schedule: &[Duration], speaking: bool, attempts: i64) -> Option<Duration> {
    let made = usize::try_from(attempts).unwrap_or(usize::MAX);
    let wait = *schedule.get(made)?;
    let wait = if speaking { wait.min(*SPEAKING.get(made)?) } else { wait };
    Some(wait.mul_f64(rand::rng().random_range(0.9..=1.1)))
}
