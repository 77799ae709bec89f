//! Events that wait to be written: in the channel or, while the store rejects writes or is slow, in
//! a bounded [`Backlog`].

use std::collections::VecDeque;
use std::pin::pin;
use std::sync::atomic::Ordering;
use std::time::Duration;

use conversation::event::EventEnvelope;
use conversation::id::ConversationId;
use tokio::sync::{oneshot, watch};
use tokio::time::{Instant, sleep_until, timeout_at};

use super::backlog::Backlog;
use crate::state::event_queue::{EventReceiver, Message};
use crate::state::supervise::catch_panic;
use crate::store::{self, Store};

/// How long events are collected before they are written together.
const GATHER_TIME: Duration = Duration::from_millis(20);
/// Maximum number of events in one transaction.
const MAX_BATCH: usize = 2000;
/// Delay between two attempts to write while the store fails.
const RETRY_INTERVAL: Duration = Duration::from_millis(500);
/// How long after the stop of the server a failing store is tried again.
const SHUTDOWN_RETRY_TIME: Duration = Duration::from_secs(30);
/// A store operation that takes longer counts as an outage.
const OUTAGE_AFTER: Duration = Duration::from_secs(10);
/// A store operation that takes longer is abandoned and repeated on another connection: its answer
/// may never arrive. A slow one is not abandoned sooner, because it would start over each time.
const OPERATION_TIMEOUT: Duration = Duration::from_secs(15);

/// Messages that are written together, and the work that follows.
#[derive(Default)]
pub(super) struct Batch {
    pub(super) events: VecDeque<(ConversationId, EventEnvelope)>,
    pub(super) panicked: VecDeque<ConversationId>,
    pub(super) flushes: Vec<oneshot::Sender<()>>,
}

impl Batch {
    fn push(&mut self, message: Message) {
        match message {
            Message::Event(id, envelope) => self.events.push_back((id, envelope)),
            Message::CallPanicked(id) => self.panicked.push_back(id),
            Message::Flush(done) => self.flushes.push(done),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.events.is_empty() && self.panicked.is_empty() && self.flushes.is_empty()
    }
}

/// Source of the writer's events.
pub(super) struct EventSource {
    store: Store,
    queue: EventReceiver,
    stop: watch::Receiver<bool>,
    /// Events that arrived while the store rejected writes.
    backlog: Backlog,
    /// Other messages that arrived after them.
    deferred: Vec<Message>,
    /// When events are given up; set at the first failure after the stop of the server.
    give_up_at: Option<Instant>,
}

impl EventSource {
    pub(super) fn new(store: Store, queue: EventReceiver, stop: watch::Receiver<bool>) -> Self {
        Self {
            store,
            queue,
            stop,
            backlog: Backlog::default(),
            deferred: Vec::new(),
            give_up_at: None,
        }
    }

    /// This many events no longer wait.
    pub(super) fn mark_settled(&self, count: usize) {
        self.queue.stats.waiting.fetch_sub(count, Ordering::Relaxed);
    }

    /// An event is lost.
    pub(super) fn count_dropped(&self) {
        self.queue.stats.dropped.fetch_add(1, Ordering::Relaxed);
    }

    /// These events were rejected: another process holds the call, or none does.
    pub(super) fn count_fenced(&self, count: u64) {
        self.queue.stats.fenced.fetch_add(count, Ordering::Relaxed);
    }

    /// The record of a call that panicked has ended.
    pub(super) fn clear_panicked(&self, id: ConversationId) {
        self.queue.stats.lock_panicked().remove(&id);
    }

    /// Waits until there is work, and takes it. False when the server stops. While the store fails
    /// and no event waits, the store is probed too, because other writers depend on it.
    pub(super) async fn gather(&mut self, batch: &mut Batch) -> bool {
        while batch.is_empty() {
            if *self.stop.borrow() {
                return false;
            }
            self.take_backlog(batch);
            if !batch.is_empty() {
                break;
            }
            let failing = self.store.health.failure_reason().is_some();
            tokio::select! {
                message = self.queue.receiver.recv() => match message {
                    Some(message) => batch.push(message),
                    None => return false,
                },
                () = wait_for_stop(&mut self.stop) => return false,
                () = tokio::time::sleep(RETRY_INTERVAL), if failing => {
                    let store = self.store.clone();
                    // The probe reports the store's health itself.
                    let _ = self.run_bounded(store.probe()).await;
                }
                () = self.store.health.wait_for_failure(), if !failing => {}
            }
        }
        let until = Instant::now() + GATHER_TIME;
        // Events in the backlog are older and must be written first.
        while self.backlog.is_empty() && batch.flushes.is_empty() && batch.events.len() < MAX_BATCH
        {
            match timeout_at(until, self.queue.receiver.recv()).await {
                Ok(Some(message)) => batch.push(message),
                Ok(None) | Err(_) => break,
            }
        }
        true
    }

