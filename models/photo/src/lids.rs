//! Lids: the upper one is the skin below the brow, pulled over the eye with its lashes.

use character::Pose;
use glam::{Vec2, Vec3, vec2};

use crate::curve::{gaussian, smoothstep};
use crate::eyeball::Eyeball;
use crate::geometry::{Eye, Frame};
use crate::image::{Image, luma};

/// Height of the edge of the upper lid that moves unchanged, in half widths of the eye: the lashes.
const LASH_LINE: f32 = 0.11;
/// Extent of an eye beyond its corners and lids, in half widths: sideways, up and down.
pub(crate) const EXTENT: [f32; 3] = [1.25, 1.6, 0.9];
/// Rise of the lower lid: in a blink, and in a squint.
const LOWER_RISE: (f32, f32) = (0.07, 0.16);
/// A shut upper lid covers this much of the lower one, in half widths of the eye, because landmarks
/// are not exact.
const OVERLAP: f32 = 0.05;
/// A squint lowers the upper lid by this fraction.
const SQUINT_LIDS: f32 = 0.30;
/// From this many half widths in pixels on, single lashes are visible.
const SINGLE_LASHES: (f32, f32) = (28.0, 45.0);

/// An eye with its lids.
pub(crate) struct Lids {
    ball: Eyeball,
    /// Color of the lashes.
    lashes: Vec3,
}

impl Lids {
    pub(crate) fn new(eye: &Eye, frame: Frame, image: &Image) -> Self {
        let mut samples: Vec<Vec3> = (-8..=8)
            .flat_map(|i| (-3..=2).map(move |j| (i as f32 / 10.0, j as f32)))
            .map(|(u, j)| {
                let y = eye.upper.at(u) + j * eye.half * 0.03;
                image.sample(frame.to_photo(vec2(eye.centre.x + u * eye.half, y)))
            })
            .collect();
        samples.sort_by(|a, b| luma(*a).total_cmp(&luma(*b)));
        let lashes = samples[samples.len() / 10] * 0.9;
        Self { ball: Eyeball::new(eye, frame, image), lashes }
    }

    /// Color at a place of the pose. `photo` samples the photo in the face's frame; `from` is the
    /// place after the motion of the brows.
    pub(crate) fn colour(
        &self,
        eye: &Eye,
        pose: &Pose,
        p: Vec2,
        from: Vec2,
        photo: &impl Fn(Vec2) -> Vec3,
    ) -> Vec3 {
        let lids = (pose.eyes.lids + SQUINT_LIDS * pose.eyes.squint).clamp(0.0, 1.0);
        let gaze = vec2(pose.eyes.gaze_x, pose.eyes.gaze_y);
        if lids == 0.0 && gaze == Vec2::ZERO {
            return photo(from);
        }
        let u = eye.u(from.x);
        let opening = Opening::new(eye, u.clamp(-1.0, 1.0), lids, pose.eyes.squint);
        if p.y < opening.brow || u.abs() > EXTENT[0] {
            return photo(from);
        }
        let lower = opening.lower - opening.rise;
        let mut colour = if from.y > lower {
            // The lower lid, which takes the skin below it with it.
            let below = smoothstep(0.0, 0.5 * eye.half, from.y - lower);
            photo(from + vec2(0.0, opening.rise * (1.0 - below)))
        } else {
            let ball =
                if gaze == Vec2::ZERO { photo(from) } else { self.ball.colour(eye, from, gaze) };
            // The shadow of the upper lid moves with it.
            let away = (from.y - opening.edge).max(0.0) / (0.16 * eye.half);
            ball * (1.0 - 0.30 * lids * gaussian(away))
        };
        let cover = (opening.edge - from.y + 0.5).clamp(0.0, 1.0);
        if cover > 0.0 {
            colour = colour.lerp(self.upper_lid(eye, &opening, lids, from, photo), cover);
        }
        if lids > 0.15 {
            colour = self.draw_lashes(eye, colour, u, from.y - opening.edge, lids);
        }
        colour.lerp(photo(from), smoothstep(1.0, 1.22, u.abs()))
    }

