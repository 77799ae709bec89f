//! Puts an avatar in front of another background.
//!
//! With the share α of the person in a pixel, the pixel shows α × person + (1 − α) × background, in
//! linear light. If the old background is known, the new picture is the old one + (1 − α) × (new −
//! old background). Thus the person needs not be known where both share a pixel. The share in a
//! photo is only estimated, and a wrong one leaves a dark or bright line around the person. So the
//! person's part of the light is limited by the colour of the person beside the outline.

use super::matte::{box_mean, smoothstep};

/// Separates the person of a picture from its background.
pub(super) struct Cutout {
    /// Share of the person in each pixel, 0 … 1.
    pub(super) person: Vec<f32>,
    /// The background alone, sRGB. It is only used where the person does not cover it.
    pub(super) background: Vec<u8>,
    /// The colour of the person near each pixel of the outline, sRGB, if the shares are estimated.
    pub(super) person_colour: Option<Vec<u8>>,
}

/// Limits of the light of the person in an outline, relative to that beside it.
const PERSON_LIGHT: (f32, f32) = (0.6, 1.5);
/// Share from which a pixel shows only the person.
const PERSON_SHARE: f32 = 0.98;

/// Radius in which the background behind an outline is estimated, relative to the picture's height.
const ESTIMATE_RADIUS: f32 = 0.02;
/// Shares of the person up to which a pixel shows the background, and from which it must be
/// estimated.
const BACKGROUND_SHARES: (f32, f32) = (0.002, 0.02);
/// Gaussian blur by this many box filters.
const BOXES: usize = 3;
/// Blur of strength 1: radius of each box relative to the picture's height.
const MAX_BLUR: f32 = 0.07;

impl Cutout {
    /// Estimates the background of a photo whose person is known: around the person it continues
    /// what is beside it.
    pub(super) fn of_photo(rgb: &[u8], size: (usize, usize), person: Vec<f32>) -> Self {
        let radius = ((size.1 as f32 * ESTIMATE_RADIUS) as usize).max(1);
        let near = spread_background(rgb, size, &person, radius);
        let inside = |share: &f32| f32::from(u8::from(*share >= PERSON_SHARE));
        let person_colour = spread(rgb, size, person.iter().map(inside).collect(), radius);
        let person_colour = person_colour.iter().map(|level| (level + 0.5) as u8).collect();
        let background = rgb
            .chunks_exact(3)
            .zip(near.chunks_exact(3))
            .zip(&person)
            .flat_map(|((seen, near), share)| {
                let estimate = smoothstep(BACKGROUND_SHARES.0, BACKGROUND_SHARES.1, *share);
                [0, 1, 2].map(|k| {
                    let seen = f32::from(seen[k]);
                    (seen + (near[k] - seen) * estimate + 0.5) as u8
                })
            })
            .collect();
        Self { person, background, person_colour: Some(person_colour) }
    }

    /// The background out of focus. `strength`: 0 … 1.
    pub(super) fn blurred(&self, size: (usize, usize), strength: f32) -> Vec<u8> {
        let radius = (size.1 as f32 * MAX_BLUR * strength.clamp(0.0, 1.0)) as usize;
        if radius == 0 {
            return self.background.clone();
        }
        let blurred = spread_background(&self.background, size, &self.person, radius);
        blurred.iter().map(|level| (level + 0.5) as u8).collect()
    }

    /// Replaces the background of the picture that this cutout was made of.
    ///
    /// # Panics
    /// If a picture has another size.
    pub(super) fn replace(&self, rgba: &mut [u8], background: &[u8]) {
        assert_eq!(background.len(), self.background.len(), "both have the size of the picture");
        let linear = linear_levels();
        for (i, (pixel, share)) in rgba.chunks_exact_mut(4).zip(&self.person).enumerate() {
            if *share >= 1.0 {
                continue;
            }
            for (k, level) in pixel[..3].iter_mut().enumerate() {
                let light = |levels: &[u8]| linear[usize::from(levels[i * 3 + k])];
                let now = linear[usize::from(*level)];
                let mut person = now - (1.0 - share) * light(&self.background);
                // Where there is no person, what differs from the background is its own detail.
                if let Some(colour) = self.person_colour.as_ref().filter(|_| *share > 0.0) {
                    let full = share * light(colour);
                    person = person.clamp(full * PERSON_LIGHT.0, full * PERSON_LIGHT.1);
                }
                *level = to_srgb(person + (1.0 - share) * light(background));
            }
        }
    }
}

/// The background's levels, smoothed over about `radius` pixels without those of the person.
fn spread_background(rgb: &[u8], size: (usize, usize), person: &[f32], radius: usize) -> Vec<f32> {
    // An outline shows some of the person, so it does not count.
    let weight = |share: &f32| (1.0 - share / BACKGROUND_SHARES.1).max(0.0).powi(2);
    spread(rgb, size, person.iter().map(weight).collect(), radius)
}

