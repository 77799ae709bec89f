//! Guardrails: the user's message is checked in parallel to the reply, which does not wait for the
//! result.

use std::sync::Arc;

use conversation::id::ConversationId;
use engine_api::Guardrail;
use models::llm::Llm;
use models::llm::guardrails::{GuardrailCheck, GuardrailRule};
use models::{Handle, Sink};
use serde_json::{Value, json};
use tokio::runtime::Handle as Runtime;
use tracing::Instrument as _;

use super::call_span;
use crate::messages::{GuardrailHit, StageEvent};

/// Checks the user's message; an event is sent only if a guardrail fires. `None` if there is
/// nothing to check.
pub(crate) fn check(
    net: &Runtime,
    call: ConversationId,
    llm: &Arc<dyn Llm>,
    guardrails: &[Guardrail],
    user_text: &str,
    sink: Sink<StageEvent>,
) -> Option<Handle> {
    // Guardrails without a response message are tools of the reply's generation instead.
    let checked = guardrails.iter().enumerate().filter(|(_, rule)| rule.response_message.is_some());
    let (keys, rules): (Vec<(usize, String)>, Vec<GuardrailRule>) = checked
        .map(|(i, rule)| {
            (
                (i, rule.key.clone()),
                GuardrailRule { key: rule.key.clone(), prompt: rule.prompt.clone() },
            )
        })
        .unzip();
    if rules.is_empty() || user_text.trim().is_empty() {
        return None;
    }
    let checking = llm.check_guardrails(GuardrailCheck { user_text: user_text.to_owned(), rules });
    let user_text = user_text.to_owned();
    let judging = async move {
        match checking.await {
            Ok(Some(key)) => {
                if let Some((guardrail, _)) = keys.into_iter().find(|(_, known)| *known == key) {
                    sink.send(StageEvent::Guardrail(GuardrailHit {
                        index: guardrail,
                        user_text,
                        verdict: None,
                    }));
                }
            }
            Ok(None) => {}
            Err(error) => tracing::warn!(%error, "guardrail check failed"),
        }
    };
    let task = net.spawn(judging.instrument(call_span(call)));
    Some(Handle::new(move || task.abort()))
}

/// Result of the moderation endpoint for the user's message; an object with `error` if it fails.
pub(crate) async fn moderate(llm: &Arc<dyn Llm>, user_text: String) -> Value {
    llm.moderate(user_text).await.unwrap_or_else(|error| json!({ "error": error.to_string() }))
}

/// Tool result for the model that called the rule: the endpoint's verdict unchanged. Without a
/// verdict, an instruction how to continue.
pub(crate) fn moderation_result(rule: &Guardrail, verdict: &Value) -> Value {
    if verdict.get("error").is_none() {
        return verdict.clone();
    }
    json!({
        "flagged": true,
        "rule": rule.prompt,
        "moderation": verdict,
        "instruction": "No moderation service could judge the message, so your own judgement \
                        stands: it falls under this rule. Answer the user briefly, in keeping with \
                        the rule.",
    })
}
