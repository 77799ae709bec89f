//! Renders a scene to linear light: samples, smooths edges, spreads light in skin, and draws hair
//! on top.

use glam::{Vec3, vec3};
use rayon::prelude::*;

use crate::camera::{CAMERA_DISTANCE, Camera, luminance};
use crate::character::ClothesStyle;
use crate::ray_march;
use crate::scene::{Material, Scene};
use crate::shade::{BACKGROUND_DEPTH, Hit, Sample, Shader, Visibility};
use crate::strand::{HairLayer, OcclusionDepths, SUBPIXELS, Strand};

/// Samples per side of a pixel where neighbors differ.
const EDGE_SAMPLES: usize = 2;
/// Positions of the samples in a pixel, one in each of its parts. No two share a row or column, so
/// that nearly horizontal and nearly vertical edges have as many steps as there are samples.
const SAMPLE_OFFSETS: [[f32; 2]; EDGE_SAMPLES * EDGE_SAMPLES] =
    [[0.375, 0.125], [0.875, 0.375], [0.125, 0.625], [0.625, 0.875]];

/// A pixel: its mean sample, and the depths of its parts for the hair in front of it.
struct Pixel {
    mean: Sample,
    depths: [f32; EDGE_SAMPLES * EDGE_SAMPLES],
}

/// Draws a rectangle of the picture. `hair` already contains the head's hair; `strands` (brows,
/// lashes, beard) are drawn into it.
pub(crate) fn draw_rect(
    shader: &Shader<'_>,
    mut hair: HairLayer,
    strands: &[Strand],
    rect: [usize; 4],
) -> Vec<Vec3> {
    let pixels = sample_pixels(shader, &hair, rect);
    let lit = subsurface_scatter(shader.camera, &pixels, rect);
    let near: Vec<&Strand> = strands.iter().filter(|s| strand_near_rect(shader, s, rect)).collect();
    hair.draw(&near, shader.camera, shader.scene, None, |s, p, t, k| shader.shade_hair(s, p, t, k));
    let width = rect[2] - rect[0];
    pixels
        .par_iter()
        .zip(lit)
        .enumerate()
        .map(|(i, (pixel, lit))| {
            let (x, y) = (i % width + rect[0], i / width + rect[1]);
            let (mut sum, mut covered) = (Vec3::ZERO, 0.0);
            for v in 0..SUBPIXELS {
                for u in 0..SUBPIXELS {
                    let (depth, colour) = hair.sample(x, y, u, v);
                    let surface_depth = pixel.depths[v * EDGE_SAMPLES / SUBPIXELS * EDGE_SAMPLES
                        + u * EDGE_SAMPLES / SUBPIXELS];
                    if depth < surface_depth + 0.012 {
                        sum += colour;
                        covered += 1.0;
                    }
                }
            }
            let share = 1.0 / (SUBPIXELS * SUBPIXELS) as f32;
            lit * (1.0 - covered * share) + sum * share
        })
        .collect()
}

/// The share of each pixel of the picture that solids or hair cover, 0 … 1. Beards, brows and lashes
/// do not count: they hardly leave the outline.
pub(crate) fn coverage(shader: &Shader<'_>, hair: &HairLayer) -> Vec<f32> {
    let (width, height) = (shader.camera.width, shader.camera.height);
    let rect = [0, 0, width, height];
    let together = RayStarts::new(shader, rect, TILE_PIXELS, 0.03, None);
    let starts = RayStarts::new(shader, rect, SUBTILE_PIXELS, 0.003, Some(&together));
    (0..width * height)
        .into_par_iter()
        .map(|i| {
            let (x, y) = (i % width, i / width);
            let solid = SAMPLE_OFFSETS.map(|[dx, dy]| {
                let ray = shader.camera.ray(x as f32 + dx, y as f32 + dy);
                ray_march::intersect(shader.scene, shader.camera, ray, starts.get(x, y)).is_some()
            });
            let parts = (0..SUBPIXELS).flat_map(|v| (0..SUBPIXELS).map(move |u| (u, v)));
            let covered = parts.filter(|&(u, v)| {
                let part =
                    v * EDGE_SAMPLES / SUBPIXELS * EDGE_SAMPLES + u * EDGE_SAMPLES / SUBPIXELS;
                solid[part] || hair.sample(x, y, u, v).0 < BACKGROUND_DEPTH
            });
            covered.count() as f32 / (SUBPIXELS * SUBPIXELS) as f32
        })
        .collect()
}

