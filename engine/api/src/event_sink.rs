//! The way of events out of the engine.

use conversation::event::EventEnvelope;
use conversation::id::ConversationId;

/// Receives the events of calls. Implemented by the control plane's store.
pub trait EventSink: Send + Sync + 'static {
    /// Stores an event. Never blocks. The media thread of a conversation calls it in order of
    /// `seq`.
    fn record(&self, conversation: ConversationId, event: EventEnvelope);

    /// The call's code panicked, so no further event of it follows. Its record ends after the last
    /// event with [`EndReason::Error`]. Never blocks.
    ///
    /// [`EndReason::Error`]: conversation::event::EndReason::Error
    fn call_panicked(&self, conversation: ConversationId);
}
