//! Ray marching through the distance field: the surface at a pixel, and the visibility of lights
//! and sky there.

use glam::{Vec3, vec3};

use crate::camera::Camera;
use crate::math::gradient;
use crate::scene::{Material, Scene};

/// Range of z in the world that contains all surfaces.
const MAX_Z: f32 = 1.75;
const MIN_Z: f32 = -1.6;
/// All surfaces above the shoulders lie within 1.45 of this point.
const HEAD_CENTRE: Vec3 = vec3(0.0, -0.02, -0.02);

/// Distance that all rays through a square of the picture may travel before one of them may come
/// closer to a surface than `clearance`. The search starts at distance `t`. `spread` is the radius
/// of the cone around the central `ray`, at distance 1.
pub(crate) fn free_distance(
    scene: &Scene,
    camera: &Camera,
    ray: Vec3,
    spread: f32,
    mut t: f32,
    clearance: f32,
) -> f32 {
    let origin = camera.eye;
    t = t.max((MAX_Z - origin.z) / ray.z);
    let end = (MIN_Z - origin.z) / ray.z;
    while t < end {
        let d = scene.distance(origin + ray * t) - spread * t;
        if d < clearance {
            break;
        }
        t += d * 0.82;
    }
    t
}

/// The first surface that a ray from the camera hits. The search starts at distance `t`.
///
/// A step is as long as is safe before a plane that the last two distances imply. Along a surface,
/// where most of the work is, it is nearly twice the distance; toward a surface it is little more
/// than the distance. If the free spheres around two points then leave a gap, the ray returns to
/// the end of the first sphere.
pub(crate) fn intersect(
    scene: &Scene,
    camera: &Camera,
    ray: Vec3,
    mut t: f32,
) -> Option<(Vec3, Material)> {
    let origin = camera.eye;
    let end = (MIN_Z - origin.z) / ray.z;
    // Free distance at the last point, and the step from there.
    let (mut before, mut step) = (0.0, 0.0);
    // Most rays need seven steps. Rays along a jaw with the neck behind it need ten times as many.
    for _ in 0..220 {
        let p = origin + ray * t;
        let (d, material) = scene.map(p);
        let free = d * 0.82;
        if step > before && before + free < step {
            t += before - step;
            step = before;
            continue;
        }
        if d < 0.0012 {
            return Some((p, material));
        }
        if t > end {
            return None;
        }
        // Change of the distance per step.
        let slope = if step > 0.0 { ((free - before) / step).min(0.0) } else { -1.0 };
        (before, step) = (free, free * 2.0 / (1.0 - slope).max(1.0));
        t += step;
    }
    // No steps are left, along a silhouette: a close surface counts as a hit.
    let p = origin + ray * t;
    let (d, material) = scene.map(p);
    (d <= 0.02).then_some((p, material))
}

pub(crate) fn surface_normal(scene: &Scene, material: Material, p: Vec3) -> Vec3 {
    let e = if material == Material::Skin { 0.004 } else { 0.003 };
    gradient(|q| scene.distance_to(material, q), p, e)
}

/// Share of a light that arrives, 0 … 1. The penumbra is estimated from the distances along the
/// ray.
pub(crate) fn soft_shadow(scene: &Scene, p: Vec3, light: Vec3, hardness: f32) -> f32 {
    let mut t = 0.035;
    let mut min_ratio = 1.0f32;
    for _ in 0..26 {
        let q = p + light * t;
        // The lamps are above the head. A ray above the head, or beside it and moving away, hits
        // nothing more.
        let from_head = q - HEAD_CENTRE;
        let far = from_head.length_squared();
        if far > 2.1 && q.y > -0.9 && from_head.dot(light) > 0.0 {
            break;
        }
        // Neither does a ray in front of all surfaces, if it is too far away for a penumbra.
        if light.z > 0.0 && (q.z - scene.max_z) * hardness > t {
            break;
        }
        let d = scene.distance(q);
        min_ratio = min_ratio.min(hardness * d / t);
        t += d.clamp(0.025, 0.30);
        if min_ratio < -0.3 || t > 2.2 {
            break;
        }
    }
    let open = (min_ratio.clamp(-0.3, 1.0) + 0.3) / 1.3;
    open * open * (3.0 - 2.0 * open)
}

/// Below this visibility of the sky, a growing share of the light is reflected by other surfaces.
const MIN_OPENNESS: f32 = 0.30;

/// Visible share of the sky, 0 … 1: sampled near the surface along the normal, and farther to four
/// sides.
pub(crate) fn sky_visibility(scene: &Scene, p: Vec3, n: Vec3) -> f32 {
    let mut hidden = 0.0;
    let mut weight = 1.0;
    for i in 1..5 {
        let h = 0.025 * (i * i) as f32;
        hidden += (h - scene.distance(p + n * h)).max(0.0) * weight / h * 0.32;
        weight *= 0.86;
    }
    let side = n.cross(vec3(0.3, 0.9, 0.2)).normalize();
    let other = n.cross(side);
    for i in 0..4 {
        let angle = i as f32 * core::f32::consts::FRAC_PI_2 + 0.5;
        let direction =
            (n * 0.6 + side * angle.cos() * 0.8 + other * angle.sin() * 0.8).normalize();
        let h = 0.22;
        hidden += (h * 0.75 - scene.distance(p + direction * h)).max(0.0) / h * 0.17;
    }
    // No corner is black: other surfaces reflect light into it.
    let open = (1.0 - hidden).min(1.0);
    if open < MIN_OPENNESS { MIN_OPENNESS * (open / MIN_OPENNESS - 1.0).exp() } else { open }
}
