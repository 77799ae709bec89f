//! The avatars of this project: appearance, name and voice. Each is a file in `assets/people`;
//! further files can be written by hand.

use character::{Character, Pose};
use serde::{Deserialize, Serialize};

use super::character_schema;
use crate::tts;

/// Specification of an avatar: its character, rest pose and voice.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AvatarSpec {
    /// `avatar_key_id`: the file's name.
    #[serde(skip_deserializing)]
    pub id: String,
    /// Display name.
    pub name: String,
    /// `female` or `male`.
    pub gender: Gender,
    /// The built-in voice that suits the avatar.
    pub voice: String,
    /// The rest pose, to which all other poses are relative: friendly, mouth closed, eyes on the
    /// user.
    #[serde(default)]
    pub rest: Pose,
    /// Appearance.
    pub character: Character,
}

/// Gender, as the control plane serializes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Gender {
    /// Female.
    Female,
    /// Male.
    Male,
}

impl Gender {
    /// The serialized word.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Female => "female",
            Self::Male => "male",
        }
    }
}

/// The files by id.
const AVATAR_FILES: &[(&str, &str)] = &[
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

/// Parses an avatar's file. `id` is the file's name without its extension.
///
/// # Errors
/// One sentence that says what is not TOML, missing, unknown or out of range, and where.
pub fn parse(id: &str, file: &str) -> Result<AvatarSpec, String> {
    let fits = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    if id.is_empty() || id.len() > 64 || !id.chars().all(fits) {
        return Err(format!("the name {id:?} must have 1 to 64 letters, digits, - or _"));
    }
    let avatar: AvatarSpec = toml::from_str(file).map_err(|error| {
        let line = error
            .span()
            .map_or(1, |span| file[..span.start.min(file.len())].lines().count().max(1));
        format!("line {line}: {}", error.message().replace('\n', " "))
    })?;
    if avatar.name.trim().is_empty() {
        return Err("the name is empty".into());
    }
    tts::check_builtin_voice(&avatar.voice)
        .map_err(|why| format!("voice: {:?} is not built in: it {why}", avatar.voice))?;
    character_schema::check_rest(&avatar.rest)?;
    Ok(AvatarSpec { id: id.into(), ..avatar })
}

/// The avatar as a file that [`parse`] reads. The id is not in it; it is the file's name.
///
/// # Panics
/// Never: an avatar is plain data.
#[must_use]
#[expect(clippy::expect_used, reason = "plain data serializes")]
pub fn to_toml(avatar: &AvatarSpec) -> String {
    let mut table = toml::Table::try_from(avatar).expect("an avatar serializes to TOML");
    table.remove("id");
    table.to_string()
}

/// Ids of all avatars of the project.
pub fn ids() -> impl Iterator<Item = &'static str> {
    AVATAR_FILES.iter().map(|(id, _)| *id)
}

/// The avatar with this id.
///
/// # Panics
/// If a file of this project is invalid, which a test excludes.
#[must_use]
#[expect(clippy::expect_used, reason = "the built-in character files are valid")]
pub fn find(id: &str) -> Option<AvatarSpec> {
    let (id, file) = AVATAR_FILES.iter().find(|(name, _)| *name == id)?;
    Some(parse(id, file).expect("the built-in character files are valid"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_avatar_is_written_and_read_back() {
        for avatar in ids().filter_map(find) {
            assert_eq!(parse(&avatar.id, &to_toml(&avatar)), Ok(avatar));
        }
        let odd = AvatarSpec { name: "\"Zo\u{eb}\"\n[rest]".into(), ..find("amina").unwrap() };
        assert_eq!(parse(&odd.id, &to_toml(&odd)), Ok(odd));
    }

    #[test]
    fn an_unknown_voice_is_reported_by_name() {
        let mute = AvatarSpec { voice: "nobody".into(), ..find("amina").unwrap() };
        let why = parse(&mute.id, &to_toml(&mute)).unwrap_err();
        assert!(why.starts_with("voice: \"nobody\"") && why.contains("slt, rms"), "{why}");
    }
}
