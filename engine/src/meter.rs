//! What a media thread counts of itself.
//!
//! The thread alone writes, with relaxed atomics and without a lock or an allocation; whoever serves the numbers reads them at any time.
//! What only the thread needs is plain ([`Meter`]).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use conversation::metrics::MetricValue;

use crate::headroom::{Headroom, Window};

/// A frame handed out so long after the playout clock needed it is late: longer than a client's jitter buffer usually waits.
pub const LATE: Duration = Duration::from_millis(60);
/// A tick that comes so long after its time is late.
const LATE_TICK: Duration = Duration::from_millis(5);

/// Bounds in µs of what a tick takes; the tick itself is 10 ms.
const TICK_TIMES: &[u64] = &[
    100, 250, 500, 1_000, 2_000, 3_000, 4_000, 5_000, 6_000, 8_000, 10_000, 15_000, 20_000, 50_000, 100_000,
];
/// Bounds in µs of how late a tick begins.
const LATENESS: &[u64] = &[100, 250, 500, 1_000, 2_000, 5_000, 10_000, 20_000, 60_000, 200_000, 1_000_000];

/// Counts of values under fixed bounds. Written by one thread or few, read by any.
#[derive(Debug)]
pub struct Histogram {
    bounds: &'static [u64],
    /// One more than bounds: what is above all of them.
    counts: Box<[AtomicU64]>,
    sum: AtomicU64,
}

impl Histogram {
    /// With upper bounds in µs, ascending.
    #[must_use]
    pub fn new(bounds: &'static [u64]) -> Self {
        debug_assert!(bounds.is_sorted());
        let counts = (0..=bounds.len()).map(|_| AtomicU64::new(0)).collect();
        Self { bounds, counts, sum: AtomicU64::new(0) }
    }

    /// Counts one value.
    pub fn note(&self, value: Duration) {
        let micros = value.as_micros() as u64;
        let at = self.bounds.partition_point(|bound| *bound < micros);
        self.counts[at].fetch_add(1, Relaxed);
        self.sum.fetch_add(micros, Relaxed);
    }

    /// All of it, in seconds.
    #[must_use]
    pub fn read(&self) -> MetricValue {
        let seconds = |micros: u64| micros as f64 / 1e6;
        let bounds = self.bounds.iter().map(|bound| seconds(*bound)).chain([f64::INFINITY]);
        let buckets = bounds.zip(self.counts.iter().map(|count| count.load(Relaxed))).collect();
        MetricValue::Histogram { buckets, sum: seconds(self.sum.load(Relaxed)) }
    }
}

/// What a thread tells of itself. All counts since the start.
#[derive(Debug)]
pub struct Stats {
    /// Ticks.
    pub ticks: AtomicU64,
    /// Ticks that came more than 5 ms late.
    pub late_ticks: AtomicU64,
    /// The worst tick's lateness in µs.
    pub worst_tick: AtomicU64,
    /// Sum of the ticks' lateness in µs.
    pub lateness: AtomicU64,
    /// What the steps with a tick took.
    pub tick_times: Histogram,
    /// How late the ticks began.
    pub tick_lateness: Histogram,
    /// µs spent in steps.
    pub busy: AtomicU64,
    /// Frames of the agents' voices handed out, silence included.
    pub frames: AtomicU64,
    /// Those handed out more than [`LATE`] after they were needed.
    pub late_frames: AtomicU64,
    /// Blocks of sound left out because a tick came too late for them.
    pub late_blocks: AtomicU64,
    /// Blocks in which a sounding piece lacked samples.
    pub underruns: AtomicU64,
    /// Changes of faces to better sets of their persons.
    pub renewals: AtomicU64,
    /// Windows judged by the speech detector.
    pub windows: AtomicU64,
    /// Packets of users' voices that came faster than real time, and were dropped.
    pub excess: AtomicU64,
    /// Datagrams that belonged to nobody.
    pub strays: AtomicU64,
    /// Datagrams that the system did not take.
    pub unsent: AtomicU64,
    /// Calls that are over.
    pub ended: AtomicU64,
    /// It failed and takes no calls until it has begun anew, or it is gone.
    pub dead: AtomicBool,
    /// How often it failed too often and paused before it began anew.
    pub pauses: AtomicU64,
    /// How much time it has left.
    pub headroom: Headroom,
}

impl Default for Stats {
    fn default() -> Self {
        Self::new(0.0)
    }
}

impl Stats {
    /// Of a thread that takes no more calls when it works more than this share of its time; 0 = it always does.
    #[must_use]
    pub fn new(limit: f64) -> Self {
        Self {
            ticks: AtomicU64::new(0),
            late_ticks: AtomicU64::new(0),
            worst_tick: AtomicU64::new(0),
            lateness: AtomicU64::new(0),
            tick_times: Histogram::new(TICK_TIMES),
            tick_lateness: Histogram::new(LATENESS),
            busy: AtomicU64::new(0),
            frames: AtomicU64::new(0),
            late_frames: AtomicU64::new(0),
            late_blocks: AtomicU64::new(0),
            underruns: AtomicU64::new(0),
            renewals: AtomicU64::new(0),
            windows: AtomicU64::new(0),
            excess: AtomicU64::new(0),
            strays: AtomicU64::new(0),
            unsent: AtomicU64::new(0),
            ended: AtomicU64::new(0),
            dead: AtomicBool::new(false),
            pauses: AtomicU64::new(0),
            headroom: Headroom::new(limit),
        }
    }
}

/// Whole ms of lateness that are told apart: 0 to 60, all in time.
const SLOTS: usize = LATE.as_millis() as usize + 1;

