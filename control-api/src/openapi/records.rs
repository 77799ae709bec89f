//! Schemas of returned records, and of the larger request bodies.

use serde_json::{Value, json};

use super::json_schema::{id, list, nullable_type, object, string_enum, text, time};
use crate::scope::Scope;

pub(super) fn conversation() -> Value {
    object([
        ("id*", id()),
        ("agent_id*", id()),
        ("agent_name*", text()),
        ("avatar_id*", text()),
        ("user_id*", nullable_type("string")),
        ("user_name*", nullable_type("string")),
        ("context*", nullable_type("string")),
        ("status*", string_enum(&["STARTED", "IN_PROGRESS", "ENDED"])),
        ("end_reason*", nullable_type("string")),
        ("type*", nullable_type("string")),
        ("meta_data*", nullable_type("object")),
        ("feedback*", nullable_type("string")),
        ("rating*", nullable_type("integer")),
        ("usage_status*", string_enum(&["pending", "completed"])),
        ("usage_json*", text()),
        ("snippets*", json!({"type": "object"})),
        ("chat_history*", json!({"type": "object"})),
        ("is_active*", json!({"type": "boolean"})),
        ("created_at*", time()),
        ("updated_at*", time()),
        ("joined_at*", json!({"type": ["string", "null"], "format": "date-time"})),
        ("ended_at*", json!({"type": ["string", "null"], "format": "date-time"})),
    ])
}

pub(super) fn transcript() -> Value {
    list(object([
        ("timestamp*", time()),
        ("role*", string_enum(&["user", "assistant"])),
        ("content*", text()),
        ("conversation_id*", id()),
        ("message_timestamp*", json!({"type": "number"})),
    ]))
}

pub(super) fn documents() -> Value {
    list(object([
        ("id*", id()),
        ("name*", text()),
        ("type*", text()),
        ("status*", string_enum(&["started", "processing", "ready", "error"])),
        ("error_message*", nullable_type("string")),
    ]))
}

pub(super) fn delivery() -> Value {
    let attempt = object([
        ("attempt*", json!({"type": "integer"})),
        ("at*", time()),
        ("took_ms*", json!({"type": "integer"})),
        ("status*", nullable_type("integer")),
        ("error*", nullable_type("string")),
    ]);
    object([
        ("id*", text()),
        ("conversation_id*", id()),
        ("agent_id*", id()),
        ("sequence*", json!({"type": "integer"})),
        ("event*", text()),
        ("url*", text()),
        ("body*", text()),
        ("state*", string_enum(&["pending", "done", "dead", "dropped"])),
        ("reason*", nullable_type("string")),
        ("next_try*", json!({"type": ["string", "null"], "format": "date-time"})),
        ("created_at*", time()),
        ("tries*", list(attempt)),
    ])
}

pub(super) fn provider() -> Value {
    let item = object([("label*", text()), ("value*", text())]);
    let field = object([
        ("name*", text()),
        ("type*", string_enum(&["ENUM"])),
        ("label*", text()),
        ("items*", list(item)),
        ("default_value*", text()),
    ]);
    object([
        ("display_name*", text()),
        ("provider*", text()),
        ("provider_type*", string_enum(&["stt", "llm", "tts"])),
        ("model*", text()),
        ("configured*", json!({"type": "boolean"})),
        ("additional_fields*", list(field)),
    ])
}

pub(super) fn custom_avatar() -> Value {
    object([
        ("id*", id()),
        ("job_id*", text()),
        ("avatar_key_id*", text()),
        ("avatar_id*", text()),
        ("avatar_name*", text()),
        ("gender*", text()),
        ("category*", text()),
        ("status*", string_enum(&["QUEUED", "PROCESSING", "COMPLETED", "FAILED"])),
        ("progress*", json!({"type": "integer", "minimum": 0, "maximum": 100})),
        ("is_private*", json!({"type": "boolean"})),
        ("character*", nullable_type("object")),
        ("rest*", nullable_type("object")),
        ("voice*", nullable_type("string")),
        ("output*", nullable_type("object")),
        ("error*", nullable_type("string")),
        ("created_at*", time()),
        ("updated_at*", time()),
    ])
}

pub(super) fn key() -> Value {
    object([
        ("id*", id()),
        ("name*", text()),
        ("prefix*", text()),
        ("created_at*", time()),
        ("expires_at*", json!({"type": ["string", "null"], "format": "date-time"})),
        ("scope*", scope()),
        ("last_used_at*", json!({"type": ["string", "null"], "format": "date-time"})),
    ])
}

/// Scopes of an API key; each includes the ones before it.
pub(super) fn scope() -> Value {
    string_enum(&Scope::ALL.map(Scope::name))
}

pub(super) fn knowledge_base() -> Value {
    object([
        ("id*", id()),
        ("name*", text()),
        ("description*", text()),
        ("no_of_rec*", json!({"type": "integer"})),
        ("created_at*", time()),
        ("updated_at*", time()),
    ])
}

pub(super) fn file() -> Value {
    json!({"type": "string", "contentMediaType": "application/octet-stream"})
}

pub(super) fn context() -> Value {
    json!({"type": ["string", "object", "null"]})
}

pub(super) fn join_info() -> Value {
    object([
        ("token*", text()),
        ("conversationId*", id()),
        ("url*", text()),
        ("webrtcRequestParams*", object([("endpoint*", text())])),
        ("iceConfig*", json!({"type": "object"})),
    ])
}
