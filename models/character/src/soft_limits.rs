//! Soft limits of sliders: far from the average, a slider's effect decreases, so that its ends
//! still give plausible faces.

use crate::character::Character;

/// Limits a factor for drawing. Within `linear_range` of the average it is unchanged. Beyond, it
/// approaches `min` or `max` asymptotically, so that every movement of the slider still has an
/// effect.
fn soft_clamp(factor: &mut f32, linear_range: f32, min: f32, max: f32) {
    let from_average = *factor - 1.0;
    let reach = if from_average < 0.0 { 1.0 - min } else { max - 1.0 };
    let (beyond, room) = (from_average.abs() - linear_range, reach - linear_range);
    if beyond > 0.0 {
        *factor =
            1.0 + (linear_range + room * (1.0 - (-beyond / room).exp())).copysign(from_average);
    }
}

impl Character {
    /// The character as it is drawn. Fields that are not listed here apply unchanged over their
    /// full range.
    pub(crate) fn with_soft_limits(&self) -> Self {
        let mut c = self.clone();
        let (bones, nose) = (&mut c.proportions, &mut c.nose);
        soft_clamp(&mut bones.face_width, 0.05, 0.83, 1.15);
        soft_clamp(&mut bones.jaw_width, 0.12, 0.76, 1.16);
        // A mouth needs its space between nose and chin, and a chin its space over the neck.
        soft_clamp(&mut bones.jaw_height, 0.06, 0.90, 1.10);
        soft_clamp(&mut nose.length, 0.07, 0.75, 1.17);
        soft_clamp(&mut nose.tip, 0.12, 0.70, 1.28);
        soft_clamp(&mut c.lips.width, 0.10, 0.75, 1.20);
        c
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bent_factor_is_itself_near_the_average_and_grows_up_to_its_ends() {
        let bent = |factor: f32| {
            let mut bent = factor;
            soft_clamp(&mut bent, 0.06, 0.88, 1.13);
            bent
        };
        for factor in [0.94, 0.99, 1.0, 1.05, 1.06] {
            assert!((bent(factor) - factor).abs() < 1e-6, "{factor}");
        }
        let all: Vec<f32> = (70..=130).map(|percent| bent(percent as f32 / 100.0)).collect();
        assert!(all.windows(2).all(|pair| pair[0] < pair[1]), "{all:?}");
        assert!(all[0] > 0.88 && all[60] < 1.13, "{all:?}");
    }
}
