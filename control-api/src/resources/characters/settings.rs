//! Reads a character or a pose from a request: every setting is checked against the list of
//! settings, and every error is reported with its path.

use std::sync::LazyLock;

use models::face::character_schema::{self, Setting, SettingKind, decimal_value};
use serde_json::{Map, Value};

use crate::http::validate::Fields;

/// The settings of a character.
pub(crate) static CHARACTER_SETTINGS: LazyLock<Vec<Setting>> =
    LazyLock::new(character_schema::character_settings);
/// The settings of a pose.
pub(crate) static POSE_SETTINGS: LazyLock<Vec<Setting>> = LazyLock::new(character_schema::pose_settings);
/// The settings of a character's expression at rest.
pub(crate) static REST_SETTINGS: LazyLock<Vec<Setting>> = LazyLock::new(character_schema::rest_settings);

/// Maximum number of errors reported for one character.
const MAX_REPORTED_ERRORS: usize = 32;

/// The settings in the object `name` of a body, as they were given. Null values are omitted, which
/// is equivalent. An empty object if it is absent.
pub(crate) fn read_settings(fields: &Fields<'_>, name: &str, known: &[Setting]) -> Value {
    let Some(value) = fields.raw(name).filter(|v| !v.is_null()) else { return Value::Object(Map::new()) };
    let mut reader = SettingsReader { fields, name, known, errors_left: MAX_REPORTED_ERRORS };
    reader.read_object(value, "").map_or(Value::Null, Value::Object)
}

struct SettingsReader<'a, 'f> {
    fields: &'a Fields<'f>,
    name: &'a str,
    known: &'a [Setting],
    /// Number of errors that may still be reported.
    errors_left: usize,
}

impl SettingsReader<'_, '_> {
    fn add_error(&mut self, path: &str, reason: impl Into<String>) {
        let Some(left) = self.errors_left.checked_sub(1) else { return };
        self.errors_left = left;
        let dot = if path.is_empty() { "" } else { "." };
        // The client chooses the name, so only a part of it is reported.
        let path: String = path.chars().take(100).collect();
        self.fields.add_error(&format!("{}{dot}{path}", self.name), reason);
    }

    /// Whether `path` is the parent of a setting: `eyes` of `eyes.size`, `background` of
    /// `background[0]`.
    fn is_path_prefix(&self, path: &str, step: char) -> bool {
        self.known.iter().any(|s| s.name.strip_prefix(path).is_some_and(|rest| rest.starts_with(step)))
    }

    fn read_object(&mut self, value: &Value, path: &str) -> Option<Map<String, Value>> {
        let Value::Object(map) = value else {
            self.add_error(path, "must be an object");
            return None;
        };
        let mut result = Map::new();
        for (name, value) in map.iter().filter(|(_, value)| !value.is_null()) {
            if self.errors_left == 0 {
                break;
            }
            let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
            if let Some(value) = self.read_value(value, &path) {
                result.insert(name.clone(), value);
            }
        }
        Some(result)
    }

    fn read_value(&mut self, value: &Value, path: &str) -> Option<Value> {
        if let Some(kind) = self.known.iter().find(|s| s.name == path).map(|s| s.kind) {
            return match check_value(kind, value) {
                None => Some(value.clone()),
                Some(reason) => {
                    self.add_error(path, reason);
                    None
                }
            };
        }
        if self.is_path_prefix(path, '.') {
            return self.read_object(value, path).map(Value::Object);
        }
        if self.is_path_prefix(path, '[') {
            let count = self.known.iter().filter(|s| s.name.starts_with(&format!("{path}["))).count();
            let Some(items) = value.as_array().filter(|items| items.len() == count) else {
                self.add_error(path, format!("must be an array of {count}"));
                return None;
            };
            let items: Vec<Option<Value>> = items
                .iter()
                .enumerate()
                .map(|(i, item)| self.read_value(item, &format!("{path}[{i}]")))
                .collect();
            return items.into_iter().collect::<Option<Vec<_>>>().map(Value::Array);
        }
        self.add_error(path, "is not known");
        None
    }
}

