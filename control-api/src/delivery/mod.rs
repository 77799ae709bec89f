//! Delivery of webhooks: from the outbox in the store to the receiver, in order per conversation, again and again until it is settled.
//!
//! One task knows what waits; each try is a task of its own. A slow receiver delays nobody but itself.

mod lane;
pub(crate) mod webhook;

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use models::net::{self, Method, Request};
use rand::Rng as _;
use tokio::sync::{Semaphore, mpsc, watch};
use tokio::task::JoinSet;

use self::lane::Lane;
use crate::agent::secrets::{self, Secrets};
use crate::app::Shared;
use crate::clock::{self, Micros};
pub(crate) use crate::store::delivery::Row;
use crate::store::delivery::{self, State, Try};
use crate::store::{self, document};

/// Longest try. Shorter than the hold, so that a receiver that hangs delays the next event by no more.
const TRY: Duration = Duration::from_secs(15);
/// Tries under way at once.
const TRIES: usize = 128;
/// The schedule of the speaking events: three tries in half a minute.
const SPEAKING: [Duration; 3] = [Duration::ZERO, Duration::from_secs(5), Duration::from_secs(20)];

/// What became of one try.
enum Outcome {
    Settled,
    Again(Micros),
    /// 410: the receiver wants no more of this agent.
    Gone,
}

