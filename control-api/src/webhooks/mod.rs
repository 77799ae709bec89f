//! Dispatcher of webhooks: sends the deliveries of the outbox to their receivers, in order per
//! conversation, until each one is settled.
//!
//! One task holds the queues. Each attempt runs in a task of its own, and another task records the
//! results in batches. A slow receiver delays only its own deliveries: workspaces take turns at the
//! attempt slots, and so do the agents of one workspace.
//!
//! States of a delivery in the store (an attempt that a stop interrupts is made again after the
//! next start):
//!
//! ```text
//!               attempt starts             2xx
//!   pending ------------------> in flight -----------------------------------> done
//!    ^  ^                        |  |  |
//!    |  +-- any other result ----+  |  +-- last attempt of a speaking event --> dropped
//!    |      (retry is scheduled)    |
//!    |                              +-- 410, last attempt, or not sendable ---> dead
//!    |                                                                          |
//!    +------------------------------ redeliver ---------------------------------+
//! ```

mod attempts;
mod fair_queue;
pub(crate) mod guardrail_callback;
mod queue;
pub(crate) mod signing;

use std::collections::{BTreeSet, HashMap};
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use egress::{Method, Request};
use futures_util::FutureExt as _;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinSet;
use tokio::time::MissedTickBehavior;

use self::attempts::Made;
use self::queue::{Lane, Spans, WINDOW};
use crate::clock::{self, Micros};
use crate::state::AppState;
use crate::state::webhook_queue::News;
use crate::store;
use crate::store::crash_points::Moment;
use crate::store::delivery::{Row, Try};
use crate::store::secrets::{self, Secrets};
use crate::webhooks::fair_queue::Turns;

/// Maximum number of attempts in flight.
const TRIES: usize = 256;
/// Maximum number of attempts in flight for one agent, so that a receiver that hangs does not block
/// the others.
const TRIES_OF_ONE: usize = 64;
/// Maximum delays before the attempts of a speaking event. With [`SPEAKING_TIMEOUT`] these are
/// three attempts in 30 s, even if the receiver hangs.
const SPEAKING: [Duration; 3] = [Duration::ZERO, Duration::from_secs(5), Duration::from_secs(8)];
/// Timeout of an attempt for a speaking event.
const SPEAKING_TRY: Duration = Duration::from_secs(5);

/// Result of one attempt.
enum Outcome {
    Settled,
    Again(Micros),
    /// 410: the receiver accepts no more webhooks of this agent.
    Gone,
}

/// State of the dispatcher.
struct Delivery {
    shared: Arc<AppState>,
    spans: Spans,
    /// By conversation.
    lanes: HashMap<String, Lane>,
    /// Queues to process now.
    touched: BTreeSet<String>,
    /// When queues are due, ordered by time; and the same by queue.
    wakes: BTreeSet<(Micros, String)>,
    wake_of: HashMap<String, Micros>,
    tries: JoinSet<(Row, Option<Outcome>)>,
    made: mpsc::UnboundedSender<Made>,
    /// Attempts that wait for a slot, by workspace and agent.
    turns: Turns<Row>,
    /// Receives the source of each attempt that releases its slot.
    left: mpsc::UnboundedSender<Source>,
}

/// Workspace and agent of an attempt.
type Source = (String, String);

/// Slot of an attempt in flight. Dropping it releases the slot, whatever the result.
struct Taken {
    source: Option<Source>,
    left: mpsc::UnboundedSender<Source>,
}

impl Drop for Taken {
    fn drop(&mut self) {
        if let Some(source) = self.source.take() {
            // Without a receiver no attempt waits for a slot.
            let _ = self.left.send(source);
        }
    }
}

