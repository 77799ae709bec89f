//! What unit tests share.

use conversation::call::{Call, ConversationId};
use conversation::settings::Agent;

/// A call of the default agent, with the built-in models.
pub(crate) fn call(id: u128) -> Call {
    Call {
        id: ConversationId(id),
        spec: Agent::default().spec().unwrap(),
        agent_name: "Ada".into(),
        prompt: String::new(),
        stt: Default::default(),
        llm: Default::default(),
        tts: Default::default(),
        face: Default::default(),
        tools: Vec::new(),
        knowledge: None,
        expose_tools: false,
        record_trace: true,
    }
}
