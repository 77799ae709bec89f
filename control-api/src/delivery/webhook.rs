//! The webhook of a fact: its body, and the headers that prove where it comes from (Standard Webhooks 1.0).

use aws_lc_rs::hmac;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use conversation::event::Event;
use serde_json::{Value, json};

use crate::clock::Micros;

/// The body of an event that the interface names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Webhook {
    /// Name of the event.
    pub(crate) event: &'static str,
    /// Byte for byte what is signed and sent.
    pub(crate) body: String,
}

/// The name of an event that is told to the world; the others stay in the stream and the record.
fn name(event: &Event) -> Option<&'static str> {
    Some(match event {
        Event::AgentInterrupted => "agent.interrupted",
        Event::AgentStartedSpeaking { .. } => "agent.started_speaking",
        Event::AgentStoppedSpeaking { .. } => "agent.stopped_speaking",
        Event::CallEnded => "call_ended",
        Event::MaxCallDurationTimeout { .. } => "max_call_duration_timeout",
        Event::MaxCallDurationWarning { .. } => "max_call_duration_warning",
        Event::ParticipantLeft { .. } => "participant_left",
        Event::ToolCall { .. } => "tool_call",
        Event::UtteranceCommitted { .. } => "utterance_committed",
        Event::UserStartedSpeaking => "user.started_speaking",
        Event::UserStoppedSpeaking => "user.stopped_speaking",
        _ => return None,
    })
}

/// The four events of which late news is no news: few tries, then dropped.
pub(super) fn is_speaking(event: &str) -> bool {
    matches!(
        event,
        "agent.started_speaking"
            | "agent.stopped_speaking"
            | "user.started_speaking"
            | "user.stopped_speaking"
    )
}

/// The webhook of a fact that happened `at`, if it is one of the eleven.
pub(crate) fn of(conversation: &str, at: Micros, event: &Event) -> Option<Webhook> {
    let name = name(event)?;
    let payload = match event {
        Event::AgentStartedSpeaking { text, .. }
        | Event::AgentStoppedSpeaking { text, .. }
        | Event::UtteranceCommitted { text } => json!({"text": text}),
        Event::MaxCallDurationTimeout { call_duration, max_call_duration }
        | Event::MaxCallDurationWarning { call_duration, max_call_duration } => {
            json!({"call_duration": call_duration, "max_call_duration": max_call_duration})
        }
        Event::ParticipantLeft { id } => json!({"id": id}),
        Event::ToolCall { tool_name, parameters, result } => {
            let result = if result.is_object() { result.clone() } else { json!({"result": result}) };
            json!({"tool_name": tool_name, "parameters": parameters, "result": result})
        }
        _ => json!({}),
    };
    let body: Value = json!({
        "timestamp": at as f64 / 1e6,
        "conversation_id": conversation,
        "type": "pipeline",
        "event": {"name": name, "payload": payload},
    });
    Some(Webhook { event: name, body: body.to_string() })
}

/// A fresh `webhook-id`.
pub(crate) fn fresh_id() -> String {
    format!("msg_{}", uuid::Uuid::now_v7().simple())
}

/// `webhook-signature` of one try; `None` if `secret` is no `whsec_…`.
pub(crate) fn signature(secret: &str, id: &str, timestamp: i64, body: &str) -> Option<String> {
    let key = STANDARD.decode(secret.strip_prefix("whsec_")?).ok()?;
    let key = hmac::Key::new(hmac::HMAC_SHA256, &key);
    let tag = hmac::sign(&key, format!("{id}.{timestamp}.{body}").as_bytes());
    Some(format!("v1,{}", STANDARD.encode(tag)))
}

#[cfg(test)]
mod tests {
    use conversation::event::{EndReason, UtteranceId};

    use super::*;

    #[test]
    fn a_body_is_worded_as_the_interface_says() {
        let event = Event::AgentStartedSpeaking { text: "Hi \"you\"".into(), utterance: UtteranceId(3) };
        let hook = of("c-1", 1_795_265_746_817_999, &event).unwrap();
        assert_eq!(
            hook.body,
            r#"{"timestamp":1795265746.817999,"conversation_id":"c-1","type":"pipeline","event":{"name":"agent.started_speaking","payload":{"text":"Hi \"you\""}}}"#
        );
        let ended = of("c-1", 0, &Event::CallEnded).unwrap();
        assert!(ended.body.ends_with(r#""event":{"name":"call_ended","payload":{}}}"#), "{}", ended.body);
        assert_eq!(of("c-1", 0, &Event::Ended { reason: EndReason::Idle }), None);
    }

    #[test]
    fn a_signature_is_that_of_the_specification_s_example() {
        let body = r#"{"test": 2432232314}"#;
        let signed = signature(
            "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
            "msg_p5jXN8AQM9LWM0D4loKWxJek",
            1_614_265_330,
            body,
        );
        assert_eq!(signed.as_deref(), Some("v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="));
        assert_eq!(signature("secret", "", 0, ""), None);
    }
}
