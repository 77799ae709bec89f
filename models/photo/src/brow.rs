//! Motion of the brows.

use character::Brows;
use glam::{Vec2, vec2};

use crate::curve::smoothstep;
use crate::face::Face;
use crate::geometry::Eye;

/// The line that moves farthest lies this many half widths of an eye above the brow's lower edge.
const MIDDLE: f32 = 0.12;
/// Distances over which the motion fades: up to the hairline, and down to the lid.
const FADE_UP: (f32, f32) = (0.25, 1.8);
const FADE_DOWN: (f32, f32) = (0.05, 0.62);
const FADE_SIDE: (f32, f32) = (1.0, 1.75);
/// Largest motions, in half widths of an eye: raised, inner ends up, inner ends to the middle.
const RAISE: f32 = 0.26;
const KNIT_UP: f32 = 0.26;
const KNIT_SIDE: f32 = 0.1;

/// Place of the photo that moving brows bring to a place of the pose.
pub(crate) fn source(face: &Face, brows: Brows, p: Vec2) -> Vec2 {
    if brows == Brows::default() {
        return p;
    }
    let mut from = p;
    for _ in 0..3 {
        let moved: Vec2 = face.eyes.iter().map(|eye| displacement(eye, brows, from)).sum();
        if moved == Vec2::ZERO {
            return p;
        }
        from = p - moved;
    }
    from
}

fn displacement(eye: &Eye, brows: Brows, p: Vec2) -> Vec2 {
    let u = eye.u(p.x);
    if u.abs() >= FADE_SIDE.1 {
        return Vec2::ZERO;
    }
    let line = eye.brow.at(u) - MIDDLE * eye.half;
    let v = (p.y - line) / eye.half;
    let (fade, away) = if v < 0.0 { (FADE_UP, -v) } else { (FADE_DOWN, v) };
    let weight = (1.0 - smoothstep(fade.0, fade.1, away))
        * (1.0 - smoothstep(FADE_SIDE.0, FADE_SIDE.1, u.abs()));
    let inner = smoothstep(0.3, -1.2, u * eye.outward) * brows.knit;
    vec2(-eye.outward * KNIT_SIDE * inner, -RAISE * brows.raise - KNIT_UP * inner)
        * (eye.half * weight)
}
