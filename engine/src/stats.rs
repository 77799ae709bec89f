//! What a media thread counts of itself.
//!
//! The thread alone writes, with relaxed atomics and without a lock or an allocation; whoever serves the numbers reads them at any time.
//! What only the thread needs is plain ([`StepMeter`]).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use conversation::metrics::MetricValue;

use crate::load::{LoadWindow, ThreadLoad};

/// A frame handed out so long after the playout clock needed it is late: longer than a client's jitter buffer usually waits.
pub const LATE_FRAME_THRESHOLD: Duration = Duration::from_millis(60);
/// A tick that comes so long after its time is late.
const LATE_TICK_THRESHOLD: Duration = Duration::from_millis(5);

/// Bounds in µs of what a tick takes; the tick itself is 10 ms.
const TICK_TIME_BOUNDS_US: &[u64] = &[
    100, 250, 500, 1_000, 2_000, 3_000, 4_000, 5_000, 6_000, 8_000, 10_000, 15_000, 20_000, 50_000, 100_000,
];
/// Bounds in µs of how late a tick begins.
const TICK_LATENESS_BOUNDS_US: &[u64] =
    &[100, 250, 500, 1_000, 2_000, 5_000, 10_000, 20_000, 60_000, 200_000, 1_000_000];

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
    pub fn observe(&self, value: Duration) {
        let micros = value.as_micros() as u64;
        let at = self.bounds.partition_point(|bound| *bound < micros);
        self.counts[at].fetch_add(1, Relaxed);
        self.sum.fetch_add(micros, Relaxed);
    }

    /// All of it, in seconds.
    #[must_use]
    pub fn snapshot(&self) -> MetricValue {
        let seconds = |micros: u64| micros as f64 / 1e6;
        let bounds = self.bounds.iter().map(|bound| seconds(*bound)).chain([f64::INFINITY]);
        let buckets = bounds.zip(self.counts.iter().map(|count| count.load(Relaxed))).collect();
        MetricValue::Histogram { buckets, sum: seconds(self.sum.load(Relaxed)) }
    }
}

/// What a thread tells of itself. All counts since the start.
#[derive(Debug)]
pub struct ThreadStats {
    /// Ticks.
    pub ticks: AtomicU64,
    /// Ticks that came more than 5 ms late.
    pub late_ticks: AtomicU64,
    /// The worst tick's lateness in µs.
    pub max_tick_lateness_us: AtomicU64,
    /// Sum of the ticks' lateness in µs.
    pub total_tick_lateness_us: AtomicU64,
    /// What the steps with a tick took.
    pub tick_times: Histogram,
    /// How late the ticks began.
    pub tick_lateness: Histogram,
    /// µs spent in steps.
    pub busy_us: AtomicU64,
    /// Frames of the agents' voices handed out, silence included.
    pub audio_frames: AtomicU64,
    /// Those handed out more than [`LATE_FRAME_THRESHOLD`] after they were needed.
    pub late_audio_frames: AtomicU64,
    /// Blocks of sound left out because a tick came too late for them.
    pub skipped_audio_frames: AtomicU64,
    /// Blocks in which a sounding piece lacked samples.
    pub underruns: AtomicU64,
    /// Changes of faces to better sets of their persons.
    pub avatar_upgrades: AtomicU64,
    /// Windows judged by the speech detector.
    pub vad_windows: AtomicU64,
    /// Packets of users' voices that came faster than real time, and were dropped.
    pub excess_packets: AtomicU64,
    /// Datagrams that belonged to nobody.
    pub unknown_datagrams: AtomicU64,
    /// Datagrams that the system did not take.
    pub send_dropped_datagrams: AtomicU64,
    /// Calls that are over.
    pub ended_calls: AtomicU64,
    /// It failed and takes no calls until it has begun anew, or it is gone.
    pub dead: AtomicBool,
    /// How often it failed too often and paused before it began anew.
    pub restart_pauses: AtomicU64,
    /// How much time it has left.
    pub load: ThreadLoad,
}

