//! Tone mapping from linear light to the picture: bloom, vignette, a filmic curve that preserves
//! hues, and a fixed dither against banding.

use glam::Vec3;
use rayon::prelude::*;

use crate::camera::luminance;

/// `width × height` RGB triples in sRGB.
pub(crate) fn tonemap(light: &[Vec3], width: usize, height: usize) -> Vec<u8> {
    let glow = bloom(light, width, height);
    let mut out = vec![0u8; width * height * 3];
    out.par_chunks_mut(width * 3).enumerate().for_each(|(y, row)| {
        for x in 0..width {
            let (u, v) = (x as f32 / width as f32 - 0.5, y as f32 / height as f32 - 0.5);
            let i = y * width + x;
            let c = (light[i] + glow[i] * 0.35) * (1.0 - 0.34 * (u * u + v * v)) * 0.80;
            // Applied partly to luminance, which preserves hues, and mostly to the channels, which
            // looks like film.
            let l = luminance(c).max(1e-5);
            let hue_preserving = c * (filmic_curve(l) / l);
            let film = Vec3::new(filmic_curve(c.x), filmic_curve(c.y), filmic_curve(c.z));
            let c = hue_preserving.lerp(film, 0.85);
            let c = Vec3::splat(luminance(c)).lerp(c, 0.90);
            for (k, e) in c.to_array().into_iter().enumerate() {
                let e = e.clamp(0.0, 1.0);
                let srgb =
                    if e < 0.003_130_8 { e * 12.92 } else { 1.055 * e.powf(1.0 / 2.4) - 0.055 };
                let dither = ((x * 7 + y * 13 + k * 5) % 8) as f32 / 8.0 - 0.44;
                row[x * 3 + k] = (srgb * 255.0 + 0.5 + dither * 0.6).clamp(0.0, 255.0) as u8;
            }
        }
    });
    out
}

/// A curve with a toe and a shoulder (after Narkowicz's fit of the ACES curve, 2015).
fn filmic_curve(x: f32) -> f32 {
    let x = x.max(0.0);
    (x * (2.51 * x * 0.66 + 0.045)) / (x * (2.43 * x * 0.66 + 0.55) + 0.105)
}

/// Spread of the bloom, as a standard deviation in pixels.
fn bloom_sigma(height: usize) -> f32 {
    height as f32 * 0.012
}

/// Radius in pixels from which light spreads into a pixel.
pub(crate) fn bloom_radius(height: usize) -> usize {
    (bloom_sigma(height) * 2.5) as usize
}

/// The overexposed light, spread.
fn bloom(light: &[Vec3], width: usize, height: usize) -> Vec<Vec3> {
    let sigma = bloom_sigma(height);
    let reach = bloom_radius(height) as isize;
    let taps: Vec<f32> =
        (-reach..=reach).map(|k| (-((k * k) as f32) / (2.0 * sigma * sigma)).exp()).collect();
    let bright: Vec<Vec3> = light
        .iter()
        .map(|c| (*c - Vec3::splat(0.85)).clamp(Vec3::ZERO, Vec3::splat(2.0)))
        .collect();
    let pass = |from: &[Vec3], dx: isize, dy: isize| -> Vec<Vec3> {
        (0..width * height)
            .into_par_iter()
            .map(|i| {
                let (x, y) = ((i % width) as isize, (i / width) as isize);
                let (mut sum, mut weight) = (Vec3::ZERO, 0.0);
                for (k, tap) in (-reach..=reach).zip(&taps) {
                    let (u, v) = (x + k * dx, y + k * dy);
                    if u >= 0 && v >= 0 && u < width as isize && v < height as isize {
                        sum += from[v as usize * width + u as usize] * *tap;
                        weight += tap;
                    }
                }
                sum / weight
            })
            .collect()
    };
    pass(&pass(&bright, 1, 0), 0, 1)
}
