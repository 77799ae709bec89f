//! Finds the line between closed lips, or the edges of parted ones, in the photo. Landmarks miss
//! them by a pixel or two, and the color of one lip would move with the other, or teeth with a lip.

use glam::{Vec2, Vec3, vec2};

use crate::curve::Curve;
use crate::geometry::Mouth;
use crate::image::luma;

/// Places along the mouth, and offsets from the guess on either side.
const COLUMNS: usize = 61;
const OFFSETS: usize = 12;
/// Largest offset, in half widths of the mouth. The second one is for lips of which only the middle
/// is known.
const REACH: [f32; 2] = [0.14, 0.22];
/// The corners themselves have shadows of their own.
const ENDS: f32 = 0.96;
/// Cost per level of darkness, of a valley relative to its surroundings, of leaving the guess, and
/// of a change of the offset.
const DARKNESS: f32 = 0.07;
const VALLEY: f32 = 0.10;
const DEVIATION: f32 = 1.2;
const BEND: f32 = 1.5;
/// Gain per level of contrast at the edge of a parted lip.
const CONTRAST: f32 = 0.06;
/// Parted lips are cut this far inside their edge, in half widths of the mouth: pixels at the edge
/// contain teeth.
const MARGIN: f32 = 0.045;
const CHOICES: usize = 2 * OFFSETS + 1;

/// The darkest path from corner to corner near the mouth's guessed line. `colour` samples the photo
/// in the face's frame.
pub(crate) fn find(mouth: &Mouth, is_rough: bool, colour: impl Fn(Vec2) -> Vec3) -> Curve {
    let side = 0.07 * mouth.half;
    let reach = REACH[usize::from(is_rough)] * mouth.half;
    best_path(mouth, &mouth.lip_line, reach, |x, y| {
        let level = |y: f32| luma(colour(vec2(x, y)));
        let (here, around) = (level(y), (level(y - side) + level(y + side)) * 0.5);
        here * DARKNESS + (here - around).min(0.0) * VALLEY
    })
}

/// The edge of a parted lip near its guess `inner`: on one side lies the color of the lip, on the
/// other one anything else. `outer` is the other edge of the lip.
pub(crate) fn find_edge(
    mouth: &Mouth,
    inner: &Curve,
    outer: &Curve,
    colour: impl Fn(Vec2) -> Vec3,
) -> Curve {
    // Upward for the upper lip, downward for the lower one.
    let outward = (outer.at(0.0) - inner.at(0.0)).signum();
    let side = vec2(0.0, 0.045 * mouth.half * outward);
    let edge = best_path(mouth, inner, REACH[0] * 0.9 * mouth.half, |x, y| {
        let (p, u) = (vec2(x, y), mouth.u(x));
        let lip = colour(vec2(x, (inner.at(u) + outer.at(u)) * 0.5));
        CONTRAST * (colour(p + side).distance(lip) - colour(p - side).distance(lip))
    });
    Curve::from_fn(|u| edge.at(u) + outward * MARGIN * mouth.half)
}

/// The path from corner to corner with the lowest sum of costs, within `reach` pixels of the guess,
/// by dynamic programming. `cost` takes a place of the face's frame.
fn best_path(mouth: &Mouth, guess: &Curve, reach: f32, cost: impl Fn(f32, f32) -> f32) -> Curve {
    let step = reach / OFFSETS as f32;
    let position = |column: usize| (column as f32 / (COLUMNS - 1) as f32 * 2.0 - 1.0) * ENDS;
    let height =
        |column: usize, k: usize| guess.at(position(column)) + (k as f32 - OFFSETS as f32) * step;
    let mut sums = [0.0_f32; CHOICES];
    let mut previous = vec![[0_usize; CHOICES]; COLUMNS];
    for (column, ways) in previous.iter_mut().enumerate() {
        let before = sums;
        let x = mouth.x(position(column));
        for (k, (sum, way)) in sums.iter_mut().zip(ways).enumerate() {
            let (mut best, mut from) = (0.0, k);
            if column > 0 {
                best = f32::MAX;
                let first = k.saturating_sub(1);
                for (j, before) in (first..).zip(&before[first..(k + 2).min(CHOICES)]) {
                    let sum = before + BEND * j.abs_diff(k) as f32;
                    if sum < best {
                        (best, from) = (sum, j);
                    }
                }
            }
            let off = (k as f32 - OFFSETS as f32) / OFFSETS as f32;
            *sum = best + cost(x, height(column, k)) + off * off * DEVIATION;
            *way = from;
        }
    }
    let mut k = (0..CHOICES).min_by(|a, b| sums[*a].total_cmp(&sums[*b])).unwrap_or(OFFSETS);
    let mut path = [0.0; COLUMNS];
    for column in (0..COLUMNS).rev() {
        path[column] = height(column, k);
        k = previous[column][k];
    }
    // The path moves in steps.
    Curve::through((0..COLUMNS).map(|column| {
        let near = &path[column.saturating_sub(2)..(column + 3).min(COLUMNS)];
        vec2(position(column), near.iter().sum::<f32>() / near.len() as f32)
    }))
}
