//! Paces video packets to the bandwidth of the network path.
//!
//! A key frame is some thirty packets. Sent at once, they fill the queue in front of a narrow link.
//! Packets behind them are lost there, audio included. Retransmissions meet the same queue, and are
//! requested again before they arrive.
//!
//! So packets leave through a leaky bucket, and retransmissions count against it. Frames that no
//! other frame refers to are skipped while packets are queued. The bucket is wide enough for all
//! frames of normal speech. The rate follows from reported losses, because no other signal arrives
//! early enough.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;

use super::VideoFrame;

/// Initial and maximum rate, bytes per second: a key frame takes an eighth of a second.
const MAX_RATE: f64 = 2_000_000.0 / 8.0;
/// The same on the path to an SFU, which is a server too: a key frame takes a sixteenth of a second.
const MAX_RATE_TO_SFU: f64 = 4_000_000.0 / 8.0;
/// Minimum rate, bytes per second: a key frame takes four seconds.
const MIN_RATE: f64 = 60_000.0 / 8.0;
/// Maximum burst, bytes: four packets, as many as a deep nod takes.
const MAX_BURST_BYTES: f64 = 4_800.0;
/// A path is congested if it loses more than this fraction while packets queue. All other loss is
/// treated as random.
const CONGESTION_LOSS: f32 = 0.2;
/// Packets queue if the RTT exceeds the minimum RTT by this much.
const QUEUE_DELAY_THRESHOLD: Duration = Duration::from_millis(80);
/// Assumed minimum RTT for the first reports.
const INITIAL_MIN_RTT: Duration = Duration::from_millis(100);
/// Number of reports after which the minimum RTT is re-estimated, so that a long path is not
/// mistaken for a queue.
const MIN_RTT_WINDOW_REPORTS: u32 = 10;
/// Fraction of the delivered rate that becomes the new rate on congestion: lost packets took room
/// in the queue too.
const BACKOFF_FACTOR: f64 = 0.85;
/// Growth factor of the rate per report (one per second) while no packets queue.
const RATE_GROWTH: f64 = 1.08;
/// A repeated key frame is refused for this many of its send times, and until a report has covered
/// it. Lost packets of it are retransmitted on NACK.
const KEY_FRAME_REPEAT_FACTOR: usize = 2;
/// Interval of the receiver reports.
const REPORT_INTERVAL: Duration = Duration::from_secs(1);
/// Overhead of a packet beyond its payload, bytes: IP, UDP, RTP with its extensions, SRTP.
const PACKET_OVERHEAD_BYTES: usize = 66;

/// A packet that waits to be sent.
pub(super) struct Packet {
    pub(super) timestamp: u64,
    pub(super) wallclock: Instant,
    pub(super) marker: bool,
    /// Whether it belongs to a key frame.
    pub(super) is_key_frame: bool,
    /// Whether it is retransmitted on NACK.
    pub(super) nackable: bool,
    /// Level of an audio packet in dBov, if its receivers want it.
    pub(super) audio_level: Option<i8>,
    pub(super) payload: Arc<[u8]>,
}

/// The video send queue of one connection.
pub(super) struct Pacer {
    /// Current rate, bytes per second.
    rate: f64,
    max_rate: f64,
    /// Whether an SFU distributes the video. It requests a key frame for each new receiver, and
    /// limits these requests.
    is_to_sfu: bool,
    /// Bytes sent that a path of this rate has not yet carried.
    debt: f64,
    updated_at: Instant,
    queue: VecDeque<Packet>,
    /// The last key frame, when its last packet left, and whether a report came since.
    last_key_frame: Bytes,
    key_frame_sent_at: Instant,
    key_frame_reported: bool,
    /// The minimum RTT of the current window of at most [`MIN_RTT_WINDOW_REPORTS`] reports, and of
    /// the window before it.
    min_rtts: [Option<Duration>; 2],
    report_count: u32,
    /// Bytes sent since the last report, and the time of that report.
    sent_bytes: f64,
    last_report_at: Instant,
    /// The last report lowered the rate; the next report still covers packets sent before that.
    backed_off: bool,
}

