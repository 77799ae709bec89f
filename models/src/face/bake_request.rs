//! What the process that bakes an avatar receives on standard input.

use character::Framing;
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
    /// How much of the character the pictures show.
    #[serde(default)]
    pub framing: Framing,
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
    /// Width and height in pixels of the pose set; `None`: those of the source.
    #[serde(default)]
    pub size: Option<[usize; 2]>,
    /// How much of the person the pictures show.
    #[serde(default)]
    pub framing: Framing,
}

impl PhotoRequest {
    /// Width and height in pixels of the pose set.
    #[must_use]
    pub fn pixels(&self) -> [usize; 2] {
        self.size.unwrap_or_else(|| self.source.size().into())
    }

    /// The avatar of the photo.
    ///
    /// # Errors
    /// See [`SourceError`].
    pub fn into_avatar(self) -> Result<PhotoAvatar, SourceError> {
        let size = self.pixels();
        let Self { id, name, gender, voice, source, framing, .. } = self;
        let (photo, landmarks, mask) = source.with_size(size)?.photo(framing)?;
        Ok(PhotoAvatar { id, name, gender, voice, photo, framing, landmarks, mask })
    }
}
