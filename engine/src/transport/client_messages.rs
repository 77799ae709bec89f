//! Messages of the data channel: RTVI 2, text frames of JSON. This is a pure codec; other modules
//! act on the messages.
//!
//! This module reads messages from the client. [`super::server_messages`] writes messages to it.
//! Both are described in `docs/client-messages.md`.

use std::time::Instant;

use conversation::input::{Command, MAX_TEXT_CHARS as MAX_WORDS};
use serde_json::{Value, json};

use super::webrtc::MAX_MESSAGE_BYTES;
use crate::token_bucket::TokenBucket;

/// Rate limit of the client's messages.
const MAX_MESSAGES_PER_SECOND: f64 = 20.0;
/// Number of messages that a client may send at once.
const MAX_MESSAGE_BURST: f64 = 60.0;

/// A request from the client.
#[derive(Clone, Debug, PartialEq)]
pub enum ClientMessage {
    /// The client is ready; answered by [`super::server_messages::RtviSession::bot_ready`].
    Ready {
        /// Id of the message.
        id: String,
    },
    /// Commands for the conversation, to be executed in order. The first rejected command ends the
    /// sequence: answer with [`error_response`].
    Commands {
        /// Id of the message.
        id: String,
        /// Type of message that success answers by [`success_response`]. With `None`, success has
        /// no answer.
        kind: Option<String>,
        /// The commands.
        commands: Vec<Command>,
    },
    /// The user's choice whether the call is recorded: answered by [`success_response`] or
    /// [`error_response`].
    Recording {
        /// Id of the message.
        id: String,
        /// False to discard the recording.
        enabled: bool,
    },
    /// The result of a tool that runs in the client.
    ToolResult {
        /// Id of the message.
        id: String,
        /// Id of the tool call, as announced to the client.
        tool_call_id: String,
        /// The tool's result.
        result: Value,
    },
}

/// The receiving side of one client's data channel: limits its message rate.
pub struct ClientInbox {
    bucket: TokenBucket,
    rate_limit_reported: bool,
}

impl ClientInbox {
    /// An inbox for a new data channel; the rate limit starts full at `now`.
    #[must_use]
    pub fn new(now: Instant) -> Self {
        let bucket = TokenBucket::new(MAX_MESSAGES_PER_SECOND, MAX_MESSAGE_BURST, now);
        Self { bucket, rate_limit_reported: false }
    }

    /// Reads a text frame. Returns a message, or `None` for frames without one (pings, signalling,
    /// non-RTVI), or an error text to send as the answer. No frame from the client ends its call.
    ///
    /// # Errors
    ///
    /// The message is too long, exceeds the rate limit, or is invalid.
    pub fn read(&mut self, now: Instant, text: &str) -> Result<Option<ClientMessage>, String> {
        if !self.bucket.try_take(now) {
            // Reported once per flood, so that a flood is not answered by a flood.
            let report = !std::mem::replace(&mut self.rate_limit_reported, true);
            return if report { Err(error_message("Too many messages", false)) } else { Ok(None) };
        }
        self.rate_limit_reported &= !self.bucket.is_half_full();
        decode(text)
    }
}

