//! Turns of the head: half an ellipsoid with a nose on it, turned about the base of the skull. The
//! turn fades out toward shoulders and surroundings. Enough for a few degrees.

use character::Head;
use glam::{Vec2, vec2};

use crate::curve::{bump, smoothstep};
use crate::face::Face;

/// Half axes of the ellipsoid, in heights of the face: across, up, and toward the viewer.
const HALF_AXES: [f32; 3] = [0.66, 0.86, 0.62];
/// The ellipsoid's middle lies above that of the face, because of the skull.
const ABOVE_CENTRE: f32 = 0.10;
/// Height of the nose over the ellipsoid, and its extent.
const NOSE: (f32, f32) = (0.10, 0.20);
/// The pivot lies above the chin and behind the ellipsoid's middle.
const PIVOT: Vec2 = vec2(0.05, 0.05);
/// The turn fades between these distances from the middle, in these half axes; and below the chin.
const FADE: (f32, f32) = (0.85, 1.6);
const FADE_AXES: Vec2 = vec2(1.15, 1.30);
const NECK: (f32, f32) = (-0.02, 0.55);

/// Place of the head at rest that a turn brings to `p`.
pub(crate) fn source(face: &Face, head: Head, p: Vec2) -> Vec2 {
    if head == Head::default() {
        return p;
    }
    let mut from = p;
    for _ in 0..4 {
        let next = p - displacement(face, head, from);
        if next == from {
            break;
        }
        from = next;
    }
    from
}

/// How a place of the head moves.
pub(crate) fn displacement(face: &Face, head: Head, p: Vec2) -> Vec2 {
    let r = face.height;
    let d = p - face.centre + vec2(0.0, ABOVE_CENTRE * r);
    let far = (d / (FADE_AXES * r)).length();
    let weight = (1.0 - smoothstep(FADE.0, FADE.1, far))
        * (1.0 - smoothstep(face.chin + NECK.0 * r, face.chin + NECK.1 * r, p.y));
    if weight == 0.0 {
        return Vec2::ZERO;
    }
    let flat = (d / (vec2(HALF_AXES[0], HALF_AXES[1]) * r)).length_squared().min(1.0);
    let nose = bump(((p - face.nose_tip) / (NOSE.1 * r)).length_squared());
    let z = HALF_AXES[2] * r * (1.0 - flat).sqrt() + (NOSE.0 * nose + PIVOT.y) * r;
    let arm = vec2(p.x - face.centre.x, p.y - (face.chin - PIVOT.x * r));
    vec2(head.yaw * z + head.roll * arm.y, head.pitch * z - head.roll * arm.x) * weight
}
