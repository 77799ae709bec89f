//! Metrics of the tokio runtime that serves HTTP and sends requests to vendors.

use engine_api::metrics::MetricFamily;
use tokio::runtime::Handle;

/// Metrics of the current runtime.
pub(super) fn collect() -> Vec<MetricFamily> {
    let tokio = Handle::current().metrics();
    let workers = || 0..tokio.num_workers();
    vec![
        MetricFamily::gauge("tokio_workers", "Threads of the net pool.")
            .with_value(tokio.num_workers()),
        MetricFamily::gauge("tokio_tasks_alive", "Tasks that have not finished.")
            .with_value(tokio.num_alive_tasks()),
        MetricFamily::gauge(
            "tokio_global_queue",
            "Tasks in the global queue that wait for a worker.",
        )
        .with_value(tokio.global_queue_depth()),
        MetricFamily::counter("tokio_worker_busy_seconds", "Time that a worker was busy.")
            .with_each(
                "worker",
                workers().map(|n| (n, tokio.worker_total_busy_duration(n).as_secs_f64())),
            ),
        MetricFamily::counter(
            "tokio_worker_parks",
            "Number of times that a worker had no task and slept.",
        )
        .with_each("worker", workers().map(|n| (n, tokio.worker_park_count(n)))),
    ]
}