/// [`ClientInbox::read`] without the rate limit.
///
/// # Errors
///
/// The text to send as the answer.
pub fn decode(text: &str) -> Result<Option<ClientMessage>, String> {
    if text.len() > MAX_MESSAGE_BYTES {
        return Err(error_message("Message too long", false));
    }
    if text.starts_with("ping") {
        return Ok(None);
    }
    let Ok(Value::Object(message)) = serde_json::from_str(text) else { return Ok(None) };
    if message.get("label").and_then(Value::as_str) != Some("rtvi-ai") {
        return Ok(None);
    }
    let Some(id) =
        message.get("id").and_then(Value::as_str).filter(|id| id.len() <= 128).map(str::to_owned)
    else {
        return Err(error_message("Message without id", false));
    };
    let Some(kind) = message.get("type").and_then(Value::as_str) else {
        return Err(error_response(&id, "Message without type"));
    };
    let data = message.get("data").unwrap_or(&Value::Null);
    let commands = |kind: Option<&str>, commands| {
        Ok(Some(ClientMessage::Commands {
            id: id.clone(),
            kind: kind.map(str::to_owned),
            commands,
        }))
    };
    match kind {
        "client-ready" => Ok(Some(ClientMessage::Ready { id })),
        "send-text" => {
            let text = parse_text(data.get("content"))
                .map_err(|reason| error_response(&id, &format!("content: {reason}")))?;
            let at_once =
                data.pointer("/options/run_immediately").and_then(Value::as_bool).unwrap_or(true);
            commands(
                None,
                if at_once {
                    vec![Command::Interrupt, Command::Respond { text }]
                } else {
                    vec![Command::VisitorContext { text, overwrite: false }]
                },
            )
        }
        "client-message" => match data.get("t").and_then(Value::as_str) {
            None => Err(error_response(&id, "client-message without t")),
            Some("interrupt") => commands(Some("interrupt"), vec![Command::Interrupt]),
            Some("end") => commands(Some("end"), vec![Command::Leave]),
            Some("context") => {
                let data = data.get("d").unwrap_or(&Value::Null);
                let text = parse_text(data.get("text"))
                    .map_err(|reason| error_response(&id, &format!("d.text: {reason}")))?;
                let overwrite = match data.get("mode").and_then(Value::as_str) {
                    None | Some("append") => false,
                    Some("overwrite") => true,
                    Some(_) => {
                        return Err(error_response(&id, "d.mode: must be append or overwrite"));
                    }
                };
                commands(Some("context"), vec![Command::VisitorContext { text, overwrite }])
            }
            Some("recording") => match data.pointer("/d/enabled") {
                Some(Value::Bool(enabled)) => {
                    Ok(Some(ClientMessage::Recording { id, enabled: *enabled }))
                }
                _ => Err(error_response(&id, "d.enabled: must be true or false")),
            },
            Some(other) => {
                Err(error_response(&id, &format!("Unsupported client-message {}", truncate(other))))
            }
        },
        "llm-function-call-result" => match data.get("tool_call_id").and_then(Value::as_str) {
            Some(tool_call_id) => {
                let result = data.get("result").cloned().unwrap_or(Value::Null);
                Ok(Some(ClientMessage::ToolResult {
                    id,
                    tool_call_id: tool_call_id.to_owned(),
                    result,
                }))
            }
            None => Err(error_response(&id, "llm-function-call-result without tool_call_id")),
        },
        "disconnect-bot" => commands(None, vec![Command::Leave]),
        other => Err(error_response(&id, &format!("Unsupported type {}", truncate(other)))),
    }
}

fn parse_text(value: Option<&Value>) -> Result<String, &'static str> {
    let text = value.and_then(Value::as_str).ok_or("must be a string")?.trim();
    match text.chars().count() {
        0 => Err("must not be empty"),
        n if n > MAX_WORDS => Err("must be at most 10000 characters"),
        _ => Ok(text.to_owned()),
    }
}

fn truncate(text: &str) -> String {
    text.chars().take(64).collect()
}

/// The answer to a `client-message` whose commands were all accepted.
#[must_use]
pub fn success_response(id: &str, kind: &str) -> String {
    json!({"label": "rtvi-ai", "type": "server-response", "id": id, "data": {"t": kind, "d": {}}})
        .to_string()
}

/// The answer to an invalid message or a rejected command, with the reason.
#[must_use]
pub fn error_response(id: &str, reason: &str) -> String {
    json!({"label": "rtvi-ai", "type": "error-response", "id": id, "data": {"error": reason}})
        .to_string()
}

/// An error that answers no request. The public client hangs up by itself if it is `fatal`.
#[must_use]
pub fn error_message(reason: &str, fatal: bool) -> String {
    json!({"label": "rtvi-ai", "type": "error", "data": {"error": reason, "fatal": fatal}})
        .to_string()
}

