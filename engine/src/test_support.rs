//! What unit tests share.

use conversation::id::ConversationId;
use conversation::settings::AgentTurnConfig;
use engine_api::CallConfig;

/// A call of the default agent, with the built-in models.
pub(crate) fn call_config(id: u128) -> CallConfig {
    CallConfig {
        record_trace: true,
        ..CallConfig::minimal(ConversationId(id), AgentTurnConfig::default().to_spec().unwrap())
    }
}
