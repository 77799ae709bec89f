//! Breathing: shoulders and chest rise and sink slightly.
//!
//! The motion is a deformation of the picture, not a drawing. The area around and below the head is
//! pushed up, more with the distance from the head. Hair on the shoulders is stretched and not
//! torn. The chin, a beard and the throat stay in place. Large areas move by the same amount, which
//! VP8's motion vectors encode in few bytes.

use character::Rect;

/// Maximum rise of the shoulders, as a fraction of the picture's height: 2.5 pixels of 512.
const MAX_SHOULDER_RISE: f32 = 2.5 / 512.0;
/// Half the width of the head, hair included, relative to its height from the eyes to below the
/// chin.
const HEAD_ASPECT: f32 = 0.75;
/// Distance over which the displacement grows from zero to its full value, relative to the head.
const BLEND_WIDTH: f32 = 0.35;

/// The border between head and chest, in pixels.
#[derive(Clone, Copy, Debug)]
pub(super) struct Chest {
    /// Center of the eyes.
    eye_x: f32,
    eye_y: f32,
    /// Distance from the eyes to below the chin.
    head_height: f32,
}

impl Chest {
    /// Below a head whose eyes are at this place; the second number is the distance to below the
    /// chin. All in pixels.
    pub(super) fn new((eye_x, eye_y): (f32, f32), head_height: f32) -> Self {
        Self { eye_x, eye_y, head_height }
    }

    /// Of a face whose eyes and lips move within these rectangles.
    pub(super) fn from_face(eyes: Rect, mouth: Rect) -> Self {
        let y = (eyes.y0 + eyes.y1) as f32 / 2.0;
        Self {
            eye_x: (mouth.x0 + mouth.x1) as f32 / 2.0,
            eye_y: y,
            head_height: mouth.y1 as f32 - y,
        }
    }

    /// Weight of the displacement of a pixel: 0 … 1.
    fn displacement_weight(self, x: usize, y: usize) -> f32 {
        let (dx, dy) = (
            (x as f32 - self.eye_x) / (self.head_height * HEAD_ASPECT),
            (y as f32 - self.eye_y) / self.head_height,
        );
        let smooth = |k: f32| k * k * (3.0 - 2.0 * k);
        // Zero above the eyes, and full from half the head's height below them, beside the mouth.
        smooth((dy * 2.0).clamp(0.0, 1.0))
            * smooth(((dx.hypot(dy) - 1.0) / BLEND_WIDTH).clamp(0.0, 1.0))
    }

    /// Returns `rgb`, a picture of this width and height, with the shoulders raised by the fraction
    /// `breath` (0 … 1) of [`MAX_SHOULDER_RISE`].
    pub(super) fn apply_breath(
        self,
        rgb: Vec<u8>,
        (width, height): (usize, usize),
        breath: f32,
    ) -> Vec<u8> {
        let rise = breath * MAX_SHOULDER_RISE * height as f32;
        if rise == 0.0 {
            return rgb;
        }
        let mut out = rgb.clone();
        let first = self.eye_y.max(0.0) as usize;
        for (y, x) in (first..height).flat_map(|y| (0..width).map(move |x| (y, x))) {
            let share = self.displacement_weight(x, y);
            if share == 0.0 {
                continue;
            }
            let from = y as f32 + rise * share;
            let weights = catmull_rom(from.fract());
            let rows = [0, 1, 2, 3].map(|d| (from as usize + d).saturating_sub(1).min(height - 1));
            for channel in 0..3 {
                let levels = rows.map(|row| f32::from(rgb[(row * width + x) * 3 + channel]));
                let sum: f32 =
                    levels.iter().zip(weights).map(|(level, weight)| level * weight).sum();
                // Converting to an integer truncates, and saturates.
                out[(y * width + x) * 3 + channel] = (sum + 0.5) as u8;
            }
        }
        out
    }
}

/// Weights of the four samples around a point at distance `t` (0 … 1) after the second one. From
/// Catmull and Rom, "A class of local interpolating splines", 1974.
fn catmull_rom(t: f32) -> [f32; 4] {
    let (t2, t3) = (t * t, t * t * t);
    [-t3 + 2.0 * t2 - t, 3.0 * t3 - 5.0 * t2 + 2.0, -3.0 * t3 + 4.0 * t2 + t, t3 - t2]
        .map(|w| w * 0.5)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIDE: usize = 512;
    const STRIDE: usize = SIDE * 3;

    fn chest() -> Chest {
        let eyes = Rect { x0: 180, y0: 190, x1: 332, y1: 260 };
        Chest::from_face(eyes, Rect { x0: 180, y0: 270, x1: 332, y1: 400 })
    }

    /// Dark and light stripes of 8 rows.
    fn lines() -> Vec<u8> {
        (0..STRIDE * SIDE)
            .map(|i| if (i / STRIDE / 8).is_multiple_of(2) { 40 } else { 200 })
            .collect()
    }

    #[test]
    fn the_head_stays_and_the_shoulders_rise_by_the_same() {
        let (before, after) = (lines(), chest().apply_breath(lines(), (SIDE, SIDE), 0.8));
        let level = |picture: &[u8], x: usize, y: usize| picture[y * STRIDE + x * 3];
        for y in 0..395 {
            for x in 230..282 {
                assert_eq!(level(&after, x, y), level(&before, x, y), "{x}, {y}: face and throat");
            }
        }
        assert_eq!(after[..225 * STRIDE], before[..225 * STRIDE], "all above the eyes");
        for y in 400..500 {
            for x in [10, 60, 450, 500] {
                assert_eq!(level(&after, x, y), level(&before, x, y + 2), "{x}, {y}: shoulders");
            }
        }
    }

    #[test]
    fn the_displacement_by_a_breath_is_continuous() {
        let chest = chest();
        for (x, y) in (1..SIDE).flat_map(|y| (1..SIDE).map(move |x| (x, y))) {
            let here = chest.displacement_weight(x, y);
            for other in [chest.displacement_weight(x - 1, y), chest.displacement_weight(x, y - 1)]
            {
                assert!((here - other).abs() < 0.06, "{x}, {y}");
            }
        }
    }

    #[test]
    fn breathed_out_is_the_picture_itself() {
        assert_eq!(chest().apply_breath(lines(), (SIDE, SIDE), 0.0), lines());
    }

    #[test]
    fn the_weights_keep_what_is_even_and_what_is_straight() {
        for t in [0.0, 0.25, 0.5, 0.75] {
            let weights = catmull_rom(t);
            assert!((weights.iter().sum::<f32>() - 1.0).abs() < 1e-6);
            let line: f32 = weights.iter().zip([-1.0, 0.0, 1.0, 2.0]).map(|(w, x)| w * x).sum();
            assert!((line - t).abs() < 1e-6, "{t}: {line}");
        }
    }
}