/// Signals that the server is about to hang up, or that another connection has taken over the call.
/// Close the connection afterwards.
#[must_use]
pub fn peer_left() -> String {
    json!({"type": "signalling", "message": {"type": "peerLeft"}}).to_string()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn read(text: &str) -> Result<Option<ClientMessage>, Value> {
        decode(text).map_err(|text| serde_json::from_str(&text).unwrap())
    }

    fn commands(
        kind: Option<&str>,
        commands: Vec<Command>,
    ) -> Result<Option<ClientMessage>, Value> {
        Ok(Some(ClientMessage::Commands {
            id: "1".into(),
            kind: kind.map(str::to_owned),
            commands,
        }))
    }

    fn message(kind: &str, data: Value) -> String {
        json!({"label": "rtvi-ai", "type": kind, "id": "1", "data": data}).to_string()
    }

    #[test]
    fn what_the_public_client_sends_is_understood() {
        let ready = r#"{"label":"rtvi-ai","type":"client-ready","id":"58307d34","data":{"version":"2.1.0","about":{"library":"@pipecat-ai/client-js"}}}"#;
        assert_eq!(read(ready), Ok(Some(ClientMessage::Ready { id: "58307d34".into() })));
        assert_eq!(
            read(&message("send-text", json!({"content": "Hi", "options": {}}))),
            commands(None, vec![Command::Interrupt, Command::Respond { text: "Hi".into() }])
        );
        assert_eq!(
            read(&message(
                "send-text",
                json!({"content": "Hi", "options": {"run_immediately": false}})
            )),
            commands(None, vec![Command::VisitorContext { text: "Hi".into(), overwrite: false }])
        );
        assert_eq!(
            read(&message("client-message", json!({"t": "interrupt"}))),
            commands(Some("interrupt"), vec![Command::Interrupt])
        );
        assert_eq!(
            read(&message("client-message", json!({"t": "end"}))),
            commands(Some("end"), vec![Command::Leave])
        );
        assert_eq!(
            read(&message(
                "client-message",
                json!({"t": "context", "d": {"text": "Rain.", "mode": "overwrite"}})
            )),
            commands(
                Some("context"),
                vec![Command::VisitorContext { text: "Rain.".into(), overwrite: true }]
            )
        );
        for enabled in [false, true] {
            assert_eq!(
                read(&message(
                    "client-message",
                    json!({"t": "recording", "d": {"enabled": enabled}})
                )),
                Ok(Some(ClientMessage::Recording { id: "1".into(), enabled }))
            );
        }
        assert_eq!(
            read(&message("disconnect-bot", json!({}))),
            commands(None, vec![Command::Leave])
        );
        assert_eq!(
            read(&message(
                "llm-function-call-result",
                json!({
                    "function_name": "page_title",
                    "tool_call_id": "call_1",
                    "arguments": {},
                    "result": {"title": "X"},
                })
            )),
            Ok(Some(ClientMessage::ToolResult {
                id: "1".into(),
                tool_call_id: "call_1".into(),
                result: json!({"title": "X"})
            }))
        );
    }

    #[test]
    fn what_needs_no_answer_gets_none() {
        for text in [
            "ping: 1795266607240",
            r#"{"type":"signalling","message":{"type":"trackStatus","receiver_index":0,"enabled":true}}"#,
            "[1]",
            "no JSON",
            "",
            r#"{"type":"send-text","id":"1","data":{"content":"without a label"}}"#,
        ] {
            assert_eq!(read(text), Ok(None), "{text}");
        }
    }

    #[test]
    fn bad_messages_are_answered_by_id_or_else_by_an_error_that_is_not_fatal() {
        let no_id = read(r#"{"label":"rtvi-ai","type":"send-text","data":{}}"#).unwrap_err();
        assert_eq!((&no_id["type"], &no_id["data"]["fatal"]), (&json!("error"), &json!(false)));
        let long =
            read(&format!("{{\"label\":\"rtvi-ai\",\"x\":\"{}\"}}", "x".repeat(MAX_MESSAGE_BYTES)))
                .unwrap_err();
        assert_eq!(long["type"], "error");
        for bad in [
            message("nobody-knows", json!({})),
            message("dtmf", json!({"buttons": ["1"]})),
            message("send-text", json!({})),
            message("send-text", json!({"content": "  "})),
            message("send-text", json!({"content": "x".repeat(MAX_WORDS + 1)})),
            message("client-message", Value::Null),
            message("client-message", json!({"t": "dance"})),
            message("client-message", json!({"t": "context", "d": {"text": "x", "mode": "?"}})),
            message("client-message", json!({"t": "context"})),
            message("client-message", json!({"t": "recording"})),
            message("client-message", json!({"t": "recording", "d": null})),
            message("client-message", json!({"t": "recording", "d": false})),
            message("client-message", json!({"t": "recording", "d": {"enabled": null}})),
            message("client-message", json!({"t": "recording", "d": {"enabled": "false"}})),
            message("client-message", json!({"t": "recording", "d": {"enabled": 0}})),
            message("llm-function-call-result", json!({"result": 1})),
            r#"{"label":"rtvi-ai","id":"1"}"#.to_owned(),
        ] {
            let answer = read(&bad).unwrap_err();
            assert_eq!(
                (&answer["type"], &answer["id"]),
                (&json!("error-response"), &json!("1")),
                "{bad}"
            );
        }
        assert_eq!(
            read(&message("nobody-knows", json!({}))).unwrap_err(),
            json!({
                "label": "rtvi-ai",
                "type": "error-response",
                "id": "1",
                "data": {"error": "Unsupported type nobody-knows"},
            })
        );
    }

    #[test]
    fn a_flood_is_cut_off_with_one_complaint_and_forgiven_later() {
        let start = crate::clock::now();
        let mut inbox = ClientInbox::new(start);
        let text = message("client-message", json!({"t": "interrupt"}));
        let results: Vec<_> = (0..200).map(|_| inbox.read(start, &text)).collect();
        assert_eq!(results.iter().filter(|r| matches!(r, Ok(Some(_)))).count(), 60);
        assert_eq!(results.iter().filter(|r| r.is_err()).count(), 1);
        assert!(matches!(inbox.read(start + Duration::from_secs(5), &text), Ok(Some(_))));
    }
}
