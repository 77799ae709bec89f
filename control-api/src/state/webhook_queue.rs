//! Messages to the task that sends webhooks.

use crate::store::delivery::Row;

/// Message to the dispatcher.
#[allow(clippy::large_enum_variant)] // nearly all are rows
pub(crate) enum OutboxMessage {
    /// This delivery is in the outbox.
    Written(Row),
    /// The outbox holds deliveries that were not announced: those of a dead server were taken over.
    Rescan,
}