/// Whether a strand comes near a rectangle of the picture.
fn strand_near_rect(shader: &Shader<'_>, strand: &Strand, [x0, y0, x1, y1]: [usize; 4]) -> bool {
    let margin = 14.0;
    strand.points.iter().any(|p| {
        let (x, y, _) = shader.camera.project(shader.scene.to_world(*p));
        x > x0 as f32 - margin
            && x < x1 as f32 + margin
            && y > y0 as f32 - margin
            && y < y1 as f32 + margin
    })
}

/// Side in pixels of the squares whose rays start together.
const TILE_PIXELS: usize = 8;

/// Side in pixels of the smaller squares within them.
const SUBTILE_PIXELS: usize = 2;

/// Free distance of the rays through each square of a rectangle of the picture.
struct RayStarts {
    side: usize,
    left: usize,
    top: usize,
    columns: usize,
    distances: Vec<f32>,
}

impl RayStarts {
    /// Computes it for squares of `side` pixels. A ray stops where one ray of its square may be as
    /// close as `air` to a surface. It starts where the larger squares of `from` stopped.
    fn new(
        shader: &Shader<'_>,
        rect: [usize; 4],
        side: usize,
        air: f32,
        from: Option<&Self>,
    ) -> Self {
        // Squares have fixed positions in the whole picture, so that a rectangle gives the same
        // result as the whole.
        let [x0, y0, x1, y1] = rect;
        let (left, top) = (x0 / side, y0 / side);
        let across = x1.div_ceil(side) - left;
        let spread = side as f32 * core::f32::consts::FRAC_1_SQRT_2 / shader.camera.scale(1.0);
        let ways = (0..across * (y1.div_ceil(side) - top))
            .into_par_iter()
            .map(|i| {
                let (x, y) = ((left + i % across) * side, (top + i / across) * side);
                let middle = |n: usize| n as f32 + side as f32 * 0.5;
                let ray = shader.camera.ray(middle(x), middle(y));
                let t = from.map_or(0.0, |from| from.get(x, y));
                ray_march::free_distance(shader.scene, shader.camera, ray, spread, t, air)
            })
            .collect();
        Self { side, left, top, columns: across, distances: ways }
    }

    /// Free distance of a pixel's rays.
    fn get(&self, x: usize, y: usize) -> f32 {
        self.distances[(y / self.side - self.top) * self.columns + x / self.side - self.left]
    }
}

/// Takes one sample per pixel, and more where neighbors differ.
fn sample_pixels(
    shader: &Shader<'_>,
    hair: &HairLayer,
    [x0, y0, x1, y1]: [usize; 4],
) -> Vec<Pixel> {
    let (width, height) = (x1 - x0, y1 - y0);
    let rect = [x0, y0, x1, y1];
    let together = RayStarts::new(shader, rect, TILE_PIXELS, 0.03, None);
    let starts = RayStarts::new(shader, rect, SUBTILE_PIXELS, 0.003, Some(&together));
    let start = |x: usize, y: usize| starts.get(x, y);
    let place = |i: usize| (i % width + x0, i / width + y0);
    let hits: Vec<Hit> = (0..width * height)
        .into_par_iter()
        .map(|i| {
            let (x, y) = place(i);
            shader.intersect(x as f32 + 0.5, y as f32 + 0.5, start(x, y), hair.farthest_depth(x, y))
        })
        .collect();
    let traced = trace_all(shader, &hits, rect);
    let first: Vec<Sample> = (0..width * height)
        .into_par_iter()
        .map(|i| {
            let (x, y) = place(i);
            shader.shade(x as f32 + 0.5, y as f32 + 0.5, &hits[i], &traced[i])
        })
        .collect();
    // The stitches of a jumper are no edges.
    let knitted = matches!(
        shader.scene.character.clothes.style,
        ClothesStyle::Crew | ClothesStyle::Turtleneck
    );
    let differs = |i: usize, j: usize| {
        let (a, b) = (&first[i], &first[j]);
        let solid = a.material != Material::None;
        b.material != a.material
            || (b.depth - a.depth).abs() > 0.05 && !hits[i].is_coplanar_with(&hits[j])
            || solid && b.normal.dot(a.normal) < 0.86
            || solid
                && !(knitted && a.material == Material::Cloth)
                && luminance((b.other_light - a.other_light).abs()) > 0.10
            || (b.albedo - a.albedo).length() > 0.09
    };
    (0..width * height)
        .into_par_iter()
        .map(|i| {
            let a = first[i];
            let near = neighbours(i, width, height);
            let (x, y) = place(i);
            let hair_depth = hair.farthest_depth(x, y);
            if hair_depth < a.depth || !near.clone().any(|j| differs(i, j)) {
                return Pixel { mean: a, depths: [a.depth; EDGE_SAMPLES * EDGE_SAMPLES] };
            }
            // The pixel's parts lie on surfaces that the pixel or a neighbor has already traced.
            let trace = |hit: &Hit| {
                let known =
                    core::iter::once(i).chain(near.clone()).find(|j| same_surface(hit, &hits[*j]));
                known.map_or_else(|| shader.trace_visibility(hit), |j| traced[j])
            };
            // Nothing that is closer by half a centimeter hides between the pixel and its
            // neighbors.
            let nearest =
                near.clone().fold(a.depth, |nearest_depth, j| nearest_depth.min(hits[j].depth));
            let start = if nearest < BACKGROUND_DEPTH {
                start(x, y).max(nearest - 0.05)
            } else {
                start(x, y)
            };
            supersample(shader, a, [x as f32, y as f32], start, hair_depth, trace)
        })
        .collect()
}

