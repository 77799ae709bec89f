//! Schemas of returned records, and of the larger request bodies.

use serde_json::{Value, json};

use super::json_schema::{id, list, maybe, object, one_of, refer, strings, text, time};
use crate::scope::Scope;

/// Ids of attached records, or the records themselves.
fn attached() -> Value {
    json!({"type": ["array", "null"], "items": {"oneOf": [text(), object([("id*", text())])]}})
}

/// Common fields of agents and templates in requests.
pub(super) fn shared_body() -> Value {
    object([
        ("callback_events", strings()),
        ("callback_url", text()),
        ("config", refer("AgentConfig")),
        ("knowledge_base", attached()),
        ("tool", attached()),
        ("guardrail", attached()),
        ("mcp", attached()),
        ("record", maybe("boolean")),
        ("is_active", maybe("boolean")),
        ("type", maybe("string")),
        ("email", maybe("string")),
        ("embed", object([("enabled", maybe("boolean")), ("origins", strings())])),
    ])
}

/// Common fields of agents and templates in responses.
pub(super) fn shared_record() -> Value {
    object([
        ("id*", id()),
        ("avatars*", list(json!({"type": "object"}))),
        ("callback_events*", strings()),
        ("callback_url*", text()),
        ("config*", refer("AgentConfig")),
        ("knowledge_base*", json!({"type": ["array", "null"], "items": refer("KnowledgeBase")})),
        ("tool*", json!({"type": ["array", "null"], "items": refer("Tool")})),
        ("guardrail*", json!({"type": ["array", "null"], "items": refer("Guardrail")})),
        ("mcp*", json!({"type": ["array", "null"], "items": refer("Mcp")})),
        ("record*", json!({"type": "boolean"})),
        ("is_active*", json!({"type": "boolean"})),
        ("type*", maybe("string")),
        ("created_at*", time()),
        ("updated_at*", time()),
    ])
}

pub(super) fn avatar() -> Value {
    let speech = json!({"type": "object"});
    object([
        ("avatar_key_id", text()),
        ("persona_name", maybe("string")),
        ("config", object([("llm", refer("Llm")), ("stt", refer("Stt")), ("tts", refer("Tts"))])),
        ("llm", refer("Llm")),
        ("stt", refer("Stt")),
        ("tts", refer("Tts")),
        ("welcome_message", speech.clone()),
        ("idle_timeout", speech.clone()),
        ("exit_heads_up_message", speech.clone()),
        ("exit_message", speech),
        ("turn_handling", one_of(&["proactive", "balanced", "deliberate"])),
        ("interruptability", one_of(&["low", "medium", "high"])),
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
        ("type", one_of(&["function"])),
        ("name*", json!({"type": "string", "maxLength": 64, "pattern": "^[A-Za-z0-9_.-]*$"})),
        ("description", text()),
        ("parameters", json!({"type": "object"})),
    ]);
    // A client tool has none.
    let request = json!({"anyOf": [request_config("url"), {"type": "null"}]});
    let fields = object([
        ("type", one_of(&["tool.api", "tool.client"])),
        ("schema*", schema),
        ("request_config", request),
        ("event_messages", json!({"type": ["object", "null"]})),
    ]);
    if id_and_times { json!({"allOf": [fields, refer("Record")]}) } else { fields }
}

pub(super) fn mcp_body() -> Value {
    object([
        ("name*", text()),
        ("description", text()),
        ("type", one_of(&["shttp/sse", "shttp", "sse"])),
        ("request_config*", request_config("url*")),
    ])
}

pub(super) fn conversation() -> Value {
    object([
        ("id*", id()),
        ("agent_id*", id()),
        ("agent_name*", text()),
        ("avatar_id*", text()),
        ("user_id*", maybe("string")),
        ("user_name*", maybe("string")),
        ("context*", maybe("string")),
        ("status*", one_of(&["STARTED", "IN_PROGRESS", "ENDED"])),
        ("end_reason*", maybe("string")),
        ("type*", maybe("string")),
        ("meta_data*", maybe("object")),
        ("feedback*", maybe("string")),
        ("rating*", maybe("integer")),
        ("usage_status*", one_of(&["pending", "completed"])),
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
        ("role*", one_of(&["user", "assistant"])),
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
        ("status*", one_of(&["started", "processing", "ready", "error"])),
        ("error_message*", maybe("string")),
    ]))
}

pub(super) fn delivery() -> Value {
    let tried = object([
        ("attempt*", json!({"type": "integer"})),
        ("at*", time()),
        ("took_ms*", json!({"type": "integer"})),
        ("status*", maybe("integer")),
        ("error*", maybe("string")),
    ]);
    object([
        ("id*", text()),
        ("conversation_id*", id()),
        ("agent_id*", id()),
        ("sequence*", json!({"type": "integer"})),
        ("event*", text()),
        ("url*", text()),
        ("body*", text()),
        ("state*", one_of(&["pending", "done", "dead", "dropped"])),
        ("reason*", maybe("string")),
        ("next_try*", json!({"type": ["string", "null"], "format": "date-time"})),
        ("created_at*", time()),
        ("tries*", list(tried)),
    ])
}

pub(super) fn provider() -> Value {
    let item = object([("label*", text()), ("value*", text())]);
    let field = object([
        ("name*", text()),
        ("type*", one_of(&["ENUM"])),
        ("label*", text()),
        ("items*", list(item)),
        ("default_value*", text()),
    ]);
    object([
        ("display_name*", text()),
        ("provider*", text()),
        ("provider_type*", one_of(&["stt", "llm", "tts"])),
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
        ("status*", one_of(&["QUEUED", "PROCESSING", "COMPLETED", "FAILED"])),
        ("progress*", json!({"type": "integer", "minimum": 0, "maximum": 100})),
        ("is_private*", json!({"type": "boolean"})),
        ("character*", maybe("object")),
        ("rest*", maybe("object")),
        ("voice*", maybe("string")),
        ("output*", maybe("object")),
        ("error*", maybe("string")),
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
    one_of(&Scope::ALL.map(Scope::name))
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

pub(super) fn choice_of_llm() -> Value {
    object([
        ("provider", maybe("string")),
        ("model", maybe("string")),
        ("fallback_model", maybe("string")),
        ("url", maybe("string")),
        ("token", maybe("string")),
    ])
}

pub(super) fn choice_of_stt() -> Value {
    let delay = json!({"type": ["number", "null"], "minimum": 0, "maximum": 10});
    object([
        ("provider", maybe("string")),
        ("model", maybe("string")),
        ("fallback_model", maybe("string")),
        ("language", maybe("string")),
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
        ("error_message", maybe("string")),
        ("turn", json!({"type": "object"})),
        ("trust_client_context", maybe("boolean")),
    ])
}

pub(super) fn file() -> Value {
    json!({"type": "string", "contentMediaType": "application/octet-stream"})
}

pub(super) fn context() -> Value {
    json!({"type": ["string", "object", "null"]})
}

pub(super) fn pass() -> Value {
    object([
        ("token*", text()),
        ("conversationId*", id()),
        ("url*", text()),
        ("webrtcRequestParams*", object([("endpoint*", text())])),
        ("iceConfig*", json!({"type": "object"})),
    ])
}
