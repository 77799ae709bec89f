//! The hair of the head: a few hundred guides are grown step by step over the solid, tens of thousands of strands follow the three nearest.

use core::f32::consts::TAU;

use glam::{Vec3, vec3};
use rayon::prelude::*;

use crate::math::{Random, gradient, mix, noise, step};
use crate::person::{Character, HairStyle};
use crate::scene::Scene;
use crate::strand::Strand;

/// Height over the hairline at a point of the head: positive where hair grows.
pub(crate) fn over_hairline(c: &Character, p: Vec3) -> f32 {
    let around = p.x.abs().atan2(p.z + 0.13);
    let recede = if c.hair.style == HairStyle::Short { 0.06 + 0.06 * c.age } else { 0.0 };
    // (angle from the front, height), from the forehead past temple and ear to the nape.
    let line = [
        (0.0, 0.60 + recede * 0.4),
        (0.35, 0.61 + recede),
        (0.62, 0.53 + recede),
        (0.85, 0.36),
        (1.08, 0.16),
        (1.22, -0.10),
        (1.42, -0.14),
        (1.5, 0.14),
        (1.75, 0.16),
        (1.95, -0.25),
        (2.4, -0.52),
        (3.2, -0.60),
    ];
    let height = line.windows(2).find(|w| around < w[1].0).map_or(line[line.len() - 1].1, |w| {
        let k = ((around - w[0].0) / (w[1].0 - w[0].0)).max(0.0);
        mix(w[0].1, w[1].1, step(0.0, 1.0, k))
    });
    p.y - height
}

struct Guide {
    points: Vec<Vec3>,
    seed: f32,
}

/// What a cut needs to know.
struct Cut {
    guides: usize,
    strands: usize,
    /// How much strands follow their guide toward the tip, and how far they stray.
    clump: f32,
    fuzz: f32,
    width: f32,
    curls: bool,
}

impl Cut {
    fn of(style: HairStyle) -> Self {
        if style == HairStyle::Curly {
            Self { guides: 1500, strands: 42_000, clump: 0.9, fuzz: 0.012, width: 0.0050, curls: true }
        } else {
            Self { guides: 520, strands: 66_000, clump: 0.62, fuzz: 0.022, width: 0.0048, curls: false }
        }
    }
}

/// All strands of the head, at rest.
pub(crate) fn head_hair(scene: &Scene) -> Vec<Strand> {
    if !scene.has_hair() {
        return Vec::new();
    }
    let cut = Cut::of(scene.c.hair.style);
    let mut random = Random::new(scene.c.seed.wrapping_mul(7919).wrapping_add(17));
    let roots: Vec<(Vec3, u32)> =
        (0..cut.guides).map(|_| (root(scene, &mut random), random.seed())).collect();
    let guides: Vec<Guide> =
        roots.par_iter().map(|(p, seed)| grow(scene, *p, &mut Random::new(*seed))).collect();
    let children: Vec<(Vec3, u32)> =
        (0..cut.strands).map(|_| (root(scene, &mut random), random.seed())).collect();
    children.par_iter().map(|(root, seed)| follow(scene, &cut, &guides, *root, *seed)).collect()
}

/// A random point of the scalp, less likely near the hairline.
fn root(scene: &Scene, random: &mut Random) -> Vec3 {
    let centre = vec3(0.0, 0.30, -0.13);
    loop {
        let direction = vec3(random.normal(), random.normal(), random.normal()).normalize_or_zero();
        let mut t = 1.6;
        for _ in 0..40 {
            let d = scene.bones(centre + direction * t);
            if d < 0.001 {
                break;
            }
            t -= d * 0.9;
        }
        let p = centre + direction * t;
        if over_hairline(&scene.c, p) > 0.09 * random.unit() * random.unit() {
            return p;
        }
    }
}