/// Delivers until `stop`. A try that the stop cuts short is made again after the next start.
pub(crate) async fn run(
    shared: Arc<Shared>,
    mut written: mpsc::UnboundedReceiver<Row>,
    mut stop: watch::Receiver<bool>,
) {
    let hold = clock::micros(shared.config.webhooks.hold);
    let mut lanes: HashMap<String, Lane> = HashMap::new();
    let mut wakes: BTreeSet<(Micros, String)> = BTreeSet::new();
    let mut wake_of: HashMap<String, Micros> = HashMap::new();
    let mut tries = JoinSet::new();
    let room = Arc::new(Semaphore::new(TRIES));
    let mut touched: BTreeSet<String> = BTreeSet::new();
    match shared.store.pending().await {
        Ok(rows) => {
            for row in rows {
                touched.insert(row.conversation.clone());
                lanes.entry(row.conversation.clone()).or_default().push(row);
            }
        }
        Err(error) => tracing::error!(%error, "the webhooks that wait from before cannot be read"),
    }
    loop {
        for conversation in std::mem::take(&mut touched) {
            if let Some(at) = wake_of.remove(&conversation) {
                wakes.remove(&(at, conversation.clone()));
            }
            let Some(lane) = lanes.get_mut(&conversation) else { continue };
            let (due, wake) = lane.due(clock::now(), hold);
            for row in due {
                let (shared, room) = (Arc::clone(&shared), Arc::clone(&room));
                tries.spawn(async move {
                    let _permit = room.acquire_owned().await;
                    let outcome = attempt(&shared, &row).await;
                    (row, outcome)
                });
            }
            if lane.is_empty() {
                lanes.remove(&conversation);
            } else if let Some(at) = wake {
                wakes.insert((at, conversation.clone()));
                wake_of.insert(conversation, at);
            }
        }
        let next = wakes.first().map(|(at, _)| *at);
        let sleep = async {
            match next {
                Some(at) => {
                    tokio::time::sleep(Duration::from_micros(u64::try_from(at - clock::now()).unwrap_or(0)))
                        .await
                }
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            // First, because what was written before the start is read above too and must find its lane.
            biased;
            row = written.recv() => match row {
                Some(row) => {
                    touched.insert(row.conversation.clone());
                    lanes.entry(row.conversation.clone()).or_default().push(row);
                }
                None => break,
            },
            _ = stop.wait_for(|stop| *stop) => break,
            Some(done) = tries.join_next() => match done {
                Ok((row, outcome)) => {
                    if let Some(lane) = lanes.get_mut(&row.conversation) {
                        match outcome {
                            Outcome::Settled | Outcome::Gone => lane.settled(&row.id),
                            Outcome::Again(at) => lane.again(&row.id, at),
                        }
                    }
                    if matches!(outcome, Outcome::Gone) {
                        lanes.values_mut().for_each(|lane| lane.forget(&row.agent));
                    }
                    touched.insert(row.conversation);
                }
                Err(error) => tracing::error!(%error, "a webhook's try failed"),
            },
            () = sleep => {
                let now = clock::now();
                touched.extend(wakes.iter().take_while(|(at, _)| *at <= now).map(|(_, conversation)| conversation.clone()));
            }
        }
    }
    tries.shutdown().await;
}

/// Makes one try and keeps what became of it.
async fn attempt(shared: &Shared, row: &Row) -> Outcome {
    let at = clock::now();
    let (status, error, fatal) = match send(shared, row).await {
        Ok(status) => (Some(status), None, false),
        Err(SendError::Net(error @ (net::Error::Refused | net::Error::Invalid(_)))) => {
            (None, Some(error.to_string()), true)
        }
        Err(error) => (None, Some(error.to_string()), false),
    };
    let tried = Try { at, took: clock::now() - at, status, error };
    let kept = keep(shared, row, &tried, fatal).await;
    kept.unwrap_or_else(|error| {
        // Unkept, it is tried again: receivers must bear an event that comes twice.
        tracing::error!(%error, "what became of a webhook cannot be kept");
        Outcome::Again(clock::now() + clock::micros(Duration::from_secs(5)))
    })
}

async fn keep(shared: &Shared, row: &Row, tried: &Try, fatal: bool) -> store::Result<Outcome> {
    let now = clock::now();
    let mut row = row.clone();
    let mut tx = shared.store.write().await?;
    let reason =
        tried.error.clone().or_else(|| tried.status.map(|s| format!("answered {s}"))).unwrap_or_default();
    let outcome = match tried.status {
        Some(200..=299) => {
            delivery::tried(&mut tx, &row, tried, State::Done, None).await?;
            Outcome::Settled
        }
        Some(410) => {
            delivery::tried(&mut tx, &row, tried, State::Dead, Some(&reason)).await?;
            delivery::give_up_agent(&mut tx, &row.agent, "the receiver answered 410").await?;
            document::set_stopped(&mut tx, &row.agent, true).await?;
            Outcome::Gone
        }
        _ => {
            let speaking = webhook::is_speaking(&row.event);
            match (!fatal).then(|| wait(&shared.config.webhooks.schedule, speaking, row.attempts)).flatten() {
                Some(wait) => {
                    row.next_try = now + clock::micros(wait);
                    delivery::tried(&mut tx, &row, tried, State::Pending, Some(&reason)).await?;
                    Outcome::Again(row.next_try)
                }
                None => {
                    let state = if speaking && !fatal { State::Dropped } else { State::Dead };
                    delivery::tried(&mut tx, &row, tried, state, Some(&reason)).await?;
                    tracing::warn!(conversation = %row.conversation, event = %row.event, %reason, "a webhook is given up");
                    Outcome::Settled
                }
            }
        }
    };
    if matches!(outcome, Outcome::Gone) {
        shared.stopped.lock().unwrap_or_else(std::sync::PoisonError::into_inner).insert(row.agent.clone());
    }
    tx.commit().await?;
    Ok(outcome)
}

/// How long to wait after `attempts` failed tries, with a tenth of jitter either way; `None`: give up.
fn wait(schedule: &[Duration], speaking: bool, attempts: i64) -> Option<Duration> {
    let made = usize::try_from(attempts).unwrap_or(usize::MAX);
    let wait = *schedule.get(made)?;
    let wait = if speaking { wait.min(*SPEAKING.get(made)?) } else { wait };
    Some(wait.mul_f64(rand::rng().random_range(0.9..=1.1)))
}

#[derive(Debug, thiserror::Error)]
enum SendError {
    #[error(transparent)]
    Net(#[from] net::Error),
    #[error(transparent)]
    Store(#[from] store::Error),
    #[error("the agent has no webhook secret")]
    NoSecret,
}

/// Sends one try; the receiver's status.
async fn send(shared: &Shared, row: &Row) -> Result<u16, SendError> {
    let sealed =
        shared.store.signing_secrets(&row.agent, &row.conversation).await?.ok_or(SendError::NoSecret)?;
    let secrets: Secrets = secrets::open(&shared.vault, &row.agent, &sealed)?;
    let timestamp = clock::now() / 1_000_000;
    let signature =
        webhook::signature(&secrets.webhook, &row.id, timestamp, &row.body).ok_or(SendError::NoSecret)?;
    let request = Request::new(Method::POST, &row.url)?
        .header("webhook-id", &row.id)?
        .header("webhook-timestamp", &timestamp.to_string())?
        .header("webhook-signature", &signature)?
        .header("visavis-sequence", &row.sequence.to_string())?
        .json(row.body.clone())
        .timeout(Some(TRY));
    Ok(shared.net.send(request).await?.status())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_follow_the_schedule_with_a_little_jitter_and_end() {
        let schedule = crate::config::Webhooks::default().schedule;
        let around = |wait: Option<Duration>, seconds: f64| {
            let wait = wait.unwrap().as_secs_f64();
            assert!((seconds * 0.899..=seconds * 1.101).contains(&wait), "{wait} is not around {seconds}");
        };
        around(wait(&schedule, false, 1), 5.0);
        around(wait(&schedule, false, 6), 36_000.0);
        assert_eq!(wait(&schedule, false, 7), None);
        around(wait(&schedule, true, 1), 5.0);
        around(wait(&schedule, true, 2), 20.0);
        assert_eq!(wait(&schedule, true, 3), None);
    }
}