/// Solids hide head hair that lies this far behind them, in any pose of the face.
const HIDDEN_MARGIN: f32 = 0.8;

/// Depths behind which no hair of the head is visible, independent of lips, jaw and eyes.
pub(crate) fn hidden_depths(scene: &Scene, camera: &Camera) -> OcclusionDepths {
    let (across, down) = (camera.width.div_ceil(TILE_PIXELS), camera.height.div_ceil(TILE_PIXELS));
    let solid: Vec<f32> = (0..across * down)
        .into_par_iter()
        .map(|i| {
            let middle = |n: usize| (n * TILE_PIXELS) as f32 + TILE_PIXELS as f32 * 0.5;
            let ray = camera.ray(middle(i % across), middle(i / across));
            let start = ray_march::free_distance(scene, camera, ray, 0.0, 0.0, 0.03);
            ray_march::intersect(scene, camera, ray, start)
                .map_or(f32::MAX, |(p, _)| camera.depth(p))
        })
        .collect();
    // Maximum depth of a square and its neighbors, so that borders do not matter.
    let depths = (0..across * down)
        .map(|i| {
            let (x, y) = (i % across, i / across);
            let rows = y.saturating_sub(1)..(y + 2).min(down);
            rows.flat_map(|v| {
                &solid[v * across + x.saturating_sub(1)..v * across + (x + 2).min(across)]
            })
            .fold(0.0f32, |far, depth| far.max(*depth))
                + HIDDEN_MARGIN
        })
        .collect();
    OcclusionDepths { tile_pixels: TILE_PIXELS, columns: across, depths }
}

/// The pixels around one.
fn neighbours(i: usize, width: usize, height: usize) -> impl Iterator<Item = usize> + Clone {
    let (x, y) = (i % width, i / width);
    [(-1isize, 0isize), (1, 0), (0, -1), (0, 1), (1, 1), (-1, -1)].into_iter().filter_map(
        move |(dx, dy)| {
            let (u, v) = (x.checked_add_signed(dx)?, y.checked_add_signed(dy)?);
            (u < width && v < height).then_some(v * width + u)
        },
    )
}

/// Whether two hits lie close together on one smooth surface.
fn same_surface(a: &Hit, b: &Hit) -> bool {
    a.material == b.material && (a.depth - b.depth).abs() < 0.03 && a.normal.dot(b.normal) > 0.93
}

