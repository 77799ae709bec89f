//! Counters of a media thread.
//!
//! Only the thread writes them, with relaxed atomics and without a lock or an allocation. Exporters
//! read them at any time. Values that only the thread needs are not atomic ([`StepMeter`]).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use engine_api::metrics::MetricValue;

use crate::cpu_load::{LoadWindow, ThreadLoad};

/// A frame handed out this long after the playout clock needed it is late: longer than a client's
/// jitter buffer usually waits.
pub const LATE_FRAME_THRESHOLD: Duration = Duration::from_millis(60);
/// A tick that starts this long after its due time is late.
const LATE_TICK_THRESHOLD: Duration = Duration::from_millis(5);

/// Bucket bounds in µs of a tick's duration; the tick interval is 10 ms.
const TICK_TIME_BOUNDS_US: &[u64] = &[
    100, 250, 500, 1_000, 2_000, 3_000, 4_000, 5_000, 6_000, 8_000, 10_000, 15_000, 20_000, 50_000,
    100_000,
];
/// Bucket bounds in µs of a tick's lateness.
const TICK_LATENESS_BOUNDS_US: &[u64] = &[
    100, 250, 500, 1_000, 1_500, 2_000, 3_000, 4_000, 5_000, 10_000, 20_000, 60_000, 200_000,
    1_000_000,
];

/// Histogram with fixed bounds. Written by one or a few threads, read by any.
#[derive(Debug)]
pub struct Histogram {
    bounds: &'static [u64],
    /// One more than bounds: the last one counts values above all bounds.
    counts: Box<[AtomicU64]>,
    sum: AtomicU64,
}

impl Histogram {
    /// A histogram with these upper bounds in µs, ascending.
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

    /// All buckets and the sum, in seconds.
    #[must_use]
    pub fn snapshot(&self) -> MetricValue {
        let seconds = |micros: u64| micros as f64 / 1e6;
        let bounds = self.bounds.iter().map(|bound| seconds(*bound)).chain([f64::INFINITY]);
        let buckets = bounds.zip(self.counts.iter().map(|count| count.load(Relaxed))).collect();
        MetricValue::Histogram { buckets, sum: seconds(self.sum.load(Relaxed)) }
    }
}

/// Counters of one media thread. All counts are since the start.
#[derive(Debug)]
pub struct ThreadStats {
    /// Number of ticks.
    pub ticks: AtomicU64,
    /// Ticks that started more than 5 ms late.
    pub late_ticks: AtomicU64,
    /// Highest lateness of a tick in µs.
    pub max_tick_lateness_us: AtomicU64,
    /// Sum of the ticks' lateness in µs.
    pub total_tick_lateness_us: AtomicU64,
    /// Duration of the steps with a tick.
    pub tick_times: Histogram,
    /// Lateness of the ticks.
    pub tick_lateness: Histogram,
    /// µs spent in steps.
    pub busy_us: AtomicU64,
    /// Frames of the agents' audio handed out, silence included.
    pub audio_frames: AtomicU64,
    /// Frames handed out more than [`LATE_FRAME_THRESHOLD`] after they were needed.
    pub late_audio_frames: AtomicU64,
    /// Video frames sent.
    pub video_frames: AtomicU64,
    /// Audio frames skipped because a tick came too late for them.
    pub skipped_audio_frames: AtomicU64,
    /// Frames in which a playing segment lacked samples.
    pub underruns: AtomicU64,
    /// Changes of a call's pose set to a better set of the same avatar.
    pub avatar_upgrades: AtomicU64,
    /// Windows processed by the VAD.
    pub vad_windows: AtomicU64,
    /// Packets of users' audio that arrived faster than real time and were dropped.
    pub excess_packets: AtomicU64,
    /// Datagrams that belonged to no call.
    pub unknown_datagrams: AtomicU64,
    /// Datagrams that were dropped because their connection received too many.
    pub rate_limited_datagrams: AtomicU64,
    /// Datagrams that the system did not accept for sending.
    pub send_dropped_datagrams: AtomicU64,
    /// Calls that have ended.
    pub ended_calls: AtomicU64,
    /// The thread failed and takes no calls until it has restarted, or it is gone.
    pub dead: AtomicBool,
    /// How often the thread failed too often and paused before it restarted.
    pub restart_pauses: AtomicU64,
    /// Load of the thread.
    pub load: ThreadLoad,
}

