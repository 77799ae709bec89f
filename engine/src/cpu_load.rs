//! Load of a media thread, and whether the thread may take one more call.
//!
//! Audio leaves every 20 ms and video every 40 ms, and a client's jitter buffer holds about as
//! much. Audio degrades when the work of 40 ms does not fit into 40 ms. Each tick is therefore
//! measured: how long the thread worked in the last 40 ms, and how long after its due time the tick
//! was done. The 95th percentile over the last seconds decides. Closing and reopening have
//! different thresholds, so that a thread at its limit does not take a call whenever another one is
//! silent. The cost of a call shows only after it has run for a while; until then an estimate is
//! added.
//!
//! Audio also degrades when the TTS is late because other threads of the process, models and
//! network, occupy the processors. The CPU usage of the whole process therefore counts in the same
//! way.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use cpu_time::ProcessTime;

use crate::clock::TICK_INTERVAL;
use crate::{clock, thread};

/// Number of ticks in the window: five seconds of them.
const WINDOW_TICKS: usize = 512;
/// Number of ticks whose work must fit into their combined time.
const BUSY_SPAN_TICKS: usize = 4;
/// Fewer ticks are not significant.
const MIN_TICKS: usize = 256;
/// Ticks between two evaluations.
const TICKS_PER_UPDATE: usize = 64;
/// A closed thread reopens at this percentage of the threshold that closed it.
const REOPEN_PERCENT: u32 = 80;
/// Limit of the 95th percentile of the tick delay, in thousandths of the tick. A higher value
/// closes the thread: a tick this late delays audio, which leaves every 20 ms.
const MAX_TICK_DELAY: u32 = 2_000;
/// Number of process samples in its window: five seconds.
const PROCESS_SAMPLES: usize = WINDOW_TICKS / TICKS_PER_UPDATE;
/// Estimated cost of a call until one was measured, in thousandths of the tick.
const ASSUMED_CALL_COST: u64 = 4;
/// Minimum number of calls from which a thread measures the cost of one call.
const MIN_CALLS_FOR_COST: usize = 8;

/// Measurements of one tick.
#[derive(Clone, Copy, Default)]
struct TickSample {
    /// Work in this tick and the [`BUSY_SPAN_TICKS`] − 1 before it, including work between ticks,
    /// in thousandths of their time.
    busy: u16,
    /// Time from the tick's due time to its end, in thousandths of the tick.
    tick_delay: u16,
    calls: u16,
}

/// Load of a media thread. Written only by the thread itself, read by any.
#[derive(Debug)]
pub struct ThreadLoad {
    /// Share of its time above which the thread is closed, in thousandths; 0 = never.
    max_busy: u32,
    busy: AtomicU32,
    tick_delay: AtomicU32,
    /// Share of its processors that the whole process uses, in thousandths.
    process_busy: AtomicU32,
    /// Cost of a call, in millionths of the tick.
    call_cost: AtomicU64,
    /// Cost of a call on all threads of the process, in millionths of the processors.
    process_call_cost: AtomicU64,
    /// Mean number of calls during the measurements above.
    measured_calls: AtomicU32,
    closed: AtomicBool,
}

impl ThreadLoad {
    /// Load of a thread that closes above `limit`, a share of its time; 0 = never.
    #[must_use]
    pub fn new(limit: f64) -> Self {
        Self {
            max_busy: (limit * 1e3).round().clamp(0.0, 1e6) as u32,
            busy: AtomicU32::new(0),
            tick_delay: AtomicU32::new(0),
            process_busy: AtomicU32::new(0),
            call_cost: AtomicU64::new(ASSUMED_CALL_COST * 1_000),
            process_call_cost: AtomicU64::new(0),
            measured_calls: AtomicU32::new(0),
            closed: AtomicBool::new(false),
        }
    }

    /// Share of its time that the thread worked: 95th percentile of the last ticks.
    #[must_use]
    pub fn busy_ratio(&self) -> f64 {
        f64::from(self.busy.load(Relaxed)) / 1e3
    }

    /// Time from a tick's due time to its end: 95th percentile of the last ticks.
    #[must_use]
    pub fn tick_delay(&self) -> Duration {
        TICK_INTERVAL * self.tick_delay.load(Relaxed) / 1_000
    }

