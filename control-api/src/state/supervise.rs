//! Restarts background tasks when they panic, with an increasing delay. The input of a task waits
//! meanwhile, in the fields of the task.
//!
//! ```text
//! running -- returns ---------------------------------> finished
//! running -- panics ----------------------------------> down
//! down ----- delay (100 ms, doubled, at most 5 s) ----> running
//! down ----- server stops ----------------------------> running (last time)
//! running (last time) -- returns or panics -----------> finished
//! ```

use std::collections::BTreeMap;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::FutureExt as _;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::store;

/// Name of the task that writes events.
pub(crate) const EVENT_WRITER: &str = "event-writer";

/// Delay before a task is restarted; doubled after each further panic.
const MIN_RESTART_DELAY: Duration = Duration::from_millis(100);
/// Maximum delay.
const MAX_RESTART_DELAY: Duration = Duration::from_secs(5);
/// If a task ran at least this long before it panics, the delay starts from the minimum again.
const BACKOFF_RESET_AFTER: Duration = Duration::from_secs(60);

/// State of the background tasks, by name.
#[derive(Default)]
pub(crate) struct BackgroundTasks(Mutex<BTreeMap<&'static str, TaskState>>);

#[derive(Clone, Copy, Default)]
struct TaskState {
    panics: u64,
    /// The task panicked and is not restarted yet.
    down: bool,
}

impl BackgroundTasks {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<&'static str, TaskState>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn mark_running(&self, name: &'static str) {
        self.lock().entry(name).or_default().down = false;
    }

    /// Records that a task panicked.
    pub(crate) fn record_panic(&self, name: &'static str) {
        let mut map = self.lock();
        let task = map.entry(name).or_default();
        task.panics += 1;
        task.down = true;
    }

    /// Whether a task panicked and is not restarted yet.
    pub(crate) fn is_down(&self, name: &str) -> bool {
        self.lock().get(name).is_some_and(|task| task.down)
    }

    /// Number of panics of each task.
    pub(crate) fn panic_counts(&self) -> Vec<(&'static str, u64)> {
        self.lock().iter().map(|(name, task)| (*name, task.panics)).collect()
    }
}

/// The result of an operation of the store; a panic in it becomes an error.
pub(crate) async fn catch_panic<T>(
    work: impl Future<Output = store::Result<T>>,
) -> store::Result<T> {
    // A transaction that is dropped half-way is rolled back, and nothing else of the operation is
    // used again.
    AssertUnwindSafe(work).catch_unwind().await.unwrap_or(Err(store::Error::Panicked))
}

/// A background task. Its fields are all that it uses, and they outlive a panic: the next run
/// continues with them.
pub(crate) trait BackgroundTask: Send + 'static {
    /// Works until `stop`.
    fn run(&mut self, stop: watch::Receiver<bool>) -> impl Future<Output = ()> + Send;
}

/// Starts a background task and restarts it whenever it panics, until it returns.
pub(crate) fn spawn_supervised(
    tasks: &Arc<BackgroundTasks>,
    stop: &watch::Receiver<bool>,
    name: &'static str,
    mut task: impl BackgroundTask,
) -> JoinHandle<()> {
    let (tasks, stop) = (Arc::clone(tasks), stop.clone());
    tokio::spawn(async move { run_supervised(&tasks, name, stop, &mut task).await })
}

/// Runs `task` until it returns, and restarts it when it panics. After the stop it is restarted
/// once, because it may have data to store.
async fn run_supervised(
    tasks: &BackgroundTasks,
    name: &'static str,
    mut stop: watch::Receiver<bool>,
    task: &mut impl BackgroundTask,
) {
    let (mut delay, mut stopping) = (MIN_RESTART_DELAY, false);
    loop {
        tasks.mark_running(name);
        let started_at = Instant::now();
        // State that a task shares is behind locks that ignore poisoning. The state of one run is
        // dropped with it. Of the fields of tasks, a run may leave only those of the writer of
        // events half changed, and its next run repairs them.
        if AssertUnwindSafe(task.run(stop.clone())).catch_unwind().await.is_ok() {
            return;
        }
        tasks.record_panic(name);
        if stopping {
            tracing::error!(
                task = name,
                "background task panicked during shutdown; not restarting"
            );
            return;
        }
        if started_at.elapsed() >= BACKOFF_RESET_AFTER {
            delay = MIN_RESTART_DELAY;
        }
        tracing::error!(task = name, ?delay, "background task panicked; restarting");
        tokio::select! {
            () = tokio::time::sleep(delay) => {}
            () = async { drop(stop.wait_for(|stop| *stop).await) } => stopping = true,
        }
        delay = MAX_RESTART_DELAY.min(2 * delay);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    const NAME: &str = "test";

    /// Panics `panics` times, then returns.
    struct PanickingTask {
        runs: Arc<AtomicU32>,
        panics: u32,
    }

    impl BackgroundTask for PanickingTask {
        async fn run(&mut self, _: watch::Receiver<bool>) {
            tokio::task::yield_now().await;
            let earlier_runs = self.runs.fetch_add(1, Ordering::Relaxed);
            assert!(earlier_runs >= self.panics, "the test's own panic");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_panicking_task_is_restarted_with_increasing_delays() {
        let (tasks, runs) = (BackgroundTasks::default(), Arc::<AtomicU32>::default());
        let (_stop, stopped) = watch::channel(false);
        let since = Instant::now();
        let mut task = PanickingTask { runs: Arc::clone(&runs), panics: 4 };
        run_supervised(&tasks, NAME, stopped, &mut task).await;
        assert_eq!(runs.load(Ordering::Relaxed), 5);
        // 100 + 200 + 400 + 800 ms.
        assert_eq!(since.elapsed().as_millis() / 100, 15);
        assert_eq!((tasks.panic_counts(), tasks.is_down(NAME)), (vec![(NAME, 4)], false));
    }

    #[tokio::test(start_paused = true)]
    async fn a_task_that_always_panics_is_down_until_the_server_stops() {
        let (tasks, runs) = (Arc::<BackgroundTasks>::default(), Arc::<AtomicU32>::default());
        let (stop, stopped) = watch::channel(false);
        let task = PanickingTask { runs: Arc::clone(&runs), panics: u32::MAX };
        let task = spawn_supervised(&tasks, &stopped, NAME, task);
        while runs.load(Ordering::Relaxed) < 10 {
            tokio::time::sleep(MIN_RESTART_DELAY).await;
        }
        assert!(tasks.is_down(NAME));
        stop.send(true).unwrap();
        task.await.unwrap();
        assert_eq!(tasks.panic_counts(), [(NAME, 11)], "once more after the stop");
    }
}