/// Delivers until `stop`. An attempt that the stop interrupts is made again after the next start.
pub(crate) async fn run(
    shared: Arc<AppState>,
    news: &mut mpsc::UnboundedReceiver<News>,
    mut stop: watch::Receiver<bool>,
) {
    let webhooks = &shared.config.webhooks;
    let spans = Spans { hold: clock::micros(webhooks.hold), memory: clock::micros(webhooks.memory) };
    // Twice per `memory_horizon`, so that each retry is read before it is due.
    let mut looks = tokio::time::interval(webhooks.memory / 2);
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let (made, keeping) = mpsc::unbounded_channel();
    let keeper = tokio::spawn(attempts::run(Arc::clone(&shared), keeping));
    let (left, mut leaving) = mpsc::unbounded_channel();
    let mut health = shared.store.health.changes();
    let mut delivery = Delivery {
        shared,
        spans,
        lanes: HashMap::new(),
        touched: BTreeSet::new(),
        wakes: BTreeSet::new(),
        wake_of: HashMap::new(),
        tries: JoinSet::new(),
        made,
        turns: Turns::new(TRIES, TRIES_OF_ONE),
        left,
    };
    delivery.begin().await;
    loop {
        delivery.serve().await;
        let next = delivery.wakes.first().map(|(at, _)| *at);
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
            // First, because deliveries written before the start are also read above and must find
            // their queue.
            biased;
            told = news.recv() => match told {
                Some(News::Written(row)) => delivery.add(row),
                Some(News::Look) => delivery.begin().await,
                None => break,
            },
            () = async { drop(stop.wait_for(|stop| *stop).await) } => break,
            Ok(()) = health.changed() => {
                // A COMMIT whose answer was lost may have stored deliveries that were not
                // announced.
                if health.borrow_and_update().is_none() {
                    delivery.begin().await;
                }
            }
            Some((workspace, agent)) = leaving.recv() => delivery.turns.done(&workspace, &agent),
            Some(done) = delivery.tries.join_next() => match done {
                Ok((row, outcome)) => delivery.tried(row, outcome),
                Err(error) => tracing::error!(%error, "a webhook attempt failed unexpectedly"),
            },
            _ = looks.tick() => delivery.look().await,
            () = sleep => {
                let now = clock::now();
                let due = delivery.wakes.iter().take_while(|(at, _)| *at <= now);
                delivery.touched.extend(due.map(|(_, conversation)| conversation.clone()));
            }
        }
    }
    delivery.tries.shutdown().await;
    // The recording task ends when the last sender is dropped; it still records the reports in its
    // channel.
    drop(delivery);
    if let Err(error) = keeper.await {
        tracing::error!(%error, "the task that stores webhook attempts failed");
    }
}

impl Delivery {
    fn add(&mut self, row: Row) {
        self.touched.insert(row.conversation.clone());
        self.lanes.entry(row.conversation.clone()).or_default().push(row);
    }

    fn add_all(&mut self, rows: store::Result<Vec<Row>>) {
        match rows {
            Ok(rows) => rows.into_iter().for_each(|row| self.add(row)),
            Err(error) => tracing::error!(%error, "cannot read the pending webhooks"),
        }
    }

    /// Reads the deliveries that wait in the store: the next ones of each conversation, and the
    /// retries that are due soon.
    async fn begin(&mut self) {
        self.look().await;
        let untried = self.shared.store.untried(&self.shared.server, WINDOW + 1).await;
        self.add_all(untried);
    }

    /// Reads the retries that are due within `memory_horizon`.
    async fn look(&mut self) {
        let until = clock::now() + self.spans.memory;
        let soon = self.shared.store.soon(&self.shared.server, until).await;
        self.add_all(soon);
    }

    /// Starts the attempts that are due and whose turn it is.
    async fn serve(&mut self) {
        for conversation in std::mem::take(&mut self.touched) {
            if let Some(at) = self.wake_of.remove(&conversation) {
                self.wakes.remove(&(at, conversation.clone()));
            }
            let Some(lane) = self.lanes.get_mut(&conversation) else { continue };
            if let Some(last) = lane.wants() {
                let server = &self.shared.server;
                match self.shared.store.untried_of(&conversation, server, last, WINDOW + 1).await {
                    Ok(rows) => lane.refill(rows),
                    // The next run for this queue tries again.
                    Err(error) => {
                        tracing::error!(%error, %conversation, "cannot read the pending webhooks")
                    }
                }
            }
            let (due, wake) = lane.due(clock::now(), self.spans);
            for row in due {
                let (workspace, agent) = (row.workspace.clone(), row.agent.clone());
                self.turns.push(&workspace, &agent, row);
            }
            if lane.is_empty() {
                self.lanes.remove(&conversation);
            } else if let Some(at) = wake {
                self.wakes.insert((at, conversation.clone()));
                self.wake_of.insert(conversation, at);
            }
        }
        while let Some(row) = self.turns.next() {
            self.try_one(row);
        }
    }

