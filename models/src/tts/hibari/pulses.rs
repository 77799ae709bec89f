//! The source of voiced sound: a pulse train without aliasing.

use super::fast_math::sin;
use super::vocoder::{HOP, SAMPLE_RATE};

/// Pitch below which a frame is unvoiced, in Hz.
const MIN_PITCH: f32 = 40.0;
/// Highest frequency of a harmonic, in Hz.
const MAX_HARMONIC: f32 = 11_000.0;
/// Below this sine of half the phase, the sum is replaced by its limit.
const MIN_SINE: f32 = 1e-3;

/// Samples of the pulse train for the pitch of each frame, in Hz.
///
/// With `H` harmonics below [`MAX_HARMONIC`] and phase `t`, a sample is
/// `∑ cos(h t), h = 1 … H = sin((H + ½) t) / (2 sin(t / 2)) − ½` (Dirichlet kernel).
pub(super) fn pulse_train(pitch: &[f32], train: &mut Vec<f32>) {
    train.clear();
    train.reserve(pitch.len() * HOP);
    let mut phase = 0.0f64;
    for frame in 0..pitch.len() {
        let own = pitch[frame];
        let before = pitch[frame.saturating_sub(1)];
        let after = pitch[(frame + 1).min(pitch.len() - 1)];
        let mut phases = [0.0f32; HOP];
        let mut counts = [0.0f32; HOP];
        let mut voiced = false;
        for at in 0..HOP {
            // The pitch is that of the frame in its middle, and linear between two middles.
            let offset = (at as f32 + 0.5) / HOP as f32 - 0.5;
            let neighbor = if offset < 0.0 { before } else { after };
            let pitch = own + (neighbor - own) * offset.abs();
            phase += f64::from(pitch.max(MIN_PITCH)) / f64::from(SAMPLE_RATE);
            phase -= phase.floor();
            phases[at] = phase as f32 * std::f32::consts::TAU;
            if pitch > MIN_PITCH {
                counts[at] = (MAX_HARMONIC / pitch).floor() + 0.5;
                voiced = true;
            }
        }
        if !voiced {
            train.resize(train.len() + HOP, 0.0);
            continue;
        }
        train.extend(phases.iter().zip(&counts).map(|(&t, &count)| {
            let half = sin(t * 0.5);
            let sum = if half.abs() <= MIN_SINE { count } else { sin(count * t) / (2.0 * half) };
            if count > 0.0 { sum - 0.5 } else { 0.0 }
        }));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pulses_come_at_the_pitch_and_unvoiced_frames_are_silent() {
        let mut train = Vec::new();
        pulse_train(&[200.0; 80], &mut train);
        assert_eq!(train.len(), SAMPLE_RATE as usize);
        let pulses = train.iter().filter(|x| **x > 45.0).count();
        assert!((195..=205).contains(&pulses), "{pulses} samples near the maximum of 55");
        let mean = train.iter().sum::<f32>() / train.len() as f32;
        assert!(mean.abs() < 0.05, "{mean}");
        pulse_train(&[0.0; 3], &mut train);
        assert_eq!(train, vec![0.0; 3 * HOP]);
        pulse_train(&[], &mut train);
        assert!(train.is_empty());
    }

    #[test]
    fn a_sample_is_the_sum_of_its_harmonics() {
        let mut train = Vec::new();
        pulse_train(&[1_000.0; 2], &mut train);
        for (at, sample) in train.iter().enumerate() {
            let t = std::f64::consts::TAU * 1_000.0 * (at + 1) as f64 / f64::from(SAMPLE_RATE);
            let sum: f64 = (1..=11).map(|h| (f64::from(h) * t).cos()).sum();
            assert!((f64::from(*sample) - sum).abs() < 0.02, "{at}: {sample}, {sum}");
        }
    }
}
