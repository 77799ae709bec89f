//! Exports spans to an OpenTelemetry collector, if the operator configures one: OTLP over HTTP in
//! its JSON encoding.
//!
//! The exporter is a second consumer of the events that go to the event sink. Its queue is bounded
//! and never blocks the producer, and its task runs on the net pool. If the collector is slow or
//! unreachable, spans are lost and the loss is logged with its count, but no call is affected.
//! Without a collector nothing is started.

mod spans;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use conversation::event::{Event, EventEnvelope};
use conversation::id::ConversationId;
use egress::Method;
use engine_api::EventSink;
use percent_encoding::percent_decode_str;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout};

use self::spans::{ConversationSpans, is_traced, key_value};

/// Maximum number of queued events: the events of a thousand calls over some minutes.
const QUEUE_CAPACITY: usize = 8_192;
/// A batch is sent at this interval, or earlier once it has this many spans.
const EXPORT_INTERVAL: Duration = Duration::from_secs(5);
const BATCH_SPANS: usize = 512;
/// Maximum number of spans that wait while the collector is busy or unreachable. Beyond that the
/// oldest ones are dropped.
const MAX_PENDING_SPANS: usize = 4_096;
/// Timeout of one request to the collector.
const EXPORT_TIMEOUT: Duration = Duration::from_secs(10);
/// Time limit for the final export at shutdown.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(2);
/// Maximum duration of a call. Spans of a conversation without events for this long are discarded.
const MAX_CALL_DURATION: Duration = Duration::from_secs(86_400);
/// Minimum interval between warnings about lost spans.
const WARNING_INTERVAL: Duration = Duration::from_secs(60);

/// The destination of the spans.
#[derive(Clone)]
pub(crate) struct Collector {
    /// `…/v1/traces`.
    url: String,
    /// Name and value of each header. Secret.
    headers: Vec<(String, String)>,
}

impl Collector {
    /// The collector at `endpoint`, as in `otlp.endpoint` and `OTEL_EXPORTER_OTLP_ENDPOINT`: a base
    /// URL, to which the path of traces is appended. `headers` is as in
    /// `OTEL_EXPORTER_OTLP_HEADERS`: `name=value,name=value`, with special characters of a value
    /// percent-encoded.
    pub(crate) fn new(endpoint: &str, headers: &str) -> Self {
        let pair = |text: &str| {
            let (name, value) = text.split_once('=')?;
            let value = percent_decode_str(value.trim()).decode_utf8_lossy().into_owned();
            Some((name.trim().to_owned(), value))
        };
        Self {
            url: format!("{}/v1/traces", endpoint.trim_end_matches('/')),
            headers: headers.split(',').filter_map(pair).collect(),
        }
    }
}

/// An event sink that also passes the events to the exporter's task.
struct FanOut {
    sink: Arc<dyn EventSink>,
    events: mpsc::Sender<(ConversationId, EventEnvelope)>,
    dropped: Arc<AtomicU64>,
}

impl EventSink for FanOut {
    fn record(&self, conversation: ConversationId, event: EventEnvelope) {
        if is_traced(&event.event) && self.events.try_send((conversation, event.clone())).is_err() {
            self.dropped.fetch_add(1, Relaxed);
        }
        self.sink.record(conversation, event);
    }

    fn call_panicked(&self, conversation: ConversationId) {
        self.sink.call_panicked(conversation);
    }
}

/// The exporter's task. It runs until [`Exporter::shutdown`].
pub(crate) struct Exporter {
    task: tokio::task::JoinHandle<()>,
    stop: mpsc::Sender<()>,
}

/// Starts the exporter and returns a sink that feeds both it and `sink`. To be called on the net
/// pool.
pub(crate) fn start_exporter(
    sink: Arc<dyn EventSink>,
    collector: Collector,
    client: &egress::Client,
) -> (Arc<dyn EventSink>, Exporter) {
    let (events, queue) = mpsc::channel(QUEUE_CAPACITY);
    let (stop, stopped) = mpsc::channel(1);
    let lost = Arc::<AtomicU64>::default();
    // The operator's own target is trusted, so private addresses are allowed.
    let sender = SpanSender {
        collector,
        client: client.trusted(),
        dropped: Arc::clone(&lost),
        warned_at: None,
    };
    let task = tokio::spawn(export_loop(sender, queue, stopped));
    (Arc::new(FanOut { sink, events, dropped: lost }), Exporter { task, stop })
}

impl Exporter {
    /// Exports what is left, for at most `SHUTDOWN_TIMEOUT`.
    pub(crate) async fn shutdown(self) {
        // Sending fails only if the task has panicked.
        let _ = self.stop.send(()).await;
        let _ = timeout(SHUTDOWN_TIMEOUT, self.task).await;
    }
}

