//! Schemas of characters, built from the list of their settings.

use models::face::character_schema::{self, Setting, SettingKind, decimal_value};
use serde_json::{Map, Value, json};

use super::json_schema::{list, nullable_type, object, schema_ref, string_enum, text};

/// The schema of a setting's value. Null means the same as absent.
fn setting_schema(kind: SettingKind) -> Value {
    match kind {
        SettingKind::Slider { min, max, .. } => {
            let (min, max) = (decimal_value(min), decimal_value(max));
            json!({"type": ["number", "null"], "minimum": min, "maximum": max})
        }
        SettingKind::Integer { max } => {
            json!({"type": ["integer", "null"], "minimum": 0, "maximum": max})
        }
        SettingKind::Flag => nullable_type("boolean"),
        SettingKind::Colour { .. } => json!({"type": ["string", "null"], "pattern": "^#[0-9a-fA-F]{6}$"}),
        SettingKind::Choice { choices } => {
            let all: Vec<Value> = choices.iter().map(|c| json!(c)).chain([Value::Null]).collect();
            json!({"type": ["string", "null"], "enum": all})
        }
    }
}

/// An object with these settings and no others.
fn settings_schema(settings: &[Setting]) -> Value {
    let mut properties = Map::new();
    for setting in settings {
        match setting.name.split_once(['.', '[']) {
            None => {
                properties.insert(setting.name.into(), setting_schema(setting.kind));
            }
            Some((name, _)) if setting.name.contains('[') => {
                let count = settings.iter().filter(|s| s.name.starts_with(&format!("{name}["))).count();
                let mut item = setting_schema(setting.kind);
                item["type"] = json!("string");
                let array =
                    json!({"type": ["array", "null"], "items": item, "minItems": count, "maxItems": count});
                properties.insert(name.into(), array);
            }
            Some((name, field)) => {
                let under = properties.entry(name).or_insert_with(
                    || json!({"type": ["object", "null"], "properties": {}, "additionalProperties": false}),
                );
                under["properties"][field] = setting_schema(setting.kind);
            }
        }
    }
    json!({"type": "object", "properties": properties, "additionalProperties": false})
}

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
    let preview = object([
        ("character*", schema_ref("Character")),
        ("pose", schema_ref("Pose")),
        ("size", json!({"type": "integer", "minimum": 64, "maximum": 512, "multipleOf": 2, "default": 256})),
    ]);
    vec![
        ("Character", settings_schema(&character_schema::character_settings())),
        ("Pose", settings_schema(&character_schema::pose_settings())),
        ("Rest", settings_schema(&character_schema::rest_settings())),
        ("Setting", setting),
        ("CharacterSheet", character_sheet),
        ("Preview", preview),
    ]
}
