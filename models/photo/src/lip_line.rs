//! Finds the line between closed lips in the photo. Landmarks miss it by a pixel or two, and the
//! color of one lip would move with the other.

use glam::{Vec2, Vec3, vec2};

use crate::curve::Curve;
use crate::face::Mouth;
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

/// The darkest path from corner to corner near the mouth's guessed line, by dynamic programming.
/// `colour` samples the photo in the face's frame.
pub(crate) fn find(mouth: &Mouth, is_rough: bool, colour: impl Fn(Vec2) -> Vec3) -> Curve {
    let step = REACH[usize::from(is_rough)] * mouth.half / OFFSETS as f32;
    let side = 0.07 * mouth.half;
    let position = |column: usize| (column as f32 / (COLUMNS - 1) as f32 * 2.0 - 1.0) * ENDS;
    let height = |column: usize, k: usize| {
        mouth.lip_line.at(position(column)) + (k as f32 - OFFSETS as f32) * step
    };
    let cost = |column: usize, k: usize| {
        let x = mouth.x(position(column));
        let level = |y: f32| luma(colour(vec2(x, y)));
        let y = height(column, k);
        let (here, around) = (level(y), (level(y - side) + level(y + side)) * 0.5);
        let off = (k as f32 - OFFSETS as f32) / OFFSETS as f32;
        here * DARKNESS + (here - around).min(0.0) * VALLEY + off * off * DEVIATION
    };
    const CHOICES: usize = 2 * OFFSETS + 1;
    let mut sums = [0.0_f32; CHOICES];
    let mut previous = vec![[0_usize; CHOICES]; COLUMNS];
    for (column, ways) in previous.iter_mut().enumerate() {
        let before = sums;
        for (k, (sum, way)) in sums.iter_mut().zip(ways).enumerate() {
            let (mut best, mut from) = (0.0, k);
            if column > 0 {
                best = f32::MAX;
                for j in k.saturating_sub(1)..=(k + 1).min(CHOICES - 1) {
                    let sum = before[j] + BEND * j.abs_diff(k) as f32;
                    if sum < best {
                        (best, from) = (sum, j);
                    }
                }
            }
            (*sum, *way) = (best + cost(column, k), from);
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
