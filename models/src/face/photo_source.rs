//! What is kept of an uploaded photo: the upright crop that an avatar is drawn from.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use character::Framing;
use landmarks::{CropShape, DecodeLimits, MASK_SIDE, POINTS, Picture, Point, Points, Segmenter};
use photo::{Landmarks, Photo};
use serde::{Deserialize, Serialize};

use super::matte;

/// The crop of a photo with its landmarks: head and shoulders. A person can be recognized in it.
#[derive(Clone, Serialize, Deserialize)]
pub struct PhotoSource {
    /// Width and height in pixels of the pose set that is drawn from it.
    size: [usize; 2],
    /// PNG file in base64. At most [`landmarks::MAX_SOURCE_SIDE`] pixels on the longer side.
    png: String,
    /// The points of the face mesh, as fractions of the crop.
    landmarks: Vec<[f32; 2]>,
    /// PNG file in base64: how likely each place of the crop shows the person, 0 … 255. Absent if
    /// the network that finds it was not installed.
    #[serde(default)]
    mask: Option<String>,
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
    /// The crop around the face of a photo, with the pixels that the photo has. `segmenter` finds
    /// the person in it.
    ///
    /// # Errors
    /// The crop cannot be encoded.
    pub fn new(
        picture: &Picture,
        points: &Points,
        size: [usize; 2],
        segmenter: Option<&Segmenter>,
    ) -> Result<Self, SourceError> {
        let (crop, points) =
            landmarks::level(picture, points, landmarks::source_size(picture, points, size));
        let png = STANDARD.encode(landmarks::encode_png(&crop)?);
        let sides = [crop.width() as f32, crop.height() as f32];
        let landmarks = points.iter().map(|[x, y]| [x / sides[0], y / sides[1]]).collect();
        let mask = segmenter.and_then(|segmenter| mask_picture(&segmenter.mask(&crop)));
        let mask = mask.map(|mask| landmarks::encode_png(&mask)).transpose()?;
        Ok(Self { size, png, landmarks, mask: mask.map(|file| STANDARD.encode(file)) })
    }

    /// The same person for a pose set of another size: the part of the crop that has its shape. What
    /// lies outside the crop has the blurred colours of its edge.
    ///
    /// # Errors
    /// See [`SourceError`].
    pub fn with_size(self, size: [usize; 2]) -> Result<Self, SourceError> {
        if size == self.size {
            return Ok(self);
        }
        let decode = |png: &str| {
            let file = STANDARD.decode(png).unwrap_or_default();
            landmarks::decode(&file, DecodeLimits::default())
        };
        let crop = decode(&self.png)?;
        let sides = [crop.width() as f32, crop.height() as f32];
        let points: Vec<Point> =
            self.landmarks.iter().map(|[x, y]| [x * sides[0], y * sides[1]]).collect();
        let points: Points =
            points.try_into().map_err(|all: Vec<Point>| SourceError::Landmarks(all.len()))?;
        let shape = landmarks::source_size(&crop, &points, size);
        let (picture, moved) = landmarks::level(&crop, &points, shape);
        let mask = self.mask.map(|png| {
            // In the size of the crop, so that both are cut alike.
            let mask = landmarks::resize(&decode(&png)?, [crop.width(), crop.height()]);
            let (mask, _) = landmarks::level(&mask, &points, shape);
            Ok::<_, SourceError>(STANDARD.encode(landmarks::encode_png(&mask)?))
        });
        let landmarks = moved.iter().map(|[x, y]| [x / shape[0] as f32, y / shape[1] as f32]);
        Ok(Self {
            size,
            png: STANDARD.encode(landmarks::encode_png(&picture)?),
            landmarks: landmarks.collect(),
            mask: mask.transpose()?,
        })
    }

    /// Whether the background can be replaced.
    #[must_use]
    pub fn has_mask(&self) -> bool {
        self.mask.is_some()
    }

    /// Width and height in pixels of the pose set that is drawn from it.
    #[must_use]
    pub fn size(&self) -> (usize, usize) {
        (self.size[0], self.size[1])
    }

    /// The photo in the size of the pose set, its landmarks in pixels, and the share of the person
    /// in each pixel, 0 … 1. A close framing crops it further.
    ///
    /// # Errors
    /// See [`SourceError`].
    pub fn photo(
        &self,
        framing: Framing,
    ) -> Result<(Photo, Landmarks, Option<Vec<f32>>), SourceError> {
        let file = STANDARD.decode(&self.png).unwrap_or_default();
        let crop = landmarks::decode(&file, DecodeLimits::default())?;
        if self.landmarks.len() != POINTS {
            return Err(SourceError::Landmarks(self.landmarks.len()));
        }
        let (width, height) = (crop.width(), crop.height());
        let points: &Points = &core::array::from_fn(|i| {
            let [x, y] = self.landmarks[i];
            [x * width as f32, y * height as f32]
        });
        let framed = |part: &Picture| match framing {
            Framing::Close => landmarks::level(part, points, CropShape::close(self.size)).0,
            // The crop has the shape of the pose set, except for a part of a pixel.
            Framing::Bust => landmarks::resize(part, self.size),
        };
        let picture = framed(&crop);
        let points = match framing {
            Framing::Close => {
                landmarks::level(&crop, points, CropShape::close(self.size)).1.to_vec()
            }
            Framing::Bust => {
                let sides = self.size.map(|side| side as f32);
                self.landmarks.iter().map(|[x, y]| [x * sides[0], y * sides[1]]).collect()
            }
        };
        let mask = self.mask.as_ref().map(|png| {
            let file = STANDARD.decode(png).unwrap_or_default();
            let mask = landmarks::decode(&file, DecodeLimits::default())?;
            let rough = framed(&landmarks::resize(&mask, [width, height]));
            Ok::<_, SourceError>(matte::refine(&rough, &picture))
        });
        let mask = mask.transpose()?;
        let photo =
            Photo { width: picture.width(), height: picture.height(), rgb: picture.rgb().to_vec() };
        Ok((photo, Landmarks::Mesh(points), mask))
    }
}

/// The output of the network as a grey picture. `None` if it has another size.
fn mask_picture(mask: &[f32]) -> Option<Picture> {
    let grey = |share: &f32| [(share.clamp(0.0, 1.0) * 255.0 + 0.5) as u8; 3];
    Picture::new(MASK_SIDE, MASK_SIDE, mask.iter().flat_map(grey).collect())
}
