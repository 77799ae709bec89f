//! The hair of the head. A few hundred guides are grown step by step over the solid. Tens of
//! thousands of strands follow the three nearest guides.

use core::f32::consts::TAU;

use glam::{Vec3, vec3};
use rayon::prelude::*;

use crate::character::{Character, HairStyle};
use crate::hairline::{hairline_noise, hairline_width, height_over_hairline};
use crate::math::{Random, gradient, mix, noise, smoothstep};
use crate::scene::Scene;
use crate::side_part;
use crate::strand::Strand;

/// How much the roots of hair darken the skin at this height over the hairline, 0 … 1.
pub(crate) fn root_shade(c: &Character, p: Vec3, over: f32) -> f32 {
    if c.hair.style == HairStyle::Side {
        return side_part::root_shade(p, over);
    }
    // No deviation of the hairline reaches farther.
    if over < -0.04 {
        return 0.0;
    }
    smoothstep(0.0, 0.06 + hairline_width(p), over + hairline_noise(p)) * 0.84
}

struct Guide {
    points: Vec<Vec3>,
    seed: f32,
    side: f32,
}

/// Parameters of a cut.
struct HairCut {
    guides: usize,
    strands: usize,
    /// How closely strands follow their guide toward the tip, and how far they deviate.
    clump: f32,
    fuzz: f32,
    width: f32,
    /// Position of the part, in x.
    part: Option<f32>,
    /// Whether the hair is combed over from a side part.
    combed: bool,
}

impl HairCut {
    fn from_style(style: HairStyle) -> Self {
        let cut = |guides, strands, clump, fuzz, width, part| Self {
            guides,
            strands,
            clump,
            fuzz,
            width,
            part,
            combed: style == HairStyle::Side,
        };
        match style {
            HairStyle::None => cut(0, 0, 0.0, 0.0, 0.0, None),
            HairStyle::Buzz => cut(900, 60_000, 0.1, 0.004, 0.0042, None),
            HairStyle::Short => cut(520, 60_000, 0.62, 0.022, 0.0048, None),
            HairStyle::Side => cut(1100, 60_000, 0.42, 0.010, 0.0046, None),
            HairStyle::Curly => cut(1500, 42_000, 0.9, 0.012, 0.0050, None),
            HairStyle::Bob => cut(420, 62_000, 0.6, 0.016, 0.0050, Some(0.20)),
            HairStyle::Long => cut(420, 64_000, 0.80, 0.028, 0.0052, Some(0.20)),
            HairStyle::Bun => cut(420, 46_000, 0.35, 0.007, 0.0046, None),
        }
    }

    /// The side of the part on which a root is: −1 or 1, or 0 without a part. Hairs at the part
    /// fall to either side. The part ends before the crown, where it would be a notch in the
    /// outline of the head.
    fn side(&self, root: Vec3, random: &mut Random) -> f32 {
        if self.combed {
            // Some hairs lie across the part.
            let across = 0.05 * random.signed() * random.unit();
            return if side_part::distance_from_part(root) + across > 0.0 { 1.0 } else { -1.0 };
        }
        let stray = mix(0.022, 0.26, smoothstep(0.30, 0.0, root.z)) * random.signed();
        self.part.map_or(0.0, |part| {
            if root.x + stray > part + 0.03 * (root.z * 7.0).sin() { 1.0 } else { -1.0 }
        })
    }
}

/// Position and radius of the knot of a [`HairStyle::Bun`].
const BUN_CENTRE: Vec3 = vec3(0.03, 1.10, -0.62);
const BUN_RADIUS: f32 = 0.30;

/// All strands of the head, at rest.
pub(crate) fn grow_head_hair(scene: &Scene) -> Vec<Strand> {
    if !scene.has_hair() {
        return Vec::new();
    }
    let cut = HairCut::from_style(scene.character.hair.style);
    let mut random = Random::new(scene.character.seed.wrapping_mul(7919).wrapping_add(17));
    let mut seeds = |n: usize| (0..n).map(|_| random.seed()).collect::<Vec<u32>>();
    let (guides, children) = (seeds(cut.guides), seeds(cut.strands));
    let guides: Vec<Guide> = guides
        .par_iter()
        .map(|seed| {
            let mut random = Random::new(*seed);
            let root = random_root(scene, &mut random);
            grow_guide(scene, &cut, root, &mut random)
        })
        .collect();
    let mut strands: Vec<Strand> = children
        .par_iter()
        .map(|seed| {
            let mut random = Random::new(*seed);
            let root = random_root(scene, &mut random);
            interpolate_strand(scene, &cut, &guides, root, &mut random)
        })
        .collect();
    if scene.character.hair.style == HairStyle::Bun {
        strands.extend((0..9_000).map(|_| bun_strand(scene, &mut random)));
    }
    strands
}

