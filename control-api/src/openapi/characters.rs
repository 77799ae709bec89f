//! Schemas of characters, built from the list of their settings.

use models::face::character_schema::{self, Setting, SettingKind};
use serde_json::{Map, Value, json};

use super::json_schema::{list, maybe, object, one_of, refer, text};

/// The schema of a setting's value. Null means the same as absent.
fn schema(kind: SettingKind) -> Value {
    // As written in decimal, not as stored in an `f32`.
    let plain = |n: f32| n.to_string().parse::<f64>().unwrap_or_default();
    match kind {
        SettingKind::Slider { min: least, max: most, .. } => {
            json!({"type": ["number", "null"], "minimum": plain(least), "maximum": plain(most)})
        }
        SettingKind::Integer { max: most } => {
            json!({"type": ["integer", "null"], "minimum": 0, "maximum": most})
        }
        SettingKind::Flag => maybe("boolean"),
        SettingKind::Colour { .. } => json!({"type": ["string", "null"], "pattern": "^#[0-9a-fA-F]{6}$"}),
        SettingKind::Choice { choices } => {
            let all: Vec<Value> = choices.iter().map(|c| json!(c)).chain([Value::Null]).collect();
            json!({"type": ["string", "null"], "enum": all})
        }
    }
}

/// An object with these settings and no others.
fn table(settings: &[Setting]) -> Value {
    let mut properties = Map::new();
    for setting in settings {
        match setting.name.split_once(['.', '[']) {
            None => {
                properties.insert(setting.name.into(), schema(setting.kind));
            }
            Some((name, _)) if setting.name.contains('[') => {
                let count = settings.iter().filter(|s| s.name.starts_with(&format!("{name}["))).count();
                let mut item = schema(setting.kind);
                item["type"] = json!("string");
                let array =
                    json!({"type": ["array", "null"], "items": item, "minItems": count, "maxItems": count});
                properties.insert(name.into(), array);
            }
            Some((name, field)) => {
                let under = properties.entry(name).or_insert_with(
                    || json!({"type": ["object", "null"], "properties": {}, "additionalProperties": false}),
                );
                under["properties"][field] = schema(setting.kind);
            }
        }
    }
    json!({"type": "object", "properties": properties, "additionalProperties": false})
}

/// All of these schemas, by name.
pub(super) fn all() -> Vec<(&'static str, Value)> {
    let number = || json!({"type": "number"});
    let person = object([
        ("id*", text()),
        ("name*", text()),
        ("gender*", one_of(&["female", "male"])),
        ("voice*", text()),
        ("rest*", refer("Rest")),
        ("character*", refer("Character")),
    ]);
    let setting = object([
        ("name*", text()),
        ("group*", text()),
        ("kind*", one_of(&["slider", "whole", "flag", "colour", "choice"])),
        ("unit", text()),
        ("least", number()),
        ("most", number()),
        ("optional", json!({"type": "boolean"})),
        ("choices", list(text())),
    ]);
    let sheet = object([
        ("character*", list(refer("Setting"))),
        ("pose*", list(refer("Setting"))),
        ("default*", refer("Character")),
        ("default_pose*", refer("Pose")),
        ("people*", list(person)),
        ("visemes*", list(object([("name*", text()), ("mouth*", json!({"type": "object"}))]))),
    ]);
    let preview = object([
        ("character*", refer("Character")),
        ("pose", refer("Pose")),
        ("size", json!({"type": "integer", "minimum": 64, "maximum": 512, "multipleOf": 2, "default": 256})),
    ]);
    vec![
        ("Character", table(&character_schema::character_settings())),
        ("Pose", table(&character_schema::pose_settings())),
        ("Rest", table(&character_schema::rest_settings())),
        ("Setting", setting),
        ("CharacterSheet", sheet),
        ("Preview", preview),
    ]
}
