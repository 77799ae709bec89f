//! All schemas of the document: those of types, and the few that no type describes.

use serde_json::{Map, Value, json};

use super::json_schema::{form_object, list, schema_ref, text};

/// Bodies without a type: forms, which are no JSON, choices, and objects of no particular form.
fn untyped_schemas() -> [(&'static str, Value); 8] {
    let non_empty = || json!({"type": "string", "minLength": 1});
    let file = || json!({"type": "string", "contentMediaType": "application/octet-stream"});
    let object = || json!({"type": "object"});
    let knowledge_form = [
        ("name*", non_empty()),
        ("description*", non_empty()),
        ("input", list(file())),
        ("text", text()),
    ];
    let invalid_photo = [schema_ref("UnusablePhoto"), schema_ref("Invalid")];
    let avatar = [schema_ref("DrawnAvatarBody"), schema_ref("PhotoAvatarBody")];
    [
        ("KnowledgeForm", form_object(knowledge_form)),
        ("DocumentForm", form_object([("input", file()), ("text", text())])),
        ("VideoForm", video_form(file())),
        ("CustomAvatarBody", json!({"anyOf": avatar})),
        ("InvalidPhoto", json!({"anyOf": invalid_photo})),
        ("Patch", object()),
        ("Turn", object()),
        ("Document", object()),
    ]
}

/// The form of a video: the fields of `VideoBody`. Those that are no texts are JSON.
fn video_form(audio: Value) -> Value {
    let fields = [
        "text",
        "tts",
        "size",
        "frame_rate",
        "background",
        "captions",
        "format",
        "title",
        "callback_url",
        "meta_data",
    ];
    let mut form = form_object([("avatar_key_id*", text()), ("audio", audio)]);
    for field in fields {
        form["properties"][field] = text();
    }
    form
}

/// All schemas, by name.
pub(super) fn component_schemas() -> Map<String, Value> {
    let characters = super::characters::character_schemas();
    let written = untyped_schemas()
        .into_iter()
        .chain(characters)
        .map(|(name, schema)| (name.to_owned(), schema));
    super::derived::type_schemas().into_iter().chain(written).collect()
}