/// A strand of the knot: part of a turn around it.
fn bun_strand(scene: &Scene, random: &mut Random) -> Strand {
    let axis = (vec3(0.35, 0.9, 0.5) + random.vector() * 0.35).normalize();
    let u = axis.cross(Vec3::X).normalize();
    let w = axis.cross(u);
    let height = random.signed() * 0.8;
    let (start, turn) = (random.unit() * TAU, 1.2 + 1.2 * random.unit());
    let radius = BUN_RADIUS * (0.86 + 0.14 * random.unit());
    let ring = (1.0 - height * height).sqrt();
    let points = (0..14)
        .map(|i| {
            let angle = start + turn * i as f32 / 13.0;
            let swell = radius * (1.0 + 0.035 * (angle * 3.0 + height * 9.0).sin());
            BUN_CENTRE + (axis * height + (u * angle.cos() + w * angle.sin()) * ring) * swell
        })
        .collect();
    let colour = strand_colour(scene, random.unit(), random);
    Strand {
        points,
        width: 0.0052,
        tip: 0.5,
        colour,
        shine: 1.0,
        tilt: 0.06 * random.signed(),
        root_light: 0.55,
        skin_normal: None,
    }
}

/// A random point of the scalp, less likely near the hairline.
fn random_root(scene: &Scene, random: &mut Random) -> Vec3 {
    let centre = vec3(0.0, 0.30, -0.13);
    // The first numbers of similar seeds are similar.
    for _ in 0..4 {
        random.unit();
    }
    loop {
        let direction = vec3(random.normal(), random.normal(), random.normal()).normalize_or_zero();
        let mut t = 1.6;
        for _ in 0..40 {
            let d = scene.skull(centre + direction * t);
            if d < 0.001 {
                break;
            }
            t -= d * 0.9;
        }
        let p = centre + direction * t;
        let over = height_over_hairline(&scene.character, p);
        let grows = match scene.character.hair.style {
            HairStyle::Side => side_part::hair_grows(p, over, random),
            _ => {
                let edge = over + hairline_noise(p);
                random.unit() < smoothstep(-0.02, hairline_width(p), edge)
            }
        };
        if grows {
            return p;
        }
    }
}

/// 1 at the crown of a [`HairStyle::Bob`], where hair runs back. Hair to either side would leave a
/// notch in the outline of the head.
fn crown_weight(style: HairStyle, p: Vec3) -> f32 {
    if style == HairStyle::Bob {
        smoothstep(0.36, 0.02, p.z) * smoothstep(0.80, 1.0, p.y)
    } else {
        0.0
    }
}

