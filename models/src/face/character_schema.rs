//! The settings of an avatar as a list. An editor builds its form from it, and submitted values are
//! checked against it field by field.

use character::{Character, Mouth, POSE_SLIDERS, Pose, SLIDERS, Slider};
use serde::Serialize;

/// One setting.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Setting {
    /// Its path in a character or a pose: `eyes.size`, `background[0]`.
    pub name: &'static str,
    /// Its group in a form: `skin`, `eyes` …
    pub group: &'static str,
    /// Its type.
    #[serde(flatten)]
    pub kind: SettingKind,
}

/// Type of a setting.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum SettingKind {
    /// A number with a unit, as defined by [`character::Slider`], and a range.
    Slider {
        /// Unit of the value.
        unit: &'static str,
        /// Minimum value.
        #[serde(rename = "least")]
        min: f32,
        /// Maximum value.
        #[serde(rename = "most")]
        max: f32,
    },
    /// An integer from 0 on.
    #[serde(rename = "whole")]
    Integer {
        /// Maximum value.
        #[serde(rename = "most")]
        max: u32,
    },
    /// True or false.
    Flag,
    /// A color, `#rrggbb`.
    Colour {
        /// Whether the color may be absent.
        optional: bool,
    },
    /// One word of several.
    Choice {
        /// All permitted words.
        choices: &'static [&'static str],
    },
}

const REQUIRED_COLOUR: SettingKind = SettingKind::Colour { optional: false };

/// The settings of a character that are not sliders.
const NON_SLIDERS: &[(&str, SettingKind)] = &[
    ("seed", SettingKind::Integer { max: u32::MAX }),
    ("skin.colour", REQUIRED_COLOUR),
    ("eyes.colour", REQUIRED_COLOUR),
    ("brows.colour", REQUIRED_COLOUR),
    ("lips.colour", REQUIRED_COLOUR),
    (
        "hair.style",
        SettingKind::Choice {
            choices: &["none", "buzz", "short", "side", "curly", "bob", "long", "bun"],
        },
    ),
    ("hair.dark", REQUIRED_COLOUR),
    ("hair.light", REQUIRED_COLOUR),
    ("headscarf", SettingKind::Colour { optional: true }),
    ("glasses", SettingKind::Choice { choices: &["none", "square", "round", "slim"] }),
    ("frame", REQUIRED_COLOUR),
    ("earrings", SettingKind::Flag),
    ("necklace", SettingKind::Flag),
    (
        "clothes.style",
        SettingKind::Choice { choices: &["crew", "turtleneck", "shirt", "blazer", "suit"] },
    ),
    ("clothes.colour", REQUIRED_COLOUR),
    ("clothes.under", REQUIRED_COLOUR),
    ("clothes.tie", SettingKind::Colour { optional: true }),
    ("background[0]", REQUIRED_COLOUR),
    ("background[1]", REQUIRED_COLOUR),
];

/// Groups of the settings of a [`Character`], in the order of a form. A slider that no group lists
/// belongs to the group with the name of its table.
const GROUPS: &[(&str, &[&str])] = &[
    ("face", &["age", "asymmetry", "seed"]),
    ("skin", &["skin.colour", "skin.blush", "skin.freckles", "skin.stubble"]),
    ("proportions", &[]),
    ("eyes", &["eyes.colour"]),
    ("brows", &["brows.colour"]),
    ("nose", &[]),
    ("lips", &["lips.colour"]),
    ("hair", &["hair.style", "hair.dark", "hair.light", "hair.grey", "beard", "headscarf"]),
    (
        "clothes",
        &[
            "clothes.style",
            "clothes.colour",
            "clothes.under",
            "clothes.tie",
            "glasses",
            "frame",
            "earrings",
            "necklace",
        ],
    ),
    ("background", &["background[0]", "background[1]"]),
];

fn slider_kind<T>(slider: &Slider<T>) -> SettingKind {
    SettingKind::Slider { unit: slider.unit, min: slider.min, max: slider.max }
}

/// A slider's limit as it is written in decimal, to compare numbers of a request with it. The `f32`
/// itself is slightly beside it: 1.6 is 1.60000002384.
#[must_use]
pub fn decimal_value(limit: f32) -> f64 {
    limit.to_string().parse().unwrap_or(f64::from(limit))
}

/// The table of a path: `eyes` of `eyes.size`.
fn table_name(name: &str) -> &str {
    name.split(['.', '[']).next().unwrap_or(name)
}