    /// Takes a part of what is available, without waiting: parts that are written before the
    /// process must end are safe.
    pub(super) fn drain_remaining(&mut self, batch: &mut Batch) {
        self.take_backlog(batch);
        while self.backlog.is_empty()
            && batch.events.len() < MAX_BATCH
            && let Ok(message) = self.queue.receiver.try_recv()
        {
            batch.push(message);
        }
    }

    /// Takes the oldest events of the backlog and, if these are all, the other messages that
    /// arrived after them.
    fn take_backlog(&mut self, batch: &mut Batch) {
        batch.events.extend(self.backlog.take(MAX_BATCH));
        if self.backlog.is_empty() {
            self.deferred.drain(..).for_each(|message| batch.push(message));
        }
    }

    /// Appends a message to the backlog.
    fn defer(&mut self, message: Message) {
        match message {
            Message::Event(id, envelope) => {
                let dropped = self.backlog.push(id, envelope);
                self.queue.stats.dropped.fetch_add(dropped, Ordering::Relaxed);
                self.mark_settled(dropped as usize);
            }
            other => self.deferred.push(other),
        }
    }

    /// Waits before the next attempt; messages that arrive meanwhile go to the backlog. False if
    /// the server stops and the store has failed for [`SHUTDOWN_RETRY_TIME`] since.
    pub(super) async fn wait_before_retry(&mut self) -> bool {
        let until = Instant::now() + RETRY_INTERVAL;
        loop {
            // A dropped sender also means that the server stops.
            let is_stopping = *self.stop.borrow() || self.stop.has_changed().is_err();
            if is_stopping && self.gives_up() {
                return false;
            }
            let message = tokio::select! {
                // The first attempt after the stop follows at once.
                () = wait_for_stop(&mut self.stop), if !is_stopping => return true,
                message = timeout_at(until, self.queue.receiver.recv()) => message,
            };
            match message {
                Ok(Some(message)) => self.defer(message),
                Ok(None) => {
                    sleep_until(until).await;
                    return true;
                }
                Err(_) => return true,
            }
        }
    }

    /// Whether the events that still wait are given up. The first call starts the time for that.
    fn gives_up(&mut self) -> bool {
        let now = Instant::now();
        let give_up_at = *self.give_up_at.get_or_insert_with(|| {
            tracing::warn!(
                seconds = SHUTDOWN_RETRY_TIME.as_secs(),
                "shutting down, but events wait for the store; retrying"
            );
            now + SHUTDOWN_RETRY_TIME
        });
        now >= give_up_at
    }

    /// The result of a store operation. Once it is late, the store counts as unwritable, and
    /// messages that arrive meanwhile go to the backlog. An abandoned operation may still take
    /// effect, as when the answer of a COMMIT is lost: every operation can be repeated.
    pub(super) async fn run_bounded<T>(
        &mut self,
        operation: impl Future<Output = store::Result<T>>,
    ) -> store::Result<T> {
        let mut operation = pin!(catch_panic(operation));
        let started_at = Instant::now();
        if let Ok(done) = timeout_at(started_at + OUTAGE_AFTER, &mut operation).await {
            return done;
        }
        let reason = format!("it has not responded for {} s", OUTAGE_AFTER.as_secs());
        self.store.health.report_failure(&reason);
        let mut given_up = pin!(sleep_until(started_at + OPERATION_TIMEOUT));
        loop {
            tokio::select! {
                done = &mut operation => return done,
                Some(message) = self.queue.receiver.recv() => self.defer(message),
                () = &mut given_up => return Err(store::Error::Unwritable(reason)),
            }
        }
    }
}

/// Waits until the server stops.
async fn wait_for_stop(stop: &mut watch::Receiver<bool>) {
    // A dropped sender also means that the server stops.
    drop(stop.wait_for(|stop| *stop).await);
}

#[cfg(test)]
mod tests {
    use conversation::event::Event;
    use conversation::time::Time;
    use engine_api::EventSink as _;

    use super::*;
    use crate::store::DatabaseLocation;

