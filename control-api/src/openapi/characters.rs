//! Schemas of the editor for characters, whose types belong to the renderer.

use serde_json::{Value, json};

use super::json_schema::{list, object, schema_ref, string_enum, text};

/// All of these schemas, by name.
pub(super) fn character_schemas() -> Vec<(&'static str, Value)> {
    let number = || json!({"type": "number"});
    let person = object([
        ("id*", text()),
        ("name*", text()),
        ("gender*", string_enum(&["female", "male"])),
        ("voice*", text()),
        ("rest*", schema_ref("Rest")),
        ("character*", schema_ref("Character")),
    ]);
    let setting = object([
        ("name*", text()),
        ("group*", text()),
        ("kind*", string_enum(&["slider", "whole", "flag", "colour", "choice"])),
        ("unit", text()),
        ("least", number()),
        ("most", number()),
        ("optional", json!({"type": "boolean"})),
        ("choices", list(text())),
    ]);
    let character_sheet = object([
        ("character*", list(schema_ref("Setting"))),
        ("pose*", list(schema_ref("Setting"))),
        ("default*", schema_ref("Character")),
        ("default_pose*", schema_ref("Pose")),
        ("people*", list(person)),
        ("visemes*", list(object([("name*", text()), ("mouth*", json!({"type": "object"}))]))),
    ]);
    vec![("Setting", setting), ("CharacterSheet", character_sheet)]
}
