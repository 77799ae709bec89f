//! What unit tests share.

use conversation::call::{Call, ConversationId};
use conversation::settings::Agent;

/// A call of the default agent, with the built-in models.
pub(crate) fn call(id: u128) -> Call {
    Call { record_trace: true, ..Call::bare(ConversationId(id), Agent::default().spec().unwrap()) }
}
