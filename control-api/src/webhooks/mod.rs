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

use self::attempts::AttemptReport;
use self::queue::{ConversationQueue, QUEUE_WINDOW, QueueTiming};
use crate::clock::{self, Micros};
use crate::state::AppState;
use crate::state::webhook_queue::OutboxMessage;
use crate::store;
use crate::store::crash_points::CrashPoint;
use crate::store::delivery::{Attempt, Row};
use crate::store::secrets::{self, AgentSecrets};
use crate::webhooks::fair_queue::FairQueue;

/// Maximum number of attempts in flight.
const MAX_ATTEMPTS_IN_FLIGHT: usize = 256;
/// Maximum number of attempts in flight for one agent, so that a receiver that hangs does not block
/// the others.
const MAX_ATTEMPTS_PER_AGENT: usize = 64;
/// Maximum delays before the attempts of a speaking event. With [`SPEAKING_TIMEOUT`] these are
/// three attempts in 30 s, even if the receiver hangs.
const SPEAKING_SCHEDULE: [Duration; 3] = [Duration::ZERO, Duration::from_secs(5), Duration::from_secs(8)];
/// Timeout of an attempt for a speaking event.
const SPEAKING_TIMEOUT: Duration = Duration::from_secs(5);

/// Result of one attempt.
enum Outcome {
    Settled,
    Retry(Micros),
    /// 410: the receiver accepts no more webhooks of this agent.
    Gone,
}

/// State of the dispatcher.
struct Dispatcher {
    shared: Arc<AppState>,
    timing: QueueTiming,
    /// By conversation.
    queues: HashMap<String, ConversationQueue>,
    /// Queues to process now.
    dirty: BTreeSet<String>,
    /// When queues are due, ordered by time; and the same by queue.
    wakeups: BTreeSet<(Micros, String)>,
    wakeup_by_queue: HashMap<String, Micros>,
    attempts: JoinSet<(Row, Option<Outcome>)>,
    attempt_reports: mpsc::UnboundedSender<AttemptReport>,
    /// Attempts that wait for a slot, by workspace and agent.
    fair_queue: FairQueue<Row>,
    /// Receives the source of each attempt that releases its slot.
    released: mpsc::UnboundedSender<Source>,
}

/// Workspace and agent of an attempt.
type Source = (String, String);

/// Slot of an attempt in flight. Dropping it releases the slot, whatever the result.
struct AttemptPermit {
    source: Option<Source>,
    released: mpsc::UnboundedSender<Source>,
}

impl Drop for AttemptPermit {
    fn drop(&mut self) {
        if let Some(source) = self.source.take() {
            // Without a receiver no attempt waits for a slot.
            let _ = self.released.send(source);
        }
    }
}

/// Delivers until `stop`. An attempt that the stop interrupts is made again after the next start.
pub(crate) async fn run(
    shared: Arc<AppState>,
    outbox: &mut mpsc::UnboundedReceiver<OutboxMessage>,
    mut stop: watch::Receiver<bool>,
) {
    let webhooks = &shared.config.webhooks;
    let timing = QueueTiming {
        hold: clock::to_micros(webhooks.hold),
        memory_horizon: clock::to_micros(webhooks.memory_horizon),
    };
    // Twice per `memory_horizon`, so that each retry is read before it is due.
    let mut rescans = tokio::time::interval(webhooks.memory_horizon / 2);
    rescans.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let (attempt_reports, report_receiver) = mpsc::unbounded_channel();
    let recorder = tokio::spawn(attempts::run(Arc::clone(&shared), report_receiver));
    let (released, mut released_receiver) = mpsc::unbounded_channel();
    let mut health = shared.store.health.subscribe();
    let mut dispatcher = Dispatcher {
        shared,
        timing,
        queues: HashMap::new(),
        dirty: BTreeSet::new(),
        wakeups: BTreeSet::new(),
        wakeup_by_queue: HashMap::new(),
        attempts: JoinSet::new(),
        attempt_reports,
        fair_queue: FairQueue::new(MAX_ATTEMPTS_IN_FLIGHT, MAX_ATTEMPTS_PER_AGENT),
        released,
    };
    dispatcher.load_pending().await;
    loop {
        dispatcher.start_due_attempts().await;
        let next = dispatcher.wakeups.first().map(|(at, _)| *at);
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
            message = outbox.recv() => match message {
                Some(OutboxMessage::Written(row)) => dispatcher.enqueue(row),
                Some(OutboxMessage::Rescan) => dispatcher.load_pending().await,
                None => break,
            },
            () = async { drop(stop.wait_for(|stop| *stop).await) } => break,
            Ok(()) = health.changed() => {
                // A COMMIT whose answer was lost may have stored deliveries that were not
                // announced.
                if health.borrow_and_update().is_none() {
                    dispatcher.load_pending().await;
                }
            }
            Some((workspace, agent)) = released_receiver.recv() => dispatcher.fair_queue.release(&workspace, &agent),
            Some(done) = dispatcher.attempts.join_next() => match done {
                Ok((row, outcome)) => dispatcher.on_attempt_done(row, outcome),
                Err(error) => tracing::error!(%error, "a webhook attempt failed unexpectedly"),
            },
            _ = rescans.tick() => dispatcher.load_due_retries().await,
            () = sleep => {
                let now = clock::now();
                let due = dispatcher.wakeups.iter().take_while(|(at, _)| *at <= now);
                dispatcher.dirty.extend(due.map(|(_, conversation)| conversation.clone()));
            }
        }
    }
    dispatcher.attempts.shutdown().await;
    // The recording task ends when the last sender is dropped; it still records the reports in its
    // channel.
    drop(dispatcher);
    if let Err(error) = recorder.await {
        tracing::error!(%error, "the task that stores webhook attempts failed");
    }
}