async fn export_loop(
    mut sender: SpanSender,
    mut queue: mpsc::Receiver<(ConversationId, EventEnvelope)>,
    mut stopped: mpsc::Receiver<()>,
) {
    let mut traces: HashMap<ConversationId, (ConversationSpans, Instant)> = HashMap::new();
    let mut spans = Vec::new();
    let mut next_export_at = Instant::now() + EXPORT_INTERVAL;
    // The last batch was rejected: wait for the interval before the next attempt.
    let mut export_failed = false;
    loop {
        let (event, last) = tokio::select! {
            event = queue.recv() => (event, false),
            () = tokio::time::sleep_until(next_export_at) => (None, false),
            _ = stopped.recv() => (queue.try_recv().ok(), true),
        };
        let mut next = event;
        while let Some((id, event)) = next {
            let (trace, last_event_at) =
                traces.entry(id).or_insert_with(|| (ConversationSpans::default(), Instant::now()));
            *last_event_at = Instant::now();
            spans.extend(trace.apply(id, &event));
            if matches!(event.event, Event::Ended { .. }) {
                traces.remove(&id);
            }
            next = queue.try_recv().ok().filter(|_| last || spans.len() < BATCH_SPANS);
        }
        if last
            || (spans.len() >= BATCH_SPANS && !export_failed)
            || Instant::now() >= next_export_at
        {
            export_failed = !sender.send_batch(&mut spans).await;
            next_export_at = Instant::now() + EXPORT_INTERVAL;
            // Without this, a conversation whose last event was lost would never be removed.
            traces.retain(|_, (_, last_event_at)| last_event_at.elapsed() < MAX_CALL_DURATION);
        }
        if last {
            return;
        }
    }
}

/// Why the collector did not accept spans.
struct ExportError {
    reason: String,
    /// Whether a later attempt may succeed.
    retryable: bool,
}

struct SpanSender {
    collector: Collector,
    client: egress::Client,
    /// Number of events and spans that the collector will not receive.
    dropped: Arc<AtomicU64>,
    warned_at: Option<Instant>,
}

impl SpanSender {
    /// Sends `spans` and removes those that need not be sent again. Returns whether the collector
    /// accepted them.
    async fn send_batch(&mut self, spans: &mut Vec<Value>) -> bool {
        let failed = if spans.is_empty() { None } else { self.post_spans(spans).await.err() };
        let lost = match &failed {
            None => 0,
            Some(ExportError { retryable: true, .. }) => {
                spans.len().saturating_sub(MAX_PENDING_SPANS)
            }
            Some(_) => spans.len(),
        };
        self.dropped.fetch_add(lost as u64, Relaxed);
        spans.drain(..if failed.is_some() { lost } else { spans.len() });
        let quiet = self.warned_at.is_some_and(|at| at.elapsed() < WARNING_INTERVAL);
        if !quiet && (failed.is_some() || self.dropped.load(Relaxed) > 0) {
            let lost = self.dropped.swap(0, Relaxed);
            tracing::warn!(
                lost,
                reason =
                    failed.as_ref().map_or("the export queue was full", |refusal| &refusal.reason),
                "spans were not exported to the OTLP collector"
            );
            self.warned_at = Some(Instant::now());
        }
        failed.is_none()
    }

    async fn post_spans(&self, spans: &[Value]) -> Result<(), ExportError> {
        // `permanent`: the configuration is wrong. `temporary`: the network or the collector
        // failed.
        let permanent =
            |error: egress::Error| ExportError { reason: error.to_string(), retryable: false };
        let temporary =
            |error: egress::Error| ExportError { reason: error.to_string(), retryable: true };
        let resource = [
            ("service.name", json!("visavis")),
            ("service.version", json!(env!("CARGO_PKG_VERSION"))),
        ];
        let body = json!({"resourceSpans": [{
            "resource": {"attributes": resource.map(|(key, value)| key_value(key, &value))},
            "scopeSpans": [{"scope": {"name": "visavis"}, "spans": spans}],
        }]});
        let mut request =
            egress::Request::new(Method::POST, &self.collector.url).map_err(permanent)?;
        for (name, value) in &self.collector.headers {
            request = request.header(name, value).map_err(permanent)?;
        }
        let request = request.json(body.to_string()).timeout(Some(EXPORT_TIMEOUT));
        let response = self.client.send(request).await.map_err(temporary)?;
        let (status, success) = (response.status(), response.is_success());
        // Read the body to its end, so that the connection can be reused.
        drop(response.body().await);
        if success {
            return Ok(());
        }
        // OTLP defines these status codes as retryable.
        Err(ExportError {
            reason: format!("the collector responded with status {status}"),
            retryable: matches!(status, 429 | 502..=504),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_are_read_as_vendors_write_them() {
        let to = Collector::new("http://c:4318/", "Authorization=Basic%20YWJj=, x-tenant = a");
        assert_eq!(to.url, "http://c:4318/v1/traces");
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        assert_eq!(to.headers, [pair("Authorization", "Basic YWJj="), pair("x-tenant", "a")]);
    }
}
