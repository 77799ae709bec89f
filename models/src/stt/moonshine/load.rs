//! Measured load: what interim transcripts may cost, how long a final one waits, and counters.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::SAMPLE_RATE;
use super::utterance::Purpose;

/// Maximum share of the workers' time for interim transcripts.
const INTERIM_SHARE: f64 = 0.4;
/// Span over which that share is measured.
const INTERIM_SPAN: f64 = 2.0;
/// Weight of the latest decode in the mean decode time.
const DECODE_TIME_WEIGHT: f64 = 0.1;
/// Mean decode time before the first decode, in seconds.
const INITIAL_DECODE_TIME: f64 = 0.15;
/// Time constant of the expected wait, in seconds.
const WAIT_TIME_CONSTANT: f64 = 3.0;
/// Change of the expected wait that needs no further smoothing.
const SETTLED: f64 = 0.001;

/// Load of all workers.
pub(super) struct Load {
    workers: f64,
    /// Seconds of work that interim transcripts may take now; negative after a long decode.
    interim_budget: f64,
    budget_updated: Duration,
    /// Smoothed duration of a decode that is part of a final transcript.
    decode_time: f64,
    /// Number of such decodes that wait.
    waiting: usize,
    expected_wait: f64,
    wait_updated: Duration,
}

impl Load {
    pub(super) fn new(workers: usize) -> Self {
        let workers = workers as f64;
        Self {
            workers,
            interim_budget: workers * INTERIM_SHARE * INTERIM_SPAN,
            budget_updated: Duration::ZERO,
            decode_time: INITIAL_DECODE_TIME,
            waiting: 0,
            expected_wait: 0.0,
            wait_updated: Duration::ZERO,
        }
    }

    /// Whether an interim transcript may be decoded now.
    pub(super) fn permits_interim(&mut self, now: Duration) -> bool {
        let passed = now.saturating_sub(self.budget_updated).as_secs_f64();
        self.budget_updated = now;
        let rate = self.workers * INTERIM_SHARE;
        self.interim_budget = (self.interim_budget + passed * rate).min(rate * INTERIM_SPAN);
        self.interim_budget > 0.0
    }

    /// A decode has taken `duration`. A cancelled one counts only against the budget.
    pub(super) fn add_decode(&mut self, purpose: Purpose, duration: Duration, cancelled: bool) {
        let seconds = duration.as_secs_f64();
        if purpose == Purpose::Interim {
            self.interim_budget -= seconds;
        } else if !cancelled {
            self.decode_time += (seconds - self.decode_time) * DECODE_TIME_WEIGHT;
        }
    }

    /// The number of waiting decodes that are part of a final transcript is `waiting` from now on.
    pub(super) fn set_waiting(&mut self, now: Duration, waiting: usize) {
        let passed = now.saturating_sub(self.wait_updated).as_secs_f64();
        self.wait_updated = now;
        let share = 1.0 - (-passed / WAIT_TIME_CONSTANT).exp();
        self.expected_wait += (self.current_wait() - self.expected_wait) * share;
        self.waiting = waiting;
    }

    fn current_wait(&self) -> f64 {
        self.waiting as f64 * self.decode_time / self.workers
    }

    /// Smoothed time that a final transcript waits for a worker.
    pub(super) fn expected_wait(&self) -> Duration {
        Duration::from_secs_f64(self.expected_wait.max(0.0))
    }

    /// Whether the expected wait stays what it is while nothing happens.
    pub(super) fn is_settled(&self) -> bool {
        (self.expected_wait - self.current_wait()).abs() < SETTLED
    }
}

/// Counters of the decodes with one purpose.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DecodeStats {
    /// `interim`, `speculative`, `part` or `final`.
    pub purpose: &'static str,
    /// Number of decodes, including discarded ones.
    pub decodes: u64,
    /// Number of decodes whose result was of no use: cancelled, failed or too late.
    pub discarded: u64,
    /// Time that the decodes waited for a worker.
    pub queue_wait: Duration,
    /// Time that the workers took.
    pub decode_time: Duration,
    /// Duration of the audio.
    pub audio: Duration,
}

