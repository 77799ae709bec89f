//! Messages of later versions of a vendor: with fields and values that do not exist yet.

use serde_json::{Map, Value, json};

use super::Frame;

/// Values of an unknown field.
fn unknown_values() -> [Value; 4] {
    [Value::Null, json!(7.5), json!("new"), json!({"type": "x_new", "list": [{"text": "No."}, 3]})]
}

/// The message with unknown fields in all of its objects, except in those whose fields have names
/// that a person chooses: `free` names them.
pub(crate) fn with_unknown_fields(message: &Value, free: &[&str]) -> Value {
    match message {
        Value::Object(fields) => {
            let mut all = Map::new();
            for (n, value) in unknown_values().into_iter().enumerate() {
                all.insert(format!("a_new_{n}"), value);
            }
            for (name, value) in fields {
                let is_free = free.contains(&name.as_str());
                let value = if is_free { value.clone() } else { with_unknown_fields(value, free) };
                all.insert(name.clone(), value);
            }
            all.insert("zz_new".into(), json!([{"x": null}]));
            Value::Object(all)
        }
        Value::Array(items) => items.iter().map(|item| with_unknown_fields(item, free)).collect(),
        other => other.clone(),
    }
}

/// The same for the text of a message; other messages remain.
pub(crate) fn frame_with_unknown_fields(frame: &Frame, free: &[&str]) -> Frame {
    match frame {
        Frame::Text(text) => match serde_json::from_str(text) {
            Ok(message) => Frame::text(with_unknown_fields(&message, free)),
            Err(_) => frame.clone(),
        },
        Frame::Binary(_) => frame.clone(),
    }
}

/// Messages that no version of a vendor sends so far. The type is in one of two fields.
pub(crate) fn unknown_messages() -> Vec<Frame> {
    let contents = [
        json!({"text": "No.", "transcript": "No.", "error": null}),
        json!({"data": {"audio": "AAAA", "n": [1]}}),
    ];
    let named = |kind: &str, content: &Value| {
        let mut message = content.clone();
        message[kind] = "x_new.event".into();
        Frame::text(message)
    };
    let both = |content: &Value| ["type", "message_type"].map(|kind| named(kind, content));
    contents.iter().flat_map(both).collect()
}

/// Messages that cannot be read: no JSON, JSON of another shape, bytes, and one of 1 MiB.
pub(crate) fn malformed_messages(valid: &Frame) -> Vec<Frame> {
    let mut all: Vec<Frame> = [
        "",
        " ",
        "{",
        "[]",
        "null",
        "7",
        "\"x\"",
        "\u{0}\u{fffd}",
        "{\"type\":7}",
        "{\"type\":{}}",
    ]
    .map(Frame::text)
    .into();
    let deep = "[".repeat(50_000);
    all.push(Frame::text(deep));
    all.push(Frame::text("x".repeat(1 << 20)));
    if let Frame::Text(text) = valid {
        let cuts = text.char_indices().map(|(at, _)| at).filter(|at| at % 7 == 1);
        all.extend(cuts.map(|at| Frame::text(&text[..at])));
    }
    all
}
