//! Renders the poses of a person from one photo.
//!
//! Skin moves by smooth displacement fields; what the photo does not show (the inside of the mouth,
//! closed lids, the white under the iris) is drawn in its light. Pure: no file, clock, randomness
//! or neural network; the output bits do not depend on the number of threads.
//!
//! ```text
//! Photo, Landmarks ─► PhotoRenderer   lip line, light, eyeballs
//! Pose ─► head turns ─► lids, gaze, brows ─► two sheets of skin ─► inside of the mouth ─► RGB
//! ```

mod brow;
mod carry;
mod cavity;
mod curve;
mod eyeball;
mod face;
mod geometry;
mod image;
mod iris;
mod landmarks;
mod lids;
mod light;
mod lip_line;
mod lips;
mod outline;
mod renderer;
mod skin;
mod turn;

pub use carry::{Change, TurnedRect};
pub use landmarks::{
    EyePoints, FacePoints, Landmarks, MESH_POINTS, MouthPoints, NosePoints, Point,
};
pub use renderer::{FaceBounds, PhotoRenderer};

/// Changes with the renderer's source: pictures of different versions may differ.
pub const VERSION: &str = env!("PHOTO_VERSION");

/// A levelled photo of one person: the eyes lie on a horizontal line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Photo {
    /// Width in pixels.
    pub width: usize,
    /// Height in pixels.
    pub height: usize,
    /// Red, green and blue of each pixel, row by row, sRGB.
    pub rgb: Vec<u8>,
}

/// Why a photo cannot be drawn.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum Error {
    /// A side is too short or too long.
    #[error("the photo has {width}×{height} pixels, but each side must have from 64 to 2048")]
    Size {
        /// Width in pixels.
        width: usize,
        /// Height in pixels.
        height: usize,
    },
    /// The pixels do not fill the photo.
    #[error("the photo has {length} bytes, but {width}×{height} pixels take three bytes each")]
    Length {
        /// Number of bytes.
        length: usize,
        /// Width in pixels.
        width: usize,
        /// Height in pixels.
        height: usize,
    },
    /// The mesh has another number of points.
    #[error("there are {0} landmarks, but a face mesh has {MESH_POINTS}")]
    Count(usize),
    /// A landmark lies outside of the photo, or is no number.
    #[error("the landmark {point:?} lies outside of the photo")]
    Outside {
        /// The landmark.
        point: Point,
    },
    /// No face has such proportions.
    #[error("the landmarks are not those of a face: {0}")]
    Implausible(&'static str),
}