    /// Makes an attempt in a task of its own.
    fn try_one(&mut self, row: Row) {
        let source = Some((row.workspace.clone(), row.agent.clone()));
        let place = Taken { source, left: self.left.clone() };
        let (shared, made) = (Arc::clone(&self.shared), self.made.clone());
        self.tries.spawn(async move {
            // A panic fails this attempt only, like any other error.
            let made_try = AssertUnwindSafe(attempt(&shared, &row)).catch_unwind().await;
            let (tried, fatal) = made_try.unwrap_or_else(|_| {
                let error = Some(store::Error::Panicked.to_string());
                (Try { at: clock::now(), took: 0, status: None, error }, false)
            });
            // The result is recorded while the next attempts run.
            drop(place);
            let (reply, outcome) = oneshot::channel();
            // The recording task lives as long as any sender of reports.
            let _ = made.send(Made { row: row.clone(), tried, fatal, reply });
            (row, outcome.await.ok())
        });
    }

    /// Continues after an attempt.
    fn tried(&mut self, row: Row, outcome: Option<Outcome>) {
        // The recording task failed. Whatever it stored, the attempt is repeated: receivers must
        // tolerate duplicates.
        let outcome = outcome.unwrap_or_else(|| Outcome::Again(clock::now() + self.spans.hold));
        if let Some(lane) = self.lanes.get_mut(&row.conversation) {
            match outcome {
                Outcome::Settled | Outcome::Gone => lane.settled(&row.id),
                Outcome::Again(at) => lane.again(&row.id, at),
            }
        }
        if matches!(outcome, Outcome::Gone) {
            self.lanes.values_mut().for_each(|lane| lane.forget(&row.agent));
            self.turns.forget(&row.workspace, &row.agent);
        }
        self.touched.insert(row.conversation);
    }
}

/// Makes one attempt. Returns its result, and whether the request cannot be sent at all.
async fn attempt(shared: &AppState, row: &Row) -> (Try, bool) {
    let at = clock::now();
    Moment::BeforeSend.tell(shared.config.watch);
    let sent = send(shared, row).await;
    Moment::AfterSend.tell(shared.config.watch);
    let (status, error, fatal) = match sent {
        Ok(status) => (Some(status), None, false),
        Err(SendError::Net(error @ (egress::Error::ForbiddenAddress | egress::Error::Invalid(_)))) => {
            (None, Some(error.to_string()), true)
        }
        Err(error) => (None, Some(error.to_string()), false),
    };
    (Try { at, took: clock::now() - at, status, error }, fatal)
}

/// Contents of one signed request.
struct Letter<'a> {
    agent: &'a str,
    conversation: &'a str,
    /// `webhook-id`
    id: &'a str,
    url: &'a str,
    body: &'a str,
    /// `visavis-sequence`
    sequence: Option<i64>,
    /// Maximum wait for the response.
    timeout: Duration,
}

#[derive(Debug, thiserror::Error)]
enum SendError {
    #[error(transparent)]
    Net(#[from] egress::Error),
    #[error(transparent)]
    Store(#[from] store::Error),
    #[error("the agent has no webhook secret")]
    NoSecret,
}

/// Sends one delivery. Returns the receiver's HTTP status.
async fn send(shared: &AppState, row: &Row) -> Result<u16, SendError> {
    let timeout = shared.config.webhooks.timeout;
    let letter = Letter {
        agent: &row.agent,
        conversation: &row.conversation,
        id: &row.id,
        url: &row.url,
        body: &row.body,
        sequence: Some(row.sequence),
        timeout: if signing::is_speaking(&row.event) { timeout.min(SPEAKING_TRY) } else { timeout },
    };
    post(shared, &letter).await
}

/// Signs and sends a request. Returns the receiver's HTTP status.
async fn post(shared: &AppState, letter: &Letter<'_>) -> Result<u16, SendError> {
    let sealed = shared.store.signing_secrets(letter.agent, letter.conversation).await?;
    let secrets: Secrets = secrets::open(&shared.vault, letter.agent, &sealed.ok_or(SendError::NoSecret)?)?;
    let timestamp = clock::now() / 1_000_000;
    let signature =
        signing::signature(&secrets.webhook, letter.id, timestamp, letter.body).ok_or(SendError::NoSecret)?;
    let mut request = Request::new(Method::POST, letter.url)?
        .header("webhook-id", letter.id)?
        .header("webhook-timestamp", &timestamp.to_string())?
        .header("webhook-signature", &signature)?;
    if let Some(sequence) = letter.sequence {
        request = request.header("visavis-sequence", &sequence.to_string())?;
    }
    let request = request.json(letter.body.to_owned()).timeout(Some(letter.timeout));
    Ok(shared.net.send(request).await?.status())
}

#[cfg(test)]
mod tests;