impl Default for ThreadStats {
    fn default() -> Self {
        Self::new(0.0)
    }
}

impl ThreadStats {
    /// Counters of a thread that takes no more calls above this share of its time; 0 = no limit.
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
            video_frames: AtomicU64::new(0),
            skipped_audio_frames: AtomicU64::new(0),
            underruns: AtomicU64::new(0),
            avatar_upgrades: AtomicU64::new(0),
            vad_windows: AtomicU64::new(0),
            excess_packets: AtomicU64::new(0),
            unknown_datagrams: AtomicU64::new(0),
            rate_limited_datagrams: AtomicU64::new(0),
            send_dropped_datagrams: AtomicU64::new(0),
            ended_calls: AtomicU64::new(0),
            dead: AtomicBool::new(false),
            restart_pauses: AtomicU64::new(0),
            load: ThreadLoad::new(max_busy),
        }
    }
}

/// Number of distinct lateness values in whole ms: 0 to 60, none of them late.
const LATENESS_SLOTS: usize = LATE_FRAME_THRESHOLD.as_millis() as usize + 1;

/// Measures the current step of a thread and adds the results to its counters.
pub struct StepMeter {
    stats: Arc<ThreadStats>,
    load_window: LoadWindow,
    /// Lateness of this step's tick and its number of calls, if the step has a tick.
    current_tick: Option<(Duration, usize)>,
    /// Frames handed out in this step, indexed by their lateness in ms at the start of the step.
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

    /// The counters that this meter adds to.
    #[must_use]
    pub fn stats(&self) -> &Arc<ThreadStats> {
        &self.stats
    }

    /// Records the start of a tick, its lateness and its number of calls.
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

    /// Records a frame that was due `late` before the start of this step. Rounded down to the ms.
    pub fn record_frame(&mut self, late: Duration) {
        self.has_frames = true;
        self.stats.audio_frames.fetch_add(1, Relaxed);
        match self.frames_by_lateness.get_mut(late.as_millis() as usize) {
            Some(count) => *count += 1,
            None => drop(self.stats.late_audio_frames.fetch_add(1, Relaxed)),
        }
    }

    /// Records a video frame that was due.
    pub fn record_video_frame(&mut self, is_sent: bool) {
        self.stats.video_frames.fetch_add(u64::from(is_sent), Relaxed);
    }

    /// Records frames that were skipped, and frames that lacked samples.
    pub fn record_losses(&mut self, skipped: u64, underruns: u64) {
        if skipped > 0 {
            self.stats.skipped_audio_frames.fetch_add(skipped, Relaxed);
        }
        if underruns > 0 {
            self.stats.underruns.fetch_add(underruns, Relaxed);
        }
    }

    /// Records packets of a user's audio that were dropped because they arrived faster than real
    /// time.
    pub fn record_excess_packets(&mut self, packets: u64) {
        if packets > 0 {
            self.stats.excess_packets.fetch_add(packets, Relaxed);
        }
    }

    /// Records the change of a call to a better pose set.
    pub fn record_avatar_upgrade(&mut self) {
        self.stats.avatar_upgrades.fetch_add(1, Relaxed);
    }

    /// The thread has no call any more.
    pub fn reset(&mut self) {
        self.load_window.reset(&self.stats.load);
    }

    /// Ends the step, which took `took`. Its datagrams leave at its end, so its frames are later by
    /// that time.
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
        let counts = |stats: &ThreadStats| {
            (stats.audio_frames.load(Relaxed), stats.late_audio_frames.load(Relaxed))
        };
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
        assert_eq!(counts(&stats), (10, 4), "the frames of a step belong to that step");
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
