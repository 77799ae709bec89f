//! From a scene to linear light: sample, smooth edges, let light spread in skin, lay hair over it.

use glam::{Vec3, vec3};
use rayon::prelude::*;

use crate::camera::{Camera, DISTANCE, luminance};
use crate::scene::Material;
use crate::shade::{Sample, Shader};
use crate::strand::{FINE, Layer, Strand};

/// Samples a pixel's side where neighbours differ.
const EDGE: usize = 2;

/// A pixel: its mean sample, and the depths of its parts for the hair in front of it.
struct Pixel {
    mean: Sample,
    depths: [f32; EDGE * EDGE],
}

/// Draws a part of the picture. `hair` holds the head's hair already; `strands` (brows, lashes, beard) are drawn into it.
pub(crate) fn draw(shader: &Shader<'_>, mut hair: Layer, strands: &[Strand], rect: [usize; 4]) -> Vec<Vec3> {
    let pixels = sample(shader, rect);
    let lit = scatter(shader.camera, &pixels, rect);
    let near: Vec<&Strand> = strands.iter().filter(|s| crosses(shader, s, rect)).collect();
    hair.draw(&near, shader.camera, shader.scene, |s, p, t, k| shader.hair(s, p, t, k));
    let width = rect[2] - rect[0];
    pixels
        .par_iter()
        .zip(lit)
        .enumerate()
        .map(|(i, (pixel, lit))| {
            let (x, y) = (i % width + rect[0], i / width + rect[1]);
            let (mut sum, mut covered) = (Vec3::ZERO, 0.0);
            for v in 0..FINE {
                for u in 0..FINE {
                    let (depth, colour) = hair.at(x, y, u, v);
                    let behind = pixel.depths[v * EDGE / FINE * EDGE + u * EDGE / FINE];
                    if depth < behind + 0.012 {
                        sum += colour.min(Vec3::splat(3.0));
                        covered += 1.0;
                    }
                }
            }
            let share = 1.0 / (FINE * FINE) as f32;
            lit * (1.0 - covered * share) + sum * share
        })
        .collect()
}

/// Whether a strand comes near a part of the picture.
fn crosses(shader: &Shader<'_>, strand: &Strand, [x0, y0, x1, y1]: [usize; 4]) -> bool {
    let margin = 14.0;
    strand.points.iter().any(|p| {
        let (x, y, _) = shader.camera.project(shader.scene.to_world(*p));
        x > x0 as f32 - margin && x < x1 as f32 + margin && y > y0 as f32 - margin && y < y1 as f32 + margin
    })
}

/// One sample a pixel, more where neighbours differ.
fn sample(shader: &Shader<'_>, [x0, y0, x1, y1]: [usize; 4]) -> Vec<Pixel> {
    let (width, height) = (x1 - x0, y1 - y0);
    let first: Vec<Sample> = (0..width * height)
        .into_par_iter()
        .map(|i| shader.sample((i % width + x0) as f32 + 0.5, (i / width + y0) as f32 + 0.5))
        .collect();
    let differs = |a: &Sample, b: &Sample| {
        let solid = a.material != Material::Nothing;
        b.material != a.material
            || (b.depth - a.depth).abs() > 0.05
            || solid && b.normal.dot(a.normal) < 0.86
            || solid && !matches!(a.material, Material::Cloth) && luminance((b.other - a.other).abs()) > 0.10
            || (b.albedo - a.albedo).length() > 0.09
    };
    (0..width * height)
        .into_par_iter()
        .map(|i| {
            let (x, y) = (i % width, i / width);
            let a = first[i];
            let neighbours = [(-1isize, 0isize), (1, 0), (0, -1), (0, 1), (1, 1), (-1, -1)];
            let edge = neighbours.iter().any(|(dx, dy)| {
                let (Some(u), Some(v)) = (x.checked_add_signed(*dx), y.checked_add_signed(*dy)) else {
                    return false;
                };
                u < width && v < height && differs(&a, &first[v * width + u])
            });
            if !edge {
                return Pixel { mean: a, depths: [a.depth; EDGE * EDGE] };
            }
            finer(shader, a, (x + x0) as f32, (y + y0) as f32)
        })
        .collect()
}

