//! Short hair that is parted at the side and combed over.
//!
//! It does not fall like longer hair. Its guides follow a flow field over the skull, rise beside
//! the part and lie down toward their tips.

use glam::{Vec3, vec3};

use crate::math::{Random, gradient, mix, noise, step};
use crate::scene::Scene;

/// x of the part at the forehead.
const PART: f32 = -0.30;
/// Number of steps of a guide, which has one point more.
const STEPS: usize = 16;

/// Lateral distance of a point of the scalp from the part. Toward the crown, the part moves to the
/// middle.
pub(crate) fn beside(p: Vec3) -> f32 {
    p.x - PART * mix(1.0, 0.55, step(0.3, -0.5, p.z)) - 0.008 * (p.z * 11.0).sin()
}

/// 1 on the bare line of the part, 0 elsewhere. The line ends before the crown, where it would be a
/// notch in the outline of the head.
fn bare(p: Vec3) -> f32 {
    let ragged = 0.012 * (noise(p * 40.0) - 0.5) + 0.012 * (noise(p * 13.0) - 0.5);
    step(0.017, 0.002, beside(p).abs() + ragged) * step(0.12, 0.40, p.z)
}

/// Deviation of the hairline's height from its average: a real hairline is irregular.
fn ragged(p: Vec3) -> f32 {
    0.05 * (noise(p * 6.0) - 0.5) + 0.04 * (noise(p * 23.0) - 0.5)
}

/// Whether a hair grows at a point of the scalp at this height over the hairline. Hairs become
/// fewer toward the hairline, and very few grow on the part.
pub(crate) fn grows(p: Vec3, over: f32, random: &mut Random) -> bool {
    let dense = over + ragged(p) > 0.16 * random.unit() - 0.02;
    dense && random.unit() > 0.85 * bare(p) && random.unit() < mix(0.45, 1.0, step(-0.15, 0.15, p.y))
}

/// Fineness of a hair that grows there, 0 … 1.
pub(crate) fn fineness(p: Vec3, over: f32) -> f32 {
    step(0.12, -0.03, over + ragged(p))
}

/// How much the hair's roots darken the skin, 0 … 1.
pub(crate) fn roots(p: Vec3, over: f32) -> f32 {
    step(-0.01, 0.17, over + ragged(p)) * 0.82 * (1.0 - 0.55 * bare(p))
}

/// Direction of hair that is combed to a side, at a point of the scalp.
fn flow(q: Vec3, side: f32) -> Vec3 {
    let front = step(0.15, 0.58, q.z);
    // Toward the crown all hair runs back: hair to either side would leave a notch in the outline
    // of the head.
    let spread =
        mix(0.95, 0.50, front) * mix(0.25, 1.0, step(0.0, 0.40, q.z).max(step(0.15, 0.45, q.x.abs())));
    let over = vec3(side * spread, 0.0, mix(-0.55, -0.85, front));
    // Over the temple to the back; in front of the ear straight down.
    let temple = step(0.05, 0.42, q.z) * step(0.15, 0.45, q.y);
    let falls = vec3(0.0, mix(-1.0, -0.55, temple), mix(-0.35, -0.85, temple));
    let aside = step(0.40, 0.72, q.x.abs()).max(step(-0.25, -0.70, q.z));
    over.lerp(falls, aside)
}

/// A guide from a root on one side of the part.
pub(crate) fn guide(scene: &Scene, root: Vec3, side: f32, random: &mut Random) -> Vec<Vec3> {
    let top = step(0.45, 0.80, root.y) * step(0.76, 0.58, root.x.abs());
    let front = step(0.0, 0.55, root.z);
    let crown = step(0.42, 0.05, root.z);
    // On the broad side hair is combed over; on the narrow side it is shorter and lies flat. Both
    // meet at the crown.
    let broad = if side > 0.0 { 1.0 } else { crown };
    let across = step(0.0, 0.65, root.x * side);
    let long = mix(0.36, 0.70 - 0.36 * across, broad);
    let length = mix(0.12, long, top) * (0.90 + 0.2 * random.unit());
    let loose = 0.75 + 0.5 * noise(root * 3.1);
    let height = mix(0.022, mix(0.072, 0.070 + 0.055 * front * (1.0 - across), broad) * loose, top);
    let bend = vec3(noise(root * 4.0), noise(root * 4.0 + Vec3::splat(9.0)), 0.5) - Vec3::splat(0.5);
    let bend = bend * 0.35 + random.vector() * 0.10;
    let pace = length / STEPS as f32;
    let mut q = root;
    let mut points = Vec::with_capacity(STEPS + 1);
    for i in 0..=STEPS {
        let t = i as f32 / STEPS as f32;
        let n = gradient(|p| scene.bones(p), q, 0.01);
        let rise = step(-0.02, 0.36, t) * mix(1.0, 0.40, step(0.40, 1.0, t));
        // Low beside the part, independent of the root: otherwise the broad side would stand over
        // it like a wall.
        let low = mix(if side > 0.0 { 0.12 } else { 0.7 }, 1.0, step(0.0, 0.42, beside(q).abs()));
        let mut p = q + n * (0.012 * t + height * low * rise - 0.006);
        let d = scene.solid(p);
        if d < -0.008 {
            p += gradient(|p| scene.solid(p), p, 0.01) * (0.012 - d);
        }
        points.push(p);
        let v = flow(q, side) + bend;
        q += (v - n * v.dot(n)).normalize_or_zero() * pace;
        let d = scene.bones(q);
        q -= gradient(|p| scene.bones(p), q, 0.01) * d;
    }
    points
}