/// The error in a setting's value, if any.
fn check_value(kind: SettingKind, value: &Value) -> Option<String> {
    match kind {
        SettingKind::Slider { min, max, .. } => match value.as_f64() {
            Some(n) if (decimal_value(min)..=decimal_value(max)).contains(&n) => None,
            Some(_) if min == max => Some(format!("must be {min}")),
            Some(_) => Some(format!("must be between {min} and {max}")),
            None => Some("must be a number".into()),
        },
        SettingKind::Integer { max } => {
            let fits = value.as_u64().is_some_and(|n| n <= u64::from(max));
            (!fits).then(|| format!("must be a whole number between 0 and {max}"))
        }
        SettingKind::Flag => (!value.is_boolean()).then(|| "must be true or false".into()),
        SettingKind::Colour { .. } => {
            let digits = value.as_str().and_then(|text| text.strip_prefix('#'));
            let fits = digits.is_some_and(|d| d.len() == 6 && d.bytes().all(|b| b.is_ascii_hexdigit()));
            (!fits).then(|| "must be a colour such as #c0906f".into())
        }
        SettingKind::Choice { choices } => {
            let fits = value.as_str().is_some_and(|word| choices.contains(&word));
            (!fits).then(|| format!("must be one of {}", choices.join(", ")))
        }
    }
}

#[cfg(test)]
mod tests {
    use models::face::avatar_spec;
    use models::face::{Character, Pose};
    use serde_json::json;

    use super::*;
    use crate::error::ApiError;
    use crate::http::validate::FieldErrors;

    fn read_character(character: Value) -> Result<Value, Vec<(String, String)>> {
        let errors = FieldErrors::default();
        let read = {
            let fields = Fields::body(json!({"character": character}), &errors).unwrap();
            read_settings(&fields, "character", &CHARACTER_SETTINGS)
        };
        errors.into_result(read).map_err(|error| match error {
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
    fn everybody_of_the_house_is_taken_as_it_is() {
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
    fn both_ends_of_every_slider_are_taken_and_what_is_beyond_is_not() {
        for (list, of_character) in [(&CHARACTER_SETTINGS, true), (&POSE_SETTINGS, false)] {
            for setting in list.iter() {
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
                    assert!(of_pose || serde_json::from_value::<Character>(input.clone()).is_ok(), "{input}");
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
    fn what_is_wrong_is_told_by_its_path() {
        let expected = |field: &str, reason: &str| (format!("character{field}"), reason.to_owned());
        assert_eq!(single_error(json!([])), expected("", "must be an object"));
        assert_eq!(single_error(json!({"hair": 1})), expected(".hair", "must be an object"));
        assert_eq!(single_error(json!({"wings": {"size": 1}})), expected(".wings", "is not known"));
        assert_eq!(single_error(json!({"eyes": {"number": 3}})), expected(".eyes.number", "is not known"));
        let colour = "must be a colour such as #c0906f";
        for bad in
            [json!("red"), json!("#12345"), json!("#1234567"), json!("#+12345"), json!(1), json!("#12345g")]
        {
            assert_eq!(single_error(json!({"skin": {"colour": bad}})), expected(".skin.colour", colour));
        }
        assert_eq!(single_error(json!({"background": ["#ffffff", "x"]})), expected(".background[1]", colour));
        assert_eq!(
            single_error(json!({"background": ["#ffffff"]})),
            expected(".background", "must be an array of 2")
        );
        assert_eq!(
            single_error(json!({"glasses": "monocle"})),
            expected(".glasses", "must be one of none, square, round, slim")
        );
        assert_eq!(single_error(json!({"earrings": 1})), expected(".earrings", "must be true or false"));
        for bad in [json!(-1), json!(1.5), json!(4_294_967_296_u64), json!("1")] {
            assert_eq!(
                single_error(json!({"seed": bad})),
                expected(".seed", "must be a whole number between 0 and 4294967295")
            );
        }
    }

    #[test]
    fn a_flood_of_faults_is_not_answered_by_a_flood() {
        let many: Map<String, Value> = (0..10_000).map(|n| (format!("x{n}"), json!(n))).collect();
        assert_eq!(read_character(Value::Object(many)).unwrap_err().len(), MAX_REPORTED_ERRORS);
        let long = "y".repeat(1 << 20);
        assert!(single_error(json!({ long: 1 })).0.len() < 200);
    }
}
