//! Brows, lashes and beard: hair that follows the pose.

use core::f32::consts::PI;

use glam::{Vec3, vec3};
use rayon::prelude::*;

use crate::math::{Random, gaussian, gradient, mix, noise, smoothstep, square};
use crate::scene::Scene;
use crate::strand::Strand;

/// Brows and lashes, in head space.
pub(crate) fn brows_and_lashes(scene: &Scene) -> Vec<Strand> {
    let mut random = Random::new(scene.character.seed.wrapping_mul(31).wrapping_add(5));
    let mut strands = Vec::new();
    for side in [-1.0, 1.0] {
        grow_brow(scene, side, &mut random, &mut strands);
        grow_lashes(scene, side, true, &mut random, &mut strands);
        grow_lashes(scene, side, false, &mut random, &mut strands);
    }
    strands
}

fn grow_brow(scene: &Scene, side: f32, random: &mut Random, strands: &mut Vec<Strand>) {
    let (b, pose) = (&scene.character.brows, &scene.pose);
    let raise = pose.brows.raise * 0.055 + if side > 0.0 { 0.010 } else { 0.0 };
    for _ in 0..(950.0 * b.thickness) as usize {
        let t = random.unit() * 1.02 - 0.04;
        // Sparse at the inner end, where a brow has no sharp edge.
        let inward = smoothstep(0.26, -0.04, t);
        if random.unit() > mix(1.0, 0.16, inward) {
            continue;
        }
        let x = scene.appearance.eye_x - 0.175 + t * 0.43;
        let arch = 0.230
            + 0.9 * (scene.appearance.eye_radius - 0.225)
            + b.arch * 0.075 * (1.0 - square((t - 0.62) / 0.62))
            - 0.05 * smoothstep(0.7, 1.0, t);
        let thick = 0.036
            * b.thickness
            * (1.0 - 0.72 * smoothstep(0.35, 1.0, t))
            * (0.45 + 0.55 * smoothstep(-0.04, 0.28, t));
        let inner = pose.brows.knit * 0.055 * square(1.0 - t.max(0.0));
        let y = arch + raise - pose.eyes.squint * 0.012 + inner + thick * random.signed();
        let root = project_to_face(scene, side * x, y);
        let normal = gradient(|p| scene.head(p), root, 0.01);
        let up = mix(0.75, -0.25, smoothstep(0.0, 0.55, t));
        let along = vec3(side, up + (0.14 + 0.2 * inward) * random.signed(), 0.0);
        let along = (along - normal * along.dot(normal)).normalize();
        let length = (0.075 + 0.035 * random.unit()) * (1.0 - 0.35 * t) * (1.0 - 0.3 * inward);
        let points = (0..6)
            .map(|i| {
                let k = i as f32 / 5.0;
                let p = root + along * length * k + vec3(0.0, -0.02 * k * k * up.max(0.0), 0.0);
                p + normal * (0.006 + 0.014 * (k * PI).sin() - scene.head(p))
            })
            .collect();
        let colour = scene.appearance.brow * (0.8 + 0.4 * random.unit());
        let width = 0.0036 * (1.0 - 0.25 * inward);
        strands.push(Strand {
            points,
            width,
            tip: 0.2,
            colour,
            shine: 0.25,
            tilt: 0.0,
            root_light: 1.0,
            skin_normal: Some(normal),
        });
    }
}

fn grow_lashes(
    scene: &Scene,
    side: f32,
    upper: bool,
    random: &mut Random,
    strands: &mut Vec<Strand>,
) {
    let long = scene.character.eyes.lashes;
    let number = if upper { 110.0 } else { 30.0 } * long.min(1.0);
    let radius = scene.appearance.eye_radius + 0.024;
    let shut = scene.pose.eyes.lids;
    for i in 0..number as usize {
        let at = (i as f32 + 0.5 + random.signed() * 0.35) / number.floor();
        let u = if upper { at * 1.62 - 0.66 } else { at * 1.7 - 0.76 };
        let dx = u * scene.lid_half_width();
        let (top, bottom) = scene.lid_contours(dx);
        let dy = if upper { top + 0.004 } else { bottom - 0.004 };
        let z = (radius * radius - dx * dx - dy * dy).max(0.0).sqrt();
        let root = vec3(side * (scene.eye.x + dx), scene.eye.y + dy, scene.eye.z + z - 0.006);
        let length =
            if upper { long * (0.042 + 0.042 * smoothstep(-0.6, 0.8, u)) } else { long * 0.026 };
        let length = length * (0.55 + 0.55 * random.unit());
        // Lashes stick together in small bundles.
        let bundle = (u * 7.0).round() / 7.0 * 0.45 + u * 0.55;
        let fan = side * (bundle * 0.75 + 0.12);
        let (first, last) = if upper {
            (vec3(fan, 0.10 - 0.75 * shut, 1.0), vec3(fan * 1.1, mix(1.15, -0.25, shut), 0.45))
        } else {
            (vec3(fan, -0.5, 0.8), vec3(fan, -0.9, 0.2))
        };
        let (first, last) = (first.normalize(), last.normalize());
        let points = (0..7)
            .map(|k| {
                let t = k as f32 / 6.0;
                root + first * length * t * (1.0 - t * 0.5) + last * length * t * t * 0.62
            })
            .collect();
        let width = if upper { 0.0064 } else { 0.004 };
        strands.push(Strand {
            points,
            width,
            tip: 0.15,
            colour: scene.appearance.brow * 0.07,
            shine: 0.05,
            tilt: 0.0,
            root_light: 1.0,
            skin_normal: Some(Vec3::Z),
        });
    }
}

