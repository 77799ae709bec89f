//! What the process that bakes an avatar receives on standard input.

use serde::{Deserialize, Serialize};

use super::avatar_spec::{self, AvatarSpec, Gender};
use super::background::Background;
use super::photo_avatar::PhotoAvatar;
use super::photo_source::{PhotoSource, SourceError};

/// A line of JSON.
#[derive(Serialize, Deserialize)]
pub struct BakeRequest {
    /// What is drawn.
    pub subject: BakeSubject,
    /// What replaces its background.
    #[serde(default)]
    pub background: Option<Background>,
}

/// What is drawn.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BakeSubject {
    /// A drawn character.
    Character(CharacterRequest),
    /// A person on a photo.
    Photo(Box<PhotoRequest>),
}

/// A drawn character.
#[derive(Serialize, Deserialize)]
pub struct CharacterRequest {
    /// `avatar_key_id`.
    pub id: String,
    /// Its file, as [`avatar_spec::to_toml`] writes it.
    pub file: String,
    /// Width and height in pixels of the pose set.
    pub size: [usize; 2],
}

impl CharacterRequest {
    /// The character.
    ///
    /// # Errors
    /// One sentence that says what is invalid.
    pub fn into_avatar(self) -> Result<AvatarSpec, String> {
        avatar_spec::parse(&self.id, &self.file)
    }
}

/// A person on a photo.
#[derive(Serialize, Deserialize)]
pub struct PhotoRequest {
    /// `avatar_key_id`.
    pub id: String,
    /// Display name.
    pub name: String,
    /// `female` or `male`.
    pub gender: Gender,
    /// Name of the avatar's voice.
    pub voice: String,
    /// What it is drawn from.
    pub source: PhotoSource,
}

impl PhotoRequest {
    /// The avatar of the photo.
    ///
    /// # Errors
    /// See [`SourceError`].
    pub fn into_avatar(self) -> Result<PhotoAvatar, SourceError> {
        let (photo, landmarks, mask) = self.source.photo()?;
        let Self { id, name, gender, voice, .. } = self;
        Ok(PhotoAvatar { id, name, gender, voice, photo, landmarks, mask })
    }
}
