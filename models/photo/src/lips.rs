//! The edges of the lips in a pose.
//!
//! How far they part is calibrated against the drawn characters, whose mouths have the same
//! parameters. The integration tests compare both.

use character::Pose;

use crate::curve::{Curve, smoothstep};
use crate::face::Face;

/// Drop of the jaw at full opening, in half widths of the mouth (of about 25 mm).
const JAW_DROP: f32 = 0.98;
/// Corners follow the jaw by this fraction.
const CORNER_SHARE: f32 = 0.22;
/// Maximum rise of the upper lip over the teeth, in half widths.
const UPPER_LIFT: f32 = 0.15;

/// Edges of the lips in a pose. Curves are over [`crate::geometry::Mouth::u`] of the photo.
pub(crate) struct LipEdges {
    /// Lower edge of the upper lip.
    pub(crate) upper: Curve,
    /// Upper edge of the lower lip.
    pub(crate) lower: Curve,
    /// How far the jaw moves down, in pixels.
    pub(crate) drop: f32,
    /// How far the corners move down, in pixels.
    pub(crate) corner: f32,
    /// Change of the width, as a fraction.
    pub(crate) widening: f32,
    /// Height of the opening in the middle.
    pub(crate) opening: f32,
    /// Whether anything differs from the photo.
    pub(crate) moves: bool,
}

impl LipEdges {
    pub(crate) fn new(face: &Face, pose: &Pose) -> Self {
        let (m, smile, mouth) = (&pose.mouth, pose.smile, &face.mouth);
        let h = mouth.half;
        let spread = m.width.max(0.0);
        let jaw = m.jaw * (1.0 - 0.96 * m.press);
        let open = JAW_DROP * jaw * (1.0 - 0.55 * m.tuck);
        let parting = smoothstep(0.0, 0.14, m.jaw) * (1.0 - m.press);
        let lift = (0.55 + 0.25 * spread - 0.38 * m.round) * parting;
        let raise = (0.22 * open + UPPER_LIFT * lift * (1.0 - 0.85 * m.tuck) + 0.10 * m.tuck) * h;
        let low = (open * (0.86 + 0.10 * spread - 0.10 * m.round) - 0.04 * m.tuck) * h;
        let drop = JAW_DROP * jaw * (1.0 - 0.70 * m.tuck) * h;
        let corner = drop * (CORNER_SHARE - 0.10 * spread);
        // Rounded lips part in the middle only, and an open jaw bends the lower lip to a bow. No
        // slope is infinite, because the fields must be invertible.
        let narrowing = 1.0 + 0.38 * m.round;
        let arch = |u: f32| (1.0 - (u * narrowing).powi(2)).max(0.0);
        let upper_profile = |u: f32| arch(u) * (1.3 - 0.3 * arch(u));
        let lower_profile = |u: f32| arch(u) * (1.75 - 0.75 * arch(u));
        // Rounding and a wide jaw straighten a smile of the photo.
        let line = &mouth.lip_line;
        let smile_height = (line.at(0.0) - (line.at(-0.95) + line.at(0.95)) * 0.5).max(0.0);
        let straightening = m.round * 0.75 + 0.25 * smoothstep(0.3, 0.9, m.jaw);
        let bend = straightening * smile_height - 0.10 * h * smile;
        let base =
            |u: f32, profile: f32| line.at(u) + corner * (1.0 - profile) + bend * (u * u).min(1.0);
        let upper_at = |u: f32| base(u, upper_profile(u)) - raise * upper_profile(u);
        let lower_at =
            |u: f32| (base(u, lower_profile(u)) + low * lower_profile(u)).max(upper_at(u));
        let (upper, lower) = (Curve::from_fn(upper_at), Curve::from_fn(lower_at));
        let widening = 0.14 * spread + 0.08 * m.width.min(0.0) - 0.36 * m.round - 0.06 * m.jaw
            + 0.13 * smile
            - 0.04 * m.press
            - if mouth.is_parted() { 0.07 } else { 0.0 };
        Self {
            opening: lower.at(0.0) - upper.at(0.0),
            upper,
            lower,
            drop,
            corner,
            widening,
            moves: *m != character::Mouth::default() || smile > 0.0 || mouth.is_parted(),
        }
    }
}