impl Default for ThreadStats {
    fn default() -> Self {
        Self::new(0.0)
    }
}

impl ThreadStats {
    /// Of a thread that takes no more calls when it works more than this share of its time; 0 = it always does.
    #[must_use]
    pub fn new(max_busy: f64) -> Self {
        Self {
            ticks: AtomicU64::new(0),
            late_ticks: AtomicU64::new(0),
            max_tick_lateness_us: AtomicU64::new(0),
            total_tick_lateness_us: AtomicU64::new(0),
            tick_times: Histogram::new(TICK_TIME_BOUNDS_US),
            tick_lateness: Histogram::new(TICK_LATENESS_BOUNDS_US),
            busy_us: AtomicU64::new(0),
            audio_frames: AtomicU64::new(0),
            late_audio_frames: AtomicU64::new(0),
            skipped_audio_frames: AtomicU64::new(0),
            underruns: AtomicU64::new(0),
            avatar_upgrades: AtomicU64::new(0),
            vad_windows: AtomicU64::new(0),
            excess_packets: AtomicU64::new(0),
            unknown_datagrams: AtomicU64::new(0),
            send_dropped_datagrams: AtomicU64::new(0),
            ended_calls: AtomicU64::new(0),
            dead: AtomicBool::new(false),
            restart_pauses: AtomicU64::new(0),
            load: ThreadLoad::new(max_busy),
        }
    }
}

/// Whole ms of lateness that are told apart: 0 to 60, all in time.
const LATENESS_SLOTS: usize = LATE_FRAME_THRESHOLD.as_millis() as usize + 1;

/// A thread's own counts of the step that runs, and where they go.
pub struct StepMeter {
    stats: Arc<ThreadStats>,
    load_window: LoadWindow,
    /// How late the tick of this step began and with how many calls, if it has one.
    current_tick: Option<(Duration, usize)>,
    /// Frames handed out in this step by the ms that they were late as it began.
    frames_by_lateness: [u32; LATENESS_SLOTS],
    has_frames: bool,
}

impl StepMeter {
    /// A meter that adds to `stats`.
    #[must_use]
    pub fn new(stats: Arc<ThreadStats>) -> Self {
        Self {
            stats,
            load_window: LoadWindow::new(),
            current_tick: None,
            frames_by_lateness: [0; LATENESS_SLOTS],
            has_frames: false,
        }
    }

    /// What it adds to.
    #[must_use]
    pub fn stats(&self) -> &Arc<ThreadStats> {
        &self.stats
    }

    /// A tick begins, so late, with so many calls.
    pub fn record_tick(&mut self, late: Duration, calls: usize) {
        let (stats, micros) = (&self.stats, late.as_micros() as u64);
        self.current_tick = Some((late, calls));
        stats.ticks.fetch_add(1, Relaxed);
        stats.total_tick_lateness_us.fetch_add(micros, Relaxed);
        stats.max_tick_lateness_us.fetch_max(micros, Relaxed);
        stats.tick_lateness.observe(late);
        if late > LATE_TICK_THRESHOLD {
            stats.late_ticks.fetch_add(1, Relaxed);
        }
    }

    /// A frame is handed out which was needed so long before this step began. Judged to the ms.
    pub fn record_frame(&mut self, late: Duration) {
        self.has_frames = true;
        self.stats.audio_frames.fetch_add(1, Relaxed);
        match self.frames_by_lateness.get_mut(late.as_millis() as usize) {
            Some(count) => *count += 1,
            None => drop(self.stats.late_audio_frames.fetch_add(1, Relaxed)),
        }
    }

    /// Blocks were left out, or lacked samples.
    pub fn record_losses(&mut self, skipped: u64, underruns: u64) {
        if skipped > 0 {
            self.stats.skipped_audio_frames.fetch_add(skipped, Relaxed);
        }
        if underruns > 0 {
            self.stats.underruns.fetch_add(underruns, Relaxed);
        }
    }