    fn upper_lid(
        &self,
        eye: &Eye,
        opening: &Opening,
        lids: f32,
        p: Vec2,
        photo: &impl Fn(Vec2) -> Vec3,
    ) -> Vec3 {
        let &Opening { upper, brow, edge, height, curvature, .. } = opening;
        let lash_line = (LASH_LINE * eye.half).max(1.5);
        let from_edge = edge - p.y;
        let y = if from_edge < lash_line {
            upper - from_edge.max(0.0)
        } else {
            // Skin is pulled more the closer it is to the edge.
            let length = (edge - lash_line - brow).max(1.0);
            let ratio = ((upper - lash_line - brow) / length).clamp(0.2, 1.0);
            let t = ((p.y - brow) / length).clamp(0.0, 1.0);
            let pulled = t * 0.55 + 0.45 * (1.0 - (1.0 - t).powf(1.0 / ratio));
            brow + pulled * (upper - lash_line - brow)
        };
        let lid = photo(vec2(p.x, y.min(upper)));
        if height < 0.5 {
            return lid;
        }
        // Over the ball lies smooth skin. Its fold stays where it is.
        let down = (p.y - upper) / height;
        let plate = smoothstep(-0.1, 0.25, down) * smoothstep(0.0, 0.5, curvature);
        // The lashes themselves stay visible.
        let plate = plate * smoothstep(0.3 * lash_line, 1.3 * lash_line, from_edge);
        let skin_at = |t: f32| photo(vec2(p.x, brow + (upper - brow) * t));
        // The skin close to the fold lies in its shadow.
        let skin = skin_at(0.60).lerp(skin_at(0.30), 0.65);
        let ball = 0.90 + 0.10 * smoothstep(0.0, 0.5, down) - 0.14 * smoothstep(0.55, 1.0, down);
        lid.lerp(skin * ball, plate * lids.sqrt() * 0.9)
    }

    /// A soft dark line, thicker outward, and single hairs where there are pixels for them.
    fn draw_lashes(&self, eye: &Eye, colour: Vec3, u: f32, below: f32, lids: f32) -> Vec3 {
        let along = u * eye.outward;
        let outer = 0.5 + 0.5 * along.clamp(-1.0, 1.0);
        let thickness = eye.half * (0.028 + 0.028 * outer);
        let line = gaussian(below / thickness) * smoothstep(1.02, 0.80, u.abs());
        let colour = colour.lerp(self.lashes, line * (0.20 + 0.30 * outer) * lids);
        let t = below / (eye.half * (0.08 + 0.10 * outer));
        if !(0.0..1.0).contains(&t) {
            return colour;
        }
        let root = u - eye.outward * t * 0.10 * (0.3 + along.max(0.0)) - u * 0.06 * t;
        let single = smoothstep(SINGLE_LASHES.0, SINGLE_LASHES.1, eye.half);
        let hair = (0.5 + 0.5 * (root * 50.0 + (root * 17.0).sin()).sin()).powi(2) * single
            + 0.33 * (1.0 - single);
        let weight = hair * (1.0 - t) * 0.5 * smoothstep(0.4, 1.0, lids);
        colour.lerp(self.lashes, weight * smoothstep(1.0, 0.75, u.abs()))
    }
}

/// The opening of an eye at one position along it. All are y, or heights, in pixels.
struct Opening {
    /// Edges of the lids in the photo, and the brow above them.
    upper: f32,
    lower: f32,
    brow: f32,
    /// Height of the opening in the photo.
    height: f32,
    /// Rise of the lower lid.
    rise: f32,
    /// Edge of the upper lid in the pose.
    edge: f32,
    /// 1 over the middle of the ball … 0 at the corners.
    curvature: f32,
}

impl Opening {
    fn new(eye: &Eye, u: f32, lids: f32, squint: f32) -> Self {
        let (upper, lower) = (eye.upper.at(u), eye.lower.at(u));
        let height = (lower - upper).max(0.0);
        let rise = height * (LOWER_RISE.0 * lids + LOWER_RISE.1 * squint * (1.0 - lids));
        let curvature = (1.0 - u * u).max(0.0).sqrt();
        Self {
            upper,
            lower,
            brow: eye.brow.at(u).min(upper - 0.28 * eye.half),
            height,
            rise,
            edge: upper + lids * (height - rise + lids * OVERLAP * eye.half * curvature),
            curvature,
        }
    }
}
