//! What an avatar is drawn from: a character, or a photo; and what is behind it.

use character::Framing;
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
    /// How much of the person the pictures show. A photo has it already.
    pub framing: Framing,
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
    pub(super) framing: Framing,
}

impl<'a> AvatarSource<'a> {
    pub(super) fn identity(self) -> Identity<'a> {
        let framing = self.framing;
        match self.subject {
            Subject::Character(AvatarSpec { id, name, gender, voice, .. })
            | Subject::Photo(PhotoAvatar { id, name, gender, voice, .. }) => {
                Identity { id, name, gender: *gender, voice, framing }
            }
        }
    }
}

impl<'a> From<&'a AvatarSpec> for AvatarSource<'a> {
    fn from(avatar: &'a AvatarSpec) -> Self {
        Self { subject: Subject::Character(avatar), background: None, framing: Framing::default() }
    }
}

impl<'a> From<&'a PhotoAvatar> for AvatarSource<'a> {
    fn from(avatar: &'a PhotoAvatar) -> Self {
        Self { subject: Subject::Photo(avatar), background: None, framing: avatar.framing }
    }
}