impl Pacer {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            rate: MAX_RATE,
            max_rate: MAX_RATE,
            is_to_sfu: false,
            debt: 0.0,
            updated_at: now,
            queue: VecDeque::new(),
            last_key_frame: Bytes::new(),
            key_frame_sent_at: now,
            key_frame_reported: false,
            min_rtts: [None, Some(INITIAL_MIN_RTT)],
            report_count: 0,
            sent_bytes: 0.0,
            last_report_at: now,
            backed_off: false,
        }
    }

    /// The receiver is an SFU.
    pub(super) fn set_to_sfu(&mut self) {
        (self.rate, self.max_rate, self.is_to_sfu) = (MAX_RATE_TO_SFU, MAX_RATE_TO_SFU, true);
    }

    /// Whether a frame is sent now. An interframe is skipped while packets are queued, unless other
    /// frames refer to it: the next frame supersedes it.
    ///
    /// A repeated key frame is refused while the last one is in flight: sending it again would
    /// delay the receiver further. The key frame of another pose set is always admitted, because no
    /// frame of that set decodes without it. A repeated key frame for an SFU replaces the queued
    /// packets: a new receiver does not get the first packets of the queued key frame.
    pub(super) fn admit_frame(&mut self, now: Instant, frame: &VideoFrame) -> bool {
        if !frame.is_key_frame {
            return frame.base_layer || self.queue.is_empty();
        }
        if self.is_to_sfu {
            if self.last_key_frame == frame.payload {
                self.queue.clear();
            }
            self.last_key_frame = frame.payload.clone();
            return true;
        }
        let since = now.saturating_duration_since(self.key_frame_sent_at);
        let report_wait = if self.key_frame_reported { Duration::ZERO } else { REPORT_INTERVAL };
        let min_interval = self
            .transmission_time(KEY_FRAME_REPEAT_FACTOR * self.last_key_frame.len())
            .max(report_wait);
        if self.last_key_frame == frame.payload && (!self.queue.is_empty() || since < min_interval)
        {
            return false;
        }
        self.key_frame_reported = false;
        self.last_key_frame = frame.payload.clone();
        true
    }

    pub(super) fn push(&mut self, packet: Packet) {
        self.queue.push_back(packet);
    }

    /// The next packet, if the rate allows it to leave at `now`.
    pub(super) fn pop_due(&mut self, now: Instant) -> Option<Packet> {
        self.drain_debt(now);
        if self.debt >= MAX_BURST_BYTES {
            return None;
        }
        let packet = self.queue.pop_front()?;
        if packet.is_key_frame {
            self.key_frame_sent_at = now;
        }
        self.add_debt(packet.payload.len() + PACKET_OVERHEAD_BYTES);
        Some(packet)
    }

    /// Drops all queued packets, because their track is gone.
    pub(super) fn clear(&mut self) {
        self.queue.clear();
        self.last_key_frame.clear();
    }

    /// Whether a retransmission of `bytes` is sent now. Retransmissions precede queued packets, and
    /// are dropped if they cannot leave at once. The receiver requests missing packets again, and
    /// only those.
    pub(super) fn admit_retransmission(&mut self, now: Instant, bytes: usize) -> bool {
        self.drain_debt(now);
        let admitted = self.debt < 2.0 * MAX_BURST_BYTES;
        if admitted {
            self.add_debt(bytes);
        }
        admitted
    }

    /// Handles a receiver report: the fraction of packets lost and the RTT.
    pub(super) fn on_report(&mut self, now: Instant, loss: f32, rtt: Option<Duration>) {
        self.drain_debt(now);
        let [recent, earlier] = &mut self.min_rtts;
        let queueing = rtt.is_some_and(|measured| {
            let min_rtt = recent.map_or(measured, |min| min.min(measured));
            *recent = Some(min_rtt);
            measured > earlier.map_or(min_rtt, |min| min.min(min_rtt)) + QUEUE_DELAY_THRESHOLD
        });
        self.report_count += 1;
        if self.report_count.is_multiple_of(MIN_RTT_WINDOW_REPORTS) && recent.is_some() {
            self.min_rtts = [None, *recent];
        }
        let seconds = now.saturating_duration_since(self.last_report_at).as_secs_f64().max(0.1);
        let congested = loss > CONGESTION_LOSS && queueing;
        if !congested && !queueing {
            self.rate = (self.rate * RATE_GROWTH).min(self.max_rate);
        } else if congested && !self.backed_off {
            let carried = self.sent_bytes / seconds * f64::from(1.0 - loss);
            self.rate = (carried * BACKOFF_FACTOR).clamp(MIN_RATE, self.rate);
        }
        self.backed_off = congested && !self.backed_off;
        (self.sent_bytes, self.last_report_at, self.key_frame_reported) = (0.0, now, true);
    }

    /// How long `bytes` take at the current rate.
    fn transmission_time(&self, bytes: usize) -> Duration {
        Duration::from_secs_f64(bytes as f64 / self.rate)
    }

    /// When [`Self::pop_due`] yields the next packet; `None` if none is queued.
    pub(super) fn next_deadline(&self) -> Option<Instant> {
        let seconds = ((self.debt - MAX_BURST_BYTES) / self.rate).max(0.0);
        (!self.queue.is_empty())
            .then(|| self.updated_at + Duration::from_secs_f64(seconds) + Duration::from_micros(1))
    }

    fn add_debt(&mut self, bytes: usize) {
        self.debt += bytes as f64;
        self.sent_bytes += bytes as f64;
    }

    fn drain_debt(&mut self, now: Instant) {
        let seconds = now.saturating_duration_since(self.updated_at).as_secs_f64();
        self.debt = (self.debt - seconds * self.rate).max(0.0);
        self.updated_at = self.updated_at.max(now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PACKET_BYTES: usize = 1120;
    const KEY_FRAME_BYTES: usize = 25 * PACKET_BYTES;
    const QUEUED_RTT: Option<Duration> = Some(Duration::from_millis(300));

    /// A network path behind a pacer, in steps of one millisecond.
    struct Harness {
        now: Instant,
        pacer: Pacer,
        /// When packets left.
        sent_at: Vec<Duration>,
        start: Instant,
    }

    impl Harness {
        fn new() -> Self {
            let now = crate::clock::now();
            Self { now, pacer: Pacer::new(now), sent_at: Vec::new(), start: now }
        }

        /// Queues a frame if it is admitted.
        fn push_frame(&mut self, bytes: usize, key: bool, base_layer: bool) -> bool {
            let frame =
                VideoFrame { payload: vec![0; bytes].into(), is_key_frame: key, base_layer };
            let admitted = self.pacer.admit_frame(self.now, &frame);
            for _ in 0..if admitted { bytes.div_ceil(PACKET_BYTES) } else { 0 } {
                self.pacer.push(Packet {
                    timestamp: 0,
                    wallclock: self.now,
                    marker: false,
                    is_key_frame: key,
                    nackable: key,
                    audio_level: None,
                    payload: vec![0; PACKET_BYTES].into(),
                });
            }
            self.run(0);
            admitted
        }

        fn run(&mut self, millis: u32) {
            for step in 0..=millis {
                self.now += Duration::from_millis(u64::from(step > 0));
                while self.pacer.pop_due(self.now).is_some() {
                    self.sent_at.push(self.now - self.start);
                }
            }
        }
    }

    #[test]
    fn a_picture_of_speech_leaves_at_once_and_a_key_at_the_pace_of_the_line() {
        let mut harness = Harness::new();
        for _ in 0..100 {
            assert!(harness.push_frame(3 * PACKET_BYTES, false, false));
            harness.run(40);
        }
        assert_eq!(harness.sent_at.len(), 300);
        assert!(
            harness.sent_at.chunks(3).all(|of_one| of_one[0] == of_one[2]),
            "{:?}",
            harness.sent_at
        );
        harness.sent_at.clear();
        let begun = harness.now - harness.start;
        assert!(harness.push_frame(KEY_FRAME_BYTES, true, true));
        let due =
            harness.pacer.next_deadline().expect("the key frame cannot have been sent at once");
        assert!(
            due > harness.now && due < harness.now + Duration::from_millis(10),
            "{:?}",
            due - harness.now
        );
        harness.run(200);
        assert_eq!(harness.sent_at.len(), 25);
        let took = (harness.sent_at[24] - begun).as_secs_f64();
        let expected =
            (25.0 * (PACKET_BYTES + PACKET_OVERHEAD_BYTES) as f64 - MAX_BURST_BYTES) / MAX_RATE;
        assert!((took - expected).abs() < 0.012, "{took} {expected}");
        assert_eq!(harness.pacer.next_deadline(), None);
    }

    #[test]
    fn a_repeated_key_frame_for_an_sfu_replaces_the_queued_one() {
        let mut harness = Harness::new();
        harness.pacer.set_to_sfu();
        assert!(harness.push_frame(KEY_FRAME_BYTES, true, true));
        harness.run(20);
        let sent = harness.sent_at.len();
        assert!((4..20).contains(&sent), "{sent}");
        assert!(harness.push_frame(KEY_FRAME_BYTES, true, true), "for a new receiver");
        harness.run(62);
        assert_eq!(harness.sent_at.len(), sent + 25, "the rest of the first one is not sent");
    }

    #[test]
    fn an_unreferenced_frame_is_dropped_behind_a_queue_and_a_key_frame_not_repeated() {
        let mut harness = Harness::new();
        assert!(harness.push_frame(KEY_FRAME_BYTES, true, true));
        assert!(!harness.push_frame(500, false, false), "the key frame still waits");
        assert!(
            harness.push_frame(6 * PACKET_BYTES, false, true),
            "a reference frame must not be skipped"
        );
        assert!(!harness.push_frame(KEY_FRAME_BYTES, true, true), "the key frame is being sent");
        harness.run(150);
        assert_eq!(harness.sent_at.len(), 25 + 6);
        assert!(harness.push_frame(500, false, false));
        assert!(
            !harness.push_frame(KEY_FRAME_BYTES, true, true),
            "its lost packets are being sent again"
        );
        for _ in 0..10 {
            harness.run(30);
            harness.push_frame(500, false, false);
        }
        assert!(
            !harness.push_frame(KEY_FRAME_BYTES, true, true),
            "the outcome of the last one is unknown"
        );
        harness.pacer.on_report(harness.now, 0.1, None);
        assert!(harness.push_frame(KEY_FRAME_BYTES, true, true), "other frames do not delay it");
        harness.run(1200);
        assert!(harness.push_frame(KEY_FRAME_BYTES, true, true), "no report comes");
        let other = VideoFrame {
            payload: vec![1; KEY_FRAME_BYTES].into(),
            is_key_frame: true,
            base_layer: true,
        };
        assert!(
            harness.pacer.admit_frame(harness.now, &other),
            "without it no frame of another set can be decoded"
        );
        assert!(!harness.pacer.admit_frame(harness.now, &other));
        harness.pacer.clear();
        assert_eq!(harness.pacer.next_deadline(), None);
        assert!(
            harness.push_frame(KEY_FRAME_BYTES, true, true),
            "another track needs its own key frame"
        );
    }

    #[test]
    fn what_is_sent_again_takes_the_room_of_what_waits() {
        let mut harness = Harness::new();
        harness.push_frame(KEY_FRAME_BYTES, true, true);
        let before = harness.sent_at.len();
        let again = (0..10)
            .filter(|_| harness.pacer.admit_retransmission(harness.now, PACKET_BYTES))
            .count();
        assert!(
            (4..=5).contains(&again),
            "{again} are sent before the queue, and the others must be requested again"
        );
        harness.run(15);
        assert_eq!(harness.sent_at.len(), before, "there is no capacity yet");
        assert!(harness.pacer.admit_retransmission(harness.now, PACKET_BYTES));
        harness.run(150);
        assert_eq!(harness.sent_at.len(), 25);
    }

    #[test]
    fn a_high_minimum_rtt_is_not_taken_for_a_queue() {
        let mut harness = Harness::new();
        let mut report = |lost, millis| {
            harness.run(1000);
            harness.pacer.on_report(harness.now, lost, Some(Duration::from_millis(millis)));
            harness.pacer.rate
        };
        let fell = report(0.3, 260);
        assert!(fell < MAX_RATE, "so far it could be one");
        for _ in 1..10 {
            assert_eq!(report(0.0, 260), fell);
        }
        assert!(report(0.0, 250) > fell);
        for _ in 0..60 {
            report(0.0, 270);
        }
        assert_eq!(report(0.5, 280), MAX_RATE, "lost by chance");
        assert!(report(0.5, 400) < MAX_RATE, "this is a queue");
        // A queue that lasts for only a few seconds is still recognized as a queue.
        assert_eq!(report(0.0, 400), report(0.0, 400));
    }

    #[test]
    fn an_overfull_line_is_taken_for_what_it_carried_and_wins_its_room_back_slowly() {
        let mut harness = Harness::new();
        harness.push_frame(KEY_FRAME_BYTES, true, true);
        harness.run(1000);
        // Random loss, or loss at a place where packets do not queue, however high.
        for (lost, round_trip) in [(0.15, 300), (0.7, 40), (0.7, 100)] {
            harness.pacer.on_report(harness.now, lost, Some(Duration::from_millis(round_trip)));
            assert_eq!(harness.pacer.rate, MAX_RATE, "{lost} {round_trip}");
        }
        for _ in 0..20 {
            assert!(harness.pacer.admit_retransmission(harness.now, 2000));
            harness.run(50);
        }
        harness.pacer.on_report(harness.now, 0.5, QUEUED_RTT);
        let rate = harness.pacer.rate;
        assert!((16_000.0..18_000.0).contains(&rate), "{rate}");
        harness.pacer.on_report(harness.now, 0.9, QUEUED_RTT);
        assert_eq!(harness.pacer.rate, rate, "that left before");
        harness.pacer.on_report(harness.now, 0.0, QUEUED_RTT);
        assert_eq!(harness.pacer.rate, rate, "the queue is full");
        let needs = ((MAX_RATE / rate).ln() / RATE_GROWTH.ln()).ceil() as u32;
        assert!((30..40).contains(&needs), "{needs} s");
        for seconds in 1..=60 {
            harness.run(1000);
            harness.pacer.on_report(harness.now, 0.0, Some(Duration::from_millis(40)));
            assert_eq!(
                harness.pacer.rate >= MAX_RATE,
                seconds >= needs,
                "after {seconds} s {}",
                harness.pacer.rate
            );
        }
        // The rate never falls below its minimum.
        harness.pacer.on_report(harness.now, 1.0, QUEUED_RTT);
        assert_eq!(harness.pacer.rate, MIN_RATE);
    }
}
