//! Measures the light, the sharpness and the visible parts of a face.

use crate::detect::distance;
use crate::picture::{Border, Frame, Picture, Point, Pyramid};
use crate::points::index::{CHEEKS, CHIN, FOREHEAD, LEFT_EYE, LEFT_SIDE, RIGHT_EYE, RIGHT_SIDE};
use crate::points::{Points, eye_line};
use crate::thresholds::BURNT_OUT_LEVEL;

/// Size in which a face is measured.
const SIZE: [usize; 2] = [200, 240];
/// A face with less colour than this is of a black-and-white photo: the mean deviation of its
/// channels.
const MIN_COLOUR: f32 = 3.0;
/// Points above and below each eye.
const AROUND_EYES: [[usize; 2]; 2] = [[27, 23], [257, 253]];
/// Points on the lips, and on the skin beside them.
const LIPS: [usize; 6] = [17, 314, 84, 0, 37, 267];
const BESIDE_LIPS: [usize; 4] = [50, 280, 205, 425];
/// Radius of a patch of skin on the cheeks, around the eyes, and on the lips, as shares of the
/// face's height.
const CHEEK_RADIUS: f32 = 0.04;
const EYE_RADIUS: f32 = 0.02;
const LIP_RADIUS: f32 = 0.012;
const SKIN_RADIUS: f32 = 0.03;
/// Maximum number of samples along a patch: it bounds the time for large photos.
const MAX_PATCH: usize = 33;

pub(crate) struct Appearance {
    /// Median level of the face, 0 … 255.
    pub(crate) median_level: f32,
    /// Share of the face that is burnt out: in two channels, because the red of bright skin alone may
    /// be.
    pub(crate) burnt_out: f32,
    /// Standard deviation of the Laplacian of the smoothed face.
    pub(crate) sharpness: f32,
    /// For each eye: the level of its brightest tenth, and of the skin around it, as shares of the
    /// cheeks' level.
    eyes: [[f32; 2]; 2],
    /// Difference of red and green on the lips, minus that of the cheeks. `None` in black and white.
    pub(crate) lip_redness: Option<f32>,
}

impl Appearance {
    pub(crate) fn new(pyramid: &Pyramid<'_>, points: &Points) -> Self {
        let height = distance(points[FOREHEAD], points[CHIN]);
        let width = distance(points[LEFT_SIDE], points[RIGHT_SIDE]);
        let middle = |a: Point, b: Point| [(a[0] + b[0]) / 2.0, (a[1] + b[1]) / 2.0];
        let frame = Frame {
            centre: middle(points[FOREHEAD], points[CHIN]),
            size: [width, height],
            turn: eye_line(|i| points[i]),
        };
        let mut levels = Vec::with_capacity(SIZE[0] * SIZE[1]);
        let (mut colour, mut burnt_out) = (0.0, 0.0);
        pyramid.sample(frame, SIZE, Border::Nearest, |pixel| {
            let mean = level(pixel);
            levels.push(mean);
            let burnt_channels = pixel.iter().filter(|v| **v > BURNT_OUT_LEVEL).count();
            burnt_out += f32::from(u8::from(burnt_channels >= 2));
            let variance = pixel.iter().map(|v| (v - mean).powi(2)).sum::<f32>() / 3.0;
            colour += variance.sqrt();
        });
        let count = levels.len() as f32;
        let sharpness = sharpness(&levels);
        let median_level = percentile(&mut levels, 0.5);

        let picture = pyramid.base();
        let patch = |point: usize, radius: f32, value: fn([f32; 3]) -> f32| {
            patch(picture, points[point], radius * height, value)
        };
        let cheeks = CHEEKS.map(|i| patch(i, CHEEK_RADIUS, level));
        let cheek = ((cheeks[0] + cheeks[1]) / 2.0).max(1.0);
        let eyes = [LEFT_EYE, RIGHT_EYE].into_iter().zip(AROUND_EYES).map(|(eye, around)| {
            let around = around.map(|i| patch(i, EYE_RADIUS, level));
            let [outer, inner, upper, lower, _] = eye.map(|i| points[i]);
            let eye = Frame {
                centre: middle(middle(outer, inner), middle(upper, lower)),
                size: [distance(outer, inner), distance(upper, lower).max(1.0)],
                turn: frame.turn,
            };
            let mut inside = Vec::new();
            pyramid.sample(eye, [32, 16], Border::Nearest, |pixel| inside.push(level(pixel)));
            [percentile(&mut inside, 0.9) / cheek, (around[0] + around[1]) / 2.0 / cheek]
        });
        let eyes: Vec<[f32; 2]> = eyes.collect();
        let redness = |[red, green, _]: [f32; 3]| red - green;
        let mut lips = LIPS.map(|i| patch(i, LIP_RADIUS, redness));
        let mut beside = BESIDE_LIPS.map(|i| patch(i, SKIN_RADIUS, redness));
        let difference = percentile(&mut lips, 0.5) - percentile(&mut beside, 0.5);
        Self {
            median_level,
            burnt_out: burnt_out / count,
            sharpness,
            eyes: [eyes[0], eyes[1]],
            lip_redness: (colour / count > MIN_COLOUR).then_some(difference),
        }
    }

