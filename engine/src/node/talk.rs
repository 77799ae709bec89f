//! What is said to the client over its data channel, and what it says.

use std::time::Instant;

use conversation::event::Stamped;
use conversation::input::ToolCallId;
use conversation::output::Answer;
use serde_json::Value;

use super::Node;

/// Which request of the client a command came from.
pub(super) struct Origin;

/// A tool that runs in the user's browser.
pub(super) struct ClientTool {
    /// The call.
    pub(crate) call: ToolCallId,
    /// The model's id of it, by which the client answers.
    pub(crate) id: String,
    /// Its name.
    pub(crate) name: String,
    /// When it has failed.
    pub(crate) until: Instant,
}

impl Node {
    pub(super) fn client_says(&mut self, _now: Instant, _number: u32, _text: &str) {}
    pub(super) fn answer_client(&mut self, _now: Instant, _origin: &Origin, _answer: Answer) {}
    pub(super) fn ask_client(&mut self, _now: Instant, tool: ClientTool, _arguments: &Value) {
        self.client_tools.push(tool);
    }
    pub(super) fn tell_client(&mut self, _now: Instant, _fact: &Stamped) {}
    pub(super) fn tell_level(&mut self, _now: Instant, _level: f32) {}
    pub(super) fn greet_again(&mut self, _now: Instant) {}
}
