//! Schemas of returned records, and of the larger request bodies.

use serde_json::{Value, json};

use super::json_schema::{id, list, nullable_type, object, schema_ref, string_enum, strings, text, time};
use crate::scope::Scope;

/// Ids of attached records, or the records themselves.
fn attached_records() -> Value {
    json!({"type": ["array", "null"], "items": {"oneOf": [text(), object([("id*", text())])]}})
}

/// Common fields of agents and templates in requests.
pub(super) fn shared_body() -> Value {
    object([
        ("callback_events", strings()),
        ("callback_url", text()),
        ("config", schema_ref("AgentConfig")),
        ("knowledge_base", attached_records()),
        ("tool", attached_records()),
        ("guardrail", attached_records()),
        ("mcp", attached_records()),
        ("record", nullable_type("boolean")),
        ("is_active", nullable_type("boolean")),
        ("type", nullable_type("string")),
        ("email", nullable_type("string")),
        ("embed", object([("enabled", nullable_type("boolean")), ("origins", strings())])),
    ])
}

/// Common fields of agents and templates in responses.
pub(super) fn shared_record() -> Value {
    object([
        ("id*", id()),
        ("avatars*", list(json!({"type": "object"}))),
        ("callback_events*", strings()),
        ("callback_url*", text()),
        ("config*", schema_ref("AgentConfig")),
        ("knowledge_base*", json!({"type": ["array", "null"], "items": schema_ref("KnowledgeBase")})),
        ("tool*", json!({"type": ["array", "null"], "items": schema_ref("Tool")})),
        ("guardrail*", json!({"type": ["array", "null"], "items": schema_ref("Guardrail")})),
        ("mcp*", json!({"type": ["array", "null"], "items": schema_ref("Mcp")})),
        ("record*", json!({"type": "boolean"})),
        ("is_active*", json!({"type": "boolean"})),
        ("type*", nullable_type("string")),
        ("created_at*", time()),
        ("updated_at*", time()),
    ])
}

pub(super) fn avatar() -> Value {
    let speech = json!({"type": "object"});
    object([
        ("avatar_key_id", text()),
        ("persona_name", nullable_type("string")),
        (
            "config",
            object([("llm", schema_ref("Llm")), ("stt", schema_ref("Stt")), ("tts", schema_ref("Tts"))]),
        ),
        ("llm", schema_ref("Llm")),
        ("stt", schema_ref("Stt")),
        ("tts", schema_ref("Tts")),
        ("welcome_message", speech.clone()),
        ("idle_timeout", speech.clone()),
        ("exit_heads_up_message", speech.clone()),
        ("exit_message", speech),
        ("turn_handling", string_enum(&["proactive", "balanced", "deliberate"])),
        ("interruptability", string_enum(&["low", "medium", "high"])),
        ("frame_rate", json!({"type": "number", "minimum": 1, "maximum": 60})),
    ])
}

pub(super) fn guardrail() -> Value {
    object([
        ("id*", id()),
        ("key*", text()),
        ("name*", text()),
        ("category*", text()),
        ("prompt*", text()),
        ("response_message*", text()),
        ("callback_url*", text()),
        ("created_at*", time()),
        ("updated_at*", time()),
    ])
}

/// `url` is the name of the URL field, with `*` if it is required.
fn request_config(url: &str) -> Value {
    object([
        ("method", text()),
        (url, text()),
        ("headers", json!({"type": "object", "additionalProperties": text()})),
    ])
}

pub(super) fn tool_fields(id_and_times: bool) -> Value {
    let schema = object([
        ("type", string_enum(&["function"])),
        ("name*", json!({"type": "string", "maxLength": 64, "pattern": "^[A-Za-z0-9_.-]*$"})),
        ("description", text()),
        ("parameters", json!({"type": "object"})),
    ]);
    // A client tool has none.
    let request = json!({"anyOf": [request_config("url"), {"type": "null"}]});
    let fields = object([
        ("type", string_enum(&["tool.api", "tool.client"])),
        ("schema*", schema),
        ("request_config", request),
        ("event_messages", json!({"type": ["object", "null"]})),
    ]);
    if id_and_times { json!({"allOf": [fields, schema_ref("Record")]}) } else { fields }
}

pub(super) fn mcp_body() -> Value {
    object([
        ("name*", text()),
        ("description", text()),
        ("type", string_enum(&["shttp/sse", "shttp", "sse"])),
        ("request_config*", request_config("url*")),
    ])
}

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

pub(super) fn llm_config() -> Value {
    object([
        ("provider", nullable_type("string")),
        ("model", nullable_type("string")),
        ("fallback_model", nullable_type("string")),
        ("url", nullable_type("string")),
        ("token", nullable_type("string")),
    ])
}

pub(super) fn stt_config() -> Value {
    let delay = json!({"type": ["number", "null"], "minimum": 0, "maximum": 10});
    object([
        ("provider", nullable_type("string")),
        ("model", nullable_type("string")),
        ("fallback_model", nullable_type("string")),
        ("language", nullable_type("string")),
        ("min_endpointing_delay", delay.clone()),
        ("max_endpointing_delay", delay),
    ])
}

pub(super) fn agent_config() -> Value {
    let seconds = json!({"type": ["number", "null"], "minimum": 0, "maximum": 86_400});
    object([
        ("maxCallDuration", seconds.clone()),
        ("timeout", seconds),
        ("conversationalContext", text()),
        ("memory", json!({"type": "object"})),
        ("error_message", nullable_type("string")),
        ("turn", json!({"type": "object"})),
        ("trust_client_context", nullable_type("boolean")),
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