impl Dispatcher {
    fn enqueue(&mut self, row: Row) {
        self.dirty.insert(row.conversation.clone());
        self.queues.entry(row.conversation.clone()).or_default().push(row);
    }

    fn enqueue_all(&mut self, rows: store::Result<Vec<Row>>) {
        match rows {
            Ok(rows) => rows.into_iter().for_each(|row| self.enqueue(row)),
            Err(error) => tracing::error!(%error, "cannot read the pending webhooks"),
        }
    }

    /// Reads the deliveries that wait in the store: the next ones of each conversation, and the
    /// retries that are due soon.
    async fn load_pending(&mut self) {
        self.load_due_retries().await;
        let untried = self.shared.store.untried_deliveries(&self.shared.server_id, QUEUE_WINDOW + 1).await;
        self.enqueue_all(untried);
    }

    /// Reads the retries that are due within `memory_horizon`.
    async fn load_due_retries(&mut self) {
        let until = clock::now() + self.timing.memory_horizon;
        let retries = self.shared.store.retries_due_before(&self.shared.server_id, until).await;
        self.enqueue_all(retries);
    }

    /// Starts the attempts that are due and whose turn it is.
    async fn start_due_attempts(&mut self) {
        for conversation in std::mem::take(&mut self.dirty) {
            if let Some(at) = self.wakeup_by_queue.remove(&conversation) {
                self.wakeups.remove(&(at, conversation.clone()));
            }
            let Some(queue) = self.queues.get_mut(&conversation) else { continue };
            if let Some(last) = queue.refill_after() {
                let server = &self.shared.server_id;
                match self
                    .shared
                    .store
                    .untried_deliveries_of(&conversation, server, last, QUEUE_WINDOW + 1)
                    .await
                {
                    Ok(rows) => queue.refill(rows),
                    // The next run for this queue tries again.
                    Err(error) => {
                        tracing::error!(%error, %conversation, "cannot read the pending webhooks")
                    }
                }
            }
            let (due, wake) = queue.take_due(clock::now(), self.timing);
            for row in due {
                let (workspace, agent) = (row.workspace.clone(), row.agent.clone());
                self.fair_queue.push(&workspace, &agent, row);
            }
            if queue.is_empty() {
                self.queues.remove(&conversation);
            } else if let Some(at) = wake {
                self.wakeups.insert((at, conversation.clone()));
                self.wakeup_by_queue.insert(conversation, at);
            }
        }
        while let Some(row) = self.fair_queue.pop() {
            self.spawn_attempt(row);
        }
    }

