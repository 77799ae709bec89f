//! What an avatar is drawn from: a character, or a photo; and what is behind it.

use serde::Serialize;

use super::avatar_spec::AvatarSpec;
use super::background::Background;
use super::photo_avatar::PhotoAvatar;

/// An avatar to draw.
#[derive(Clone, Copy)]
pub struct AvatarSource<'a> {
    /// The person.
    pub subject: Subject<'a>,
    /// What replaces the background of the character or the photo.
    pub background: Option<&'a Background>,
}

/// What an avatar is drawn from.
#[derive(Clone, Copy)]
pub enum Subject<'a> {
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

impl<'a> Subject<'a> {
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
        Self { subject: Subject::Character(avatar), background: None }
    }
}

impl<'a> From<&'a PhotoAvatar> for AvatarSource<'a> {
    fn from(avatar: &'a PhotoAvatar) -> Self {
        Self { subject: Subject::Photo(avatar), background: None }
    }
}
