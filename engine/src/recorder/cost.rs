//! CPU time that recordings cost while calls run.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering::Relaxed};

use cpu_time::ThreadTime;

/// CPU time of recordings while calls run.
#[derive(Debug, Default)]
pub struct RecordingCost {
    /// Of media threads, in ns: an estimate of [`CostSampler`]. It may be negative by some ns.
    pub media: AtomicI64,
    /// Of the recorder's thread, in ns, as of its last write.
    pub disk: AtomicU64,
}

impl RecordingCost {
    /// Takes the CPU time of the calling thread as that of the recorder's thread.
    pub(super) fn update_disk(&self) {
        let nanos = ThreadTime::now().as_duration().as_nanos();
        self.disk.store(u64::try_from(nanos).unwrap_or(u64::MAX), Relaxed);
    }
}

/// Estimates the CPU time of an operation that is short and frequent.
///
/// A recording costs a media thread about a hundredth of what the rest of its call costs. The
/// difference between a run with recordings and one without them is therefore within the noise of
/// both. The CPU clock of the thread does not count other programs, but a read of it takes longer
/// than the operation. So one operation in `interval` is measured, and counts `interval` times.
///
/// The clock is read twice before the operation and once after it. The first interval is the cost
/// of one read, and the second one contains it, too: their difference has no bias.
#[derive(Clone, Copy, Debug)]
pub struct CostSampler {
    interval: u32,
    /// Operations until the next measured one.
    remaining: u32,
}

impl CostSampler {
    /// Measures one in `interval` operations. `phase` decides which ones, so that short calls are
    /// measured in proportion, too. A prime `interval` does not follow the pattern of the tracks.
    #[must_use]
    pub fn new(interval: u32, phase: u64) -> Self {
        let interval = interval.max(1);
        Self { interval, remaining: (phase % u64::from(interval)) as u32 }
    }

    /// Executes an operation. If it is measured, adds its share of the CPU time to `total`, in ns.
    #[inline]
    pub fn measure<T>(&mut self, total: &AtomicI64, operation: impl FnOnce() -> T) -> T {
        if self.remaining > 0 {
            self.remaining -= 1;
            return operation();
        }
        self.remaining = self.interval - 1;
        let start = ThreadTime::now();
        let read = start.elapsed();
        let result = operation();
        let end = start.elapsed();
        let nanos = end.as_nanos() as i64 - 2 * read.as_nanos() as i64;
        total.fetch_add(nanos.saturating_mul(i64::from(self.interval)), Relaxed);
        result
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Uses this much CPU time.
    fn spin(nanos: u128) {
        let start = ThreadTime::now();
        while start.elapsed().as_nanos() < nanos {
            std::hint::spin_loop();
        }
    }

    #[test]
    fn one_operation_counts_for_all_that_are_not_measured() {
        let total = AtomicI64::new(0);
        let mut sampler = CostSampler::new(5, 7);
        let start = ThreadTime::now();
        for _ in 0..50 {
            sampler.measure(&total, || spin(200_000));
        }
        let spent = start.elapsed().as_nanos() as i64;
        let estimate = total.load(Relaxed);
        assert!(estimate >= 50 * 190_000, "{estimate} of {spent}");
        // A measured operation may be interrupted for longer than its neighbours.
        assert!(estimate <= 5 * spent, "{estimate} of {spent}");
    }

    #[test]
    fn the_cost_of_the_clock_does_not_count() {
        let total = AtomicI64::new(0);
        let mut sampler = CostSampler::new(1, 0);
        let start = ThreadTime::now();
        for _ in 0..20_000 {
            sampler.measure(&total, || {});
        }
        let (estimate, spent) = (total.load(Relaxed), start.elapsed().as_nanos() as i64);
        assert!(estimate.abs() < spent / 4, "{estimate} of {spent}");
    }

    #[test]
    fn the_phase_selects_the_measured_operation() {
        for phase in 0..6 {
            let total = AtomicI64::new(0);
            let mut sampler = CostSampler::new(3, phase);
            let measured: Vec<bool> = (0..6)
                .map(|_| {
                    let before = total.load(Relaxed);
                    sampler.measure(&total, || spin(20_000));
                    total.load(Relaxed) != before
                })
                .collect();
            let expected: Vec<bool> = (0..6).map(|n| n % 3 == phase % 3).collect();
            assert_eq!(measured, expected);
        }
    }
}
