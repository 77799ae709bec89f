//! Soak test: whether a server releases the resources of many short calls.

use crate::metrics::Reading;
use crate::report::Soak;
use crate::stats::round;

/// Metrics sampled during a run.
#[derive(Default)]
pub(crate) struct Samples {
    /// Before the first call.
    idle: Reading,
    /// The readings with their times, in s.
    readings: Vec<(f64, Reading)>,
}

impl Samples {
    /// Samples for a server that had no call at the reading `idle`.
    pub(crate) fn new(idle: Reading) -> Self {
        Self { idle, readings: Vec::new() }
    }

    /// Adds a reading at `at` (s).
    pub(crate) fn add(&mut self, at: f64, reading: Reading) {
        self.readings.push((at, reading));
    }

    /// Growth of memory, threads and files over `calls` calls, from the middle of the run: in its
    /// first half, pools and heaps grow to their final size. `last`: a reading after all calls.
    pub(crate) fn summary(&self, calls: usize, last: Reading) -> Soak {
        let half = &self.readings[self.readings.len() / 2..];
        let memory: Vec<(f64, f64)> = half.iter().filter_map(|(at, r)| Some((*at, r.resident?))).collect();
        let slope = slope(&memory);
        let span = memory.first().zip(memory.last()).map(|(first, last)| last.0 - first.0);
        let mean = memory.iter().map(|(_, m)| m).sum::<f64>() / memory.len().max(1) as f64;
        let first = half.first().map(|(_, r)| *r).unwrap_or_default();
        Soak {
            calls,
            rss_slope_bytes_per_s: slope.map(|s| round(s, 1)),
            rss_growth: slope.zip(span).map(|(slope, span)| round(slope * span / mean, 5)),
            threads: [first.threads, last.threads],
            files: [first.files, last.files],
            threads_grown: last.threads.zip(self.idle.threads).map(|(last, idle)| last - idle),
            files_grown: last.files.zip(self.idle.files).map(|(last, idle)| last - idle),
            decoders_left: last.decoders,
            calls_left: last.calls,
        }
    }
}

/// Slope of the least-squares line.
fn slope(points: &[(f64, f64)]) -> Option<f64> {
    let n = points.len() as f64;
    let (x, y) = points.iter().fold((0.0, 0.0), |(x, y), p| (x + p.0 / n, y + p.1 / n));
    let across = points.iter().map(|p| (p.0 - x).powi(2)).sum::<f64>();
    (across > 0.0).then(|| points.iter().map(|p| (p.0 - x) * (p.1 - y)).sum::<f64>() / across)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn growth_is_that_of_the_last_half() {
        let mut samples = Samples::default();
        for second in 0..100 {
            let at = f64::from(second);
            // It warms up for 50 s, then leaks 10 kB per second.
            let resident = 1e8 + if second < 50 { at * 1e6 } else { 5e7 + (at - 50.0) * 1e4 };
            let threads = Some(8.0);
            samples.add(at, Reading { resident: Some(resident), threads, ..Reading::default() });
        }
        let soak = samples.summary(1000, Reading { threads: Some(9.0), ..Reading::default() });
        assert!((soak.rss_slope_bytes_per_s.unwrap() - 1e4).abs() < 1.0);
        assert!((soak.rss_growth.unwrap() - 49e4 / 1.5e8).abs() < 1e-4);
        assert_eq!((soak.threads, soak.files), ([Some(8.0), Some(9.0)], [None, None]));
    }

    #[test]
    fn a_server_that_tells_nothing_is_not_judged() {
        assert_eq!(Samples::default().summary(1, Reading::default()).rss_growth, None);
    }
}