fn grow_guide(scene: &Scene, cut: &HairCut, root: Vec3, random: &mut Random) -> Guide {
    let style = scene.character.hair.style;
    let solid = |p: Vec3| scene.hair_collider(p);
    let normal = gradient(|p| scene.skull(p), root, 0.01);
    let side = cut.side(root, random);
    if style == HairStyle::Side {
        return Guide {
            points: side_part::grow_guide(scene, root, side, random),
            seed: random.unit(),
            side,
        };
    }
    let back = smoothstep(0.15, -0.45, root.z);
    let top = smoothstep(0.45, 0.85, root.y);
    let front = smoothstep(0.2, 0.6, root.z);
    let part = cut.part.unwrap_or(0.0);
    let (length, steps, lift, mut v);
    match style {
        HairStyle::Long | HairStyle::Bob => {
            let end = if style == HairStyle::Long {
                -1.74 - 0.18 * random.signed()
            } else {
                -0.84 - 0.05 * random.signed()
            };
            length = (root.y - end) * 1.06 + 0.55 * top;
            (steps, lift) = (44, 0.02 + 0.055 * random.unit());
            let crown = crown_weight(style, root);
            let away = vec3(
                side * (1.0 - 0.8 * crown),
                0.12,
                -0.42 - 0.5 * crown + 0.20 * (root.x - part).abs(),
            )
            .lerp(vec3(root.x * 0.9, 0.1, -0.9), back);
            // Flat at the part, higher away from it.
            let rise = smoothstep(0.0, 0.25, (root.x - part).abs()).max(crown);
            v = (away + normal * (mix(0.30, 0.42, rise) * top + 0.05)).normalize();
        }
        HairStyle::Curly => {
            length = mix(0.07, 0.36, smoothstep(0.15, 0.85, root.y - 0.05 * back))
                * (0.8 + 0.45 * random.unit());
            (steps, lift) = (40, 0.05);
            v = (normal + random.vector() * 0.35 + vec3(0.0, 0.1, 0.12 * top)).normalize();
        }
        HairStyle::Buzz => {
            length = mix(0.022, 0.05, smoothstep(0.1, 0.6, root.y)) * (0.8 + 0.4 * random.unit());
            (steps, lift) = (4, 0.012);
            v = (normal + vec3(0.0, -0.35, 0.35 * top) + random.vector() * 0.15).normalize();
        }
        HairStyle::Bun => {
            length = (BUN_CENTRE - root).length() * 1.25 + 0.1;
            (steps, lift) = (36, 0.018 + 0.022 * random.unit());
            v = ((BUN_CENTRE - root).normalize() + normal * 0.25).normalize();
        }
        HairStyle::Short | HairStyle::Side | HairStyle::None => {
            let crown = smoothstep(0.42, 0.74, root.y - 0.10 * back);
            length = mix(0.085, 0.40 + 0.10 * front, crown) * (0.85 + 0.3 * random.unit());
            (steps, lift) = (12, 0.02 + 0.10 * top * random.unit());
            let combed = vec3(0.55 * top, 0.15 + 0.75 * front * top, -0.25 - 0.4 * back) * top;
            v = (combed + vec3(0.0, -0.75, -0.45) * (1.0 - top) + normal * (0.42 + 0.75 * top))
                .normalize();
        }
    }
    let pace = length / steps as f32;
    let mut p = root - normal * 0.01;
    let mut points = vec![p];
    let phase = random.unit() * TAU;
    let waves = 5.2 + random.signed() * 0.8;
    let swing = if style == HairStyle::Long { 0.55 } else { 0.12 };
    for i in 0..steps {
        let t = i as f32 / steps as f32;
        let d = solid(p);
        let (want, k) = match style {
            HairStyle::Long | HairStyle::Bob => {
                let falls = smoothstep(0.85, 0.35, p.y).max(smoothstep(0.50, 0.85, p.x.abs()));
                let falls = falls.max(back * smoothstep(0.5, 0.1, p.y));
                let crown = crown_weight(style, p);
                let aside = side * (1.0 - 0.8 * crown);
                let away =
                    vec3(aside, -0.15 - 0.45 * smoothstep(0.45, 0.7, p.z), -0.30 - 0.6 * crown)
                        .lerp(vec3(p.x * 0.6, -0.35, -0.9), back);
                let mut want = away.lerp(vec3(0.06 * side, -1.0, -0.05), falls);
                if d > lift && p.y > -0.9 {
                    want -= gradient(solid, p, 0.01) * ((d - lift) / 0.08).min(1.2) * 0.9;
                }
                let angle = waves * t * length + phase;
                let swing = swing * smoothstep(0.25, 0.6, t);
                want += vec3(side * angle.sin(), 0.0, angle.cos() * 0.6) * swing;
                // Tips turn inward, and no hair falls over the face.
                let inward = if style == HairStyle::Bob { 1.5 } else { 1.1 };
                want += vec3(-side * inward, 0.0, -0.1) * smoothstep(0.70, 1.0, t);
                if p.z > 0.30 && p.y < 0.5 && p.x.abs() < 0.80 {
                    want += vec3(side * 1.2, 0.0, -0.7);
                }
                (want, 0.26)
            }
            HairStyle::Curly => (v + vec3(0.0, -0.25, 0.0), 0.05),
            HairStyle::Buzz => (v, 0.1),
            HairStyle::Bun => {
                let home = BUN_CENTRE - p;
                if home.length() < BUN_RADIUS * 0.7 {
                    break;
                }
                let mut want = home.normalize();
                if d > lift {
                    want -= gradient(solid, p, 0.01)
                        * ((d - lift) / 0.05).min(1.2)
                        * 0.8
                        * smoothstep(0.3, 0.6, home.length());
                }
                (want, 0.30)
            }
            HairStyle::Short | HairStyle::Side | HairStyle::None => {
                (v + vec3(0.25 * top, -0.55 - 0.2 * top, -0.55) * 0.8, 0.22)
            }
        };
        v = (v * (1.0 - k) + want.normalize_or_zero() * k).normalize();
        if d < lift {
            // Slides along the skin instead of into it.
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
    // All guides of a cut have the same number of points.
    let last = points[points.len() - 1];
    points.resize(steps + 1, last);
    Guide { points, seed: random.unit(), side }
}

/// A strand between its three nearest guides, clumped to the nearest one toward the tip.
fn interpolate_strand(
    scene: &Scene,
    cut: &HairCut,
    guides: &[Guide],
    root: Vec3,
    random: &mut Random,
) -> Strand {
    let mut best = [(9.0f32, 0usize); 3];
    let side = cut.side(root, random);
    for (i, guide) in guides.iter().enumerate().filter(|(_, g)| g.side == side) {
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
    // Along the hairline, fine short hairs stand among the others.
    let edge = height_over_hairline(&scene.character, root) + hairline_noise(root);
    let style = scene.character.hair.style;
    let frequent = smoothstep(hairline_width(root) * 0.8, -0.01, edge);
    let is_fine = random.unit() < frequent;
    let fine = if is_fine { 0.6 + 0.4 * random.unit() } else { 0.25 * frequent };
    let shortest = match style {
        HairStyle::Long | HairStyle::Bob => 0.09,
        HairStyle::Bun => 0.12,
        _ => 0.35,
    };
    let even = if cut.combed { 0.62 } else { 0.80 };
    let short = if is_fine { shortest * (1.0 + 1.2 * random.unit()) } else { 1.0 };
    let share = (even + (1.0 - even) * random.unit()) * short;
    let length = ((n as f32 * share) as usize).clamp(4.min(n), n);
    let stray = if is_fine || random.unit() < 0.05 { 2.0 } else { 1.0 };
    let long = matches!(style, HairStyle::Long | HairStyle::Bob);
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
        // Tips of long hair spread a little: a clump that ends in a point is a spike.
        let spread = if long { 1.0 - 0.35 * smoothstep(0.75, 1.0, t) } else { 1.0 };
        let clump = cut.clump * smoothstep(0.0, 0.75, t) * if stray > 1.5 { 0.55 } else { spread };
        q = q.lerp(lead.points[i] + (root - lead.points[0]) * 0.16, clump);
        q += (va * (waves * t * 2.0).sin() + vb * (waves * t * 3.3 + 1.0).cos() - vb)
            * cut.fuzz
            * t.sqrt()
            * stray;
        if style == HairStyle::Curly {
            // A helix around the guide.
            let along = (lead.points[(i + 1).min(n - 1)] - lead.points[i.saturating_sub(1)])
                .normalize_or_zero();
            let u = along.cross(vec3(0.3, 0.9, 0.2)).normalize_or_zero();
            let w = along.cross(u);
            let angle = phase + handed * i as f32 * pace * 44.0;
            q += (u * angle.cos() + w * angle.sin()) * radius * smoothstep(0.0, 0.2, t);
        }
        points.push(q);
    }
    let tone = noise(lead.points[0] * 7.0 + Vec3::splat(lead.seed * 3.0)) * 0.7
        + random.unit() * 0.5
        - 0.1;
    let colour = strand_colour(scene, tone.clamp(0.0, 1.0), random)
        .lerp(scene.appearance.skin * 0.6, fine * 0.5);
    Strand {
        points,
        width: cut.width * mix(1.0, 0.32, fine),
        tip: if long { 0.05 } else { 0.12 },
        colour,
        shine: 1.0 - 0.5 * fine,
        tilt: 0.11 * random.signed(),
        root_light: mix(0.55, 0.92, fine),
        skin_normal: None,
    }
}

/// Color of a strand between dark (0) and light (1), or gray.
fn strand_colour(scene: &Scene, tone: f32, random: &mut Random) -> Vec3 {
    let [dark, light] = scene.appearance.hair;
    if random.unit() < scene.character.hair.grey {
        return vec3(0.30, 0.292, 0.285) * (0.7 + 0.4 * random.unit());
    }
    dark.lerp(light, tone)
}