/// A hair of the beard as it grew on the face at rest, and how far its root follows the jaw, 0 … 1.
pub(crate) struct Whisker {
    strand: Strand,
    jaw_weight: f32,
}

/// The beard. It is grown once, on the calm face, so that every hair is the same in every pose.
pub(crate) fn beard_whiskers(scene: &Scene) -> Vec<Whisker> {
    let mut random = Random::new(scene.character.seed.wrapping_mul(57).wrapping_add(11));
    let mut strands = Vec::new();
    grow_beard(scene, &mut random, &mut strands);
    strands
        .into_iter()
        .map(|strand| {
            let p = strand.points[0];
            // The jaw starts below a line from the corner of the mouth to the hinge; toward the
            // hinge its edge is soft.
            let back = ((0.75 - p.z) / 0.87).clamp(0.0, 1.1);
            let line = mix(scene.mouth.y, -0.18, back);
            let soft = 0.015 + 0.15 * back.max(smoothstep(0.15, 0.45, p.x.abs()));
            Whisker { strand, jaw_weight: smoothstep(soft, -soft, p.y - line) }
        })
        .collect()
}

/// The beard on the face in the scene's pose, without the hairs whose root at rest is not `near`.
pub(crate) fn pose_beard(
    scene: &Scene,
    beard: &[Whisker],
    near: impl Fn(Vec3) -> bool + Sync,
) -> Vec<Strand> {
    beard
        .par_iter()
        .filter(|whisker| near(whisker.strand.points[0]))
        .map(|whisker| {
            let mut strand = whisker.strand.clone();
            let normal = strand.skin_normal.unwrap_or(Vec3::Z);
            for p in &mut strand.points {
                *p = p.lerp(scene.move_with_jaw(*p), whisker.jaw_weight);
            }
            // Moves the root back to the skin, which cheeks and lips have moved.
            let mut root = strand.points[0];
            root.y += scene.skin_lift(whisker.strand.points[0]);
            root.x += lip_pull(scene, whisker.strand.points[0]);
            for _ in 0..2 {
                let d = scene.head(root);
                root -= normal * (d * 0.9).clamp(-0.05, 0.05);
                // Most of the face has not moved.
                if d.abs() < 0.001 {
                    break;
                }
            }
            let shift = root - strand.points[0];
            for p in &mut strand.points {
                *p += shift;
            }
            strand
        })
        .collect()
}

/// How far spread or rounded lips move the skin around them sideways, where the face at rest has
/// `p`.
fn lip_pull(scene: &Scene, p: Vec3) -> f32 {
    let calm = scene.appearance.mouth_width;
    let near =
        smoothstep(calm * 2.2, calm * 0.8, p.x.abs()) * gaussian((p.y - scene.mouth.y) / 0.20);
    p.x * (scene.mouth.width / calm - 1.0) * 0.7 * near
}

