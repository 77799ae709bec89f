//! Size of an iris of which only the center is known.

use glam::{Vec2, Vec3};

use crate::geometry::Eye;
use crate::image::luma;

/// Radii relative to half the width of the eye. A smaller one is that of a pupil.
const RADII: (f32, f32) = (0.32, 0.66);
/// Radius of an average iris, and what a deviation from it costs.
const AVERAGE: f32 = 0.40;
const DEVIATION: f32 = 20.0;
const STEPS: usize = 34;
/// Half the width of the rim.
const RIM: f32 = 0.05;

/// The radius, in pixels, at which it is darker inside than outside, to the left and to the right.
/// `colour` samples the photo in the face's frame.
pub(crate) fn find_radius(eye: &Eye, colour: impl Fn(Vec2) -> Vec3) -> f32 {
    let rays: Vec<Vec2> = [-0.35_f32, -0.12, 0.12, 0.35]
        .into_iter()
        .flat_map(|angle| {
            let (sin, cos) = angle.sin_cos();
            [Vec2::new(cos, sin), Vec2::new(-cos, sin)]
        })
        .collect();
    let score = |r: f32| {
        let step = |ray: &Vec2| {
            let level = |r: f32| luma(colour(eye.iris + *ray * (r * eye.half)));
            level(r + RIM) - level(r - RIM)
        };
        // The skin beside an eye and a glint are no rims.
        let mut steps: Vec<f32> = rays.iter().map(step).collect();
        steps.sort_by(f32::total_cmp);
        steps[2..6].iter().sum::<f32>() * 0.25 - DEVIATION * (r - AVERAGE).abs()
    };
    let radii = (0..=STEPS).map(|i| RADII.0 + (RADII.1 - RADII.0) * i as f32 / STEPS as f32);
    let best = radii.max_by(|a, b| score(*a).total_cmp(&score(*b)));
    best.unwrap_or(AVERAGE) * eye.half
}
