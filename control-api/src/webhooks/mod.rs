//! Dispatcher of webhooks: sends the deliveries of the outbox to their receivers, in order per
//! conversation, until each one is settled.
//!
//! One task holds the queues. Each attempt runs in a task of its own, and another task records the
//! results in batches. A slow receiver delays only its own deliveries: workspaces take turns at the
//! attempt slots, and so do the agents of one workspace.
//!
//! States of a delivery. The store holds all but "in flight", which is pending there: an attempt
//! that a stop interrupts is made again after the next start. `unreadable` is the state of a row
//! that cannot be read:
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
mod sender;
pub(crate) mod signing;

use std::collections::{BTreeSet, HashMap};
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinSet;
use tokio::time::MissedTickBehavior;

use self::attempts::{AttemptRecorder, AttemptReport};
use self::fair_queue::FairQueue;
use self::queue::{ConversationQueue, QUEUE_WINDOW, QueueTiming};
pub(crate) use self::sender::WebhookSender;
use crate::clock::{self, Micros};
use crate::config::Webhooks;
use crate::state::supervise::BackgroundTask;
use crate::state::webhook_queue::OutboxMessage;
use crate::store::delivery::{Attempt, Row};
use crate::store::{self, Store};

/// Maximum number of attempts in flight.
const MAX_ATTEMPTS_IN_FLIGHT: usize = 256;
/// Maximum number of attempts in flight for one agent, so that a receiver that hangs does not block
/// the others.
const MAX_ATTEMPTS_PER_AGENT: usize = 64;
/// Maximum delays before the attempts of a speaking event. With [`SPEAKING_TIMEOUT`] these are
/// three attempts in 30 s, even if the receiver hangs.
const SPEAKING_SCHEDULE: [Duration; 3] =
    [Duration::ZERO, Duration::from_secs(5), Duration::from_secs(8)];
/// Timeout of an attempt for a speaking event.
const SPEAKING_TIMEOUT: Duration = Duration::from_secs(5);

/// Result of one attempt.
enum Outcome {
    Settled,
    Retry(Micros),
    /// 410: the receiver accepts no more webhooks of this agent.
    Gone,
}

/// The task that delivers webhooks. An attempt that the stop interrupts is made again after the
/// next start.
pub(crate) struct WebhookTask {
    pub(crate) store: Store,
    pub(crate) server_id: Arc<str>,
    /// `webhooks.*`
    pub(crate) config: Webhooks,
    pub(crate) sender: Arc<WebhookSender>,
    /// Announces deliveries that were written.
    pub(crate) outbox: mpsc::UnboundedReceiver<OutboxMessage>,
}

/// State of the dispatcher.
struct Dispatcher {
    store: Store,
    server_id: Arc<str>,
    sender: Arc<WebhookSender>,
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

impl BackgroundTask for WebhookTask {
    async fn run(&mut self, mut stop: watch::Receiver<bool>) {
        let timing = QueueTiming {
            hold: clock::to_micros(self.config.hold),
            memory_horizon: clock::to_micros(self.config.memory_horizon),
        };
        // Twice per `memory_horizon`, so that each retry is read before it is due.
        let mut rescans = tokio::time::interval(self.config.memory_horizon / 2);
        rescans.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let (attempt_reports, report_receiver) = mpsc::unbounded_channel();
        let recorder =
            AttemptRecorder { store: self.store.clone(), schedule: self.config.schedule.clone() };
        let recorder = tokio::spawn(recorder.run(report_receiver));
        let (released, mut released_receiver) = mpsc::unbounded_channel();
        let mut health = self.store.health.subscribe();
        let mut dispatcher = Dispatcher {
            store: self.store.clone(),
            server_id: Arc::clone(&self.server_id),
            sender: Arc::clone(&self.sender),
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
                        tokio::time::sleep(Duration::from_micros(
                            u64::try_from(at - clock::now()).unwrap_or(0),
                        ))
                        .await
                    }
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                // First, because deliveries written before the start are also read above and must
                // find their queue.
                biased;
                message = self.outbox.recv() => match message {
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
                Some((workspace, agent)) = released_receiver.recv() => {
                    dispatcher.fair_queue.release(&workspace, &agent);
                }
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
        // The recording task ends when the last sender is dropped; it still records the reports in
        // its channel.
        drop(dispatcher);
        if let Err(error) = recorder.await {
            tracing::error!(%error, "the task that stores webhook attempts failed");
        }
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
        let untried = self.store.untried_deliveries(&self.server_id, QUEUE_WINDOW + 1).await;
        self.enqueue_all(untried);
    }

    /// Reads the retries that are due within `memory_horizon`.
    async fn load_due_retries(&mut self) {
        let until = clock::now() + self.timing.memory_horizon;
        let retries = self.store.retries_due_before(&self.server_id, until).await;
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
                let rows = self.store.untried_deliveries_of(
                    &conversation,
                    &self.server_id,
                    last,
                    QUEUE_WINDOW + 1,
                );
                match rows.await {
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
        let (sender, attempt_reports) = (Arc::clone(&self.sender), self.attempt_reports.clone());
        self.attempts.spawn(async move {
            // A panic fails this attempt only, like any other error.
            let result = AssertUnwindSafe(sender.make_attempt(&row)).catch_unwind().await;
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

#[cfg(test)]
mod tests;
