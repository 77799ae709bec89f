//! The upright crop of a photo that an avatar is drawn from.

use crate::detect::distance;
use crate::picture::{Border, Frame, Picture, Pyramid};
use crate::points::index::{CHIN, FOREHEAD};
use crate::points::{Points, eye_line};

/// Height of the face, from the forehead to the chin, as a share of the crop's height. The middle
/// between these points is the middle of the crop.
pub const FACE_HEIGHT: f32 = 0.44;
/// Maximum side in pixels of the crop that is kept to draw from.
pub const MAX_SOURCE_SIDE: usize = 1024;

/// Turns the face upright and crops it to `[width, height]` pixels; the points move along. What lies
/// outside the photo has the colour of its edge.
///
/// # Panics
/// If a side is 0.
#[must_use]
pub fn level(picture: &Picture, points: &Points, size: [usize; 2]) -> (Picture, Points) {
    let frame = frame(points, size);
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
    Pyramid::new(picture).sample(frame, size, Border::Nearest, |colour| {
        rgb.extend(colour.map(|value| (value + 0.5).clamp(0.0, 255.0) as u8));
    });
    #[expect(clippy::expect_used, reason = "the sampler gives each pixel once")]
    Picture::new(size[0], size[1], rgb).expect("a crop has all its pixels")
}

/// Size of the crop to keep of a photo whose avatar is drawn in `size`: of the same shape, with the
/// pixels of the photo, at most [`MAX_SOURCE_SIDE`] on the longer side.
#[must_use]
pub fn source_size(points: &Points, size: [usize; 2]) -> [usize; 2] {
    let frame = frame(points, size);
    let longer = frame.size[0].max(frame.size[1]);
    let scale = (MAX_SOURCE_SIDE as f32 / longer).min(1.0);
    // Even, because video has half the resolution of colour.
    frame.size.map(|length| ((length * scale / 2.0).round() as usize * 2).clamp(2, MAX_SOURCE_SIDE))
}

/// The region of a photo that a crop of this shape shows.
fn frame(points: &Points, [width, height]: [usize; 2]) -> Frame {
    let (top, chin) = (points[FOREHEAD], points[CHIN]);
    let shown = (distance(top, chin) / FACE_HEIGHT).max(1.0);
    Frame {
        centre: [(top[0] + chin[0]) / 2.0, (top[1] + chin[1]) / 2.0],
        size: [shown * width as f32 / height as f32, shown],
        turn: eye_line(|i| points[i]),
    }
}
