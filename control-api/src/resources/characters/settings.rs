//! The settings of a character or of a pose in a request. Their JSON Schema is built from the list
//! of settings; it checks requests and is published. Null means the same as absent.

use std::borrow::Cow;

use models::face::character_schema::{self, Setting, SettingKind, decimal_value};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

/// The settings of a character, as they were given.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct CharacterSettings(Map<String, Value>);

/// The settings of a pose, as they were given.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct PoseSettings(Map<String, Value>);

/// The settings of a character's expression at rest, as they were given.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct RestSettings(Map<String, Value>);

impl JsonSchema for CharacterSettings {
    fn schema_name() -> Cow<'static, str> {
        "Character".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        settings_schema(&character_schema::character_settings())
    }
}

impl JsonSchema for PoseSettings {
    fn schema_name() -> Cow<'static, str> {
        "Pose".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        settings_schema(&character_schema::pose_settings())
    }
}

impl JsonSchema for RestSettings {
    fn schema_name() -> Cow<'static, str> {
        "Rest".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        settings_schema(&character_schema::rest_settings())
    }
}

/// The schema of a setting's value.
fn setting_schema(kind: SettingKind) -> Value {
    match kind {
        SettingKind::Slider { min, max, .. } => {
            let (min, max) = (decimal_value(min), decimal_value(max));
            json!({"type": ["number", "null"], "minimum": min, "maximum": max})
        }
        SettingKind::Integer { max } => {
            json!({"type": ["integer", "null"], "minimum": 0, "maximum": max})
        }
        SettingKind::Flag => json!({"type": ["boolean", "null"]}),
        SettingKind::Colour { .. } => {
            json!({"type": ["string", "null"], "format": "color", "pattern": "^#[0-9a-fA-F]{6}$"})
        }
        SettingKind::Choice { choices } => {
            let all: Vec<Value> = choices.iter().map(|c| json!(c)).chain([Value::Null]).collect();
            json!({"type": ["string", "null"], "enum": all})
        }
    }
}

/// An object with these settings and no others. `eyes.size` is a property of an object,
/// `background[0]` is an item of an array.
fn settings_schema(settings: &[Setting]) -> Schema {
    let mut properties = Map::new();
    for setting in settings {
        match setting.name.split_once(['.', '[']) {
            None => {
                properties.insert(setting.name.into(), setting_schema(setting.kind));
            }
            Some((name, _)) if setting.name.contains('[') => {
                let count =
                    settings.iter().filter(|s| s.name.starts_with(&format!("{name}["))).count();
                let mut item = setting_schema(setting.kind);
                item["type"] = json!("string");
                let array = json!({
                    "type": ["array", "null"],
                    "items": item,
                    "minItems": count,
                    "maxItems": count,
                });
                properties.insert(name.into(), array);
            }
            Some((name, field)) => {
                let under = properties.entry(name).or_insert_with(|| {
                    json!({
                        "type": ["object", "null"],
                        "properties": {},
                        "additionalProperties": false,
                    })
                });
                under["properties"][field] = setting_schema(setting.kind);
            }
        }
    }
    json_schema!({"type": "object", "properties": properties, "additionalProperties": false})
}

#[cfg(test)]
mod tests {
    use models::face::avatar_spec;
    use models::face::{Character, Pose};
    use serde_json::json;

    use super::*;
    use crate::error::ApiError;
    use crate::http::body;

    #[derive(Default, Deserialize, JsonSchema)]
    struct Request {
        character: CharacterSettings,
    }

    fn read_character(character: Value) -> Result<Value, Vec<(String, String)>> {
        let request = body::parse::<Request>(json!({"character": character}));
        request.map(|request| json!(request.character)).map_err(|error| match error {
            ApiError::Invalid(errors) => errors.into_iter().map(|f| (f.field, f.reason)).collect(),
            other => panic!("{other:?}"),
        })
    }

    #[track_caller]
    fn single_error(character: Value) -> (String, String) {
        let mut errors = read_character(character.clone()).unwrap_err();
        assert_eq!(errors.len(), 1, "{character}: {errors:?}");
        errors.remove(0)
    }

