//! Schemas of bodies. Request bodies may contain more: unknown fields are ignored.

use serde_json::{Map, Value, json};

use super::json_schema::{and, form, id, list, maybe, object, one_of, refer, strings, text, time};
use super::records::{
    agent_config, avatar, choice_of_llm, choice_of_stt, context, conversation, custom_avatar, delivery,
    documents, file, guardrail, key, knowledge_base, mcp_body, pass, provider, scope, shared_body,
    shared_record, tool_fields, transcript,
};

/// All schemas, by name.
pub(super) fn all() -> Map<String, Value> {
    let filled = || json!({"type": "string", "minLength": 1});
    let schemas: Vec<(&str, Value)> = vec![
        ("Error", object([("error*", text())])),
        ("Message", object([("message*", text())])),
        (
            "Invalid",
            object([
                ("error*", text()),
                ("details", list(object([("field*", text()), ("reason*", text())]))),
            ]),
        ),
        ("NoCapacity", object([("error*", text()), ("reason", text())])),
        ("Done", object([("id*", text()), ("message*", text())])),
        ("Created", object([("id*", id()), ("message*", text()), ("webhook_secret*", text())])),
        ("Record", object([("id*", id()), ("created_at*", time()), ("updated_at*", time())])),
        ("Patch", json!({"type": "object"})),
        ("AgentConfig", agent_config()),
        ("Avatar", avatar()),
        ("Llm", choice_of_llm()),
        ("Stt", choice_of_stt()),
        ("Tts", json!({"type": "object"})),
        ("SharedBody", shared_body()),
        ("SharedRecord", shared_record()),
        (
            "AgentBody",
            and(
                "SharedBody",
                [
                    ("agent_name*", filled()),
                    ("agent_system_prompt*", filled()),
                    ("avatars*", json!({"type": "array", "minItems": 1, "items": refer("Avatar")})),
                ],
            ),
        ),
        (
            "Agent",
            and(
                "SharedRecord",
                [("agent_name*", text()), ("agent_system_prompt*", text()), ("webhook_secret*", text())],
            ),
        ),
        (
            "ShortAgent",
            object([
                ("name*", filled()),
                ("system_prompt*", filled()),
                ("avatar_ids*", json!({"type": "array", "minItems": 1, "items": text()})),
                ("callback_url", text()),
                ("callback_events", strings()),
            ]),
        ),
        (
            "AgentByTemplate",
            object([
                ("template_id*", filled()),
                ("avatar_key_id", text()),
                ("avatar_ids", strings()),
                ("email", text()),
                ("context_override", text()),
            ]),
        ),
        (
            "TemplateBody",
            and(
                "SharedBody",
                [
                    ("template_name*", filled()),
                    ("template_system_prompt*", filled()),
                    ("avatars", list(refer("Avatar"))),
                ],
            ),
        ),
        ("Template", and("SharedRecord", [("template_name*", text()), ("template_system_prompt*", text())])),
        (
            "StockAvatar",
            object([
                ("avatar_key_id*", text()),
                ("avatar_name*", text()),
                ("gender*", text()),
                ("display_picture*", text()),
            ]),
        ),
        (
            "CustomAvatarBody",
            object([
                ("avatar_name*", filled()),
                ("gender*", one_of(&["male", "female"])),
                ("input_image", text()),
                ("is_private", maybe("boolean")),
                ("landmarks", json!({"type": ["array", "object", "null"]})),
                ("character", refer("Character")),
                ("rest", refer("Rest")),
                ("voice", text()),
            ]),
        ),
        ("CustomAvatar", custom_avatar()),
        (
            "GuardrailBody",
            object([
                ("name*", filled()),
                ("category", text()),
                ("prompt*", filled()),
                ("response_message", text()),
                ("callback_url", text()),
            ]),
        ),
        ("Guardrail", guardrail()),
        ("ToolBody", tool_fields(false)),
        ("Tool", tool_fields(true)),
        ("McpBody", mcp_body()),
        (
            "McpMade",
            object([
                ("id*", id()),
                ("name*", text()),
                ("description*", text()),
                ("type*", text()),
                ("created_at*", time()),
            ]),
        ),
        ("Mcp", json!({"allOf": [refer("McpBody"), refer("Record")]})),
        (
            "KnowledgeForm",
            form([
                ("name*", filled()),
                ("description*", filled()),
                ("input", list(file())),
                ("text", text()),
            ]),
        ),
        ("DocumentForm", form([("input", file()), ("text", text())])),
        ("KnowledgeBody", object([("name*", filled()), ("description*", filled())])),
        ("KnowledgeBase", knowledge_base()),
        (
            "KnowledgeBaseWithDocuments",
            object([("knowledge_base*", refer("KnowledgeBase")), ("documents*", documents())]),
        ),
        ("Added", object([("added*", json!({"type": "integer"})), ("doc_id*", id()), ("message*", text())])),
        (
            "AuthBody",
            object([
                ("agentId*", filled()),
                ("userName", maybe("string")),
                ("userId", maybe("string")),
                ("context", context()),
            ]),
        ),
        (
            "ConversationBody",
            object([
                ("agent_id*", filled()),
                ("user_name", maybe("string")),
                ("user_id", maybe("string")),
                ("context", context()),
                ("meta_data", maybe("object")),
            ]),
        ),
        (
            "EmbedBody",
            object([("userName", maybe("string")), ("userId", maybe("string")), ("context", context())]),
        ),
        ("Pass", pass()),
        ("ConversationFields", conversation()),
        (
            "Conversation",
            and(
                "ConversationFields",
                [
                    ("is_recorded*", json!({"type": "boolean"})),
                    ("recording_url*", text()),
                    ("transcript*", transcript()),
                    ("warnings*", strings()),
                ],
            ),
        ),
        (
            "NewConversation",
            and(
                "Conversation",
                [
                    ("join_link*", text()),
                    ("token*", text()),
                    ("webrtcRequestParams*", json!({"type": "object"})),
                    ("iceConfig*", json!({"type": "object"})),
                ],
            ),
        ),
        (
            "ListedConversation",
            and("ConversationFields", [("join_link*", text()), ("job_id*", maybe("string"))]),
        ),
        ("Turn", json!({"type": "object"})),
        (
            "Event",
            object([
                ("seq*", json!({"type": "integer"})),
                ("at*", json!({"type": "number"})),
                ("timestamp*", time()),
                ("what*", text()),
            ]),
        ),
        (
            "Feedback",
            object([
                ("rating*", json!({"type": "integer", "minimum": 1, "maximum": 5})),
                ("feedback", maybe("string")),
            ]),
        ),
        (
            "Meeting",
            object([
                ("agent_id*", filled()),
                ("meeting_url*", filled()),
                ("user_name*", filled()),
                ("user_id*", filled()),
                ("context", maybe("string")),
                ("wake_phrase", maybe("string")),
                ("mode", maybe("string")),
            ]),
        ),
        (
            "Speak",
            object([
                ("text*", filled()),
                ("interrupt", maybe("boolean")),
                ("add_to_context", maybe("boolean")),
            ]),
        ),
        ("Respond", object([("text*", filled())])),
        ("Context", object([("text*", filled()), ("mode", one_of(&["append", "overwrite"]))])),
        ("Ended", object([("agent_identity*", text()), ("conversation_id*", id()), ("message*", text())])),
        ("Delivery", delivery()),
        (
            "KeyBody",
            object([
                ("name*", filled()),
                ("expires_at", json!({"type": ["string", "null"], "format": "date-time"})),
                ("scope", scope()),
            ]),
        ),
        ("SessionBody", object([("key*", filled())])),
        ("Session", object([("prefix*", text()), ("scope*", scope()), ("csrf_token*", text())])),
        ("NewKey", object([("id*", id()), ("name*", text()), ("key*", text()), ("prefix*", text())])),
        ("Key", key()),
        ("Provider", provider()),
        (
            "Offer",
            object([
                ("sdp*", filled()),
                ("type", one_of(&["offer"])),
                ("pc_id", maybe("string")),
                ("restart_pc", maybe("boolean")),
            ]),
        ),
        ("Answer", object([("sdp*", text()), ("type*", text()), ("pc_id*", text())])),
        // The content of a candidate is not validated.
        ("Candidates", object([("pc_id", text()), ("candidates", list(json!({"type": "object"})))])),
        ("Taken", object([("status*", one_of(&["success"]))])),
        ("About", object([("status*", text()), ("persona_name*", text())])),
        ("Document", json!({"type": "object"})),
        ("Health", object([("status*", text()), ("reason", text())])),
    ];
    let drawn = super::characters::all();
    schemas.into_iter().chain(drawn).map(|(name, schema)| (name.to_owned(), schema)).collect()
}