/// Visibility of lights and sky at every pixel. It is traced at every second pixel of every second
/// row, and between these only where a surface bends.
fn trace_all(shader: &Shader<'_>, hits: &[Hit], [x0, y0, x1, _]: [usize; 4]) -> Vec<Visibility> {
    let width = x1 - x0;
    let even = |i: usize| (i % width + x0).is_multiple_of(2) && (i / width + y0).is_multiple_of(2);
    let on_grid: Vec<Visibility> = hits
        .par_iter()
        .enumerate()
        .map(|(i, hit)| {
            if even(i) && hit.material != Material::None {
                shader.trace_visibility(hit)
            } else {
                Visibility::default()
            }
        })
        .collect();
    let height = hits.len() / width;
    hits.par_iter()
        .enumerate()
        .map(|(i, hit)| {
            if even(i) || hit.material == Material::None {
                return on_grid[i];
            }
            let (x, y) = (i % width, i / width);
            let columns =
                if (x + x0).is_multiple_of(2) { [x, x] } else { [x.wrapping_sub(1), x + 1] };
            let rows = if (y + y0).is_multiple_of(2) { [y, y] } else { [y.wrapping_sub(1), y + 1] };
            let (mut sum, mut number) = (Visibility::default(), 0.0);
            for (u, v) in rows.into_iter().flat_map(|v| columns.map(|u| (u, v))) {
                if u < width && v < height && same_surface(hit, &hits[v * width + u]) {
                    let t = &on_grid[v * width + u];
                    sum.sky_visibility += t.sky_visibility;
                    for (sum, seen) in sum.light_visibility.iter_mut().zip(t.light_visibility) {
                        *sum += seen;
                    }
                    number += 1.0;
                }
            }
            // One of four is too far to one side.
            if number < 2.0 {
                return shader.trace_visibility(hit);
            }
            Visibility {
                light_visibility: sum.light_visibility.map(|s| s / number),
                sky_visibility: sum.sky_visibility / number,
            }
        })
        .collect()
}

/// The mean of a pixel's parts.
fn supersample(
    shader: &Shader<'_>,
    first: Sample,
    [x, y]: [f32; 2],
    start: f32,
    hair: f32,
    trace: impl Fn(&Hit) -> Visibility,
) -> Pixel {
    let mut mean = Sample {
        irradiance: Vec3::ZERO,
        albedo: Vec3::ZERO,
        is_skin: 0.0,
        other_light: Vec3::ZERO,
        depth: 0.0,
        ..first
    };
    let mut depths = [0.0; EDGE_SAMPLES * EDGE_SAMPLES];
    for (k, depth) in depths.iter_mut().enumerate() {
        let (x, y) = (x + SAMPLE_OFFSETS[k][0], y + SAMPLE_OFFSETS[k][1]);
        let hit = shader.intersect(x, y, start, hair);
        let known =
            if hit.material == Material::None { Visibility::default() } else { trace(&hit) };
        let part = shader.shade(x, y, &hit, &known);
        mean.irradiance += part.irradiance * part.is_skin;
        mean.albedo += part.albedo * part.is_skin;
        mean.is_skin += part.is_skin;
        mean.other_light += part.other_light.min(Vec3::splat(4.0));
        mean.depth += part.depth.min(12.0);
        *depth = part.depth;
    }
    let share = 1.0 / (EDGE_SAMPLES * EDGE_SAMPLES) as f32;
    if mean.is_skin > 0.0 {
        mean.irradiance /= mean.is_skin;
    }
    mean.albedo *= share;
    mean.is_skin *= share;
    mean.other_light *= share;
    mean.depth *= share;
    Pixel { mean, depths }
}

/// Spread of light in skin: standard deviations in pixels of the three channels, and the radius in
/// pixels beyond which there is none.
fn scatter_radius(camera: &Camera) -> (Vec3, usize) {
    let sigma = vec3(0.050, 0.020, 0.011) * camera.scale(CAMERA_DISTANCE - 0.7);
    (sigma, (sigma.x * 2.2).ceil() as usize)
}

/// Radius in pixels of the area that a pixel's light depends on: light spreads, and the neighbors
/// and their neighbors decide whether it lies on an edge.
pub(crate) fn dependency_radius(camera: &Camera) -> usize {
    scatter_radius(camera).1 + 2
}

/// Spreads light inside skin, red the farthest, and multiplies it with the color.
fn subsurface_scatter(camera: &Camera, pixels: &[Pixel], rect: [usize; 4]) -> Vec<Vec3> {
    let (width, height) = (rect[2] - rect[0], rect[3] - rect[1]);
    let (sigma, reach) = scatter_radius(camera);
    let reach = reach as isize;
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
                    let near = 1.0 / (1.0 + step * step);
                    let weight = *tap * near * near * there.is_skin;
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
        .map(|((p, sharp), soft)| {
            p.mean.albedo * soft.lerp(sharp, 0.18) * 0.80 + p.mean.other_light
        })
        .collect()
}