    /// Share of its available processors that the whole process used in the last seconds, as this
    /// thread measured it.
    #[must_use]
    pub fn process_busy_ratio(&self) -> f64 {
        f64::from(self.process_busy.load(Relaxed)) / 1e3
    }

    /// Whether the thread may take one more call in addition to the `taken` calls that it has.
    #[must_use]
    pub fn admits_call(&self, taken: usize) -> bool {
        if self.max_busy == 0 || taken == 0 {
            return true;
        }
        let unknown = (taken + 1).saturating_sub(self.measured_calls.load(Relaxed) as usize) as u64;
        let fits = |used: &AtomicU32, call: &AtomicU64| {
            let reckoned = u64::from(used.load(Relaxed)) * 1_000 + unknown * call.load(Relaxed);
            reckoned <= u64::from(self.max_busy) * 1_000
        };
        !self.closed.load(Relaxed)
            && fits(&self.busy, &self.call_cost)
            && fits(&self.process_busy, &self.process_call_cost)
    }

    fn publish(&self, found: LoadMeasurement, calls: usize) {
        let LoadMeasurement {
            busy: used,
            tick_delay: done,
            process_busy: process,
            measured_calls: known,
        } = found;
        self.busy.store(used, Relaxed);
        self.tick_delay.store(done, Relaxed);
        self.process_busy.store(process, Relaxed);
        self.measured_calls.store(known.min(calls) as u32, Relaxed);
        let learned = |used: u32| {
            (known >= MIN_CALLS_FOR_COST).then(|| u64::from(used) * 1_000 / known as u64)
        };
        self.call_cost.store(learned(used).unwrap_or(ASSUMED_CALL_COST * 1_000), Relaxed);
        // With several threads, each attributes the cost of all calls to its own calls, and each
        // takes its share of the new ones. In sum that is correct.
        self.process_call_cost.store(learned(process).unwrap_or(0), Relaxed);
        let (closes, opens) = (self.max_busy, self.max_busy * REOPEN_PERCENT / 100);
        if used.max(process) > closes || done > MAX_TICK_DELAY {
            self.closed.store(true, Relaxed);
        } else if used.max(process) <= opens && done <= MAX_TICK_DELAY * 3 / 4 {
            self.closed.store(false, Relaxed);
        }
    }
}

/// Measurements of the last seconds.
#[derive(Clone, Copy, Default)]
struct LoadMeasurement {
    /// In thousandths of the tick.
    busy: u32,
    tick_delay: u32,
    /// In thousandths of the processors.
    process_busy: u32,
    /// Mean number of calls.
    measured_calls: usize,
}

/// Share of the available processors that all threads of the process use.
struct ProcessLoad {
    /// Returns the clock's time and the CPU time of all threads.
    read_clocks: fn() -> (Instant, Duration),
    cores: u32,
    samples: [(Instant, Duration); PROCESS_SAMPLES],
    sample_count: usize,
}

impl ProcessLoad {
    fn new() -> Self {
        let look = || (clock::now(), ProcessTime::now().as_duration());
        let cores = u32::try_from(thread::cores()).unwrap_or(u32::MAX);
        Self {
            read_clocks: look,
            cores,
            samples: [(clock::now(), Duration::ZERO); PROCESS_SAMPLES],
            sample_count: 0,
        }
    }

    /// CPU share since the oldest stored sample, in thousandths; 0 for the first sample.
    fn sample_ratio(&mut self) -> u32 {
        let (now, cpu) = (self.read_clocks)();
        let oldest = self.samples[if self.sample_count < PROCESS_SAMPLES {
            0
        } else {
            self.sample_count % PROCESS_SAMPLES
        }];
        self.samples[self.sample_count % PROCESS_SAMPLES] = (now, cpu);
        self.sample_count += 1;
        if self.sample_count == 1 {
            return 0;
        }
        let whole = now.saturating_duration_since(oldest.0).as_secs_f64() * f64::from(self.cores);
        (cpu.saturating_sub(oldest.1).as_secs_f64() / whole.max(1e-3) * 1e3) as u32
    }
}

/// The last ticks and the partial data of the current one, owned by the thread.
pub(crate) struct LoadWindow {
    samples: Box<[TickSample; WINDOW_TICKS]>,
    scratch: Box<[u16; WINDOW_TICKS]>,
    /// Samples since the thread was idle.
    sample_count: usize,
    /// Busy time since the end of the last tick.
    busy: Duration,
    /// Busy time of the last ticks, oldest first.
    recent_busy: [Duration; BUSY_SPAN_TICKS],
    process: ProcessLoad,
}