fn grow_beard(scene: &Scene, random: &mut Random, strands: &mut Vec<Strand>) {
    let wanted = (22_000.0 * scene.character.beard) as usize;
    let end = strands.len() + wanted;
    let mut tries = 0;
    while strands.len() < end && tries < wanted * 8 {
        tries += 1;
        let direction =
            vec3(random.signed() * 1.1, -0.1 - 1.25 * random.unit(), random.unit() * 1.2 - 0.18)
                .normalize();
        let centre = vec3(0.0, -0.30, 0.10);
        let mut t = 1.35;
        for _ in 0..30 {
            let d = scene.head(centre + direction * t);
            if d < 0.002 {
                break;
            }
            t -= d * 0.8;
        }
        let p = centre + direction * t;
        let (weight, moustache) = beard_density(scene, p);
        if random.unit() > weight {
            continue;
        }
        let ax = p.x.abs();
        let q = scene.to_jaw_space(p);
        let normal = gradient(|p| scene.head(p), p, 0.01);
        let (down, length, lift, own) = if moustache {
            (
                vec3(p.x.signum() * (0.20 + 0.6 * smoothstep(0.0, 0.12, ax)), -0.65, 0.1),
                0.068,
                0.15,
                0.18,
            )
        } else {
            (
                vec3(p.x * 0.25, -1.0, 0.15),
                mix(0.035, 0.11, smoothstep(-0.45, -0.95, q.y)),
                0.35,
                0.10,
            )
        };
        // Neighboring hairs have similar direction and color: a hair that differs from all its
        // neighbors is noise, which no encoder can follow.
        let wave = |k: f32| noise(p * 13.0 + Vec3::splat(k)) - 0.5;
        let common = vec3(wave(0.0), wave(31.0), wave(67.0)) * 0.55;
        let tuft = noise(p * vec3(30.0, 15.0, 30.0));
        let [dark, light] = scene.appearance.hair;
        // A moustache is denser.
        for _ in 0..if moustache { 2 } else { 1 } {
            let aside = random.vector() * 0.016;
            let root = if moustache { p + aside - normal * aside.dot(normal) } else { p };
            let length = length * (0.7 + 0.6 * random.unit());
            let along = down - normal * down.dot(normal) * 0.7 + normal * lift + common;
            let along = (along + random.vector() * own).normalize();
            let curl = random.vector() * 0.010;
            let points = (0..7)
                .map(|i| {
                    let k = i as f32 / 6.0;
                    root + along * length * k
                        + normal * 0.035 * k * (1.0 - 0.6 * k)
                        + curl * (k * 5.0).sin()
                        + vec3(0.0, -0.03 * k * k, 0.0)
                })
                .collect();
            let (tone, old) = (mix(tuft, random.unit(), 0.3), mix(tuft, random.unit(), 0.3));
            let grey = smoothstep(old - 0.25, old + 0.25, scene.character.hair.grey * 1.5 - 0.25);
            let colour =
                dark.lerp(light, tone).lerp(vec3(0.24, 0.233, 0.228) * (0.75 + 0.35 * tone), grey);
            strands.push(Strand {
                points,
                width: 0.0056,
                tip: 0.2,
                colour,
                shine: 0.35,
                tilt: 0.0,
                root_light: 1.0,
                skin_normal: Some(normal),
            });
        }
    }
}

/// Probability that a beard hair grows at a point of the skin, and whether it belongs to the
/// moustache.
fn beard_density(scene: &Scene, p: Vec3) -> (f32, bool) {
    let ax = p.x.abs();
    let q = scene.to_jaw_space(p);
    let mouth = &scene.mouth;
    let y = p.y - mouth.y;
    let moustache = if p.z > 0.6 && y > 0.0 {
        smoothstep(0.20, 0.17, y)
            * smoothstep(mouth.width + 0.14, mouth.width + 0.06, ax)
            * (1.6 + 2.0 * smoothstep(0.08, 0.0, ax))
    } else {
        0.0
    };
    let cheek_line = cheek_line(ax);
    let edge = q.y + 0.06 * (noise(p * 14.0) - 0.5);
    let mut weight = square(smoothstep(cheek_line + 0.12, cheek_line - 0.14, edge)).max(moustache);
    if p.z > 0.5 {
        let bare = 0.02 - scene.lip_mask(p) * 0.05 - scene.cavity_mask(p) - scene.seam(p) * 0.05;
        weight *= smoothstep(0.004, 0.02, bare);
    }
    if q.y < -1.02 && p.z < 0.2 {
        weight *= 0.3;
    }
    if ax > 0.5 && p.z < -0.02 {
        weight = 0.0;
    }
    if y < 0.0 && y > -0.22 && p.z > 0.6 && ax < 0.16 && ax > 0.07 {
        weight *= 0.55;
    }
    (weight, moustache > 0.3)
}

/// Height of the beard's upper edge.
fn cheek_line(ax: f32) -> f32 {
    mix(-0.62, -0.12, smoothstep(0.32, 0.76, ax))
}

/// How much the beard darkens the skin at a point, 0 … 1.
pub(crate) fn beard_shade(scene: &Scene, p: Vec3) -> f32 {
    let (ax, q) = (p.x.abs(), scene.to_jaw_space(p));
    let (y, line) = (p.y - scene.mouth.y, cheek_line(ax));
    let (upper, lower) = scene.lips(p);
    let chin = square(smoothstep(line + 0.10, line - 0.14, q.y))
        * smoothstep(-1.14, -1.0, q.y)
        * smoothstep(-0.05, 0.15, p.z);
    let width = scene.appearance.mouth_width;
    let moustache = smoothstep(0.20, 0.12, y)
        * smoothstep(width + 0.14, width + 0.04, ax)
        * smoothstep(0.5, 0.6, p.z);
    // Skin that moving lips expose is not darkened. The exception is a tucked lower lip, which
    // takes the beard's edge along.
    let bare = mix(0.11, 0.05, scene.pose.mouth.tuck);
    chin.max(moustache) * smoothstep(0.01, bare, upper.min(lower)) * scene.character.beard
}

/// The point of the skin in front of (x, y).
fn project_to_face(scene: &Scene, x: f32, y: f32) -> Vec3 {
    let mut z = 1.4;
    for _ in 0..50 {
        let d = scene.head(vec3(x, y, z));
        if d < 0.001 || z < -0.5 {
            break;
        }
        z -= d * 0.75;
    }
    vec3(x, y, z)
}
