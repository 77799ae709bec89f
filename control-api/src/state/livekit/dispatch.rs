//! How this server stands with LiveKit's dispatch.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use super::rooms::LostCause;

/// How long the state of this server explains that LiveKit did not ask it. LiveKit decides when the
/// room is created; the room is looked at seconds later.
const EXPLANATION_TIME: Duration = Duration::from_secs(10);

/// The registration of this server, and its last reports.
#[derive(Default)]
pub(crate) struct Dispatch(Mutex<Reports>);

#[derive(Default)]
struct Reports {
    registered_since: Option<Instant>,
    /// When it was last reported that this server is full or draining.
    full_at: Option<Instant>,
}

impl Dispatch {
    /// Sets whether this server is registered. Returns whether it was.
    pub(crate) fn set_registered(&self, is_registered: bool) -> bool {
        let since = is_registered.then(Instant::now);
        std::mem::replace(&mut self.lock().registered_since, since).is_some()
    }

    pub(crate) fn is_registered(&self) -> bool {
        self.lock().registered_since.is_some()
    }

    /// Notes that LiveKit is told that this server is full or draining.
    pub(crate) fn note_full(&self) {
        self.lock().full_at = Some(Instant::now());
    }

    /// Why LiveKit has not asked this server to serve a room.
    pub(crate) fn cause_of_unasked(&self) -> LostCause {
        let reports = self.lock();
        let is_recent = |at: &Instant| at.elapsed() < EXPLANATION_TIME;
        match &reports.registered_since {
            None => LostCause::NoWorker,
            Some(_) if reports.full_at.as_ref().is_some_and(is_recent) => LostCause::Unavailable,
            // LiveKit may not have known the worker yet.
            Some(since) if is_recent(since) => LostCause::NoWorker,
            Some(_) => LostCause::NotAsked,
        }
    }

    fn lock(&self) -> MutexGuard<'_, Reports> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_state_of_this_server_explains_why_it_was_not_asked() {
        let dispatch = Dispatch::default();
        assert_eq!(dispatch.cause_of_unasked(), LostCause::NoWorker);
        assert!(!dispatch.set_registered(true));
        assert!(dispatch.is_registered());
        assert_eq!(dispatch.cause_of_unasked(), LostCause::NoWorker);
        tokio::time::advance(EXPLANATION_TIME).await;
        assert_eq!(dispatch.cause_of_unasked(), LostCause::NotAsked);
        dispatch.note_full();
        assert_eq!(dispatch.cause_of_unasked(), LostCause::Unavailable);
        tokio::time::advance(EXPLANATION_TIME).await;
        assert_eq!(dispatch.cause_of_unasked(), LostCause::NotAsked);
        assert!(dispatch.set_registered(false));
        assert_eq!(dispatch.cause_of_unasked(), LostCause::NoWorker);
    }
}