impl LoadWindow {
    pub(crate) fn new() -> Self {
        Self {
            samples: Box::new([TickSample::default(); WINDOW_TICKS]),
            scratch: Box::new([0; WINDOW_TICKS]),
            sample_count: 0,
            busy: Duration::ZERO,
            recent_busy: [Duration::ZERO; BUSY_SPAN_TICKS],
            process: ProcessLoad::new(),
        }
    }

    /// Adds the duration of a step, with or without a tick.
    pub(crate) fn add_busy_time(&mut self, took: Duration) {
        self.busy += took;
    }

    /// Records a finished tick: its lateness, its duration and its number of calls.
    pub(crate) fn record_tick(
        &mut self,
        late: Duration,
        took: Duration,
        calls: usize,
        load: &ThreadLoad,
    ) {
        let share = |time: Duration| {
            u16::try_from(time.as_micros() * 1_000 / TICK_INTERVAL.as_micros()).unwrap_or(u16::MAX)
        };
        let now = std::mem::take(&mut self.busy);
        self.recent_busy.rotate_left(1);
        self.recent_busy[BUSY_SPAN_TICKS - 1] = now;
        let used = share(self.recent_busy.iter().sum::<Duration>() / BUSY_SPAN_TICKS as u32);
        let calls = u16::try_from(calls).unwrap_or(u16::MAX);
        self.samples[self.sample_count % WINDOW_TICKS] =
            TickSample { busy: used, tick_delay: share(late + took), calls };
        self.sample_count += 1;
        if self.sample_count >= MIN_TICKS && self.sample_count.is_multiple_of(TICKS_PER_UPDATE) {
            let n = self.sample_count.min(WINDOW_TICKS);
            let known = self.samples[..n].iter().map(|s| usize::from(s.calls)).sum::<usize>() / n;
            let found = LoadMeasurement {
                busy: u32::from(self.percentile(n, |s| s.busy)),
                tick_delay: u32::from(self.percentile(n, |s| s.tick_delay)),
                process_busy: self.process.sample_ratio(),
                measured_calls: known,
            };
            load.publish(found, usize::from(calls));
        }
    }

    /// The thread has no call: the old measurements do not apply to future calls.
    pub(crate) fn reset(&mut self, load: &ThreadLoad) {
        if self.sample_count > 0 {
            self.sample_count = 0;
            self.busy = Duration::ZERO;
            self.recent_busy = [Duration::ZERO; BUSY_SPAN_TICKS];
            self.process.sample_count = 0;
            load.publish(LoadMeasurement::default(), 0);
        }
    }

