//! Motion of skin and lips: two sheets that part at the line between the lips.
//!
//! Each place of the photo moves by a smooth displacement, one field for the sheet above the line
//! and one for the sheet below it. A pixel of a pose asks both fields backward where it comes from:
//! first x, for both sheets at once, then y. Solved together, the two do not converge at the
//! corners of the mouth.

use character::Pose;
use glam::{Vec2, vec2};

use crate::curve::{bump, smoothstep};
use crate::face::Face;
use crate::lips::LipEdges;

/// Sheet of skin above or below the line between the lips.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sheet {
    Upper,
    Lower,
}

/// Reach of the fields from the middle of the mouth, in half widths: left and right, up, down.
pub(crate) const REACH: [f32; 3] = [2.85, 2.05, 3.7];
/// Distance below the chin over which the neck takes up the motion, in half widths.
const NECK: f32 = 1.75;
/// Iterations of the inverses.
const X_STEPS: usize = 6;
const Y_STEPS: usize = 8;

/// The displacement fields of a pose.
pub(crate) struct Skin<'a> {
    pub(crate) face: &'a Face,
    pub(crate) edges: &'a LipEdges,
    pub(crate) pose: &'a Pose,
}

impl Skin<'_> {
    /// Whether skin at this place of a pose may move.
    pub(crate) fn contains(&self, p: Vec2) -> bool {
        let mouth = &self.face.mouth;
        let d = (p - mouth.centre) / mouth.half;
        self.edges.moves && d.x.abs() < REACH[0] && d.y > -REACH[1] && d.y < REACH[2]
    }

    /// x of the photo for a place of the pose.
    pub(crate) fn source_x(&self, p: Vec2) -> f32 {
        let mut x = p.x;
        for _ in 0..X_STEPS {
            let next = p.x - self.sideways(x, p.y);
            if (next - x).abs() < 0.01 {
                return next;
            }
            x = next;
        }
        x
    }

    /// y of the photo for a place of the pose, if `sheet` is there.
    pub(crate) fn source_y(&self, x: f32, y: f32, sheet: Sheet) -> f32 {
        let mut from = y;
        for _ in 0..Y_STEPS {
            let step = (y - self.downward(vec2(x, from), sheet) - from) * 0.85;
            from += step;
            if step.abs() < 0.01 {
                break;
            }
        }
        from
    }

    /// How far skin moves to the right: x of the photo, y of the pose.
    fn sideways(&self, x: f32, y: f32) -> f32 {
        let (face, edges) = (self.face, self.edges);
        let mouth = &face.mouth;
        let h = mouth.half;
        let off = vec2(x - mouth.centre.x, y - mouth.centre.y - edges.corner);
        let nose = (mouth.centre.y - face.nose_base).max(0.2 * h);
        let tall = if off.y < 0.0 { nose * 0.9 } else { h + edges.drop * 0.6 };
        let r = (off / vec2(h, tall)).length();
        // The nose keeps its width.
        let below_nose = 1.0 - smoothstep(0.1, 1.55, -off.y / nose);
        let mut d = off.x * edges.widening * (1.0 - smoothstep(0.8, 2.2, r)) * below_nose;
        if self.pose.smile > 0.0 {
            d += off.x.signum() * 0.05 * h * self.pose.smile * self.cheek(off);
        }
        d
    }

    /// Weight of a cheek's motion, 0 … 1, at an offset from the middle of the mouth.
    fn cheek(&self, off: Vec2) -> f32 {
        let h = self.face.mouth.half;
        bump((vec2(off.x.abs() - 1.55 * h, off.y + 0.75 * h) / (1.28 * h)).length_squared())
    }

    /// How far skin of a sheet moves down at a place of the photo.
    fn downward(&self, p: Vec2, sheet: Sheet) -> f32 {
        let (face, edges, m) = (self.face, self.edges, &self.pose.mouth);
        let mouth = &face.mouth;
        let h = mouth.half;
        let u = mouth.u(p.x);
        let c = u.clamp(-1.0, 1.0);
        let lateral = 1.0 - smoothstep(1.0, 2.5, u.abs());
        let (inner, outer, edge) = match sheet {
            Sheet::Upper => (mouth.upper_inner.at(c), mouth.upper_outer.at(c), edges.upper.at(c)),
            Sheet::Lower => (mouth.lower_inner.at(c), mouth.lower_outer.at(c), edges.lower.at(c)),
        };
        let edge = edge - inner;
        let lip = (outer - inner).abs().max(h * 0.05);
        let depth = if sheet == Sheet::Upper { inner - p.y } else { p.y - inner };
        // Thickness of the lip: grows to its outer border, then fades.
        let rim = if depth < lip {
            (depth / lip).max(0.0)
        } else {
            1.0 - smoothstep(0.0, 1.3, (depth - lip) / lip.max(h * 0.22))
        } * (1.0 - c * c);
        let mut d = match sheet {
            Sheet::Upper => {
                let nose = (inner - face.nose_base).max(h * 0.3);
                let below_nose = 1.0 - smoothstep(0.12, 1.05, depth / nose);
                let beside_nose = 1.0 - smoothstep(0.0, 1.0, depth / (1.5 * h));
                let fade = below_nose + (beside_nose - below_nose) * smoothstep(0.6, 1.3, u.abs());
                edge * fade * lateral
                    + rim * lip * (0.32 * m.press - 0.26 * m.round + 0.15 * m.tuck)
            }
            Sheet::Lower => {
                let reach = (face.chin - inner).max(h * 0.6);
                let side = 1.0 - smoothstep(0.7, 2.7, ((p.x - mouth.centre.x) / h).abs());
                // A parted mouth of the photo closes with the jaw.
                let closing = if mouth.is_parted() { mouth.gap * 0.45 } else { 0.0 };
                let chin = (edges.drop * 0.90 - closing) * side;
                let toward_chin = smoothstep(0.05, 1.0, depth / reach);
                let above_neck = 1.0 - smoothstep(0.0, NECK * h, p.y - face.chin);
                (edge * lateral * (1.0 - toward_chin) + chin * toward_chin) * above_neck
                    - rim * lip * (0.32 * m.press - 0.20 * m.round + 0.42 * m.tuck)
            }
        };
        if self.pose.smile > 0.0 {
            let off = p - mouth.centre;
            d -= 0.11 * h * self.pose.smile * self.cheek(off);
        }
        d
    }
}
