//! Events that the control plane appends to conversations that emit none: endings by the sweeper, the
//! API and the restart, and warnings afterwards.

use conversation::event::{Event, EventEnvelope};
use conversation::time::Time;

use super::projection::{Author, PreparedEvent, Projection, WriteResult, publish, write_events};
use crate::clock::Micros;
use crate::state::event_storage::EventStorage;
use crate::store::{self, Lock, Transaction, ownership};

/// Appends events, each with its wall clock time, to a conversation in status `expected` that emits
/// no events: the endings by the sweeper, the API and the restart. Returns false and does nothing
/// in any other status.
pub(crate) async fn append(
    storage: &EventStorage,
    id: &str,
    expected: &str,
    events: Vec<(Micros, Event)>,
) -> store::Result<bool> {
    let mut tx = storage.store.begin_write(Lock::Rows).await?;
    let Some(appended) = append_in(storage, &mut tx, id, expected, events).await? else {
        return Ok(false);
    };
    tx.commit().await?;
    appended.publish(storage);
    Ok(true)
}

/// Events that a transaction appends.
#[must_use = "they are announced after the commit"]
pub(crate) struct Appended {
    prepared: Vec<PreparedEvent>,
    written: WriteResult,
}

impl Appended {
    /// Announces them. To be called after the commit.
    pub(crate) fn publish(self, storage: &EventStorage) {
        publish(storage, self.prepared, &self.written);
    }
}

/// The same within a transaction. `None` in any other status.
pub(crate) async fn append_in(
    storage: &EventStorage,
    tx: &mut Transaction,
    id: &str,
    expected: &str,
    events: Vec<(Micros, Event)>,
) -> store::Result<Option<Appended>> {
    let locked = ownership::lock(tx, &[id]).await?;
    if locked.get(id).is_none_or(|locked| locked.status != expected) {
        return Ok(None);
    }
    let Some(mut projection) = Projection::load(storage, id).await? else { return Ok(None) };
    let first =
        store::event::events_in(tx, id).await?.last().map_or(0, |envelope| envelope.seq + 1);
    let prepared: Vec<PreparedEvent> = (first..)
        .zip(events)
        .map(|(seq, (at, event))| {
            let at = Time::from_micros(u64::try_from(at - projection.started_at).unwrap_or(0));
            let envelope = EventEnvelope { seq, at, event };
            let effects = projection.apply(&envelope);
            projection.prepare_write(envelope, effects)
        })
        .collect();
    let written = write_events(tx, &storage.holder, Author::ControlPlane, &prepared).await?;
    Ok(Some(Appended { prepared, written }))
}
