//! What is kept of an uploaded photo: the upright crop that an avatar is drawn from.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use landmarks::{DecodeLimits, POINTS, Picture, Points};
use photo::{Landmarks, Photo};
use serde::{Deserialize, Serialize};

use super::avatar_spec::Gender;
use super::photo_avatar::PhotoAvatar;

/// The crop of a photo with its landmarks. A person can be recognized in it.
#[derive(Clone, Serialize, Deserialize)]
pub struct PhotoSource {
    /// Width and height in pixels of the pose set that is drawn from it.
    size: [usize; 2],
    /// PNG file in base64. At most [`landmarks::MAX_SOURCE_SIDE`] pixels on the longer side.
    png: String,
    /// The points of the face mesh, as fractions of the crop.
    landmarks: Vec<[f32; 2]>,
}

/// A stored source cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SourceError {
    /// The picture is damaged.
    #[error("the stored photo cannot be decoded: {0}")]
    Picture(#[from] landmarks::DecodeError),
    /// The number of landmarks is wrong.
    #[error("the stored photo has {0} landmarks instead of {POINTS}")]
    Landmarks(usize),
}

impl PhotoSource {
    /// The crop around the face of a photo, with the pixels that the photo has.
    ///
    /// # Errors
    /// The crop cannot be encoded.
    pub fn new(picture: &Picture, points: &Points, size: [usize; 2]) -> Result<Self, SourceError> {
        let (crop, points) =
            landmarks::level(picture, points, landmarks::source_size(points, size));
        let png = STANDARD.encode(landmarks::encode_png(&crop)?);
        let sides = [crop.width() as f32, crop.height() as f32];
        let landmarks = points.iter().map(|[x, y]| [x / sides[0], y / sides[1]]).collect();
        Ok(Self { size, png, landmarks })
    }

    /// Width and height in pixels of the pose set that is drawn from it.
    #[must_use]
    pub fn size(&self) -> (usize, usize) {
        (self.size[0], self.size[1])
    }

    /// The photo in the size of the pose set, and its landmarks in pixels.
    ///
    /// # Errors
    /// See [`SourceError`].
    pub fn photo(&self) -> Result<(Photo, Landmarks), SourceError> {
        let file = STANDARD.decode(&self.png).unwrap_or_default();
        let crop = landmarks::decode(&file, DecodeLimits::default())?;
        let sides = [crop.width() as f32, crop.height() as f32];
        let points: Points = self
            .landmarks
            .iter()
            .map(|[x, y]| [x * sides[0], y * sides[1]])
            .collect::<Vec<_>>()
            .try_into()
            .map_err(|points: Vec<_>| SourceError::Landmarks(points.len()))?;
        let (picture, points) = landmarks::level(&crop, &points, self.size);
        let photo =
            Photo { width: picture.width(), height: picture.height(), rgb: picture.rgb().to_vec() };
        Ok((photo, Landmarks::Mesh(points.to_vec())))
    }
}

/// What the process that bakes an avatar receives.
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
        let (photo, landmarks) = self.source.photo()?;
        let Self { id, name, gender, voice, .. } = self;
        Ok(PhotoAvatar { id, name, gender, voice, photo, landmarks })
    }
}
