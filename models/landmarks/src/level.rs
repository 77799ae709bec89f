//! The upright crop of a photo that an avatar is drawn from.

use crate::detect::distance;
use crate::picture::{Border, Frame, Picture, Point, Pyramid};
use crate::points::index::{CHIN, FOREHEAD};
use crate::points::{Points, eye_line};

/// Height of the face, from the forehead to the chin, as a share of the height of a crop with head
/// and shoulders, where the photo is large enough. The middle between these points is then the
/// middle of the crop.
pub const FACE_HEIGHT: f32 = 0.44;
/// The same of a crop with head and collar.
pub const CLOSE_FACE_HEIGHT: f32 = 0.55;
/// The same at most, in a photo that ends close to the face.
const MAX_FACE_HEIGHT: f32 = 0.64;
/// How far the middle of the face is from the middle of the crop at most, as a share of its side.
const MAX_SHIFT: f32 = 0.14;
/// A larger share of a crop outside the photo is worth a warning.
const NOTICED_OUTSIDE: f32 = 0.02;
/// Maximum side in pixels of the crop that is kept to draw from.
pub const MAX_SOURCE_SIDE: usize = 1024;

/// Size of a crop, and of the face in it. A size alone stands for head and shoulders.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CropShape {
    /// Width and height in pixels.
    pub size: [usize; 2],
    /// Height of the face as a share of the height: [`FACE_HEIGHT`] or [`CLOSE_FACE_HEIGHT`].
    pub face_height: f32,
}

impl CropShape {
    /// Head and collar.
    #[must_use]
    pub fn close(size: [usize; 2]) -> Self {
        Self { size, face_height: CLOSE_FACE_HEIGHT }
    }
}

impl From<[usize; 2]> for CropShape {
    fn from(size: [usize; 2]) -> Self {
        Self { size, face_height: FACE_HEIGHT }
    }
}

/// Turns the face upright and crops it to this shape; the points move along. What lies outside the
/// photo has the blurred colours of its edge.
///
/// # Panics
/// If a side is 0.
#[must_use]
pub fn level(picture: &Picture, points: &Points, shape: impl Into<CropShape>) -> (Picture, Points) {
    let shape = shape.into();
    let size = shape.size;
    let frame = frame(picture, points, shape);
    let crop = sample(picture, frame, size);
    let moved = points.map(|point| {
        let [x, y] = frame.fractions_of(point);
        [x * size[0] as f32, y * size[1] as f32]
    });
    (crop, moved)
}

/// The whole picture in another size. Its shape may change.
///
/// # Panics
/// If a side is 0.
#[must_use]
pub fn resize(picture: &Picture, size: [usize; 2]) -> Picture {
    let sides = [picture.width() as f32, picture.height() as f32];
    sample(picture, Frame { centre: sides.map(|side| side / 2.0), size: sides, turn: 0.0 }, size)
}

/// The middle of the picture in another size. What does not fit into that shape is cut off.
///
/// # Panics
/// If a side is 0.
#[must_use]
pub fn cover(picture: &Picture, size: [usize; 2]) -> Picture {
    let sides = [picture.width() as f32, picture.height() as f32];
    let scale = (sides[0] / size[0] as f32).min(sides[1] / size[1] as f32);
    let shown = size.map(|side| side as f32 * scale);
    sample(picture, Frame { centre: sides.map(|side| side / 2.0), size: shown, turn: 0.0 }, size)
}

fn sample(picture: &Picture, frame: Frame, size: [usize; 2]) -> Picture {
    assert!(size[0] > 0 && size[1] > 0, "a crop has pixels");
    let mut rgb = Vec::with_capacity(size[0] * size[1] * 3);
    Pyramid::new(picture).sample(frame, size, Border::Blurred, |colour| {
        rgb.extend(colour.map(|value| (value + 0.5).clamp(0.0, 255.0) as u8));
    });
    #[expect(clippy::expect_used, reason = "the sampler gives each pixel once")]
    Picture::new(size[0], size[1], rgb).expect("a crop has all its pixels")
}

