//! Restarts background tasks when they panic, with an increasing delay. The input of a task waits
//! meanwhile.
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

use crate::state::AppState;
use crate::store;

/// Name of the task that writes events.
pub(crate) const LEDGER: &str = "ledger";

/// Delay before a task is restarted; doubled after each further panic.
const PAUSE: Duration = Duration::from_millis(100);
/// Maximum delay.
const LONGEST: Duration = Duration::from_secs(5);
/// If a task ran at least this long before it panics, the delay starts from the minimum again.
const FORGOTTEN: Duration = Duration::from_secs(60);

/// State of the background tasks, by name.
#[derive(Default)]
pub(crate) struct Tasks(Mutex<BTreeMap<&'static str, Task>>);

#[derive(Clone, Copy, Default)]
struct Task {
    panics: u64,
    /// The task panicked and is not restarted yet.
    down: bool,
}

impl Tasks {
    fn map(&self) -> MutexGuard<'_, BTreeMap<&'static str, Task>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn begins(&self, name: &'static str) {
        self.map().entry(name).or_default().down = false;
    }

    /// Records that a task panicked.
    pub(crate) fn panicked(&self, name: &'static str) {
        let mut map = self.map();
        let task = map.entry(name).or_default();
        task.panics += 1;
        task.down = true;
    }

    /// Whether a task panicked and is not restarted yet.
    pub(crate) fn is_down(&self, name: &str) -> bool {
        self.map().get(name).is_some_and(|task| task.down)
    }

    /// Number of panics of each task.
    pub(crate) fn panics(&self) -> Vec<(&'static str, u64)> {
        self.map().iter().map(|(name, task)| (*name, task.panics)).collect()
    }
}

/// The result of an operation of the store; a panic in it becomes an error.
pub(crate) async fn contained<T>(work: impl Future<Output = store::Result<T>>) -> store::Result<T> {
    // A transaction that is dropped half-way is rolled back, and nothing else of the operation is
    // used again.
    AssertUnwindSafe(work).catch_unwind().await.unwrap_or(Err(store::Error::Panicked))
}

/// Starts a background task and restarts it whenever it panics, until it returns.
pub(crate) fn spawn<F>(
    shared: &Arc<AppState>,
    stop: &watch::Receiver<bool>,
    name: &'static str,
    work: impl Fn(Arc<AppState>, watch::Receiver<bool>) -> F + Send + 'static,
) -> JoinHandle<()>
where
    F: Future<Output = ()> + Send + 'static,
{
    let (shared, stop) = (Arc::clone(shared), stop.clone());
    let (tasks, stopped) = (Arc::clone(&shared.tasks), stop.clone());
    let work = move || work(Arc::clone(&shared), stop.clone());
    tokio::spawn(async move { kept(&tasks, name, stopped, work).await })
}

/// Runs `work` until it returns, and restarts it when it panics. After the stop it is restarted
/// once, because it may have data to store.
async fn kept<F>(
    tasks: &Tasks,
    name: &'static str,
    mut stop: watch::Receiver<bool>,
    mut work: impl FnMut() -> F,
) where
    F: Future<Output = ()>,
{
    let (mut pause, mut last) = (PAUSE, false);
    loop {
        tasks.begins(name);
        let begun = Instant::now();
        // State that a task shares is behind locks that ignore poisoning. Its own state is dropped
        // with it.
        if AssertUnwindSafe(work()).catch_unwind().await.is_ok() {
            return;
        }
        tasks.panicked(name);
        if last {
            tracing::error!(task = name, "background task panicked during shutdown; not restarting");
            return;
        }
        if begun.elapsed() >= FORGOTTEN {
            pause = PAUSE;
        }
        tracing::error!(task = name, ?pause, "background task panicked; restarting");
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            () = async { drop(stop.wait_for(|stop| *stop).await) } => last = true,
        }
        pause = LONGEST.min(2 * pause);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    const NAME: &str = "test";

    /// Panics `times` times, then returns.
    async fn fails(begun: Arc<AtomicU32>, times: u32) {
        tokio::task::yield_now().await;
        assert!(begun.fetch_add(1, Ordering::Relaxed) >= times, "the test's own panic");
    }

    #[tokio::test(start_paused = true)]
    async fn what_panics_is_restarted_each_time_a_little_later() {
        let (tasks, begun) = (Tasks::default(), Arc::<AtomicU32>::default());
        let (_stop, stopped) = watch::channel(false);
        let since = Instant::now();
        kept(&tasks, NAME, stopped, || fails(Arc::clone(&begun), 4)).await;
        assert_eq!(begun.load(Ordering::Relaxed), 5);
        // 100 + 200 + 400 + 800 ms.
        assert_eq!(since.elapsed().as_millis() / 100, 15);
        assert_eq!((tasks.panics(), tasks.is_down(NAME)), (vec![(NAME, 4)], false));
    }

    #[tokio::test(start_paused = true)]
    async fn what_panics_for_ever_is_down_and_ends_with_the_server() {
        let (tasks, begun) = (Arc::<Tasks>::default(), Arc::<AtomicU32>::default());
        let (stop, stopped) = watch::channel(false);
        let (own, count) = (Arc::clone(&tasks), Arc::clone(&begun));
        let task = tokio::spawn(async move {
            kept(&own, NAME, stopped, || fails(Arc::clone(&count), u32::MAX)).await;
        });
        while begun.load(Ordering::Relaxed) < 10 {
            tokio::time::sleep(PAUSE).await;
        }
        assert!(tasks.is_down(NAME));
        stop.send(true).unwrap();
        task.await.unwrap();
        assert_eq!(tasks.panics(), [(NAME, 11)], "once more after the stop");
    }
}
