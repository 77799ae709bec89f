//! The eye between the lids, with the iris turned away from where the photo has it.

use glam::{Vec2, Vec3, vec2};

use crate::curve::smoothstep;
use crate::geometry::{Eye, Frame};
use crate::image::{Image, luma};

/// Radius of the eyeball relative to that of the iris: 12 mm of 5.9 mm. It is at most this many
/// half widths of the eye, for drawn faces with large irises.
const BALL: f32 = 2.03;
const MAX_BALL: f32 = 0.90;
/// Largest angles of the gaze, as those of the drawn characters: to the side 26°, up 20°.
const GAZE: Vec2 = vec2(0.4538, 0.3491);
/// The photo is white beyond this many radii of the iris.
const RIM: f32 = 1.22;
/// Side of the picture of the iris, and the radii that it shows.
const SIDE: usize = 48;
const SHOWN: f32 = 1.25;
/// Distances from the lids, in half widths of the eye, where lashes and their shadow end.
const LASHES: f32 = 0.09;
const LOWER_LASHES: f32 = 0.05;

/// An eye without lids: what is white, and the iris.
pub(crate) struct Eyeball {
    /// Place of the first pixel of `white` relative to the middle of the eye.
    origin: Vec2,
    width: usize,
    white: Vec<Vec3>,
    iris: Vec<Vec3>,
}

impl Eyeball {
    pub(crate) fn new(eye: &Eye, frame: Frame, image: &Image) -> Self {
        let size = vec2(2.6, 1.8) * eye.half + 2.0;
        let (width, height) = (size.x as usize, size.y as usize);
        let origin = (-size * 0.5).floor();
        let colour = |p: Vec2| image.sample(frame.to_photo(p));
        let place = |i: usize| vec2((i % width) as f32, (i / width) as f32) + origin + eye.centre;
        let mut white: Vec<Vec3> = (0..width * height).map(|i| colour(place(i))).collect();
        let hides = |i: usize| place(i).distance(eye.iris) < RIM * eye.iris_radius;
        let known = |i: usize| {
            let p = place(i);
            let u = eye.u(p.x);
            u.abs() < 0.9
                && p.y > eye.upper.at(u) + LASHES * eye.half
                && p.y < eye.lower.at(u) - LOWER_LASHES * eye.half
                && !hides(i)
        };
        fill(&mut white, width, known, hides);
        Self { origin, width, white, iris: iris(eye, &colour) }
    }

    /// Color at a place of the face, with the iris turned by `gaze` (−1 … 1; x to the right, y up).
    pub(crate) fn colour(&self, eye: &Eye, p: Vec2, gaze: Vec2) -> Vec3 {
        let white = bilinear(&self.white, self.width, p - eye.centre - self.origin);
        let ball = (BALL * eye.iris_radius).min(MAX_BALL * eye.half);
        let turn = (gaze * GAZE).map(f32::sin) * ball;
        let d = (p - eye.iris - vec2(turn.x, -turn.y)) / eye.iris_radius;
        let at = (d / SHOWN * 0.5 + 0.5) * SIDE as f32 - 0.5;
        let iris = bilinear(&self.iris, SIDE, at);
        // The upper lid shades the iris wherever it goes.
        let lid = p.y - eye.upper.at(eye.u(p.x));
        let shade = 1.0 - 0.25 * smoothstep(0.22 * eye.half, 0.0, lid);
        white.lerp(iris * shade, 1.0 - smoothstep(0.96, 1.14, d.length()))
    }
}

/// A sample of a grid; outside of it the nearest one.
fn bilinear(grid: &[Vec3], width: usize, p: Vec2) -> Vec3 {
    let height = grid.len() / width;
    let p = p.clamp(Vec2::ZERO, vec2(width as f32 - 1.001, height as f32 - 1.001));
    let (x, y) = (p.x as usize, p.y as usize);
    let (fx, fy) = (p.x - x as f32, p.y - y as f32);
    let at = |x: usize, y: usize| grid[y.min(height - 1) * width + x.min(width - 1)];
    let row = |y: usize| at(x, y).lerp(at(x + 1, y), fx);
    row(y).lerp(row(y + 1), fy)
}

