//! Short hair that is parted at the side and combed over.
//!
//! It does not fall like longer hair. Its guides follow a flow field over the skull, rise beside
//! the part and lie down toward their tips.

use glam::{Vec3, vec3};

use crate::hairline::hairline_noise;
use crate::math::{Random, gradient, mix, noise, smoothstep};
use crate::scene::Scene;

/// x of the part at the forehead.
const PART_X: f32 = -0.30;
/// Number of steps of a guide, which has one point more.
const GUIDE_STEPS: usize = 16;

/// Lateral distance of a point of the scalp from the part. Toward the crown, the part moves to the
/// middle.
pub(crate) fn distance_from_part(p: Vec3) -> f32 {
    p.x - PART_X * mix(1.0, 0.55, smoothstep(0.3, -0.5, p.z)) - 0.008 * (p.z * 11.0).sin()
}

/// 1 on the bare line of the part, 0 elsewhere. The line ends before the crown, where it would be a
/// notch in the outline of the head.
fn bare_part(p: Vec3) -> f32 {
    let ragged = 0.012 * (noise(p * 40.0) - 0.5) + 0.012 * (noise(p * 13.0) - 0.5);
    // 1 to 2 mm wide.
    smoothstep(0.014, 0.002, distance_from_part(p).abs() + ragged) * smoothstep(0.20, 0.44, p.z)
}

/// Whether a hair grows at a point of the scalp at this height over the hairline. Hairs become
/// fewer toward the hairline, and very few grow on the part.
pub(crate) fn hair_grows(p: Vec3, over: f32, random: &mut Random) -> bool {
    let dense = over + hairline_noise(p) > 0.16 * random.unit() - 0.02;
    dense
        && random.unit() > 0.85 * bare_part(p)
        && random.unit() < mix(0.45, 1.0, smoothstep(-0.15, 0.15, p.y))
}

/// How much the hair's roots darken the skin, 0 … 1.
pub(crate) fn root_shade(p: Vec3, over: f32) -> f32 {
    smoothstep(-0.01, 0.17, over + hairline_noise(p)) * 0.82 * (1.0 - 0.8 * bare_part(p))
}

/// Direction of hair that is combed to a side, at a point of the scalp.
fn flow(q: Vec3, side: f32) -> Vec3 {
    let front = smoothstep(0.15, 0.58, q.z);
    // Toward the crown all hair runs back: hair to either side would leave a notch in the outline
    // of the head.
    let spread = mix(0.95, 0.50, front)
        * mix(0.25, 1.0, smoothstep(0.0, 0.40, q.z).max(smoothstep(0.15, 0.45, q.x.abs())));
    let over = vec3(side * spread, 0.0, mix(-0.55, -0.85, front));
    // Over the temple to the back; in front of the ear straight down.
    let temple = smoothstep(0.05, 0.42, q.z) * smoothstep(0.15, 0.45, q.y);
    let falls = vec3(0.0, mix(-1.0, -0.55, temple), mix(-0.35, -0.85, temple));
    let aside = smoothstep(0.40, 0.72, q.x.abs()).max(smoothstep(-0.25, -0.70, q.z));
    over.lerp(falls, aside)
}

/// A guide from a root on one side of the part.
pub(crate) fn grow_guide(scene: &Scene, root: Vec3, side: f32, random: &mut Random) -> Vec<Vec3> {
    let top = smoothstep(0.45, 0.80, root.y) * smoothstep(0.76, 0.58, root.x.abs());
    let front = smoothstep(0.0, 0.55, root.z);
    let crown = smoothstep(0.42, 0.05, root.z);
    // On the broad side hair is combed over; on the narrow side it is shorter and lies flat. Both
    // meet at the crown.
    let broad = if side > 0.0 { 1.0 } else { crown };
    let across = smoothstep(0.0, 0.65, root.x * side);
    let long = mix(0.36, 0.70 - 0.36 * across, broad);
    let length = mix(0.12, long, top) * (0.90 + 0.2 * random.unit());
    let loose = 0.75 + 0.5 * noise(root * 3.1);
    let height = mix(0.022, mix(0.072, 0.070 + 0.055 * front * (1.0 - across), broad) * loose, top);
    let bend =
        vec3(noise(root * 4.0), noise(root * 4.0 + Vec3::splat(9.0)), 0.5) - Vec3::splat(0.5);
    let bend = bend * 0.35 + random.vector() * 0.10;
    let pace = length / GUIDE_STEPS as f32;
    let mut q = root;
    let mut points = Vec::with_capacity(GUIDE_STEPS + 1);
    for i in 0..=GUIDE_STEPS {
        let t = i as f32 / GUIDE_STEPS as f32;
        let n = gradient(|p| scene.skull(p), q, 0.01);
        let rise = smoothstep(-0.02, 0.36, t) * mix(1.0, 0.40, smoothstep(0.40, 1.0, t));
        // Low beside the part, independent of the root: otherwise the broad side would stand over
        // it like a wall.
        // At the crown the part has ended, and both sides have one height: anything else would be a
        // notch in the outline of the head.
        let ended = smoothstep(0.50, 0.10, q.z);
        let lowest = if side > 0.0 { mix(0.12, 0.7, ended) } else { 0.7 };
        let low = mix(lowest, 1.0, smoothstep(0.0, 0.42, distance_from_part(q).abs()));
        let height = mix(height, height.min(0.062), ended);
        let mut p = q + n * (0.012 * t + height * low * rise - 0.006);
        let d = scene.hair_collider(p);
        if d < -0.008 {
            p += gradient(|p| scene.hair_collider(p), p, 0.01) * (0.012 - d);
        }
        points.push(p);
        let v = flow(q, side) + bend;
        q += (v - n * v.dot(n)).normalize_or_zero() * pace;
        let d = scene.skull(q);
        q -= gradient(|p| scene.skull(p), q, 0.01) * d;
    }
    points
}
