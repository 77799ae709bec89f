//! How much of its time a media thread has left, and whether it may take one more call.
//!
//! Sound leaves every 20 ms, pictures every 40, and a listener's buffer holds about as much: sound suffers when the work of 40 ms does not
//! fit into them. So each tick is measured: how much of the last 40 ms the thread worked, and how long after its time the tick was done.
//! The 95th percentile over the last seconds decides, with a gap between closing and opening, so that a thread at its limit does not
//! take a call each time that one is silent. What a call costs shows only once it has run for a while; until then it is reckoned with.
//!
//! Sound suffers as well when a voice comes too late because other threads of the program, models and network, have the processors. So
//! what the whole process takes of them counts in the same way.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use cpu_time::ProcessTime;

use crate::shard::TICK;
use crate::{clock, thread};

/// Ticks that are looked at: five seconds of them.
const WINDOW: usize = 512;
/// Ticks whose work must fit into their time together.
const TOGETHER: usize = 4;
/// Fewer say nothing.
const LEAST: usize = 256;
/// Ticks between two looks.
const EVERY: usize = 64;
/// A thread that is closed opens again at this part of what closed it, in hundredths.
const OPENS: u32 = 80;
/// A tick done so late lets sound wait that leaves every 20 ms. In thousandths of the tick: the 95th percentile that closes a thread.
const DONE_LATE: u32 = 2_000;
/// Looks at the process that make its share: five seconds.
const LOOKS: usize = WINDOW / EVERY;
/// What a call is reckoned with as long as none was measured, in thousandths of the tick.
const CALL: u64 = 4;
/// Calls from which a thread's cost of one call is learned.
const LEARNED_FROM: usize = 8;

/// A tick as it was.
#[derive(Clone, Copy, Default)]
struct Sample {
    /// Work in this tick and the [`TOGETHER`] − 1 before, and between them, in thousandths of their time.
    used: u16,
    /// End of the tick after its time, the same.
    done: u16,
    calls: u16,
}

/// What a media thread tells of its time. Written by it alone, read by any.
#[derive(Debug)]
pub struct Headroom {
    /// Share of its time above which it is closed, in thousandths; 0 = it never is.
    limit: u32,
    used: AtomicU32,
    done: AtomicU32,
    /// Share of its processors that the whole process takes, in thousandths.
    process: AtomicU32,
    /// What a call costs, in millionths of the tick.
    call: AtomicU64,
    /// The same of all threads, in millionths of the processors.
    whole_call: AtomicU64,
    /// Calls that the numbers above know: their mean.
    known: AtomicU32,
    closed: AtomicBool,
}

impl Headroom {
    /// Of a thread that is closed above `limit` of its time; 0 = never.
    #[must_use]
    pub fn new(limit: f64) -> Self {
        Self {
            limit: (limit * 1e3).round().clamp(0.0, 1e6) as u32,
            used: AtomicU32::new(0),
            done: AtomicU32::new(0),
            process: AtomicU32::new(0),
            call: AtomicU64::new(CALL * 1_000),
            whole_call: AtomicU64::new(0),
            known: AtomicU32::new(0),
            closed: AtomicBool::new(false),
        }
    }

    /// Share of its time that the thread worked: 95th percentile of the last ticks.
    #[must_use]
    pub fn used(&self) -> f64 {
        f64::from(self.used.load(Relaxed)) / 1e3
    }

    /// When its ticks were done after their time: the same percentile.
    #[must_use]
    pub fn done(&self) -> Duration {
        TICK * self.done.load(Relaxed) / 1_000
    }

    /// Share of the processors that it may use which the whole process took in the last seconds, as this thread saw it.
    #[must_use]
    pub fn process(&self) -> f64 {
        f64::from(self.process.load(Relaxed)) / 1e3
    }

    /// Whether the thread may take one more call beside the `taken` ones that it has.
    #[must_use]
    pub fn admits(&self, taken: usize) -> bool {
        if self.limit == 0 || taken == 0 {
            return true;
        }
        let unknown = (taken + 1).saturating_sub(self.known.load(Relaxed) as usize) as u64;
        let fits = |used: &AtomicU32, call: &AtomicU64| {
            let reckoned = u64::from(used.load(Relaxed)) * 1_000 + unknown * call.load(Relaxed);
            reckoned <= u64::from(self.limit) * 1_000
        };
        !self.closed.load(Relaxed) && fits(&self.used, &self.call) && fits(&self.process, &self.whole_call)
    }

