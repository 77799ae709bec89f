//! What unit tests share.

use conversation::call_config::{CallConfig, ConversationId};
use conversation::settings::AgentTurnConfig;

/// A call of the default agent, with the built-in models.
pub(crate) fn call_config(id: u128) -> CallConfig {
    CallConfig {
        record_trace: true,
        ..CallConfig::minimal(ConversationId(id), AgentTurnConfig::default().to_spec().unwrap())
    }
}