/// The counters of all purposes. Written by one thread.
#[derive(Default)]
pub(super) struct Counters([PurposeCounters; 4]);

#[derive(Default)]
struct PurposeCounters {
    decodes: AtomicU64,
    discarded: AtomicU64,
    queue_wait_us: AtomicU64,
    decode_time_us: AtomicU64,
    samples: AtomicU64,
}

impl Counters {
    /// A decode of `samples` samples starts after a wait.
    pub(super) fn add_start(&self, purpose: Purpose, wait: Duration, samples: usize) {
        let counters = &self.0[purpose as usize];
        counters.decodes.fetch_add(1, Ordering::Relaxed);
        counters.queue_wait_us.fetch_add(micros(wait), Ordering::Relaxed);
        counters.samples.fetch_add(samples as u64, Ordering::Relaxed);
    }

    /// A decode has ended.
    pub(super) fn add_end(&self, purpose: Purpose, duration: Duration, is_used: bool) {
        let counters = &self.0[purpose as usize];
        counters.decode_time_us.fetch_add(micros(duration), Ordering::Relaxed);
        counters.discarded.fetch_add(u64::from(!is_used), Ordering::Relaxed);
    }

    pub(super) fn snapshot(&self) -> [DecodeStats; 4] {
        Purpose::ALL.map(|purpose| {
            let counters = &self.0[purpose as usize];
            let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
            DecodeStats {
                purpose: purpose.name(),
                decodes: load(&counters.decodes),
                discarded: load(&counters.discarded),
                queue_wait: Duration::from_micros(load(&counters.queue_wait_us)),
                decode_time: Duration::from_micros(load(&counters.decode_time_us)),
                audio: Duration::from_micros(
                    load(&counters.samples) * 1_000_000 / SAMPLE_RATE as u64,
                ),
            }
        })
    }
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn interims_take_at_most_their_share() {
        let mut load = Load::new(2);
        let (mut now, mut spent) = (Duration::ZERO, Duration::ZERO);
        while now < ms(20_000) {
            if load.permits_interim(now) {
                load.add_decode(Purpose::Interim, ms(100), false);
                spent += ms(100);
            }
            now += ms(10);
        }
        let share = spent.as_secs_f64() / (2.0 * now.as_secs_f64());
        assert!((0.38..0.46).contains(&share), "{share}");
    }

    #[test]
    fn the_expected_wait_follows_the_queue_slowly() {
        let mut load = Load::new(1);
        for _ in 0..200 {
            load.add_decode(Purpose::Final, ms(200), false);
        }
        load.set_waiting(ms(0), 10);
        assert_eq!(load.expected_wait(), Duration::ZERO, "a burst is no load");
        assert!(!load.is_settled());
        load.set_waiting(ms(3_000), 10);
        let wait = load.expected_wait().as_secs_f64();
        assert!((1.2..1.3).contains(&wait), "{wait}");
        load.set_waiting(ms(30_000), 0);
        assert!(load.expected_wait() > ms(1_900));
        load.set_waiting(ms(60_000), 0);
        assert!(load.expected_wait() < ms(1) && load.is_settled());
    }

    #[test]
    fn decodes_are_counted_by_purpose() {
        let counters = Counters::default();
        counters.add_start(Purpose::Final, ms(30), SAMPLE_RATE);
        counters.add_end(Purpose::Final, ms(20), true);
        counters.add_start(Purpose::Interim, ms(0), SAMPLE_RATE / 2);
        counters.add_end(Purpose::Interim, ms(10), false);
        let [interim, _, _, last] = counters.snapshot();
        assert_eq!((interim.purpose, interim.decodes, interim.discarded), ("interim", 1, 1));
        assert_eq!((last.purpose, last.discarded), ("final", 0));
        assert_eq!((last.queue_wait, last.decode_time), (ms(30), ms(20)));
        assert_eq!(last.audio, ms(1_000));
    }
}
