//! The paused clock, and waits that end although the clock does not move.

use std::pin::pin;
use std::time::Duration;

use tokio::task::yield_now;

use super::probe;

/// Messages from one task to the next in a chain of answers, and rounds for each.
const HOPS: usize = 4;
const ROUNDS: usize = 5;
/// Rounds after which something that needs no time does not come any more. A message of 1 MiB takes
/// a few hundred.
const MAX_ROUNDS: usize = 200_000;

/// Lets the tasks handle what was sent.
pub(crate) async fn settle() {
    for _ in 0..HOPS {
        probe::pass().await;
        for _ in 0..ROUNDS {
            yield_now().await;
        }
    }
}

/// Moves the clock. What has arrived is handled before.
pub(crate) async fn advance(millis: u64) {
    settle().await;
    tokio::time::advance(Duration::from_millis(millis)).await;
}

/// The result of `future`, which needs no time.
pub(crate) async fn soon<T>(what: &str, future: impl Future<Output = T>) -> T {
    let mut future = pin!(future);
    for _ in 0..MAX_ROUNDS {
        tokio::select! {
            biased;
            result = &mut future => return result,
            () = yield_now() => {}
        }
    }
    panic!("this does not happen: {what}");
}

/// The result of `future`, while the clock moves in steps of `step` ms; `None` if there is none
/// after `limit` ms.
pub(crate) async fn within<T>(limit: u64, step: u64, future: impl Future<Output = T>) -> Option<T> {
    let mut future = pin!(future);
    let mut passed = 0;
    loop {
        tokio::select! {
            biased;
            result = &mut future => return Some(result),
            () = settle() => {}
        }
        if passed >= limit {
            return None;
        }
        tokio::time::advance(Duration::from_millis(step)).await;
        passed += step;
    }
}