    #[test]
    fn every_stock_character_is_valid() {
        for person in avatar_spec::ids().filter_map(avatar_spec::find) {
            let text = serde_json::to_string(&person.character).unwrap();
            let input = serde_json::from_str(&text).unwrap();
            let output: Character = serde_json::from_value(read_character(input).unwrap()).unwrap();
            assert_eq!(output, person.character);
        }
        assert_eq!(read_character(json!({})), Ok(json!({})));
        assert_eq!(
            read_character(json!({"age": null, "eyes": null, "hair": {"dark": null}})),
            Ok(json!({"hair": {}}))
        );
    }

    #[test]
    fn both_limits_of_each_setting_are_valid_and_larger_values_are_not() {
        let lists = [
            (character_schema::character_settings(), true),
            (character_schema::pose_settings(), false),
        ];
        for (list, of_character) in lists {
            for setting in &list {
                let SettingKind::Slider { min, max, .. } = setting.kind else { continue };
                let with = |n: &str| -> Value {
                    let n: Value = serde_json::from_str(n).unwrap();
                    match setting.name.split_once('.') {
                        Some((table, field)) => json!({ table: { field: n } }),
                        None => json!({ setting.name: n }),
                    }
                };
                for n in [min, max] {
                    let input = with(&n.to_string());
                    let of_pose = serde_json::from_value::<Pose>(input.clone()).is_ok();
                    assert!(
                        of_pose || serde_json::from_value::<Character>(input.clone()).is_ok(),
                        "{input}"
                    );
                    if of_character {
                        assert_eq!(read_character(input.clone()), Ok(input));
                    }
                }
                if of_character {
                    let field = format!("character.{}", setting.name);
                    let reason = format!("must be between {min} and {max}");
                    let just_above = decimal_value(max).next_up().to_string();
                    let just_below = decimal_value(min).next_down().to_string();
                    for n in ["1e308", "-1e308", &just_above, &just_below] {
                        assert_eq!(single_error(with(n)), (field.clone(), reason.clone()), "{n}");
                    }
                    assert_eq!(single_error(with("\"NaN\"")), (field, "must be a number".into()));
                }
            }
        }
    }

    #[test]
    fn each_invalid_setting_is_reported_with_its_path() {
        let expected = |field: &str, reason: &str| (format!("character{field}"), reason.to_owned());
        assert_eq!(single_error(json!([])), expected("", "must be an object"));
        assert_eq!(single_error(json!({"hair": 1})), expected(".hair", "must be an object"));
        assert_eq!(single_error(json!({"wings": {"size": 1}})), expected(".wings", "is unknown"));
        assert_eq!(
            single_error(json!({"eyes": {"number": 3}})),
            expected(".eyes.number", "is unknown")
        );
        let colour = "must be a colour such as #c0906f";
        for bad in
            [json!("red"), json!("#12345"), json!("#1234567"), json!("#+12345"), json!("#12345g")]
        {
            assert_eq!(
                single_error(json!({"skin": {"colour": bad}})),
                expected(".skin.colour", colour)
            );
        }
        assert_eq!(
            single_error(json!({"background": ["#ffffff", "x"]})),
            expected(".background[1]", colour)
        );
        assert_eq!(
            single_error(json!({"background": ["#ffffff"]})),
            expected(".background", "must be an array of 2")
        );
        assert_eq!(
            single_error(json!({"glasses": "monocle"})),
            expected(".glasses", "must be one of none, square, round, slim")
        );
        assert_eq!(
            single_error(json!({"earrings": 1})),
            expected(".earrings", "must be true or false")
        );
        for bad in [json!(-1), json!(1.5), json!(4_294_967_296_u64), json!("1")] {
            assert_eq!(
                single_error(json!({"seed": bad})),
                expected(".seed", "must be a whole number between 0 and 4294967295")
            );
        }
    }

    #[test]
    fn the_number_of_reported_errors_is_limited() {
        let many: Map<String, Value> = (0..10_000).map(|n| (format!("x{n}"), json!(n))).collect();
        assert_eq!(read_character(Value::Object(many)).unwrap_err().len(), 32);
        let long = "y".repeat(1 << 20);
        assert!(single_error(json!({ long: 1 })).0.len() < 200);
    }
}
