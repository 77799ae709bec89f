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
    pub kind: Kind,
}

/// Type of a setting.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Kind {
    /// A number with a unit, as defined by [`character::Slider`], and a range.
    Slider {
        /// Unit of the value.
        unit: &'static str,
        /// Minimum value.
        least: f32,
        /// Maximum value.
        most: f32,
    },
    /// An integer from 0 on.
    Whole {
        /// Maximum value.
        most: u32,
    },
    /// True or false.
    Flag,
    /// A colour, `#rrggbb`.
    Colour {
        /// Whether the colour may be absent.
        optional: bool,
    },
    /// One word of several.
    Choice {
        /// All permitted words.
        choices: &'static [&'static str],
    },
}

const COLOUR: Kind = Kind::Colour { optional: false };

/// The settings of a character that are not sliders.
const OTHERS: &[(&str, Kind)] = &[
    ("seed", Kind::Whole { most: u32::MAX }),
    ("skin.colour", COLOUR),
    ("eyes.colour", COLOUR),
    ("brows.colour", COLOUR),
    ("lips.colour", COLOUR),
    (
        "hair.style",
        Kind::Choice { choices: &["none", "buzz", "short", "side", "curly", "bob", "long", "bun"] },
    ),
    ("hair.dark", COLOUR),
    ("hair.light", COLOUR),
    ("headscarf", Kind::Colour { optional: true }),
    ("glasses", Kind::Choice { choices: &["none", "square", "round", "slim"] }),
    ("frame", COLOUR),
    ("earrings", Kind::Flag),
    ("clothes.style", Kind::Choice { choices: &["crew", "turtleneck", "shirt", "blazer", "suit"] }),
    ("clothes.colour", COLOUR),
    ("clothes.under", COLOUR),
    ("background[0]", COLOUR),
    ("background[1]", COLOUR),
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
    ("clothes", &["clothes.style", "clothes.colour", "clothes.under", "glasses", "frame", "earrings"]),
    ("background", &["background[0]", "background[1]"]),
];

fn slider<T>(slider: &Slider<T>) -> Kind {
    Kind::Slider { unit: slider.unit, least: slider.least, most: slider.most }
}

/// The table of a path: `eyes` of `eyes.size`.
fn table(name: &str) -> &str {
    name.split(['.', '[']).next().unwrap_or(name)
}

/// All settings of a [`Character`].
#[must_use]
pub fn of_character() -> Vec<Setting> {
    let kind = |name: &str| {
        let other = OTHERS.iter().find(|(other, _)| *other == name).map(|(_, kind)| *kind);
        other.or_else(|| Some(slider::<Character>(SLIDERS.iter().find(|s| s.name == name)?)))
    };
    let mut all: Vec<Setting> = Vec::new();
    for (group, names) in GROUPS {
        let rest = SLIDERS.iter().map(|s| s.name).filter(|name| table(name) == *group);
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
pub fn of_pose() -> Vec<Setting> {
    let setting = |s: &Slider<Pose>| Setting {
        name: s.name,
        group: if s.name == "smile" { "mouth" } else { s.name.split('.').next().unwrap_or(s.name) },
        kind: slider(s),
    };
    POSE_SLIDERS.iter().map(setting).collect()
}

/// Maximum closure of the lids at rest. Beyond it an avatar looks asleep.
const LIDS: f32 = 0.4;

/// All settings of an avatar's rest pose ([`super::avatar_spec::AvatarSpec::rest`]): a [`Pose`]
/// with closed mouth and open eyes.
#[must_use]
pub fn of_rest() -> Vec<Setting> {
    let mut all = of_pose();
    for setting in &mut all {
        match &mut setting.kind {
            Kind::Slider { least, most, .. } if setting.name.starts_with("mouth.") => {
                (*least, *most) = (0.0, 0.0)
            }
            Kind::Slider { most, .. } if setting.name == "eyes.lids" => *most = LIDS,
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
        return Err("rest.mouth: the mouth is closed at rest, and nothing of it can be set".into());
    }
    if rest.eyes.lids > LIDS {
        return Err(format!(
            "rest.eyes.lids is {}, but the eyes are open at rest: at most {LIDS}",
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
                    let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
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
        for (settings, leaves) in
            [(of_character(), all_leaves(Character::default())), (of_pose(), all_leaves(Pose::default()))]
        {
            let names: BTreeSet<String> = settings.iter().map(|s| s.name.to_owned()).collect();
            assert_eq!(names.len(), settings.len(), "one name twice");
            assert_eq!(names, leaves);
        }
    }

    #[test]
    fn every_choice_is_understood_and_no_other_word() {
        for Setting { name, kind, .. } in of_character() {
            let Kind::Choice { choices } = kind else { continue };
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
            let told = with("other").unwrap_err().to_string();
            assert!(choices.iter().all(|word| told.contains(&format!("`{word}`"))), "{told}");
            assert_eq!(told.matches('`').count(), choices.len() * 2 + 2, "{told}");
        }
    }

    #[test]
    fn a_form_is_served_with_numbers_as_people_write_them() {
        let told = serde_json::to_string(&of_character()).unwrap();
        assert!(
            told.contains(r#"{"name":"eyes.size","group":"eyes","kind":"slider","unit":"factor","least":0.8,"most":1.3}"#),
            "{told}"
        );
    }
}
