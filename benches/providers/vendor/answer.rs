//! The answers of language models as server-sent events.

use std::collections::VecDeque;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::Instant;

use super::requests::Piece;
use super::{Reply, STAMP, StampKind};

/// Time to the first token.
const FIRST_TOKEN: Duration = Duration::from_millis(300);
/// Time between two tokens: 50 per second.
const TOKEN_INTERVAL: Duration = Duration::from_millis(20);
/// Tokens of an answer.
const TOKENS: u32 = 40;

/// The last text of the user in a request of any protocol.
pub(super) fn question(request: &Value) -> &str {
    let lists = ["messages", "input", "contents"].map(|name| request[name].as_array());
    let last = lists.into_iter().flatten().next().and_then(|messages| messages.last());
    let message = last.unwrap_or(&Value::Null);
    let content = &message["content"];
    let text = content.as_str().or_else(|| content[0]["text"].as_str());
    text.or_else(|| message["parts"][0]["text"].as_str()).unwrap_or_default()
}

/// Times of the tokens, and of the end.
fn times() -> (impl Iterator<Item = Instant>, Instant) {
    let first = Instant::now() + FIRST_TOKEN;
    let due = move |n| first + TOKEN_INTERVAL * n;
    ((0..TOKENS).map(due), due(TOKENS))
}

/// An event of this type; without one, only its data.
fn event(kind: Option<&str>, reply: Reply) -> Piece {
    let start = kind.map_or_else(String::new, |kind| format!("event: {kind}\n"));
    (reply.due, Box::new(move || format!("{start}data: {}\n\n", reply.into_text()).into()))
}

/// An answer of `OpenAI`'s Chat Completions.
pub(super) fn chat_completion() -> VecDeque<Piece> {
    let chunk = |choices: Value, usage: Value| {
        json!({
            "id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1_790_000_000,
            "model": "gpt-4.1-mini", "choices": choices, "usage": usage,
        })
    };
    let choice = |delta: Value, reason: Value| json!([{"index": 0, "delta": delta, "logprobs": null, "finish_reason": reason}]);
    let (tokens, end) = times();
    let text = format!("{STAMP} ");
    let token = chunk(choice(json!({"content": text}), Value::Null), Value::Null);
    let mut pieces: VecDeque<Piece> =
        tokens.map(|due| event(None, Reply::stamped(due, StampKind::Decimal, &token))).collect();
    let usage = json!({"prompt_tokens": 60, "completion_tokens": TOKENS, "total_tokens": 100});
    for data in [
        chunk(choice(json!({}), "stop".into()), Value::Null).to_string(),
        chunk(json!([]), usage).to_string(),
        "[DONE]".to_owned(),
    ] {
        pieces.push_back(event(None, Reply::new(end, data)));
    }
    pieces
}

/// An answer of Anthropic's Messages.
pub(super) fn message() -> VecDeque<Piece> {
    let (tokens, end) = times();
    let plain = |due, data: Value| {
        let kind = data["type"].as_str().map(str::to_owned);
        event(kind.as_deref(), Reply::new(due, data.to_string()))
    };
    let now = Instant::now();
    let start = json!({
        "type": "message_start",
        "message": {
            "id": "msg_1", "type": "message", "role": "assistant", "model": "claude-haiku-4-5",
            "content": [], "stop_reason": null, "stop_sequence": null,
            "usage": {"input_tokens": 60, "output_tokens": 1},
        },
    });
    let block = json!({
        "type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""},
    });
    let text = format!("{STAMP} ");
    let token = json!({
        "type": "content_block_delta", "index": 0,
        "delta": {"type": "text_delta", "text": text},
    });
    let mut pieces = VecDeque::from([plain(now, start), plain(now, block)]);
    pieces.extend(tokens.map(|due| {
        event(Some("content_block_delta"), Reply::stamped(due, StampKind::Decimal, &token))
    }));
    let delta = json!({
        "type": "message_delta", "delta": {"stop_reason": "end_turn", "stop_sequence": null},
        "usage": {"output_tokens": TOKENS},
    });
    let stop = json!({"type": "content_block_stop", "index": 0});
    pieces.extend([stop, delta, json!({"type": "message_stop"})].map(|data| plain(end, data)));
    pieces
}

/// An answer of `OpenAI`'s Responses.
pub(super) fn response() -> VecDeque<Piece> {
    let (tokens, end) = times();
    let plain = |due, data: Value| {
        let kind = data["type"].as_str().map(str::to_owned);
        event(kind.as_deref(), Reply::new(due, data.to_string()))
    };
    let now = Instant::now();
    let created = json!({
        "type": "response.created", "sequence_number": 0,
        "response": {"id": "resp_1", "object": "response", "status": "in_progress", "output": []},
    });
    let item = json!({
        "type": "response.output_item.added", "output_index": 0, "sequence_number": 1,
        "item": {
            "id": "msg_1", "type": "message", "status": "in_progress", "role": "assistant",
            "content": [],
        },
    });
    let text = format!("{STAMP} ");
    let kind = "response.output_text.delta";
    let token = json!({
        "type": kind, "item_id": "msg_1", "output_index": 0, "content_index": 0,
        "sequence_number": 2, "delta": text, "logprobs": [],
    });
    let mut pieces = VecDeque::from([plain(now, created), plain(now, item)]);
    pieces.extend(
        tokens.map(|due| event(Some(kind), Reply::stamped(due, StampKind::Decimal, &token))),
    );
    let completed = json!({
        "type": "response.completed", "sequence_number": 3,
        "response": {
            "id": "resp_1", "object": "response", "status": "completed",
            "output": [{
                "id": "msg_1", "type": "message", "status": "completed", "role": "assistant",
                "content": [{"type": "output_text", "text": "all", "annotations": []}],
            }],
            "usage": {"input_tokens": 60, "output_tokens": TOKENS, "total_tokens": 100},
        },
    });
    pieces.push_back(plain(end, completed));
    pieces
}

/// An answer of Gemini's `streamGenerateContent`.
pub(super) fn content() -> VecDeque<Piece> {
    let chunk = |text: &str, reason: Value| {
        json!({
            "candidates": [{
                "content": {"parts": [{"text": text}], "role": "model"}, "finishReason": reason,
                "index": 0,
            }],
            "usageMetadata": {
                "promptTokenCount": 60, "candidatesTokenCount": TOKENS, "totalTokenCount": 100,
            },
            "modelVersion": "gemini-2.5-flash", "responseId": "Xg0nafWcJ6Wm1dkP",
        })
    };
    let (tokens, end) = times();
    let token = chunk(&format!("{STAMP} "), Value::Null);
    let mut pieces: VecDeque<Piece> =
        tokens.map(|due| event(None, Reply::stamped(due, StampKind::Decimal, &token))).collect();
    let last = chunk("", "STOP".into()).to_string();
    pieces.push_back(event(None, Reply::new(end, last)));
    pieces
}
