//! The people of this project: how each looks, is called and sounds. Each is a file of `assets/people`; anybody can write another.

use character::{Character, Pose};
use serde::{Deserialize, Serialize};

use super::form;
use crate::tts;

/// A person and how it holds itself.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Person {
    /// `avatar_key_id`: the file's name.
    #[serde(skip_deserializing)]
    pub id: String,
    /// The name.
    pub name: String,
    /// `female` or `male`.
    pub gender: Gender,
    /// The built-in voice that suits.
    pub voice: String,
    /// The face at rest, to which all other poses are relative: friendly, mouth closed, looking at the user.
    #[serde(default)]
    pub rest: Pose,
    /// The looks.
    pub character: Character,
}

/// As the control plane tells it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Gender {
    /// A woman.
    Female,
    /// A man.
    Male,
}

impl Gender {
    /// Its word.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Female => "female",
            Self::Male => "male",
        }
    }
}

/// The files.
const FILES: &[(&str, &str)] = &[
    ("theo", include_str!("../../../assets/people/theo.toml")),
    ("clara", include_str!("../../../assets/people/clara.toml")),
    ("martin", include_str!("../../../assets/people/martin.toml")),
    ("amina", include_str!("../../../assets/people/amina.toml")),
    ("raj", include_str!("../../../assets/people/raj.toml")),
    ("mei", include_str!("../../../assets/people/mei.toml")),
    ("ingrid", include_str!("../../../assets/people/ingrid.toml")),
    ("nia", include_str!("../../../assets/people/nia.toml")),
    ("leo", include_str!("../../../assets/people/leo.toml")),
];

/// Reads a person's file, whose name without its ending is `id`.
///
/// # Errors
/// In one sentence: what is no TOML, missing, unknown or out of range, and where.
pub fn parse(id: &str, file: &str) -> Result<Person, String> {
    let fits = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    if id.is_empty() || id.len() > 64 || !id.chars().all(fits) {
        return Err(format!("the name {id:?} is not made of 1 to 64 letters, digits, - and _"));
    }
    let person: Person = toml::from_str(file).map_err(|error| {
        let line = error.span().map_or(1, |span| file[..span.start.min(file.len())].lines().count().max(1));
        format!("line {line}: {}", error.message().replace('\n', " "))
    })?;
    if person.name.trim().is_empty() {
        return Err("the name is empty".into());
    }
    if let (_, Some(_)) = tts::resolve(&person.voice) {
        let known = tts::Voice::ALL.map(tts::Voice::name).join(", ");
        return Err(format!("voice: {:?} is not built in; there are {known}", person.voice));
    }
    form::check_rest(&person.rest)?;
    Ok(Person { id: id.into(), ..person })
}

/// The person as a file that [`parse`] reads. Its id is not in it: that is the file's name.
///
/// # Panics
/// Never: a person is plain data.
#[must_use]
pub fn to_file(person: &Person) -> String {
    let mut table = toml::Table::try_from(person).expect("plain data is TOML");
    table.remove("id");
    table.to_string()
}

/// The names of all.
pub fn names() -> impl Iterator<Item = &'static str> {
    FILES.iter().map(|(id, _)| *id)
}

/// The person with this id.
///
/// # Panics
/// If a file of this project is wrong, which a test excludes.
#[must_use]
pub fn find(id: &str) -> Option<Person> {
    let (id, file) = FILES.iter().find(|(name, _)| *name == id)?;
    Some(parse(id, file).expect("files of the project are right"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everybody_survives_his_file() {
        for person in names().filter_map(find) {
            assert_eq!(parse(&person.id, &to_file(&person)), Ok(person));
        }
        let odd = Person { name: "\"Zo\u{eb}\"\n[rest]".into(), ..find("amina").unwrap() };
        assert_eq!(parse(&odd.id, &to_file(&odd)), Ok(odd));
    }

    #[test]
    fn a_voice_that_nobody_has_is_named() {
        let mute = Person { voice: "nobody".into(), ..find("amina").unwrap() };
        let why = parse(&mute.id, &to_file(&mute)).unwrap_err();
        assert!(why.starts_with("voice: \"nobody\"") && why.contains("slt, rms"), "{why}");
    }
}
