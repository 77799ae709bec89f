//! Soak test: whether a server releases the resources of many short calls.

use crate::metrics::ServerMetrics;
use crate::report::SoakStats;
use crate::stats::round_to;

/// Metrics sampled during a run.
#[derive(Default)]
pub(crate) struct MetricsSamples {
    /// Before the first call.
    baseline: ServerMetrics,
    /// The readings with their times, in s.
    samples: Vec<(f64, ServerMetrics)>,
}

impl MetricsSamples {
    /// Samples for a server that had no call at the reading `idle`.
    pub(crate) fn new(idle: ServerMetrics) -> Self {
        Self { baseline: idle, samples: Vec::new() }
    }

    /// Adds a reading at `at` (s).
    pub(crate) fn add(&mut self, at: f64, reading: ServerMetrics) {
        self.samples.push((at, reading));
    }

    /// Growth of memory, threads and files over `calls` calls, from the middle of the run: in its
    /// first half, pools and heaps grow to their final size. `last`: a reading after all calls.
    pub(crate) fn summarize(&self, calls: usize, last: ServerMetrics) -> SoakStats {
        let half = &self.samples[self.samples.len() / 2..];
        let memory: Vec<(f64, f64)> =
            half.iter().filter_map(|(at, r)| Some((*at, r.resident_bytes?))).collect();
        let slope = regression_slope(&memory);
        let span = memory.first().zip(memory.last()).map(|(first, last)| last.0 - first.0);
        let mean = memory.iter().map(|(_, m)| m).sum::<f64>() / memory.len().max(1) as f64;
        let first = half.first().map(|(_, r)| *r).unwrap_or_default();
        SoakStats {
            calls,
            rss_slope_bytes_per_s: slope.map(|s| round_to(s, 1)),
            rss_growth: slope.zip(span).map(|(slope, span)| round_to(slope * span / mean, 5)),
            threads: [first.threads, last.threads],
            files: [first.open_files, last.open_files],
            threads_grown: last.threads.zip(self.baseline.threads).map(|(last, idle)| last - idle),
            files_grown: last
                .open_files
                .zip(self.baseline.open_files)
                .map(|(last, idle)| last - idle),
            decoders_left: last.decoders_taken,
            calls_left: last.calls,
        }
    }
}

/// Slope of the least-squares line.
fn regression_slope(points: &[(f64, f64)]) -> Option<f64> {
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
        let mut samples = MetricsSamples::default();
        for second in 0..100 {
            let at = f64::from(second);
            // It warms up for 50 s, then leaks 10 kB per second.
            let resident = 1e8 + if second < 50 { at * 1e6 } else { 5e7 + (at - 50.0) * 1e4 };
            let threads = Some(8.0);
            samples.add(
                at,
                ServerMetrics {
                    resident_bytes: Some(resident),
                    threads,
                    ..ServerMetrics::default()
                },
            );
        }
        let soak = samples
            .summarize(1000, ServerMetrics { threads: Some(9.0), ..ServerMetrics::default() });
        assert!((soak.rss_slope_bytes_per_s.unwrap() - 1e4).abs() < 1.0);
        assert!((soak.rss_growth.unwrap() - 49e4 / 1.5e8).abs() < 1e-4);
        assert_eq!((soak.threads, soak.files), ([Some(8.0), Some(9.0)], [None, None]));
    }

    #[test]
    fn a_server_without_metrics_is_not_judged() {
        assert_eq!(
            MetricsSamples::default().summarize(1, ServerMetrics::default()).rss_growth,
            None
        );
    }
}
