//! Schemas of bodies. Request bodies may contain more: unknown fields are ignored.

use serde_json::{Map, Value, json};

use super::json_schema::{
    all_of, form_object, id, list, nullable_type, object, schema_ref, string_enum, strings, text, time,
};
use super::records::{
    context, conversation, custom_avatar, delivery, documents, file, join_info, key, knowledge_base,
    provider, scope, transcript,
};

/// All schemas, by name.
pub(super) fn component_schemas() -> Map<String, Value> {
    let non_empty = || json!({"type": "string", "minLength": 1});
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
        ("Patch", json!({"type": "object"})),
        (
            "ShortAgent",
            object([
                ("name*", non_empty()),
                ("system_prompt*", non_empty()),
                ("avatar_ids*", json!({"type": "array", "minItems": 1, "items": text()})),
                ("callback_url", text()),
                ("callback_events", strings()),
            ]),
        ),
        (
            "AgentByTemplate",
            object([
                ("template_id*", non_empty()),
                ("avatar_key_id", text()),
                ("avatar_ids", strings()),
                ("email", text()),
                ("context_override", text()),
            ]),
        ),
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
                ("avatar_name*", non_empty()),
                ("gender*", string_enum(&["male", "female"])),
                ("input_image", text()),
                ("is_private", nullable_type("boolean")),
                ("landmarks", json!({"type": ["array", "object", "null"]})),
                ("character", schema_ref("Character")),
                ("rest", schema_ref("Rest")),
                ("voice", text()),
            ]),
        ),
        ("CustomAvatar", custom_avatar()),
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
        (
            "KnowledgeForm",
            form_object([
                ("name*", non_empty()),
                ("description*", non_empty()),
                ("input", list(file())),
                ("text", text()),
            ]),
        ),
        ("DocumentForm", form_object([("input", file()), ("text", text())])),
        ("KnowledgeBody", object([("name*", non_empty()), ("description*", non_empty())])),
        ("KnowledgeBase", knowledge_base()),
        (
            "KnowledgeBaseWithDocuments",
            object([("knowledge_base*", schema_ref("KnowledgeBase")), ("documents*", documents())]),
        ),
        ("Added", object([("added*", json!({"type": "integer"})), ("doc_id*", id()), ("message*", text())])),
        (
            "AuthBody",
            object([
                ("agentId*", non_empty()),
                ("userName", nullable_type("string")),
                ("userId", nullable_type("string")),
                ("context", context()),
            ]),
        ),
        (
            "ConversationBody",
            object([
                ("agent_id*", non_empty()),
                ("user_name", nullable_type("string")),
                ("user_id", nullable_type("string")),
                ("context", context()),
                ("meta_data", nullable_type("object")),
            ]),
        ),
        (
            "EmbedBody",
            object([
                ("userName", nullable_type("string")),
                ("userId", nullable_type("string")),
                ("context", context()),
            ]),
        ),
        ("Pass", join_info()),
        ("ConversationFields", conversation()),
        (
            "Conversation",
            all_of(
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
            all_of(
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
            all_of("ConversationFields", [("join_link*", text()), ("job_id*", nullable_type("string"))]),
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
                ("feedback", nullable_type("string")),
            ]),
        ),
        (
            "Meeting",
            object([
                ("agent_id*", non_empty()),
                ("meeting_url*", non_empty()),
                ("user_name*", non_empty()),
                ("user_id*", non_empty()),
                ("context", nullable_type("string")),
                ("wake_phrase", nullable_type("string")),
                ("mode", nullable_type("string")),
            ]),
        ),
        (
            "Speak",
            object([
                ("text*", non_empty()),
                ("interrupt", nullable_type("boolean")),
                ("add_to_context", nullable_type("boolean")),
            ]),
        ),
        ("Respond", object([("text*", non_empty())])),
        ("Context", object([("text*", non_empty()), ("mode", string_enum(&["append", "overwrite"]))])),
        ("Ended", object([("agent_identity*", text()), ("conversation_id*", id()), ("message*", text())])),
        ("Delivery", delivery()),
        (
            "KeyBody",
            object([
                ("name*", non_empty()),
                ("expires_at", json!({"type": ["string", "null"], "format": "date-time"})),
                ("scope", scope()),
            ]),
        ),
        ("SessionBody", object([("key*", non_empty())])),
        ("Session", object([("prefix*", text()), ("scope*", scope()), ("csrf_token*", text())])),
        ("NewKey", object([("id*", id()), ("name*", text()), ("key*", text()), ("prefix*", text())])),
        ("Key", key()),
        ("Provider", provider()),
        (
            "Offer",
            object([
                ("sdp*", non_empty()),
                ("type", string_enum(&["offer"])),
                ("pc_id", nullable_type("string")),
                ("restart_pc", nullable_type("boolean")),
            ]),
        ),
        ("Answer", object([("sdp*", text()), ("type*", text()), ("pc_id*", text())])),
        // The content of a candidate is not validated.
        ("Candidates", object([("pc_id", text()), ("candidates", list(json!({"type": "object"})))])),
        ("Taken", object([("status*", string_enum(&["success"]))])),
        ("About", object([("status*", text()), ("persona_name*", text())])),
        ("Document", json!({"type": "object"})),
        ("Health", object([("status*", text()), ("reason", text())])),
    ];
    let characters = super::characters::character_schemas();
    let written = schemas.into_iter().chain(characters).map(|(name, schema)| (name.to_owned(), schema));
    super::derived::document_schemas().into_iter().chain(written).collect()
}
