//! A guardrail that fires: its response takes the place of the reply to the same turn.

use crate::contract::output::SpeechSource;
use crate::machine::conversation::Conversation;
use crate::machine::reply::ReplyKind;

impl Conversation {
    /// Handles a guardrail that fired for the last committed turn.
    pub(crate) fn handle_guardrail(&mut self, say: &str) {
        let say = say.trim();
        let Some(turn) =
            self.last_turn_times.as_ref().map(|times| times.turn).filter(|_| !self.is_ending())
        else {
            return;
        };
        if say.is_empty() {
            return;
        }
        self.cancel_decision("a guardrail answers");
        self.explain_decision(|| "a guardrail fired: its response replaces the reply".into());
        let index = self.floor.iter().position(|reply| reply.turn == Some(turn));
        let sounded = self
            .floor
            .get(index.unwrap_or(usize::MAX))
            .is_none_or(|reply| reply.turn_times.is_none());
        if let Some(index) = index {
            self.cancel_reply(index, true);
        }
        let mut reply = self.new_message_reply(
            ReplyKind::Guardrail,
            SpeechSource::Guardrail,
            say.to_owned(),
            false,
        );
        reply.turn = Some(turn);
        if let Some(times) = &self.last_turn_times {
            reply.providers.clone_from(&times.providers);
        }
        if !sounded {
            reply.turn_times.clone_from(&self.last_turn_times);
            reply.user_speech_end = self.last_turn_speech_end;
        }
        self.floor.insert(index.unwrap_or(self.floor.len()).min(self.floor.len()), reply);
        self.update_agent_state();
    }
}