fn grow(scene: &Scene, root: Vec3, random: &mut Random) -> Guide {
    let solid = |p: Vec3| scene.solid(p);
    let normal = gradient(|p| scene.bones(p), root, 0.01);
    let back = step(0.15, -0.45, root.z);
    let top = step(0.45, 0.85, root.y);
    let curly = scene.c.hair.style == HairStyle::Curly;
    let (length, steps, lift, mut v);
    if curly {
        length = mix(0.07, 0.36, step(0.15, 0.85, root.y - 0.05 * back)) * (0.8 + 0.45 * random.unit());
        (steps, lift) = (40, 0.05);
        v = (normal + random.vector() * 0.35 + vec3(0.0, 0.1, 0.12 * top)).normalize();
    } else {
        let front = step(0.2, 0.6, root.z);
        let crown = step(0.42, 0.74, root.y - 0.10 * back);
        length = mix(0.085, 0.40 + 0.10 * front, crown) * (0.85 + 0.3 * random.unit());
        (steps, lift) = (12, 0.02 + 0.10 * top * random.unit());
        let combed = vec3(0.55 * top, 0.15 + 0.75 * front * top, -0.25 - 0.4 * back) * top;
        v = (combed + vec3(0.0, -0.75, -0.45) * (1.0 - top) + normal * (0.42 + 0.75 * top)).normalize();
    }
    let pace = length / steps as f32;
    let mut p = root - normal * 0.01;
    let mut points = vec![p];
    for _ in 0..steps {
        let d = solid(p);
        let (want, k) = if curly {
            (v + vec3(0.0, -0.25, 0.0), 0.05)
        } else {
            (v + vec3(0.25 * top, -0.55 - 0.2 * top, -0.55) * 0.8, 0.22)
        };
        v = (v * (1.0 - k) + want.normalize_or_zero() * k).normalize();
        if d < lift {
            // Slide along the skin rather than into it.
            let n = gradient(solid, p, 0.01);
            let inward = v.dot(n);
            let push = ((lift - d) / lift).clamp(0.0, 1.5);
            if inward < 0.0 {
                v -= n * inward * push.min(1.0);
            }
            v = (v + n * push * 0.16).normalize();
        }
        p += v * pace;
        let d = solid(p);
        if d < 0.012 {
            p += gradient(solid, p, 0.01) * (0.012 - d);
        }
        points.push(p);
    }
    Guide { points, seed: random.unit() }
}

/// A strand between its three nearest guides, clumped to the nearest one toward the tip.
fn follow(scene: &Scene, cut: &Cut, guides: &[Guide], root: Vec3, seed: u32) -> Strand {
    let mut random = Random::new(seed);
    for _ in 0..4 {
        random.unit();
    }
    let mut best = [(9.0f32, 0usize); 3];
    for (i, guide) in guides.iter().enumerate() {
        let d = (guide.points[0] - root).length_squared();
        if d < best[2].0 {
            best[2] = (d, i);
            best.sort_by(|a, b| a.0.total_cmp(&b.0));
        }
    }
    let lead = &guides[best[0].1];
    let n = lead.points.len();
    let weights = best.map(|(d, _)| 1.0 / (d + 0.0008));
    let total: f32 = weights.iter().sum();
    let length = ((n as f32 * (0.80 + 0.2 * random.unit())) as usize).max(4);
    let stray = if random.unit() < 0.05 { 2.0 } else { 1.0 };
    let (va, vb) = (random.vector(), random.vector());
    let waves = 2.0 + 3.0 * random.unit();
    let phase = lead.seed * TAU + random.signed() * 0.5;
    let radius = 0.034 + 0.022 * lead.seed;
    let handed = if lead.seed > 0.5 { 1.0 } else { -1.0 };
    let pace = (lead.points[1] - lead.points[0]).length();
    let mut points = Vec::with_capacity(length);
    for i in 0..length {
        let t = i as f32 / (n - 1) as f32;
        let mut q = root;
        for (weight, (_, guide)) in weights.iter().zip(best) {
            let g = &guides[guide].points;
            q += (g[i] - g[0]) * (weight / total);
        }
        let clump = cut.clump * step(0.0, 0.75, t) * if stray > 1.5 { 0.55 } else { 1.0 };
        q = q.lerp(lead.points[i] + (root - lead.points[0]) * 0.16, clump);
        q += (va * (waves * t * 2.0).sin() + vb * (waves * t * 3.3 + 1.0).cos() - vb)
            * cut.fuzz
            * t.sqrt()
            * stray;
        if cut.curls {
            // A helix around the guide.
            let along =
                (lead.points[(i + 1).min(n - 1)] - lead.points[i.saturating_sub(1)]).normalize_or_zero();
            let u = along.cross(vec3(0.3, 0.9, 0.2)).normalize_or_zero();
            let w = along.cross(u);
            let angle = phase + handed * i as f32 * pace * 44.0;
            q += (u * angle.cos() + w * angle.sin()) * radius * step(0.0, 0.2, t);
        }
        points.push(q);
    }
    let tone = noise(lead.points[0] * 7.0 + Vec3::splat(lead.seed * 3.0)) * 0.7 + random.unit() * 0.5 - 0.1;
    let [dark, light] = scene.looks.hair;
    let mut colour = dark.lerp(light, tone.clamp(0.0, 1.0));
    if random.unit() < scene.c.hair.grey {
        colour = vec3(0.30, 0.292, 0.285) * (0.7 + 0.4 * random.unit());
    }
    Strand { points, width: cut.width, tip: 0.15, colour, shine: 1.0, skin: None }
}