/// The levels of the pixels with a weight, smoothed over about `radius` pixels.
fn spread(rgb: &[u8], size: (usize, usize), weights: Vec<f32>, radius: usize) -> Vec<f32> {
    let smooth = |mut values: Vec<f32>| {
        for _ in 0..BOXES {
            values = box_mean(&values, size, radius);
        }
        values
    };
    let total = smooth(weights.clone());
    let mut out = vec![0.0; rgb.len()];
    for k in 0..3 {
        let levels: Vec<f32> = rgb.chunks_exact(3).map(|p| f32::from(p[k])).collect();
        let weighted = levels.iter().zip(&weights).map(|(level, weight)| level * weight);
        let sums = smooth(weighted.collect());
        let plain = smooth(levels);
        for i in 0..total.len() {
            // Far from all of them nothing is known, and nothing is shown.
            let known = total[i] > 1e-4;
            out[i * 3 + k] = if known { sums[i] / total[i] } else { plain[i] }.clamp(0.0, 255.0);
        }
    }
    out
}

/// Linear light of each sRGB level (IEC 61966-2-1).
fn linear_levels() -> [f32; 256] {
    std::array::from_fn(|level| {
        let v = level as f32 / 255.0;
        if v < 0.04045 { v / 12.92 } else { ((v + 0.055) / 1.055).powf(2.4) }
    })
}

fn to_srgb(light: f32) -> u8 {
    let l = light.clamp(0.0, 1.0);
    let v = if l < 0.003_130_8 { l * 12.92 } else { 1.055 * l.powf(1.0 / 2.4) - 0.055 };
    (v * 255.0 + 0.5) as u8
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZE: (usize, usize) = (256, 192);

    /// A person of one colour, with a soft outline, in front of a gradient.
    fn scene(background: impl Fn(usize) -> [u8; 3]) -> (Vec<u8>, Vec<f32>) {
        let linear = linear_levels();
        let person: Vec<f32> = (0..SIZE.0 * SIZE.1)
            .map(|i| {
                let (x, y) = ((i % SIZE.0) as f32 - 128.0, (i / SIZE.0) as f32 - 96.0);
                1.0 - smoothstep(60.0, 66.0, x.hypot(y))
            })
            .collect();
        let rgb = person
            .iter()
            .enumerate()
            .flat_map(|(i, share)| {
                let back = background(i).map(|l| linear[usize::from(l)]);
                let front = [200, 150, 120].map(|l: u8| linear[usize::from(l)]);
                [0, 1, 2].map(|k| to_srgb(share * front[k] + (1.0 - share) * back[k]))
            })
            .collect();
        (rgb, person)
    }

    fn rgba(rgb: &[u8]) -> Vec<u8> {
        rgb.chunks_exact(3).flat_map(|p| [p[0], p[1], p[2], 255]).collect()
    }

    fn largest_difference(a: &[u8], b: &[u8]) -> u8 {
        a.iter().zip(b).map(|(a, b)| a.abs_diff(*b)).max().unwrap()
    }

    #[test]
    fn a_replaced_background_is_as_if_the_person_had_always_stood_there() {
        let office = |i: usize| [60 + (i % SIZE.0 / 4) as u8, 80, 90 + (i / SIZE.0 / 4) as u8];
        let (rgb, person) = scene(office);
        let (wanted, _) = scene(|_| [20, 60, 140]);
        let new: Vec<u8> = (0..SIZE.0 * SIZE.1).flat_map(|_| [20, 60, 140]).collect();
        let known = Cutout {
            person: person.clone(),
            background: (0..SIZE.0 * SIZE.1).flat_map(office).collect(),
            person_colour: None,
        };
        for (cutout, limit) in [(known, 3), (Cutout::of_photo(&rgb, SIZE, person), 8)] {
            let mut picture = rgba(&rgb);
            cutout.replace(&mut picture, &new);
            let error = largest_difference(&picture, &rgba(&wanted));
            assert!(error <= limit, "{error} of at most {limit} levels");
        }
    }

    #[test]
    fn a_blur_does_not_contain_the_person() {
        let (rgb, person) = scene(|_| [10, 20, 30]);
        let cutout = Cutout::of_photo(&rgb, SIZE, person.clone());
        let blurred = cutout.blurred(SIZE, 1.0);
        for (i, pixel) in blurred.chunks_exact(3).enumerate().filter(|(i, _)| person[*i] < 0.9) {
            assert!(
                pixel.iter().zip([10, 20, 30]).all(|(a, b)| a.abs_diff(b) <= 4),
                "{i} {pixel:?}"
            );
        }
        assert_eq!(cutout.blurred(SIZE, 0.0), cutout.background);
    }
}
