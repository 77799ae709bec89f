//! What an avatar is drawn from: a character, or a photo.

use serde::Serialize;

use super::avatar_spec::AvatarSpec;
use super::photo_avatar::PhotoAvatar;

/// What an avatar is drawn from.
#[derive(Clone, Copy)]
pub enum AvatarSource<'a> {
    /// A drawn character.
    Character(&'a AvatarSpec),
    /// A photo with its landmarks.
    Photo(&'a PhotoAvatar),
}

/// What a pose set says of its avatar.
#[derive(Clone, Copy, Serialize)]
pub(super) struct Identity<'a> {
    pub(super) id: &'a str,
    pub(super) name: &'a str,
    pub(super) gender: super::avatar_spec::Gender,
    pub(super) voice: &'a str,
}

impl<'a> AvatarSource<'a> {
    pub(super) fn identity(self) -> Identity<'a> {
        match self {
            Self::Character(AvatarSpec { id, name, gender, voice, .. })
            | Self::Photo(PhotoAvatar { id, name, gender, voice, .. }) => {
                Identity { id, name, gender: *gender, voice }
            }
        }
    }
}

impl<'a> From<&'a AvatarSpec> for AvatarSource<'a> {
    fn from(avatar: &'a AvatarSpec) -> Self {
        Self::Character(avatar)
    }
}

impl<'a> From<&'a PhotoAvatar> for AvatarSource<'a> {
    fn from(avatar: &'a PhotoAvatar) -> Self {
        Self::Photo(avatar)
    }
}