/// All settings of a [`Character`].
#[must_use]
pub fn character_settings() -> Vec<Setting> {
    let kind = |name: &str| {
        let other = NON_SLIDERS.iter().find(|(other, _)| *other == name).map(|(_, kind)| *kind);
        other.or_else(|| Some(slider_kind::<Character>(SLIDERS.iter().find(|s| s.name == name)?)))
    };
    let mut all: Vec<Setting> = Vec::new();
    for (group, names) in GROUPS {
        let rest = SLIDERS.iter().map(|s| s.name).filter(|name| table_name(name) == *group);
        for name in names.iter().copied().chain(rest) {
            if all.iter().all(|known| known.name != name)
                && let Some(kind) = kind(name)
            {
                all.push(Setting { name, group, kind });
            }
        }
    }
    all
}

/// All settings of a [`Pose`].
#[must_use]
pub fn pose_settings() -> Vec<Setting> {
    let setting = |s: &Slider<Pose>| Setting {
        name: s.name,
        group: if s.name == "smile" { "mouth" } else { s.name.split('.').next().unwrap_or(s.name) },
        kind: slider_kind(s),
    };
    POSE_SLIDERS.iter().map(setting).collect()
}

/// Maximum closure of the lids at rest. Beyond it an avatar looks asleep.
const MAX_REST_LIDS: f32 = 0.4;

/// All settings of an avatar's rest pose ([`super::avatar_spec::AvatarSpec::rest`]): a [`Pose`]
/// with closed mouth and open eyes.
#[must_use]
pub fn rest_settings() -> Vec<Setting> {
    let mut all = pose_settings();
    for setting in &mut all {
        match &mut setting.kind {
            SettingKind::Slider { min, max, .. } if setting.name.starts_with("mouth.") => {
                (*min, *max) = (0.0, 0.0)
            }
            SettingKind::Slider { max, .. } if setting.name == "eyes.lids" => *max = MAX_REST_LIDS,
            _ => {}
        }
    }
    all
}

/// Checks that a pose can be an avatar's rest pose.
///
/// # Errors
/// One sentence that says which field is not permitted.
pub fn check_rest(rest: &Pose) -> Result<(), String> {
    if rest.mouth != Mouth::default() {
        return Err("rest.mouth: the mouth is closed at rest and has no settings".into());
    }
    if rest.eyes.lids > MAX_REST_LIDS {
        return Err(format!(
            "rest.eyes.lids is {}, but the eyes are open at rest: at most {MAX_REST_LIDS}",
            rest.eyes.lids
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use serde_json::{Value, json};

    use super::*;

    /// The paths of all leaves of a value; an absent value counts as a leaf.
    fn leaves(value: &Value, path: &str, found: &mut BTreeSet<String>) {
        match value {
            Value::Object(map) => {
                for (name, value) in map {
                    let path =
                        if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
                    leaves(value, &path, found);
                }
            }
            Value::Array(items) => {
                for (i, item) in items.iter().enumerate() {
                    leaves(item, &format!("{path}[{i}]"), found);
                }
            }
            _ => {
                found.insert(path.to_owned());
            }
        }
    }

    fn all_leaves(of: impl Serialize) -> BTreeSet<String> {
        let mut found = BTreeSet::new();
        leaves(&serde_json::to_value(of).unwrap(), "", &mut found);
        found
    }

    #[test]
    fn everything_that_a_person_has_may_be_set_once() {
        for (settings, leaves) in [
            (character_settings(), all_leaves(Character::default())),
            (pose_settings(), all_leaves(Pose::default())),
        ] {
            let names: BTreeSet<String> = settings.iter().map(|s| s.name.to_owned()).collect();
            assert_eq!(names.len(), settings.len(), "one name twice");
            assert_eq!(names, leaves);
        }
    }

    #[test]
    fn every_choice_is_understood_and_no_other_word() {
        for Setting { name, kind, .. } in character_settings() {
            let SettingKind::Choice { choices } = kind else { continue };
            let with = |word: &str| {
                let mut file = json!({});
                match name.split_once('.') {
                    Some((table, field)) => file[table] = json!({ field: word }),
                    None => file[name] = json!(word),
                }
                serde_json::from_value::<Character>(file)
            };
            for word in choices {
                assert!(with(word).is_ok(), "{name} {word}");
            }
            let error = with("other").unwrap_err().to_string();
            assert!(choices.iter().all(|word| error.contains(&format!("`{word}`"))), "{error}");
            assert_eq!(error.matches('`').count(), choices.len() * 2 + 2, "{error}");
        }
    }

    #[test]
    fn a_form_is_served_with_numbers_as_people_write_them() {
        let text = serde_json::to_string(&character_settings()).unwrap();
        assert!(
            text.contains(r#"{"name":"eyes.size","group":"eyes","kind":"slider","unit":"factor","least":0.8,"most":1.3}"#),
            "{text}"
        );
    }
}