    /// The 95th percentile of `n` samples; nearest rank.
    fn percentile(&mut self, n: usize, value_of: fn(&TickSample) -> u16) -> u16 {
        let values = &mut self.scratch[..n];
        for (value, sample) in values.iter_mut().zip(self.samples.iter()) {
            *value = value_of(sample);
        }
        let at = (n * 95).div_ceil(100) - 1;
        *values.select_nth_unstable(at).1
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::sync::OnceLock;

    use super::*;

    /// Runs `ticks` with this many calls; each tick takes `used` thousandths of its time.
    fn run_ticks(
        window: &mut LoadWindow,
        load: &ThreadLoad,
        ticks: usize,
        calls: usize,
        used: u64,
    ) {
        for _ in 0..ticks {
            let took = Duration::from_micros(used * 10);
            window.add_busy_time(took);
            window.record_tick(Duration::ZERO, took, calls, load);
        }
    }

    /// A window whose process uses no CPU time.
    fn idle_window() -> LoadWindow {
        let mut window = LoadWindow::new();
        window.process.read_clocks = || (clock::now(), Duration::ZERO);
        window
    }

    #[test]
    fn a_thread_closes_above_its_limit_and_opens_well_below_it() {
        let (mut window, load) = (idle_window(), ThreadLoad::new(0.8));
        run_ticks(&mut window, &load, 1_024, 100, 700);
        assert!(load.admits_call(100), "{load:?}");
        run_ticks(&mut window, &load, 512, 100, 790);
        assert!(load.admits_call(100), "one more at 7.9 of 1000 fits: {load:?}");
        run_ticks(&mut window, &load, 512, 100, 810);
        assert!(!load.admits_call(100));
        run_ticks(&mut window, &load, 512, 100, 700);
        assert!(!load.admits_call(50), "a little less does not open it");
        run_ticks(&mut window, &load, 512, 50, 640);
        assert!(load.admits_call(50));
    }

    #[test]
    fn single_slow_ticks_are_tolerated_and_many_in_a_row_are_not() {
        let (mut window, load) = (idle_window(), ThreadLoad::new(0.8));
        for (slow, admits) in [(1, true), (2, true), (3, false)] {
            for at in 0..1_024 {
                run_ticks(&mut window, &load, 1, 100, if at % 20 < slow { 1_400 } else { 100 });
            }
            assert_eq!(load.admits_call(100), admits, "{slow} of ten: {load:?}");
        }
    }

    #[test]
    fn ticks_that_come_late_close_it_too() {
        let (mut window, load) = (idle_window(), ThreadLoad::new(0.8));
        for _ in 0..512 {
            window.record_tick(Duration::from_millis(21), Duration::from_millis(1), 10, &load);
        }
        assert!(!load.admits_call(10), "other threads use the core: {load:?}");
        assert!(load.tick_delay() >= Duration::from_millis(21));
        for _ in 0..512 {
            window.record_tick(Duration::from_millis(2), Duration::from_millis(1), 10, &load);
        }
        assert!(load.admits_call(10));
    }

    #[test]
    fn recently_admitted_calls_count_towards_the_load() {
        let (mut window, load) = (idle_window(), ThreadLoad::new(0.8));
        run_ticks(&mut window, &load, 1_024, 50, 400); // 8 of 1000 each
        assert!(load.admits_call(50) && load.admits_call(98), "{load:?}");
        assert!(!load.admits_call(100), "51 more would be 808");
        // A thread without measurements does not take a thousand calls at once.
        let fresh = ThreadLoad::new(0.8);
        assert!(fresh.admits_call(0) && fresh.admits_call(199) && !fresh.admits_call(200));
    }

    #[test]
    fn the_measured_load_is_reset_after_the_last_call() {
        let (mut window, load) = (idle_window(), ThreadLoad::new(0.8));
        run_ticks(&mut window, &load, 1_024, 100, 900);
        assert!(!load.admits_call(100));
        window.reset(&load);
        assert!(load.admits_call(1), "{load:?}");
        run_ticks(&mut window, &load, 100, 1, 1_000);
        assert!(load.admits_call(1), "one second is too short for a decision");
    }

    #[test]
    fn the_cpu_load_of_other_threads_rejects_calls_too() {
        thread_local! {
            static CPU: Cell<(Duration, Duration)> =
                const { Cell::new((Duration::ZERO, Duration::ZERO)) }
        }
        static START: OnceLock<Instant> = OnceLock::new();
        let (mut window, load) = (idle_window(), ThreadLoad::new(0.8));
        window.process.read_clocks = || (*START.get_or_init(clock::now) + CPU.get().0, CPU.get().1);
        window.process.cores = 2;
        // `share` in hundredths of two processors, ten calls, five seconds per run.
        let mut seconds = |share: u64| {
            for _ in 0..WINDOW_TICKS {
                let (now, cpu) = CPU.get();
                CPU.set((now + TICK_INTERVAL, cpu + TICK_INTERVAL * share as u32 / 50));
                run_ticks(&mut window, &load, 1, 10, 100);
            }
        };
        seconds(40);
        seconds(40);
        assert!((load.process_busy_ratio() - 0.4).abs() < 0.01, "{load:?}");
        assert!(load.admits_call(10) && load.admits_call(19), "{load:?}");
        assert!(!load.admits_call(20), "eleven more at a twenty-fifth each would be 84 of 100");
        seconds(85);
        seconds(85);
        assert!(!load.admits_call(10), "{load:?}");
        seconds(60);
        seconds(60);
        assert!(load.admits_call(10), "{load:?}");
    }

    #[test]
    fn a_limit_of_zero_is_none() {
        let (mut window, load) = (idle_window(), ThreadLoad::new(0.0));
        run_ticks(&mut window, &load, 1_024, 100, 2_000);
        assert!(load.admits_call(10_000));
    }
}
