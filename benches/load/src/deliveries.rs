//! The end of a run with `--record`: the server delivers the recordings.

use std::time::Duration;

use engine::clock;

use crate::api::Api;
use crate::metrics::ServerMetrics;
use crate::recording::growth;

/// How often the server's counters are read.
const POLL_INTERVAL: Duration = Duration::from_millis(500);
/// Maximum time between two deliveries. One begins seconds after the end of its call, and has the
/// lowest priority.
const DELIVERY_TIMEOUT: Duration = Duration::from_secs(60);

/// Waits until the server has delivered this many recordings more than `before`, or makes no
/// progress. Returns the metrics at that time.
pub(crate) async fn wait_for_deliveries(
    api: &Api,
    before: &ServerMetrics,
    recordings: usize,
) -> ServerMetrics {
    let (mut last, mut give_up_at) = (None, clock::now() + DELIVERY_TIMEOUT);
    loop {
        let metrics = api.read_metrics().await;
        let delivered = growth(before, &metrics).delivered;
        if delivered.is_none_or(|delivered| delivered >= recordings as f64) {
            return metrics;
        }
        let now = clock::now();
        if delivered != last {
            (last, give_up_at) = (delivered, now + DELIVERY_TIMEOUT);
        }
        if now >= give_up_at {
            return metrics;
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}