    fn tell(&self, found: Found, calls: usize) {
        let Found { used, done, process, known } = found;
        self.used.store(used, Relaxed);
        self.done.store(done, Relaxed);
        self.process.store(process, Relaxed);
        self.known.store(known.min(calls) as u32, Relaxed);
        let learned = |used: u32| (known >= LEARNED_FROM).then(|| u64::from(used) * 1_000 / known as u64);
        self.call.store(learned(used).unwrap_or(CALL * 1_000), Relaxed);
        // Where there are several threads, each counts what is spent for all of their calls as its own calls', and each takes its share of
        // the new ones: together that is right.
        self.whole_call.store(learned(process).unwrap_or(0), Relaxed);
        let (closes, opens) = (self.limit, self.limit * OPENS / 100);
        if used.max(process) > closes || done > DONE_LATE {
            self.closed.store(true, Relaxed);
        } else if used.max(process) <= opens && done <= DONE_LATE * 3 / 4 {
            self.closed.store(false, Relaxed);
        }
    }
}

/// What the last seconds were like.
#[derive(Clone, Copy, Default)]
struct Found {
    /// In thousandths of the tick.
    used: u32,
    done: u32,
    /// In thousandths of the processors.
    process: u32,
    /// Calls that were there, on the average.
    known: usize,
}

/// What all threads of the process take of the processors that it may use.
struct Process {
    /// Time of the clock, and CPU time of all threads.
    look: fn() -> (Instant, Duration),
    cores: u32,
    looks: [(Instant, Duration); LOOKS],
    filled: usize,
}

impl Process {
    fn new() -> Self {
        let look = || (clock::now(), ProcessTime::now().as_duration());
        let cores = u32::try_from(thread::cores()).unwrap_or(u32::MAX);
        Self { look, cores, looks: [(clock::now(), Duration::ZERO); LOOKS], filled: 0 }
    }

    /// Its share since the oldest look that is kept, in thousandths; 0 at the first.
    fn share(&mut self) -> u32 {
        let (now, cpu) = (self.look)();
        let oldest = self.looks[if self.filled < LOOKS { 0 } else { self.filled % LOOKS }];
        self.looks[self.filled % LOOKS] = (now, cpu);
        self.filled += 1;
        if self.filled == 1 {
            return 0;
        }
        let whole = now.saturating_duration_since(oldest.0).as_secs_f64() * f64::from(self.cores);
        (cpu.saturating_sub(oldest.1).as_secs_f64() / whole.max(1e-3) * 1e3) as u32
    }
}

/// The last ticks, and what of the one that runs is known: the thread's own.
pub(crate) struct Window {
    samples: Box<[Sample; WINDOW]>,
    scratch: Box<[u16; WINDOW]>,
    /// Samples since the thread was idle.
    filled: usize,
    /// Since the last tick was over.
    used: Duration,
    /// In the last ticks, the oldest first.
    last: [Duration; TOGETHER],
    process: Process,
}

impl Window {
    pub(crate) fn new() -> Self {
        Self {
            samples: Box::new([Sample::default(); WINDOW]),
            scratch: Box::new([0; WINDOW]),
            filled: 0,
            used: Duration::ZERO,
            last: [Duration::ZERO; TOGETHER],
            process: Process::new(),
        }
    }

    /// The thread worked for so long, in a step with or without a tick.
    pub(crate) fn worked(&mut self, took: Duration) {
        self.used += took;
    }

    /// A tick is over that began so late and took so long, with so many calls.
    pub(crate) fn ticked(&mut self, late: Duration, took: Duration, calls: usize, told: &Headroom) {
        let share =
            |time: Duration| u16::try_from(time.as_micros() * 1_000 / TICK.as_micros()).unwrap_or(u16::MAX);
        let now = std::mem::take(&mut self.used);
        self.last.rotate_left(1);
        self.last[TOGETHER - 1] = now;
        let used = share(self.last.iter().sum::<Duration>() / TOGETHER as u32);
        let calls = u16::try_from(calls).unwrap_or(u16::MAX);
        self.samples[self.filled % WINDOW] = Sample { used, done: share(late + took), calls };
        self.filled += 1;
        if self.filled >= LEAST && self.filled.is_multiple_of(EVERY) {
            let n = self.filled.min(WINDOW);
            let known = self.samples[..n].iter().map(|s| usize::from(s.calls)).sum::<usize>() / n;
            let found = Found {
                used: u32::from(self.percentile(n, |s| s.used)),
                done: u32::from(self.percentile(n, |s| s.done)),
                process: self.process.share(),
                known,
            };
            told.tell(found, usize::from(calls));
        }
    }

    /// The thread has no call: what it measured is of no call that comes.
    pub(crate) fn rest(&mut self, told: &Headroom) {
        if self.filled > 0 {
            self.filled = 0;
            self.used = Duration::ZERO;
            self.last = [Duration::ZERO; TOGETHER];
            self.process.filled = 0;
            told.tell(Found::default(), 0);
        }
    }

