//! From an uploaded picture to the landmarks of its face, and to the upright crop that an avatar is
//! drawn from.
//!
//! Pure: no clock, thread or external randomness; the same file gives the same bits. Only
//! [`Networks::load`] and [`Segmenter::load`] read files.
//!
//! ```text
//! bytes ─► decode ─► Picture ─► find ─► Found      478 points, or why it is refused
//!                    Landmarks (set by a person) ─► check
//!                                        └─► level   the upright crop with its points
//! ```

mod appearance;
mod average_face;
mod checks;
mod decode;
mod detect;
mod find;
mod input;
mod level;
mod mask;
mod networks;
mod open_lips;
mod picture;
mod points;
pub mod tflite;
mod thresholds;

pub use checks::{Part, Refusal, Warning};
pub use decode::{DecodeError, DecodeLimits, decode, encode_png};
pub use find::{Found, check, check_named, find};
pub use input::{EyeOutline, InvalidLandmarks, Landmarks, MouthOutline, NoseOutline, Outline};
pub use level::{
    CLOSE_FACE_HEIGHT, CropShape, FACE_HEIGHT, MAX_SOURCE_SIDE, cover, exceeds_photo, level,
    resize, source_size,
};
pub use mask::{MASK_FILE, MASK_SIDE, Segmenter};
pub use networks::{DETECTOR_FILE, IRIS_FILE, MESH_FILE, Networks};
pub use picture::{Picture, Point};
pub use points::{POINTS, Points, index};