    /// Packets of a user's voice were dropped because they came faster than real time.
    pub fn record_excess_packets(&mut self, packets: u64) {
        if packets > 0 {
            self.stats.excess_packets.fetch_add(packets, Relaxed);
        }
    }

    /// A face changed over to a better set.
    pub fn record_avatar_upgrade(&mut self) {
        self.stats.avatar_upgrades.fetch_add(1, Relaxed);
    }

    /// The thread has no call any more.
    pub fn reset(&mut self) {
        self.load_window.reset(&self.stats.load);
    }

    /// The step is over and took so long. Its datagrams leave at its end, so its frames are as much later.
    pub fn end_step(&mut self, took: Duration) {
        self.stats.busy_us.fetch_add(took.as_micros() as u64, Relaxed);
        self.load_window.add_busy_time(took);
        if let Some((late, calls)) = self.current_tick.take() {
            self.stats.tick_times.observe(took);
            self.load_window.record_tick(late, took, calls, &self.stats.load);
        }
        if std::mem::take(&mut self.has_frames) {
            let more = (took.as_millis() as usize).min(LATENESS_SLOTS);
            let late: u32 = self.frames_by_lateness[LATENESS_SLOTS - more..].iter().sum();
            self.stats.late_audio_frames.fetch_add(u64::from(late), Relaxed);
            self.frames_by_lateness.fill(0);
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
        match histogram.snapshot() {
            MetricValue::Histogram { buckets, sum } => (buckets, sum),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_bound_belongs_to_its_bucket() {
        let histogram = Histogram::new(&[1_000, 5_000]);
        for value in [ms(0), ms(1), Duration::from_micros(1_001), ms(5), ms(6)] {
            histogram.observe(value);
        }
        let (buckets, sum) = read(&histogram);
        assert_eq!(buckets, [(0.001, 2), (0.005, 2), (f64::INFINITY, 1)]);
        assert!((sum - 0.013_001).abs() < 1e-9, "{sum}");
    }

    #[test]
    fn a_frame_is_late_by_what_its_step_took_too() {
        let stats = Arc::new(ThreadStats::default());
        let mut meter = StepMeter::new(Arc::clone(&stats));
        let counts =
            |stats: &ThreadStats| (stats.audio_frames.load(Relaxed), stats.late_audio_frames.load(Relaxed));
        for late in [0, 9, 55, 60] {
            meter.record_frame(ms(late));
        }
        meter.end_step(ms(0));
        assert_eq!(counts(&stats), (4, 0), "60 ms is in time");
        for late in [0, 55, 56] {
            meter.record_frame(ms(late));
        }
        meter.end_step(ms(5));
        assert_eq!(counts(&stats), (7, 1), "5 ms of a step make 56 late, not 55");
        meter.record_frame(ms(61));
        meter.record_frame(ms(200));
        meter.end_step(ms(0));
        assert_eq!(counts(&stats), (9, 3));
        meter.record_frame(ms(0));
        meter.end_step(ms(500));
        assert_eq!(counts(&stats), (10, 4));
        meter.end_step(ms(500));
        assert_eq!(counts(&stats), (10, 4), "a step's frames are its own");
    }

    #[test]
    fn only_a_step_with_a_tick_is_a_tick_s_time() {
        let stats = Arc::new(ThreadStats::default());
        let mut meter = StepMeter::new(Arc::clone(&stats));
        meter.end_step(ms(3));
        meter.record_tick(ms(1), 1);
        meter.end_step(ms(2));
        let (times, sum) = read(&stats.tick_times);
        assert_eq!(times.iter().map(|(_, n)| n).sum::<u64>(), 1);
        assert!((sum - 0.002).abs() < 1e-9);
        assert_eq!(stats.busy_us.load(Relaxed), 5_000);
    }
}