/// Size of the crop to keep of a photo whose avatar is drawn in `size`: of the same shape, with the
/// pixels of the photo, at most [`MAX_SOURCE_SIDE`] on the longer side.
#[must_use]
pub fn source_size(picture: &Picture, points: &Points, size: [usize; 2]) -> [usize; 2] {
    let frame = frame(picture, points, size.into());
    let longer = frame.size[0].max(frame.size[1]);
    let scale = (MAX_SOURCE_SIDE as f32 / longer).min(1.0);
    // Even, because video has half the resolution of colour.
    frame.size.map(|length| ((length * scale / 2.0).round() as usize * 2).clamp(2, MAX_SOURCE_SIDE))
}

/// Whether a noticeable part of a crop of this shape lies outside the photo.
#[must_use]
pub fn exceeds_photo(picture: &Picture, points: &Points, shape: impl Into<CropShape>) -> bool {
    /// Samples in a row and in a column.
    const COUNT: usize = 64;
    let frame = frame(picture, points, shape.into());
    let at = |i: usize| (i as f32 + 0.5) / COUNT as f32;
    let places = (0..COUNT).flat_map(|y| (0..COUNT).map(move |x| [at(x), at(y)]));
    let outside = places.filter(|place| !picture.contains(frame.to_picture(*place))).count();
    outside as f32 > NOTICED_OUTSIDE * (COUNT * COUNT) as f32
}

/// The region of a photo that a crop of this shape shows. Where the photo ends close to the face,
/// the region is smaller and moves, so that it lies in the photo if possible.
pub(crate) fn frame(picture: &Picture, points: &Points, shape: CropShape) -> Frame {
    let CropShape { size: [width, height], face_height } = shape;
    let (top, chin) = (points[FOREHEAD], points[CHIN]);
    let (face, aspect) = (distance(top, chin), width as f32 / height as f32);
    let middle = [(top[0] + chin[0]) / 2.0, (top[1] + chin[1]) / 2.0];
    let turn = eye_line(|i| points[i]);
    let (sin, cos) = turn.sin_cos();
    let reach = |toward| distance_to_edge(picture, middle, toward);
    let across = [reach([-cos, -sin]), reach([cos, sin])];
    let down = [reach([sin, -cos]), reach([-sin, cos])];
    let smallest = face / MAX_FACE_HEIGHT;
    let mut shown = face / face_height;
    let within = largest_within(across) / aspect;
    // In a wide crop of a narrow photo, a part lies outside in any case.
    if within >= smallest {
        shown = shown.min(within);
    }
    let shown = shown.min(largest_within(down).max(smallest)).max(1.0);
    let (u, v) = (shift_within(across, shown * aspect), shift_within(down, shown));
    Frame {
        centre: [middle[0] + u * cos - v * sin, middle[1] + u * sin + v * cos],
        size: [shown * aspect, shown],
        turn,
    }
}

/// The longest side that fits between two edges at these distances from the middle of the face, if
/// it moves by at most [`MAX_SHIFT`].
fn largest_within([before, after]: [f32; 2]) -> f32 {
    (before + after).min(before.min(after) / (0.5 - MAX_SHIFT))
}

/// How far a side of this length moves to lie between two edges at these distances from its middle.
fn shift_within([before, after]: [f32; 2], length: f32) -> f32 {
    let (minimum, maximum) = (length / 2.0 - before, after - length / 2.0);
    let shift = if minimum <= maximum {
        0.0_f32.clamp(minimum, maximum)
    } else {
        (minimum + maximum) / 2.0
    };
    shift.clamp(-MAX_SHIFT * length, MAX_SHIFT * length)
}

/// Distance from a point of the picture to its edge in a direction of length 1.
fn distance_to_edge(picture: &Picture, [x, y]: Point, [dx, dy]: Point) -> f32 {
    let along = |at: f32, step: f32, side: usize| match step {
        step if step > 1e-6 => (side as f32 - at) / step,
        step if step < -1e-6 => at / -step,
        _ => f32::INFINITY,
    };
    along(x, dx, picture.width()).min(along(y, dy, picture.height())).max(0.0)
}