    /// The 95th of `n` samples; nearest rank.
    fn percentile(&mut self, n: usize, of: fn(&Sample) -> u16) -> u16 {
        let values = &mut self.scratch[..n];
        for (value, sample) in values.iter_mut().zip(self.samples.iter()) {
            *value = of(sample);
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

    /// Runs `ticks` with these many calls, each using so many thousandths of the tick.
    fn run(window: &mut Window, told: &Headroom, ticks: usize, calls: usize, used: u64) {
        for _ in 0..ticks {
            let took = Duration::from_micros(used * 10);
            window.worked(took);
            window.ticked(Duration::ZERO, took, calls, told);
        }
    }

    /// A window whose process takes nothing.
    fn window() -> Window {
        let mut window = Window::new();
        window.process.look = || (clock::now(), Duration::ZERO);
        window
    }

    #[test]
    fn a_thread_closes_above_its_limit_and_opens_well_below_it() {
        let (mut window, told) = (window(), Headroom::new(0.8));
        run(&mut window, &told, 1_024, 100, 700);
        assert!(told.admits(100), "{told:?}");
        run(&mut window, &told, 512, 100, 790);
        assert!(told.admits(100), "one more at 7.9 of 1000 fits: {told:?}");
        run(&mut window, &told, 512, 100, 810);
        assert!(!told.admits(100));
        run(&mut window, &told, 512, 100, 700);
        assert!(!told.admits(50), "a little less does not open it");
        run(&mut window, &told, 512, 50, 640);
        assert!(told.admits(50));
    }

    #[test]
    fn slow_ticks_among_quick_ones_are_borne_and_many_in_a_row_are_not() {
        let (mut window, told) = (window(), Headroom::new(0.8));
        for (slow, admits) in [(1, true), (2, true), (3, false)] {
            for at in 0..1_024 {
                run(&mut window, &told, 1, 100, if at % 20 < slow { 1_400 } else { 100 });
            }
            assert_eq!(told.admits(100), admits, "{slow} of ten: {told:?}");
        }
    }

    #[test]
    fn ticks_that_come_late_close_it_too() {
        let (mut window, told) = (window(), Headroom::new(0.8));
        for _ in 0..512 {
            window.ticked(Duration::from_millis(21), Duration::from_millis(1), 10, &told);
        }
        assert!(!told.admits(10), "others have the core: {told:?}");
        assert!(told.done() >= Duration::from_millis(21));
        for _ in 0..512 {
            window.ticked(Duration::from_millis(2), Duration::from_millis(1), 10, &told);
        }
        assert!(told.admits(10));
    }

    #[test]
    fn calls_that_came_a_moment_ago_are_reckoned_with() {
        let (mut window, told) = (window(), Headroom::new(0.8));
        run(&mut window, &told, 1_024, 50, 400); // 8 of 1000 each
        assert!(told.admits(50) && told.admits(98), "{told:?}");
        assert!(!told.admits(100), "51 more would be 808");
        // A thread of which nothing is known takes no thousand at once.
        let fresh = Headroom::new(0.8);
        assert!(fresh.admits(0) && fresh.admits(199) && !fresh.admits(200));
    }

    #[test]
    fn what_was_measured_is_forgotten_with_the_last_call() {
        let (mut window, told) = (window(), Headroom::new(0.8));
        run(&mut window, &told, 1_024, 100, 900);
        assert!(!told.admits(100));
        window.rest(&told);
        assert!(told.admits(1), "{told:?}");
        run(&mut window, &told, 100, 1, 1_000);
        assert!(told.admits(1), "a second says nothing");
    }

    #[test]
    fn what_other_threads_of_the_process_take_closes_it_too() {
        thread_local! { static CPU: Cell<(Duration, Duration)> = const { Cell::new((Duration::ZERO, Duration::ZERO)) } }
        static START: OnceLock<Instant> = OnceLock::new();
        let (mut window, told) = (window(), Headroom::new(0.8));
        window.process.look = || (*START.get_or_init(clock::now) + CPU.get().0, CPU.get().1);
        window.process.cores = 2;
        // `share` in hundredths of two processors, ten calls, five seconds at a time.
        let mut seconds = |share: u64| {
            for _ in 0..WINDOW {
                let (now, cpu) = CPU.get();
                CPU.set((now + TICK, cpu + TICK * share as u32 / 50));
                run(&mut window, &told, 1, 10, 100);
            }
        };
        seconds(40);
        seconds(40);
        assert!((told.process() - 0.4).abs() < 0.01, "{told:?}");
        assert!(told.admits(10) && told.admits(19), "{told:?}");
        assert!(!told.admits(20), "eleven more at a twenty-fifth each would be 84 of 100");
        seconds(85);
        seconds(85);
        assert!(!told.admits(10), "{told:?}");
        seconds(60);
        seconds(60);
        assert!(told.admits(10), "{told:?}");
    }

    #[test]
    fn a_limit_of_zero_is_none() {
        let (mut window, told) = (window(), Headroom::new(0.0));
        run(&mut window, &told, 1_024, 100, 2_000);
        assert!(told.admits(10_000));
    }
}