    /// Makes an attempt in a task of its own.
    fn spawn_attempt(&mut self, row: Row) {
        let source = Some((row.workspace.clone(), row.agent.clone()));
        let permit = AttemptPermit { source, released: self.released.clone() };
        let (shared, attempt_reports) = (Arc::clone(&self.shared), self.attempt_reports.clone());
        self.attempts.spawn(async move {
            // A panic fails this attempt only, like any other error.
            let result = AssertUnwindSafe(make_attempt(&shared, &row)).catch_unwind().await;
            let (attempt, fatal) = result.unwrap_or_else(|_| {
                let error = Some(store::Error::Panicked.to_string());
                (Attempt { at: clock::now(), duration: 0, status: None, error }, false)
            });
            // The result is recorded while the next attempts run.
            drop(permit);
            let (reply, outcome) = oneshot::channel();
            // The recording task lives as long as any sender of reports.
            let _ = attempt_reports.send(AttemptReport { row: row.clone(), attempt, fatal, reply });
            (row, outcome.await.ok())
        });
    }

    /// Continues after an attempt.
    fn on_attempt_done(&mut self, row: Row, outcome: Option<Outcome>) {
        // The recording task failed. Whatever it stored, the attempt is repeated: receivers must
        // tolerate duplicates.
        let outcome = outcome.unwrap_or_else(|| Outcome::Retry(clock::now() + self.timing.hold));
        if let Some(queue) = self.queues.get_mut(&row.conversation) {
            match outcome {
                Outcome::Settled | Outcome::Gone => queue.remove_settled(&row.id),
                Outcome::Retry(at) => queue.reschedule(&row.id, at),
            }
        }
        if matches!(outcome, Outcome::Gone) {
            self.queues.values_mut().for_each(|queue| queue.remove_agent(&row.agent));
            self.fair_queue.discard(&row.workspace, &row.agent);
        }
        self.dirty.insert(row.conversation);
    }
}

/// Makes one attempt. Returns its result, and whether the request cannot be sent at all.
async fn make_attempt(shared: &AppState, row: &Row) -> (Attempt, bool) {
    let at = clock::now();
    CrashPoint::BeforeSend.notify(shared.config.crash_hook);
    let sent = send_delivery(shared, row).await;
    CrashPoint::AfterSend.notify(shared.config.crash_hook);
    let (status, error, fatal) = match sent {
        Ok(status) => (Some(status), None, false),
        Err(SendError::Net(error @ (egress::Error::ForbiddenAddress | egress::Error::Invalid(_)))) => {
            (None, Some(error.to_string()), true)
        }
        Err(error) => (None, Some(error.to_string()), false),
    };
    (Attempt { at, duration: clock::now() - at, status, error }, fatal)
}

/// Contents of one signed request.
struct WebhookDelivery<'a> {
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
async fn send_delivery(shared: &AppState, row: &Row) -> Result<u16, SendError> {
    let timeout = shared.config.webhooks.timeout;
    let delivery = WebhookDelivery {
        agent: &row.agent,
        conversation: &row.conversation,
        id: &row.id,
        url: &row.url,
        body: &row.body,
        sequence: Some(row.sequence),
        timeout: if signing::is_speaking_event(&row.event) { timeout.min(SPEAKING_TIMEOUT) } else { timeout },
    };
    sign_and_send(shared, &delivery).await
}

/// Signs and sends a request. Returns the receiver's HTTP status.
async fn sign_and_send(shared: &AppState, delivery: &WebhookDelivery<'_>) -> Result<u16, SendError> {
    let sealed = shared.store.signing_secrets(delivery.agent, delivery.conversation).await?;
    let secrets: AgentSecrets =
        secrets::open(&shared.vault, delivery.agent, &sealed.ok_or(SendError::NoSecret)?)?;
    let timestamp = clock::now() / 1_000_000;
    let signature =
        signing::sign(&secrets.webhook, delivery.id, timestamp, delivery.body).ok_or(SendError::NoSecret)?;
    let mut request = Request::new(Method::POST, delivery.url)?
        .header("webhook-id", delivery.id)?
        .header("webhook-timestamp", &timestamp.to_string())?
        .header("webhook-signature", &signature)?;
    if let Some(sequence) = delivery.sequence {
        request = request.header("visavis-sequence", &sequence.to_string())?;
    }
    let request = request.json(delivery.body.to_owned()).timeout(Some(delivery.timeout));
    Ok(shared.http_client.send(request).await?.status())
}

#[cfg(test)]
mod tests;
