//! CPU time that recordings cost while calls run.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use cpu_time::ThreadTime;

/// CPU time of recordings while calls run.
#[derive(Debug, Default)]
pub struct RecordingCost {
    /// Of media threads, in ns: an estimate of [`CostSampler`].
    pub media: AtomicU64,
    /// Of the recorder's thread, in ns, as of its last write.
    pub disk: AtomicU64,
}

impl RecordingCost {
    /// Takes the CPU time of the calling thread as that of the recorder's thread.
    pub(super) fn update_disk(&self) {
        self.disk.store(nanos(thread_time()), Relaxed);
    }
}

/// CPU time of the calling thread.
fn thread_time() -> Duration {
    ThreadTime::now().as_duration()
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// Estimates the CPU time of an operation that is short and frequent.
///
/// A recording costs a media thread about a hundredth of what the rest of its call costs. The
/// difference between a run with recordings and one without them is therefore within the noise of
/// both. The CPU clock of the thread does not count other programs, but a read of it takes longer
/// than the operation. So one operation in `interval` is measured, and counts `interval` times.
///
/// The clock is read twice before the operation and once after it. The shortest time between the
/// first two reads is the cost of one read, which is subtracted. An interrupt can therefore only
/// increase the estimate.
#[derive(Clone, Copy, Debug)]
pub struct CostSampler {
    interval: u32,
    /// Operations until the next measured one.
    remaining: u32,
    read_clock: fn() -> Duration,
    /// Minimum cost of a read so far.
    read_cost: Duration,
}

impl CostSampler {
    /// Measures one in `interval` operations. `phase` decides which ones, so that short calls are
    /// measured in proportion, too. A prime `interval` does not follow the pattern of the tracks.
    #[must_use]
    pub fn new(interval: u32, phase: u64) -> Self {
        let interval = interval.max(1);
        Self {
            interval,
            remaining: (phase % u64::from(interval)) as u32,
            read_clock: thread_time,
            read_cost: Duration::MAX,
        }
    }

    /// Executes an operation. If it is measured, adds its share of the CPU time to `total`, in ns.
    #[inline]
    pub fn measure<T>(&mut self, total: &AtomicU64, operation: impl FnOnce() -> T) -> T {
        if self.remaining > 0 {
            self.remaining -= 1;
            return operation();
        }
        self.remaining = self.interval - 1;
        let before = (self.read_clock)();
        let start = (self.read_clock)();
        let result = operation();
        let end = (self.read_clock)();
        self.read_cost = self.read_cost.min(start.saturating_sub(before));
        let cost = end.saturating_sub(start).saturating_sub(self.read_cost);
        total.fetch_add(nanos(cost).saturating_mul(u64::from(self.interval)), Relaxed);
        result
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    /// Cost of a read of the clock of these tests, in ns.
    const READ_COST: u64 = 300;

    thread_local! {
        static CLOCK: Cell<u64> = const { Cell::new(0) };
    }

    /// Uses this much CPU time, in ns.
    fn spend(nanos: u64) {
        CLOCK.set(CLOCK.get() + nanos);
    }

    fn sampler(interval: u32, phase: u64) -> CostSampler {
        let read_clock = || {
            spend(READ_COST);
            Duration::from_nanos(CLOCK.get())
        };
        CostSampler { read_clock, ..CostSampler::new(interval, phase) }
    }

    #[test]
    fn one_operation_counts_for_all_without_the_cost_of_the_clock() {
        let total = AtomicU64::new(0);
        let mut sampler = sampler(5, 7);
        for n in 0..50 {
            assert_eq!(sampler.measure(&total, || spend(40)), ());
            // The operations 2, 7, 12, ... are measured.
            assert_eq!(total.load(Relaxed), (n + 3) / 5 * 5 * 40, "{n}");
        }
        assert_eq!(total.load(Relaxed), 50 * 40);
        assert_eq!(CLOCK.get(), 50 * 40 + 10 * 3 * READ_COST);
    }

    #[test]
    fn the_phase_selects_the_measured_operation() {
        for phase in 0..6 {
            let (total, mut sampler) = (AtomicU64::new(0), sampler(3, phase));
            let measured: Vec<bool> = (0..6)
                .map(|_| {
                    let before = total.load(Relaxed);
                    sampler.measure(&total, || spend(10));
                    total.load(Relaxed) != before
                })
                .collect();
            let expected: Vec<bool> = (0..6).map(|n| n % 3 == phase % 3).collect();
            assert_eq!(measured, expected);
        }
    }

    #[test]
    fn an_interrupted_read_of_the_clock_does_not_reduce_the_cost() {
        let (total, mut sampler) = (AtomicU64::new(0), sampler(1, 0));
        sampler.measure(&total, || spend(40));
        let read_clock = sampler.read_clock;
        sampler.read_clock = || {
            spend(9_000);
            Duration::from_nanos(CLOCK.get())
        };
        sampler.measure(&total, || spend(40));
        assert_eq!(total.load(Relaxed), 40 + 40 + 9_000 - READ_COST);
        sampler.read_clock = read_clock;
        sampler.measure(&total, || spend(40));
        assert_eq!(total.load(Relaxed), 3 * 40 + 9_000 - READ_COST);
    }

    #[test]
    fn the_clock_counts_the_work_of_this_thread() {
        let total = AtomicU64::new(0);
        let mut sampler = CostSampler::new(1, 0);
        let start = thread_time();
        sampler.measure(&total, || {
            while thread_time() < start + Duration::from_millis(1) {
                std::hint::spin_loop();
            }
        });
        let spent = nanos(thread_time() - start);
        assert!((500_000..=spent).contains(&total.load(Relaxed)), "{total:?} of {spent}");
    }
}