/// The mean of a pixel's parts.
fn finer(shader: &Shader<'_>, first: Sample, x: f32, y: f32) -> Pixel {
    let mut mean = Sample {
        irradiance: Vec3::ZERO,
        albedo: Vec3::ZERO,
        is_skin: 0.0,
        other: Vec3::ZERO,
        depth: 0.0,
        ..first
    };
    let mut depths = [0.0; EDGE * EDGE];
    for (k, depth) in depths.iter_mut().enumerate() {
        let (u, v) = ((k % EDGE) as f32, (k / EDGE) as f32);
        let part = shader.sample(x + (u + 0.5) / EDGE as f32, y + (v + 0.5) / EDGE as f32);
        mean.irradiance += part.irradiance * part.is_skin;
        mean.albedo += part.albedo * part.is_skin;
        mean.is_skin += part.is_skin;
        mean.other += part.other.min(Vec3::splat(4.0));
        mean.depth += part.depth.min(12.0);
        *depth = part.depth;
    }
    let share = 1.0 / (EDGE * EDGE) as f32;
    if mean.is_skin > 0.0 {
        mean.irradiance /= mean.is_skin;
    }
    mean.albedo *= share;
    mean.is_skin *= share;
    mean.other *= share;
    mean.depth *= share;
    Pixel { mean, depths }
}

/// Lets light spread inside skin, red the farthest, and multiplies it with the colour.
fn scatter(camera: &Camera, pixels: &[Pixel], rect: [usize; 4]) -> Vec<Vec3> {
    let (width, height) = (rect[2] - rect[0], rect[3] - rect[1]);
    let scale = camera.scale(DISTANCE - 0.7);
    let sigma = vec3(0.050, 0.020, 0.011) * scale;
    let reach = (sigma.x * 2.2).ceil() as isize;
    let taps: Vec<Vec3> = (-reach..=reach)
        .map(|k| {
            let e = -((k * k) as f32) / 2.0;
            vec3(
                (e / (sigma.x * sigma.x)).exp(),
                (e / (sigma.y * sigma.y)).exp(),
                (e / (sigma.z * sigma.z)).exp(),
            )
        })
        .collect();
    let blur = |from: &[Vec3], dx: isize, dy: isize| -> Vec<Vec3> {
        (0..width * height)
            .into_par_iter()
            .map(|i| {
                let here = &pixels[i].mean;
                if here.is_skin == 0.0 {
                    return from[i];
                }
                let (x, y) = ((i % width) as isize, (i / width) as isize);
                let (mut sum, mut weights) = (Vec3::ZERO, Vec3::ZERO);
                for (k, tap) in (-reach..=reach).zip(&taps) {
                    let (u, v) = (x + k * dx, y + k * dy);
                    if u < 0 || v < 0 || u >= width as isize || v >= height as isize {
                        continue;
                    }
                    let j = v as usize * width + u as usize;
                    let there = &pixels[j].mean;
                    if there.is_skin == 0.0 {
                        continue;
                    }
                    // Not across a step in depth.
                    let step = (there.depth - here.depth) / 0.10;
                    let weight = *tap * (-step * step).exp() * there.is_skin;
                    sum += from[j] * weight;
                    weights += weight;
                }
                sum / weights.max(Vec3::splat(1e-6))
            })
            .collect()
    };
    let sharp: Vec<Vec3> = pixels.iter().map(|p| p.mean.irradiance).collect();
    let soft = blur(&blur(&sharp, 1, 0), 0, 1);
    pixels
        .iter()
        .zip(sharp)
        .zip(soft)
        .map(|((p, sharp), soft)| p.mean.albedo * soft.lerp(sharp, 0.18) * 0.80 + p.mean.other)
        .collect()
}
