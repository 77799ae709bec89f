//! A change that was drawn on the upright head, on a turned one. A mouth is drawn once for all
//! heads: to carry it takes a tenth of the time.

use character::{Pose, Rect};
use glam::{Vec2, Vec3, vec2};

use crate::image::weights;
use crate::{PhotoRenderer, turn};

/// Where the pixels of a rectangle come from while the head is turned.
pub struct TurnedRect {
    /// The place on the upright head of each pixel, row by row.
    places: Vec<Vec2>,
}

/// Change of a rectangle of the picture: red, green and blue of each pixel, row by row.
#[derive(Clone, Copy)]
pub struct Change<'a> {
    /// The rectangle.
    pub rect: Rect,
    /// Differences of levels.
    pub levels: &'a [i16],
}

impl TurnedRect {
    /// The pixels of `rect` while the head is held as in `pose`.
    #[must_use]
    pub fn new(renderer: &PhotoRenderer, pose: &Pose, rect: Rect) -> Self {
        let face = renderer.face();
        let rows = (rect.y0..rect.y1).flat_map(|y| (rect.x0..rect.x1).map(move |x| (x, y)));
        let place = |(x, y): (usize, usize)| {
            let pixel = vec2(x as f32, y as f32);
            let at_rest = face.frame.to_face(pixel);
            let from = turn::source(face, pose.head, at_rest);
            if from == at_rest { pixel } else { face.frame.to_photo(from) }
        };
        Self { places: rows.map(place).collect() }
    }

    /// The change of this rectangle that shows `upright`, a change of the upright head. What lies
    /// outside of the other rectangle does not change.
    ///
    /// # Panics
    /// If `upright` has not three levels for each of its pixels.
    #[must_use]
    pub fn carry(&self, upright: Change<'_>) -> Vec<i16> {
        let columns = upright.rect.x1 - upright.rect.x0;
        let rows = upright.rect.y1 - upright.rect.y0;
        assert_eq!(upright.levels.len(), columns * rows * 3, "three levels for each pixel");
        let corner = vec2(upright.rect.x0 as f32, upright.rect.y0 as f32);
        // Outside of this range, none of the four neighbors is in the rectangle.
        let end = vec2(columns as f32, rows as f32) + 2.0;
        let mut carried = vec![0; self.places.len() * 3];
        for (pixel, place) in carried.chunks_exact_mut(3).zip(&self.places) {
            let place = (*place - corner).clamp(Vec2::splat(-3.0), end);
            let floor = place.floor();
            let (across, down) = (weights(place.x - floor.x), weights(place.y - floor.y));
            let neighbors = |first: f32, end: usize| {
                let first = first as i32 - 1;
                (0..4).filter_map(move |n| {
                    let at = usize::try_from(first + n as i32).ok()?;
                    (at < end).then_some((n, at))
                })
            };
            let mut sum = Vec3::ZERO;
            for (i, y) in neighbors(floor.y, rows) {
                for (k, x) in neighbors(floor.x, columns) {
                    let at = (y * columns + x) * 3;
                    let [red, green, blue] = [0, 1, 2].map(|n| f32::from(upright.levels[at + n]));
                    sum += Vec3::new(red, green, blue) * (down[i] * across[k]);
                }
            }
            for (to, level) in pixel.iter_mut().zip(sum.to_array()) {
                *to = level.round() as i16;
            }
        }
        carried
    }
}
