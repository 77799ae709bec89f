//! Whether a mouth shows teeth or a gap between its lips.

use crate::detect::distance;
use crate::picture::{Border, Frame, Pyramid};
use crate::points::index::{LIP_LOWER, LIP_UPPER, MOUTH_LEFT, MOUTH_RIGHT};
use crate::points::{Points, eye_line};

/// Columns and rows of the samples from the upper edge of the upper lip to the lower edge of the
/// lower lip.
const SIZE: [usize; 2] = [16, 40];
/// Width of the samples, as a share of the mouth's width.
const WIDTH: f32 = 0.4;
/// Rows in which the lips meet. Those below may have a highlight, which looks like teeth.
const MIDDLE: std::ops::Range<usize> = 6..27;
/// A row shows teeth if its redness is below this share of the lips' redness, and it is brighter
/// than the median row.
const TEETH_REDNESS: f32 = 0.5;
/// Lips with less redness are of a black-and-white photo.
const MIN_REDNESS: f32 = 0.04;
/// A row shows a gap if its level is below this share of the upper quartile of all rows.
const GAP_LEVEL: f32 = 0.5;
/// Number of such rows between lips that are not closed.
const MIN_ROWS: usize = 4;

/// Whether the lips seem to be open. Redness is the difference of red and green as a share of the
/// colour's sum. Lips have the upper quartile of their rows: teeth and gaps are less red.
pub(crate) fn open_lips(pyramid: &Pyramid<'_>, points: &Points) -> bool {
    let (upper, lower) = (points[LIP_UPPER], points[LIP_LOWER]);
    let frame = Frame {
        centre: [(upper[0] + lower[0]) / 2.0, (upper[1] + lower[1]) / 2.0],
        size: [WIDTH * distance(points[MOUTH_LEFT], points[MOUTH_RIGHT]), distance(upper, lower)],
        turn: eye_line(|i| points[i]),
    };
    let mut samples = Vec::with_capacity(SIZE[0] * SIZE[1]);
    pyramid.sample(frame, SIZE, Border::Nearest, |[red, green, blue]| {
        let sum = red + green + blue;
        samples.push([(red - green) / sum.max(1.0), sum / 3.0]);
    });
    let quantile = |values: &[[f32; 2]], of: usize, share: f32| {
        let mut values: Vec<f32> = values.iter().map(|value| value[of]).collect();
        values.sort_by(f32::total_cmp);
        values[(values.len() as f32 * share) as usize]
    };
    let rows: Vec<[f32; 2]> =
        samples.chunks(SIZE[0]).map(|row| [0, 1].map(|of| quantile(row, of, 0.5))).collect();
    let [lip_redness, bright] = [0, 1].map(|of| quantile(&rows, of, 0.75));
    let lip_level = quantile(&rows, 1, 0.5);
    let count = |is_open: &dyn Fn(&[f32; 2]) -> bool| {
        rows[MIDDLE].iter().filter(|row| is_open(row)).count()
    };
    let teeth = count(&|[redness, level]| {
        lip_redness > MIN_REDNESS && *redness < TEETH_REDNESS * lip_redness && *level > lip_level
    });
    let gap = count(&|[_, level]| *level < GAP_LEVEL * bright);
    teeth >= MIN_ROWS || gap >= MIN_ROWS
}
