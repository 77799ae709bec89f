//! Erases deleted pictures of persons from the log of the database, soon after each deletion and
//! after a start, because a crash may have come first. In the background: a request does not wait
//! for it.

use std::time::Duration;

use tokio::sync::watch;

use crate::state::supervise::BackgroundTask;
use crate::store::{self, Store};

/// Delay while others use the log.
const BUSY_DELAY: Duration = Duration::from_secs(1);
/// Delay after an error.
const RETRY_DELAY: Duration = Duration::from_secs(10);

/// The task that truncates the log.
pub(crate) struct EraseTask {
    pub(crate) store: Store,
}

impl BackgroundTask for EraseTask {
    async fn run(&mut self, mut stop: watch::Receiver<bool>) {
        if self.store.is_shared() {
            // PostgreSQL cleans its files itself.
            return;
        }
        loop {
            let store = &self.store;
            erase(|| store.truncate_wal(), &mut stop).await;
            tokio::select! {
                () = self.store.pictures_deleted() => {}
                _ = stop.wait_for(|stop| *stop) => return,
            }
        }
    }
}

/// Repeats `truncate` until it is done, or until `stop`: then closing the store does the same.
async fn erase<F>(mut truncate: impl FnMut() -> F, stop: &mut watch::Receiver<bool>)
where
    F: Future<Output = store::Result<bool>>,
{
    loop {
        let delay = match truncate().await {
            Ok(true) => return,
            Ok(false) => BUSY_DELAY,
            Err(error) => {
                tracing::warn!(%error, "cannot erase deleted pictures from the log of the store");
                RETRY_DELAY
            }
        };
        tokio::select! {
            () = tokio::time::sleep(delay) => {}
            _ = stop.wait_for(|stop| *stop) => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::ready;

    use tokio::time::Instant;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_busy_log_is_tried_again_until_it_is_truncated() {
        let (_stop, mut stopped) = watch::channel(false);
        let since = Instant::now();
        let mut results = [Ok(false), Ok(false), Err(store::Error::Panicked), Ok(true)].into_iter();
        erase(|| ready(results.next().unwrap()), &mut stopped).await;
        assert_eq!(results.len(), 0);
        assert_eq!(since.elapsed(), 2 * BUSY_DELAY + RETRY_DELAY);
    }

    #[tokio::test(start_paused = true)]
    async fn a_stop_ends_the_attempts() {
        let (stop, mut stopped) = watch::channel(false);
        let mut attempts = 0;
        let truncate = || {
            attempts += 1;
            if attempts == 3 {
                stop.send_replace(true);
            }
            ready(Ok(false))
        };
        erase(truncate, &mut stopped).await;
        assert_eq!(attempts, 3);
    }
}
