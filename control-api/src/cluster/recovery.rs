//! Ends conversations that the engine does not end (not joined, or the server was restarted), and
//! erases old records.
//!
//! ```text
//! STARTED ------ not joined within the join timeout: end_unjoined -----> ENDED (NoJoin)
//! IN_PROGRESS -- its server died or restarted: recover_conversation ---> ENDED (Error)
//! ENDED -------- older than retention_days: erase_conversation --------> (erased)
//! ```

use std::sync::Arc;
use std::time::Duration;

use conversation::event::EndReason;
use tokio::sync::watch;

use crate::clock;
use crate::cluster::erasure;
use crate::events::ending::{end_unjoined, recover_conversation};
use crate::state::AppState;
use crate::state::supervise::catch_panic;
use crate::store;

/// Maximum interval between two sweeps. A conversation may be created at any time, but ends no
/// sooner than after the join timeout.
const MAX_SWEEP_INTERVAL: Duration = Duration::from_secs(30);
/// Minimum interval between two sweeps.
const MIN_SWEEP_INTERVAL: Duration = Duration::from_millis(200);
const DAY: Duration = Duration::from_secs(86_400);

/// Ends the conversations that ran on this server when it died. The last utterance of the agent is
/// stored as far as it was heard.
pub(crate) async fn recover_conversations(shared: &AppState) {
    let running = match shared.store.running_conversations_on(&shared.server_id).await {
        Ok(running) => running,
        Err(error) => {
            tracing::error!(%error, "cannot read the conversations that a crash left open");
            return;
        }
    };
    for id in running {
        // A conversation whose code panics must not prevent the server's start.
        if let Err(error) = catch_panic(recover_conversation(shared, &id)).await {
            tracing::error!(conversation = %id, %error, "cannot end a conversation that a crash left open");
        }
    }
}

/// Ends conversations that were not joined in time and erases those that are too old, until `stop`.
pub(crate) async fn run(shared: Arc<AppState>, mut stop: watch::Receiver<bool>) {
    loop {
        let wait = match sweep(&shared).await {
            Ok(wait) => wait,
            Err(error) => {
                tracing::error!(%error, "cannot end unjoined conversations");
                MAX_SWEEP_INTERVAL
            }
        };
        // Files that could not be removed together with their record.
        if let Err(error) = erasure::remove_erased_files(&shared).await {
            tracing::error!(%error, "cannot clean up the traces of erased conversations");
        }
        tokio::select! {
            () = tokio::time::sleep(wait) => {}
            _ = stop.wait_for(|stop| *stop) => return,
        }
    }
}

/// One sweep; returns the delay until the next one.
async fn sweep(shared: &AppState) -> store::Result<Duration> {
    let now = clock::now();
    let join = clock::to_micros(shared.config.timeouts.join);
    let mut damaged = false;
    for id in shared.store.unjoined_conversations(now - join, &shared.server_id, now).await? {
        // An offer that arrived in time may still connect.
        if id.parse().is_ok_and(|id| shared.pending_offers.contains(id)) {
            continue;
        }
        match end_unjoined(shared, &id, EndReason::NoJoin).await {
            Ok(_) => {}
            Err(error) if error.is_outage() => return Err(error),
            // The other conversations are ended regardless.
            Err(error) => {
                tracing::error!(conversation = %id, %error, "cannot end an unjoined conversation");
                damaged = true;
            }
        }
    }
    if shared.config.retention_days > 0 {
        let before = now - clock::to_micros(DAY * shared.config.retention_days);
        for id in shared.store.conversations_ended_before(before).await? {
            erasure::erase_conversation(shared, &id).await?;
        }
    }
    if damaged {
        // The failed one stays the oldest, so its age does not say when the next one is due.
        return Ok(MAX_SWEEP_INTERVAL);
    }
    let next = shared
        .store
        .oldest_unjoined_at(&shared.server_id, now)
        .await?
        .map_or(join, |at| at + join - clock::now());
    // A conversation created right after this sweep is due no sooner than after a whole join
    // timeout.
    Ok(Duration::from_micros(u64::try_from(next.min(join)).unwrap_or(0))
        .clamp(MIN_SWEEP_INTERVAL, MAX_SWEEP_INTERVAL))
}
