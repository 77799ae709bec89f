//! Spans for an OpenTelemetry collector, where the operator names one: OTLP over HTTP in its JSON encoding.
//!
//! A second reader of the facts that go to the ledger. It has a bounded queue that nobody waits for, and a task of its own on the net
//! pool: a collector that is slow or away costs spans, which are counted in the log, and never a call. Where none is named there is
//! nothing of it.

mod spans;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use conversation::call_config::ConversationId;
use conversation::engine::EventSink;
use conversation::event::{Event, EventEnvelope};
use models::net::{self, Method};
use percent_encoding::percent_decode_str;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout};

use self::spans::{Trace, attribute, matters};

/// Facts that may wait: some minutes' worth of a thousand calls.
const QUEUE: usize = 8_192;
/// Spans are sent together, so often or when there are so many.
const EVERY: Duration = Duration::from_secs(5);
const BATCH: usize = 512;
/// Spans that wait for a collector that is busy or away; of more the oldest are lost.
const KEPT: usize = 4_096;
/// A collector answers within this time.
const PATIENCE: Duration = Duration::from_secs(10);
/// What is left at the end of the process has this time.
const LAST: Duration = Duration::from_secs(2);
/// No call lasts longer.
const LONGEST: Duration = Duration::from_secs(86_400);
/// How often the log says that spans are lost.
const TOLD: Duration = Duration::from_secs(60);

/// Where spans go.
#[derive(Clone)]
pub(crate) struct Collector {
    /// `…/v1/traces`.
    url: String,
    /// Name and value of each header. Secret.
    headers: Vec<(String, String)>,
}

impl Collector {
    /// The one at `endpoint`, as `otlp.endpoint` and `OTEL_EXPORTER_OTLP_ENDPOINT` name it: a base, to which the path of traces is added.
    /// `headers` as in `OTEL_EXPORTER_OTLP_HEADERS`: `name=value,name=value`, what is special in a value percent-encoded.
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

/// A ledger that tells the spans' task too.
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

/// What reads the facts, until [`Exporter::finish`].
pub(crate) struct Exporter {
    task: tokio::task::JoinHandle<()>,
    stop: mpsc::Sender<()>,
}

/// Puts a reader before `ledger`. Call it on the net pool.
pub(crate) fn begin(
    ledger: Arc<dyn EventSink>,
    to: Collector,
    client: &net::Client,
) -> (Arc<dyn EventSink>, Exporter) {
    let (facts, queue) = mpsc::channel(QUEUE);
    let (stop, stopped) = mpsc::channel(1);
    let lost = Arc::<AtomicU64>::default();
    // What the operator names is trusted.
    let sender = Sender { to, client: client.trusted(), lost: Arc::clone(&lost), told: None };
    let task = tokio::spawn(run(sender, queue, stopped));
    (Arc::new(Tee { ledger, facts, lost }), Exporter { task, stop })
}

impl Exporter {
    /// Sends what is left, within a moment.
    pub(crate) async fn finish(self) {
        // The task is gone only if it broke.
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
    // The collector did not take the last batch, and is given time.
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
            // One whose end was lost would stay for ever.
            traces.retain(|_, (_, touched)| touched.elapsed() < LONGEST);
        }
        if last {
            return;
        }
    }
}

/// Why the collector did not take spans.
struct Refusal {
    why: String,
    /// Whether it may take them later.
    again: bool,
}

struct Sender {
    to: Collector,
    client: net::Client,
    /// Facts and spans that the collector will not see.
    lost: Arc<AtomicU64>,
    told: Option<Instant>,
}

impl Sender {
    /// Sends `spans`, and takes what need not be sent again out of them. Whether the collector took them.
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
                why = failed.as_ref().map_or("they came too fast", |refusal| &refusal.why),
                "spans do not reach the collector"
            );
            self.told = Some(Instant::now());
        }
        failed.is_none()
    }

    async fn post(&self, spans: &[Value]) -> Result<(), Refusal> {
        // The settings are at fault, or the line.
        let wrong = |error: net::Error| Refusal { why: error.to_string(), again: false };
        let away = |error: net::Error| Refusal { why: error.to_string(), again: true };
        let resource =
            [("service.name", json!("visavis")), ("service.version", json!(env!("CARGO_PKG_VERSION")))];
        let body = json!({"resourceSpans": [{
            "resource": {"attributes": resource.map(|(key, value)| attribute(key, &value))},
            "scopeSpans": [{"scope": {"name": "visavis"}, "spans": spans}],
        }]});
        let mut request = net::Request::new(Method::POST, &self.to.url).map_err(wrong)?;
        for (name, value) in &self.to.headers {
            request = request.header(name, value).map_err(wrong)?;
        }
        let request = request.json(body.to_string()).timeout(Some(PATIENCE));
        let response = self.client.send(request).await.map_err(away)?;
        let (status, success) = (response.status(), response.success());
        // Read to its end, so that the connection can be used again.
        drop(response.body().await);
        if success {
            return Ok(());
        }
        // Those that the protocol has tried again.
        Err(Refusal { why: format!("it answered {status}"), again: matches!(status, 429 | 502..=504) })
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