    const CALL: ConversationId = ConversationId(1);

    fn utterance(seq: u64, seconds: f64) -> EventEnvelope {
        let event = Event::UtteranceCommitted { text: format!("number {seq}"), speaker: None };
        EventEnvelope { seq, at: Time::from_seconds(seconds), event }
    }

    fn batch_seqs(batch: &Batch) -> Vec<u64> {
        batch.events.iter().map(|(_, envelope)| envelope.seq).collect()
    }

    async fn panicking_operation() -> store::Result<()> {
        panic!("the test's own panic")
    }

    /// The paused clock advances by itself when all tasks are idle.
    #[tokio::test]
    async fn events_wait_bounded_and_in_order_while_the_store_is_slow() {
        let file = std::env::temp_dir().join(format!("visavis-source-{}.db", std::process::id()));
        let store = Store::open(DatabaseLocation::File(&file)).await.unwrap();
        let (events, queue) = crate::state::event_queue::channel();
        let (_stop, stopped) = watch::channel(false);
        let mut source = EventSource::new(store.clone(), queue, stopped);
        tokio::time::pause();
        for (seq, seconds) in [(0, 1.0), (1, 2.0), (2, 700.0)] {
            events.record(CALL, utterance(seq, seconds));
        }
        events.call_panicked(CALL);
        let started_at = Instant::now();
        let given_up = source.run_bounded(std::future::pending::<store::Result<()>>()).await;
        assert!(matches!(given_up, Err(store::Error::Unwritable(_))));
        assert_eq!(started_at.elapsed().as_secs(), OPERATION_TIMEOUT.as_secs());
        assert!(store.health.failure_reason().is_some(), "the store reports the failure");
        assert_eq!(
            (events.waiting(), events.dropped()),
            (2, 1),
            "more than ten minutes of one call"
        );
        events.record(CALL, utterance(3, 3.0));
        let mut batch = Batch::default();
        assert!(source.gather(&mut batch).await);
        assert_eq!((batch_seqs(&batch), batch.panicked.len()), (vec![0, 1, 3], 1));
        tokio::time::resume();
        store.close().await;
        std::fs::remove_file(file).unwrap();
    }

    #[tokio::test]
    async fn a_store_that_fails_while_the_server_stops_is_tried_again_for_thirty_seconds() {
        let file =
            std::env::temp_dir().join(format!("visavis-source-stop-{}.db", std::process::id()));
        let store = Store::open(DatabaseLocation::File(&file)).await.unwrap();
        for closes_queue in [false, true] {
            let (events, queue) = crate::state::event_queue::channel();
            let (stop, stopped) = watch::channel(false);
            let mut source = EventSource::new(store.clone(), queue, stopped);
            let _open_queue = (!closes_queue).then_some(events);
            tokio::time::pause();
            let started_at = Instant::now();
            assert!(source.wait_before_retry().await);
            assert!(started_at.elapsed() >= RETRY_INTERVAL, "the server runs");
            drop(stop);
            let (stopped_at, mut attempts) = (Instant::now(), 0);
            while source.wait_before_retry().await {
                attempts += 1;
            }
            assert!(stopped_at.elapsed() >= SHUTDOWN_RETRY_TIME);
            assert!((60..=61).contains(&attempts), "{attempts}");
            tokio::time::resume();
        }
        store.close().await;
        std::fs::remove_file(file).unwrap();
    }

    #[tokio::test]
    async fn a_late_write_succeeds_and_a_panic_is_an_error() {
        let file =
            std::env::temp_dir().join(format!("visavis-source-late-{}.db", std::process::id()));
        let store = Store::open(DatabaseLocation::File(&file)).await.unwrap();
        let (_facts, queue) = crate::state::event_queue::channel();
        let (_stop, stopped) = watch::channel(false);
        let mut source = EventSource::new(store.clone(), queue, stopped);
        tokio::time::pause();
        let late = async {
            tokio::time::sleep(OUTAGE_AFTER * 5 / 4).await;
            Ok::<_, store::Error>(7)
        };
        assert_eq!(source.run_bounded(late).await.unwrap(), 7);
        assert!(store.health.failure_reason().is_some());
        assert!(matches!(
            source.run_bounded(panicking_operation()).await,
            Err(store::Error::Panicked)
        ));
        tokio::time::resume();
        store.probe().await.unwrap();
        assert_eq!(store.health.failure_reason(), None);
        store.close().await;
        std::fs::remove_file(file).unwrap();
    }
}