/// A thread's own counts of the step that runs, and where they go.
pub struct Meter {
    stats: Arc<Stats>,
    window: Window,
    /// How late the tick of this step began and with how many calls, if it has one.
    ticked: Option<(Duration, usize)>,
    /// Frames handed out in this step by the ms that they were late as it began.
    frames: [u32; SLOTS],
    any: bool,
}

impl Meter {
    /// A meter that adds to `stats`.
    #[must_use]
    pub fn new(stats: Arc<Stats>) -> Self {
        Self { stats, window: Window::new(), ticked: None, frames: [0; SLOTS], any: false }
    }

    /// What it adds to.
    #[must_use]
    pub fn stats(&self) -> &Arc<Stats> {
        &self.stats
    }

    /// A tick begins, so late, with so many calls.
    pub fn tick(&mut self, late: Duration, calls: usize) {
        let (stats, micros) = (&self.stats, late.as_micros() as u64);
        self.ticked = Some((late, calls));
        stats.ticks.fetch_add(1, Relaxed);
        stats.lateness.fetch_add(micros, Relaxed);
        stats.worst_tick.fetch_max(micros, Relaxed);
        stats.tick_lateness.note(late);
        if late > LATE_TICK {
            stats.late_ticks.fetch_add(1, Relaxed);
        }
    }

    /// A frame is handed out which was needed so long before this step began. Judged to the ms.
    pub fn frame(&mut self, late: Duration) {
        self.any = true;
        self.stats.frames.fetch_add(1, Relaxed);
        match self.frames.get_mut(late.as_millis() as usize) {
            Some(count) => *count += 1,
            None => drop(self.stats.late_frames.fetch_add(1, Relaxed)),
        }
    }

    /// Blocks were left out, or lacked samples.
    pub fn losses(&mut self, left_out: u64, underruns: u64) {
        if left_out > 0 {
            self.stats.late_blocks.fetch_add(left_out, Relaxed);
        }
        if underruns > 0 {
            self.stats.underruns.fetch_add(underruns, Relaxed);
        }
    }

    /// Packets of a user's voice were dropped because they came faster than real time.
    pub fn excess(&mut self, packets: u64) {
        if packets > 0 {
            self.stats.excess.fetch_add(packets, Relaxed);
        }
    }

    /// A face changed over to a better set.
    pub fn renewed(&mut self) {
        self.stats.renewals.fetch_add(1, Relaxed);
    }

    /// The thread has no call any more.
    pub fn rest(&mut self) {
        self.window.rest(&self.stats.headroom);
    }

    /// The step is over and took so long. Its datagrams leave at its end, so its frames are as much later.
    pub fn close(&mut self, took: Duration) {
        self.stats.busy.fetch_add(took.as_micros() as u64, Relaxed);
        self.window.worked(took);
        if let Some((late, calls)) = self.ticked.take() {
            self.stats.tick_times.note(took);
            self.window.ticked(late, took, calls, &self.stats.headroom);
        }
        if std::mem::take(&mut self.any) {
            let more = (took.as_millis() as usize).min(SLOTS);
            let late: u32 = self.frames[SLOTS - more..].iter().sum();
            self.stats.late_frames.fetch_add(u64::from(late), Relaxed);
            self.frames.fill(0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(n: u64) -> Duration {
        Duration::from_millis(n)
    }

    fn read(histogram: &Histogram) -> (Vec<(f64, u64)>, f64) {
        match histogram.read() {
            MetricValue::Histogram { buckets, sum } => (buckets, sum),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_bound_belongs_to_its_bucket() {
        let histogram = Histogram::new(&[1_000, 5_000]);
        for value in [ms(0), ms(1), Duration::from_micros(1_001), ms(5), ms(6)] {
            histogram.note(value);
        }
        let (buckets, sum) = read(&histogram);
        assert_eq!(buckets, [(0.001, 2), (0.005, 2), (f64::INFINITY, 1)]);
        assert!((sum - 0.013_001).abs() < 1e-9, "{sum}");
    }

    #[test]
    fn a_frame_is_late_by_what_its_step_took_too() {
        let stats = Arc::new(Stats::default());
        let mut meter = Meter::new(Arc::clone(&stats));
        let counts = |stats: &Stats| (stats.frames.load(Relaxed), stats.late_frames.load(Relaxed));
        for late in [0, 9, 55, 60] {
            meter.frame(ms(late));
        }
        meter.close(ms(0));
        assert_eq!(counts(&stats), (4, 0), "60 ms is in time");
        for late in [0, 55, 56] {
            meter.frame(ms(late));
        }
        meter.close(ms(5));
        assert_eq!(counts(&stats), (7, 1), "5 ms of a step make 56 late, not 55");
        meter.frame(ms(61));
        meter.frame(ms(200));
        meter.close(ms(0));
        assert_eq!(counts(&stats), (9, 3));
        meter.frame(ms(0));
        meter.close(ms(500));
        assert_eq!(counts(&stats), (10, 4));
        meter.close(ms(500));
        assert_eq!(counts(&stats), (10, 4), "a step's frames are its own");
    }

    #[test]
    fn only_a_step_with_a_tick_is_a_tick_s_time() {
        let stats = Arc::new(Stats::default());
        let mut meter = Meter::new(Arc::clone(&stats));
        meter.close(ms(3));
        meter.tick(ms(1), 1);
        meter.close(ms(2));
        let (times, sum) = read(&stats.tick_times);
        assert_eq!(times.iter().map(|(_, n)| n).sum::<u64>(), 1);
        assert!((sum - 0.002).abs() < 1e-9);
        assert_eq!(stats.busy.load(Relaxed), 5_000);
    }
}