    /// Of the darker eye, the brighter one of its inside and its surroundings.
    pub(crate) fn brightest_eye_part(&self) -> f32 {
        self.eyes.iter().map(|[inside, around]| inside.max(*around)).fold(f32::MAX, f32::min)
    }
}

fn level(pixel: [f32; 3]) -> f32 {
    pixel.iter().sum::<f32>() / 3.0
}

/// The value below which a share of all values lies.
fn percentile(values: &mut [f32], share: f32) -> f32 {
    values.sort_by(f32::total_cmp);
    let last = values.len().saturating_sub(1);
    values.get((last as f32 * share).round() as usize).copied().unwrap_or_default()
}

/// The median of a value in a square.
fn patch(picture: &Picture, [x, y]: Point, radius: f32, value: fn([f32; 3]) -> f32) -> f32 {
    let radius = radius.max(1.0);
    let count = ((2.0 * radius) as usize).saturating_add(1).min(MAX_PATCH);
    let at = |i: usize| ((i as f32 + 0.5) / count as f32 * 2.0 - 1.0) * radius;
    let mut values: Vec<f32> = (0..count * count)
        .map(|i| {
            let (x, y) = (x + at(i % count), y + at(i / count));
            value(picture.pixel(x.floor() as i64, y.floor() as i64))
        })
        .collect();
    percentile(&mut values, 0.5)
}

/// Standard deviation of the Laplacian after smoothing by a Gaussian with σ = 0.8 pixels, so that
/// noise does not look sharp.
fn sharpness(levels: &[f32]) -> f32 {
    let [width, height] = SIZE;
    let kernel = [0.021_9, 0.228_5, 0.499_2, 0.228_5, 0.021_9];
    let smooth = |levels: &[f32], across: bool| -> Vec<f32> {
        (0..width * height)
            .map(|i| {
                let (x, y) = (i % width, i / width);
                (0..5)
                    .map(|k| {
                        let shift =
                            |at: usize, count: usize| (at + k).saturating_sub(2).min(count - 1);
                        let (x, y) =
                            if across { (shift(x, width), y) } else { (x, shift(y, height)) };
                        levels[y * width + x] * kernel[k]
                    })
                    .sum()
            })
            .collect()
    };
    let smoothed = smooth(&smooth(levels, true), false);
    let (mut sum, mut squares, mut count) = (0.0_f64, 0.0_f64, 0.0);
    for y in 1..height - 1 {
        for x in 1..width - 1 {
            let at = |x: usize, y: usize| f64::from(smoothed[y * width + x]);
            let laplacian =
                at(x - 1, y) + at(x + 1, y) + at(x, y - 1) + at(x, y + 1) - 4.0 * at(x, y);
            sum += laplacian;
            squares += laplacian * laplacian;
            count += 1.0;
        }
    }
    let mean = sum / count;
    (squares / count - mean * mean).max(0.0).sqrt() as f32
}
