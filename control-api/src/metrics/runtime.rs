//! What tokio tells of the pool that serves HTTP and talks to vendors.

use conversation::measure::Family;
use tokio::runtime::Handle;

/// Of the runtime that this is called on.
pub(super) fn measures() -> Vec<Family> {
    let tokio = Handle::current().metrics();
    let workers = || 0..tokio.num_workers();
    vec![
        Family::gauge("tokio_workers", "Threads of the net pool.").of(tokio.num_workers()),
        Family::gauge("tokio_tasks_alive", "Tasks that are not done.").of(tokio.num_alive_tasks()),
        Family::gauge(
            "tokio_global_queue",
            "Tasks that are ready and wait for a worker in the common queue.",
        )
        .of(tokio.global_queue_depth()),
        Family::counter("tokio_worker_busy_seconds", "Time that a worker spent on tasks.")
            .each("worker", workers().map(|n| (n, tokio.worker_total_busy_duration(n).as_secs_f64()))),
        Family::counter("tokio_worker_parks", "How often a worker had nothing to do and slept.")
            .each("worker", workers().map(|n| (n, tokio.worker_park_count(n)))),
    ]
}
