//! Resampling of a stream of samples that arrives in pieces of any length.

use rubato::audioadapter_buffers::direct::InterleavedSlice;
use rubato::{Fft, FixedSync, Resampler as _};

/// Resamples in chunks of 10 ms, so pieces of 10 or 20 ms leave at once. The filter delays them by
/// 5 ms.
pub(super) struct StreamResampler {
    /// `None` if both rates are equal.
    filter: Option<Fft<f32>>,
    chunk: usize,
    input: Vec<f32>,
    output: Vec<f32>,
}

impl StreamResampler {
    /// A resampler between two rates in Hz; `None` if there is none for them.
    pub(super) fn new(from: u32, to: u32) -> Option<Self> {
        let chunk = (from as usize / 100).max(1);
        if from == to {
            return Some(Self { filter: None, chunk, input: Vec::new(), output: Vec::new() });
        }
        let filter = Fft::new(from as usize, to as usize, chunk, 1, FixedSync::Input).ok()?;
        let output = vec![0.0; filter.output_frames_max()];
        let input = Vec::with_capacity(4 * chunk);
        Some(Self { filter: Some(filter), chunk, input, output })
    }

    /// Appends what `pcm` completes to `out`.
    pub(super) fn push(&mut self, pcm: &[i16], out: &mut Vec<i16>) {
        let Some(filter) = &mut self.filter else { return out.extend_from_slice(pcm) };
        self.input.extend(pcm.iter().map(|sample| f32::from(*sample)));
        let mut taken = 0;
        for chunk in self.input.chunks_exact(self.chunk) {
            taken += chunk.len();
            let frames = self.output.len();
            let written = InterleavedSlice::new(chunk, 1, chunk.len()).ok().and_then(|input| {
                let mut output = InterleavedSlice::new_mut(&mut self.output, 1, frames).ok()?;
                filter.process_into_buffer(&input, &mut output, None).ok()
            });
            // The sizes are the filter's own, so it never fails.
            let (_, written) = written.unwrap_or((0, 0));
            // Rounds halves away from zero; `as` saturates.
            out.extend(self.output[..written].iter().map(|s| (s + 0.5_f32.copysign(*s)) as i16));
        }
        self.input.drain(..taken);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tone(rate: u32, samples: usize) -> Vec<i16> {
        let step = 440.0 * std::f64::consts::TAU / f64::from(rate);
        (0..samples).map(|n| (10_000.0 * (n as f64 * step).sin()) as i16).collect()
    }

    #[test]
    fn a_tone_has_no_click_at_the_edges_of_its_pieces() {
        for (from, to) in [
            (8_000, 16_000),
            (24_000, 16_000),
            (44_100, 16_000),
            (48_000, 16_000),
            (48_000, 8_000),
            (48_000, 16_000),
            (48_000, 22_050),
            (48_000, 24_000),
            (48_000, 44_100),
        ] {
            let input = tone(from, from as usize);
            let whole = |piece: usize| {
                let (mut resampler, mut out) =
                    (StreamResampler::new(from, to).unwrap(), Vec::new());
                for piece in input.chunks(piece) {
                    resampler.push(piece, &mut out);
                }
                out
            };
            let out = whole(from as usize / 50);
            assert_eq!(out, whole(77), "{from} to {to}: the same for any pieces");
            let missing = to as usize - out.len();
            assert!(missing <= to as usize / 50, "{from} to {to}: {missing} samples are held back");
            // Of a tone, x[n + 1] = 2 cos(w) x[n] - x[n - 1]: a click breaks this.
            let twice_cos = 2.0 * (440.0 * std::f64::consts::TAU / f64::from(to)).cos();
            let inner = &out[to as usize / 25..];
            let worst = inner
                .windows(3)
                .map(|x| {
                    let [a, b, c] = [x[0], x[1], x[2]].map(f64::from);
                    (twice_cos * b - a - c).abs()
                })
                .fold(0.0, f64::max);
            assert!(worst < 12.0, "{from} to {to}: off by {worst} of 10000");
            let peak = inner.iter().map(|x| x.abs()).max();
            assert!(peak > Some(9_900), "{from} to {to}: {peak:?}");
        }
    }

    #[test]
    fn pieces_of_20_ms_leave_at_once_and_equal_rates_change_nothing() {
        let mut resampler = StreamResampler::new(48_000, 24_000).unwrap();
        let mut out = Vec::new();
        resampler.push(&tone(48_000, 960), &mut out);
        assert_eq!(out.len(), 480);
        let mut same = StreamResampler::new(48_000, 48_000).unwrap();
        out.clear();
        same.push(&[1, 2, 3], &mut out);
        assert_eq!(out, [1, 2, 3]);
    }
}
