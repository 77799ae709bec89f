//! The light in the photo: colors of skin and teeth under it.

use glam::{Vec3, vec2, vec3};

use crate::face::Face;
use crate::image::{Image, luma, saturation};

/// Colors of what a pose shows and the photo does not, in levels.
pub(crate) struct Light {
    /// Mean color of the cheeks.
    pub(crate) skin: Vec3,
    /// Teeth in this light.
    pub(crate) teeth: Vec3,
    /// How much brighter the right side of the picture is than the middle, relative to the middle.
    pub(crate) slope: f32,
}

/// Steepest slope. A larger one is the edge of a shadow.
const MAX_SLOPE: f32 = 0.35;
/// White and teeth are less saturated than this, and brighter than this fraction of the skin.
const MAX_SATURATION: f32 = 0.25;
const MIN_BRIGHTNESS: f32 = 0.55;
/// Number of white samples that are enough, and the quantile whose color counts.
const ENOUGH_SAMPLES: usize = 20;
const QUANTILE: f32 = 0.85;
/// Brightness of white relative to the cheeks at least, and in levels.
const MIN_RATIO: f32 = 1.12;
const WHITE_LEVELS: (f32, f32) = (60.0, 230.0);
/// Brightness of the photo's own teeth relative to the cheeks at least: those between parted lips
/// lie in the shadow of the upper lip.
const MIN_TEETH_RATIO: f32 = 1.08;
/// Enamel is yellower than the white of an eye.
const ENAMEL: Vec3 = vec3(1.02, 0.97, 0.87);

impl Light {
    pub(crate) fn new(face: &Face, image: &Image) -> Self {
        let radius = (face.mouth.half * 0.2) as i32;
        let cheeks = face.cheeks.map(|c| image.mean(face.frame.to_photo(c), radius));
        let skin = (cheeks[0] + cheeks[1]) * 0.5;
        let [left, right] = cheeks.map(luma);
        let slope = ((right - left) / (right + left).max(1.0)).clamp(-MAX_SLOPE, MAX_SLOPE);
        let brightest = |samples: Vec<Vec3>| brightest_white(samples, skin);
        let teeth = match brightest(teeth_samples(face, image)) {
            // The photo shows them.
            Some(teeth) => {
                let minimum = luma(skin) * MIN_TEETH_RATIO;
                teeth * (luma(teeth).max(minimum) / luma(teeth).max(1.0))
            }
            None => {
                let white = brightest(eye_samples(face, image))
                    .unwrap_or_else(|| skin.lerp(Vec3::splat(luma(skin)), 0.7));
                let brightness =
                    luma(white).max(luma(skin) * MIN_RATIO).clamp(WHITE_LEVELS.0, WHITE_LEVELS.1);
                let white = white * (brightness / luma(white).max(1.0));
                white.lerp(Vec3::splat(brightness), 0.3) * ENAMEL
            }
        };
        Self { skin, teeth: teeth.min(Vec3::splat(250.0)), slope }
    }

    /// Factor of the light at `x` half widths of the mouth beside its middle.
    pub(crate) fn at(&self, x: f32) -> f32 {
        1.0 + self.slope * x.clamp(-1.0, 1.0)
    }
}

/// The color of the brighter ones among the samples that are white; `None` if there are too few.
fn brightest_white(mut samples: Vec<Vec3>, skin: Vec3) -> Option<Vec3> {
    samples.retain(|c| saturation(*c) < MAX_SATURATION && luma(*c) > MIN_BRIGHTNESS * luma(skin));
    samples.sort_by(|a, b| luma(*a).total_cmp(&luma(*b)));
    (samples.len() > ENOUGH_SAMPLES).then(|| samples[(samples.len() as f32 * QUANTILE) as usize])
}

/// Samples between the lids beside the irises.
fn eye_samples(face: &Face, image: &Image) -> Vec<Vec3> {
    let mut samples = Vec::new();
    for eye in &face.eyes {
        for (i, j) in (-24..=24).flat_map(|i| (0..30).map(move |j| (i, j))) {
            let u = i as f32 / 30.0;
            let (upper, lower) = (eye.upper.at(u), eye.lower.at(u));
            let p = vec2(
                eye.centre.x + u * eye.half,
                upper + (lower - upper) * (0.25 + 0.02 * j as f32),
            );
            if p.distance(eye.iris) > eye.iris_radius * 1.2 {
                samples.push(image.sample(face.frame.to_photo(p)));
            }
        }
    }
    samples
}

/// Samples between parted lips; none if they are closed.
fn teeth_samples(face: &Face, image: &Image) -> Vec<Vec3> {
    let mouth = &face.mouth;
    if !mouth.is_parted() {
        return Vec::new();
    }
    let places = (-10..=10).flat_map(|i| (0..12).map(move |j| (i as f32 / 20.0, j)));
    let sample = |(u, j): (f32, i32)| {
        let (upper, lower) = (mouth.upper_inner.at(u), mouth.lower_inner.at(u));
        let p = vec2(mouth.x(u), upper + (lower - upper) * (0.2 + 0.05 * j as f32));
        image.sample(face.frame.to_photo(p))
    };
    places.map(sample).collect()
}
