//! Guardrails of a call: the checks run in parallel to the reply, and a triggered one is recorded.

use std::time::Instant;

use conversation::event::{Event, TriggeredGuardrail};
use conversation::input::Input;
use conversation::participation::Participation;

use super::Call;
use crate::messages::GuardrailHit;
use crate::think::guardrails;

/// Limit of concurrent guardrail checks.
const MAX_GUARDRAIL_CHECKS: usize = 4;

impl Call {
    /// Whether the agent answers only some of what people say to each other.
    pub(super) fn answers_some_utterances(&self) -> bool {
        self.config.spec.participation.as_ref().is_some_and(Participation::is_group)
    }

    /// Checks the user's utterance against the agent's guardrails, in parallel to the reply.
    pub(super) fn check_guardrails(&mut self, text: &str) {
        if self.config.guardrails.is_empty() {
            return;
        }
        text.clone_into(&mut self.last_user_text);
        let (net, stage_events, call) =
            (&self.context.runtime, self.stage_events.clone(), self.config.id);
        // A running check continues: its result counts even if the user has continued to speak.
        self.guardrail_checks.extend(guardrails::check(
            net,
            call,
            &self.llm,
            &self.config.guardrails,
            text,
            stage_events,
        ));
        let excess = self.guardrail_checks.len().saturating_sub(MAX_GUARDRAIL_CHECKS);
        self.guardrail_checks.drain(..excess);
    }

    /// Records a triggered guardrail. Its response, if it has one, replaces the reply.
    pub(super) fn on_guardrail_triggered(
        &mut self,
        now: Instant,
        GuardrailHit { index: guardrail, user_text: text, verdict }: GuardrailHit,
    ) {
        let Some(rule) = self.config.guardrails.get(guardrail) else { return };
        let say = rule.response_message.clone();
        let event = Event::GuardrailTriggered(Box::new(TriggeredGuardrail {
            key: rule.key.clone(),
            category: rule.category.clone(),
            content: text,
            response_message: say.clone(),
            verdict,
            callback_url: rule.callback_url.clone(),
        }));
        self.inputs.push_back(Input::ExternalEvent(event));
        if let Some(say) = say {
            self.inputs.push_back(Input::GuardrailTriggered { response: say });
        }
        self.drain_inputs(now);
    }
}
