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

use self::spans::{Trace, attribute, matters};

/// Maximum number of queued events: the events of a thousand calls over some minutes.
const QUEUE: usize = 8_192;
/// A batch is sent at this interval, or earlier once it has this many spans.
const EVERY: Duration = Duration::from_secs(5);
const BATCH: usize = 512;
/// Maximum number of spans that wait while the collector is busy or unreachable. Beyond that the
/// oldest ones are dropped.
const KEPT: usize = 4_096;
/// Timeout of one request to the collector.
const PATIENCE: Duration = Duration::from_secs(10);
/// Time limit for the final export at shutdown.
const LAST: Duration = Duration::from_secs(2);
/// Maximum duration of a call. Spans of a conversation without events for this long are discarded.
const LONGEST: Duration = Duration::from_secs(86_400);
/// Minimum interval between warnings about lost spans.
const TOLD: Duration = Duration::from_secs(60);

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
struct Tee {
    ledger: Arc<dyn EventSink>,
    facts: mpsc::Sender<(ConversationId, EventEnvelope)>,
    lost: Arc<AtomicU64>,
}

impl EventSink for Tee {
    fn record(&self, conversation: ConversationId, fact: EventEnvelope) {
        if matters(&fact.event) && self.facts.try_send((conversation, fact.clone())).is_err() {
            self.lost.fetch_add(1, Relaxed);
        }
        self.ledger.record(conversation, fact);
    }

    fn call_panicked(&self, conversation: ConversationId) {
        self.ledger.call_panicked(conversation);
    }
}

/// The exporter's task. It runs until [`Exporter::shutdown`].
pub(crate) struct Exporter {
    task: tokio::task::JoinHandle<()>,
    stop: mpsc::Sender<()>,
}

/// Starts the exporter and returns a sink that feeds both it and `sink`. To be called on the net
/// pool.
pub(crate) fn begin(
    ledger: Arc<dyn EventSink>,
    to: Collector,
    client: &egress::Client,
) -> (Arc<dyn EventSink>, Exporter) {
    let (facts, queue) = mpsc::channel(QUEUE);
    let (stop, stopped) = mpsc::channel(1);
    let lost = Arc::<AtomicU64>::default();
    // The operator's own target is trusted, so private addresses are allowed.
    let sender = Sender { to, client: client.trusted(), lost: Arc::clone(&lost), told: None };
    let task = tokio::spawn(run(sender, queue, stopped));
    (Arc::new(Tee { ledger, facts, lost }), Exporter { task, stop })
}

impl Exporter {
    /// Exports what is left, for at most `SHUTDOWN_TIMEOUT`.
    pub(crate) async fn finish(self) {
        // Sending fails only if the task has panicked.
        let _ = self.stop.send(()).await;
        let _ = timeout(LAST, self.task).await;
    }
}

async fn run(
    mut sender: Sender,
    mut queue: mpsc::Receiver<(ConversationId, EventEnvelope)>,
    mut stopped: mpsc::Receiver<()>,
) {
    let mut traces: HashMap<ConversationId, (Trace, Instant)> = HashMap::new();
    let mut spans = Vec::new();
    let mut due = Instant::now() + EVERY;
    // The last batch was rejected: wait for the interval before the next attempt.
    let mut refused = false;
    loop {
        let (fact, last) = tokio::select! {
            fact = queue.recv() => (fact, false),
            () = tokio::time::sleep_until(due) => (None, false),
            _ = stopped.recv() => (queue.try_recv().ok(), true),
        };
        let mut next = fact;
        while let Some((id, fact)) = next {
            let (trace, touched) = traces.entry(id).or_insert_with(|| (Trace::default(), Instant::now()));
            *touched = Instant::now();
            spans.extend(trace.apply(id, &fact));
            if matches!(fact.event, Event::Ended { .. }) {
                traces.remove(&id);
            }
            next = queue.try_recv().ok().filter(|_| last || spans.len() < BATCH);
        }
        if last || (spans.len() >= BATCH && !refused) || Instant::now() >= due {
            refused = !sender.send(&mut spans).await;
            due = Instant::now() + EVERY;
            // Without this, a conversation whose last event was lost would never be removed.
            traces.retain(|_, (_, touched)| touched.elapsed() < LONGEST);
        }
        if last {
            return;
        }
    }
}

/// Why the collector did not accept spans.
struct Refusal {
    why: String,
    /// Whether a later attempt may succeed.
    again: bool,
}

struct Sender {
    to: Collector,
    client: egress::Client,
    /// Number of events and spans that the collector will not receive.
    lost: Arc<AtomicU64>,
    told: Option<Instant>,
}

impl Sender {
    /// Sends `spans` and removes those that need not be sent again. Returns whether the collector
    /// accepted them.
    async fn send(&mut self, spans: &mut Vec<Value>) -> bool {
        let failed = if spans.is_empty() { None } else { self.post(spans).await.err() };
        let lost = match &failed {
            None => 0,
            Some(Refusal { again: true, .. }) => spans.len().saturating_sub(KEPT),
            Some(_) => spans.len(),
        };
        self.lost.fetch_add(lost as u64, Relaxed);
        spans.drain(..if failed.is_some() { lost } else { spans.len() });
        let quiet = self.told.is_some_and(|at| at.elapsed() < TOLD);
        if !quiet && (failed.is_some() || self.lost.load(Relaxed) > 0) {
            let lost = self.lost.swap(0, Relaxed);
            tracing::warn!(
                lost,
                reason = failed.as_ref().map_or("the export queue was full", |refusal| &refusal.why),
                "spans were not exported to the OTLP collector"
            );
            self.told = Some(Instant::now());
        }
        failed.is_none()
    }

    async fn post(&self, spans: &[Value]) -> Result<(), Refusal> {
        // `permanent`: the configuration is wrong. `temporary`: the network or the collector
        // failed.
        let wrong = |error: egress::Error| Refusal { why: error.to_string(), again: false };
        let away = |error: egress::Error| Refusal { why: error.to_string(), again: true };
        let resource =
            [("service.name", json!("visavis")), ("service.version", json!(env!("CARGO_PKG_VERSION")))];
        let body = json!({"resourceSpans": [{
            "resource": {"attributes": resource.map(|(key, value)| attribute(key, &value))},
            "scopeSpans": [{"scope": {"name": "visavis"}, "spans": spans}],
        }]});
        let mut request = egress::Request::new(Method::POST, &self.to.url).map_err(wrong)?;
        for (name, value) in &self.to.headers {
            request = request.header(name, value).map_err(wrong)?;
        }
        let request = request.json(body.to_string()).timeout(Some(PATIENCE));
        let response = self.client.send(request).await.map_err(away)?;
        let (status, success) = (response.status(), response.is_success());
        // Read the body to its end, so that the connection can be reused.
        drop(response.body().await);
        if success {
            return Ok(());
        }
        // OTLP defines these status codes as retryable.
        Err(Refusal {
            why: format!("the collector responded with status {status}"),
            again: matches!(status, 429 | 502..=504),
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