/// Replaces the `hidden` pixels by what is `known` on both sides in their row, or in the nearest
/// row that has something known.
fn fill(
    pixels: &mut [Vec3],
    width: usize,
    known: impl Fn(usize) -> bool,
    hidden: impl Fn(usize) -> bool,
) {
    let height = pixels.len() / width;
    let rows: Vec<Option<Vec<Vec3>>> = (0..height)
        .map(|y| {
            let first = y * width;
            let places: Vec<usize> = (0..width).filter(|x| known(first + x)).collect();
            let colour = |x: usize| {
                let next = places.partition_point(|k| *k < x);
                // The mean of a few pixels: one of them may be a lash or a glint.
                let side = |range: &[usize]| {
                    let sum: Vec3 = range.iter().map(|x| pixels[first + x]).sum();
                    (!range.is_empty()).then(|| sum / range.len() as f32)
                };
                let left = side(&places[next.saturating_sub(4)..next]);
                let right = side(&places[next..(next + 4).min(places.len())]);
                match (left, right) {
                    (Some(a), Some(b)) => {
                        let (from, to) = (places[next - 1], places[next]);
                        a.lerp(b, (x - from) as f32 / (to - from).max(1) as f32)
                    }
                    (Some(only), None) | (None, Some(only)) => only,
                    (None, None) => Vec3::ZERO,
                }
            };
            (!places.is_empty()).then(|| (0..width).map(colour).collect())
        })
        .collect();
    let filled: Vec<usize> = (0..height).filter(|y| rows[*y].is_some()).collect();
    let nearest = |y: usize| filled.iter().min_by_key(|row| row.abs_diff(y));
    let sources: Vec<Option<&Vec<Vec3>>> =
        (0..height).map(|y| nearest(y).and_then(|row| rows[*row].as_ref())).collect();
    let old: Vec<Vec3> = (0..width * height)
        .map(|i| sources[i / width].map_or(pixels[i], |row| row[i % width]))
        .collect();
    for (i, pixel) in pixels.iter_mut().enumerate() {
        if hidden(i) {
            // Rows differ by noise.
            let (x, y) = (i % width, i / width);
            let near = y.saturating_sub(2)..(y + 3).min(height);
            let count = near.len() as f32;
            *pixel = near.map(|y| old[y * width + x]).sum::<Vec3>() / count;
        }
    }
}

/// The iris as a square picture. What lids hide is taken from its visible part.
fn iris(eye: &Eye, colour: &impl Fn(Vec2) -> Vec3) -> Vec<Vec3> {
    let visible = |d: Vec2| {
        let p = eye.iris + d * eye.iris_radius;
        let u = eye.u(p.x);
        (p.y > eye.upper.at(u) + 0.12 * eye.half && p.y < eye.lower.at(u) - 0.09 * eye.half)
            .then(|| colour(p))
    };
    (0..SIDE * SIDE)
        .map(|i| {
            let d = vec2((i % SIDE) as f32 + 0.5, (i / SIDE) as f32 + 0.5) / SIDE as f32;
            let d = (d * 2.0 - 1.0) * SHOWN;
            // Of all candidates the one in the middle: a second catch light or a lash would look
            // wrong.
            let turned = || {
                let side = vec2(d.length(), 0.0);
                let turned = [vec2(d.x, -d.y), -d, d.perp(), -d.perp(), side, -side];
                let mut seen: Vec<Vec3> = turned.into_iter().filter_map(visible).collect();
                seen.sort_by(|a, b| luma(*a).total_cmp(&luma(*b)));
                seen.get(seen.len().saturating_sub(1) / 2).copied()
            };
            visible(d).or_else(turned).unwrap_or(Vec3::new(40.0, 30.0, 25.0))
        })
        .collect()
}
