//! Where the hair of the head begins.

use glam::Vec3;

use crate::character::{Character, HairStyle};
use crate::math::{mix, noise, smoothstep};

/// Height over the hairline at a point of the head: positive where hair grows.
pub(crate) fn height_over_hairline(c: &Character, p: Vec3) -> f32 {
    let mut around = p.x.abs().atan2(p.z + 0.13);
    if c.hair.style == HairStyle::Side {
        // Sideburns begin farther in front of the ear.
        around += 0.075 * smoothstep(0.60, 0.90, around) * smoothstep(1.50, 1.30, around);
    }
    let recede = if matches!(c.hair.style, HairStyle::Short | HairStyle::Side | HairStyle::Buzz) {
        0.06 + 0.06 * c.age
    } else {
        0.0
    };
    // (angle from the front, height), from the forehead past temple and ear to the nape.
    let line = [
        (0.0, 0.60 + recede * 0.4),
        (0.35, 0.61 + recede),
        (0.62, 0.53 + recede),
        (0.85, 0.36),
        (1.08, 0.16),
        (1.22, -0.10),
        (1.42, -0.14),
        (1.5, 0.14),
        (1.75, 0.16),
        (1.95, -0.25),
        (2.4, -0.52),
        (3.2, -0.60),
    ];
    let height = line.windows(2).find(|w| around < w[1].0).map_or(line[line.len() - 1].1, |w| {
        let k = ((around - w[0].0) / (w[1].0 - w[0].0)).max(0.0);
        mix(w[0].1, w[1].1, smoothstep(0.0, 1.0, k))
    });
    p.y - height
}

/// Deviation of the hairline's height from its average: a real hairline is irregular.
pub(crate) fn hairline_noise(p: Vec3) -> f32 {
    0.036 * (noise(p * 6.0) - 0.5) + 0.04 * (noise(p * 23.0) - 0.5)
}

/// Width of the zone behind the hairline in which hairs become denser: 8 mm at the forehead, twice
/// that at the temples.
pub(crate) fn hairline_width(p: Vec3) -> f32 {
    mix(0.08, 0.16, smoothstep(0.30, 0.55, p.x.abs()))
}
