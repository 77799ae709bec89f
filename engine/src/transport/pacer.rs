//! Lets pictures leave no faster than the line carries them.
//!
//! A key is some thirty packets. Sent at once they fill the queue before a narrow line; what comes behind is lost there, the voice with it,
//! and what is sent again meets the same queue and is asked for again before it has arrived. So packets leave by a leaky bucket, what is
//! sent again counts, and pictures that nothing refers to stay away while others wait. The bucket is wide enough for all pictures of
//! speech; how much the line takes is learnt from what it loses, for nothing else is told soon enough.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;

use super::VideoFrame;

/// Bytes a second at first and at most: the key is through in an eighth of a second.
const MAX_RATE: f64 = 2_000_000.0 / 8.0;
/// Bytes a second at least: the key takes four seconds.
const MIN_RATE: f64 = 60_000.0 / 8.0;
/// Bytes that may leave at once: four packets, as many as a deep nod takes.
const MAX_BURST_BYTES: f64 = 4_800.0;
/// A line that loses more than this part, and before which packets queue, is overfull. All else is lost by chance.
const CONGESTION_LOSS: f32 = 0.2;
/// Packets queue where a report takes so much longer there and back than it did.
const QUEUE_DELAY_THRESHOLD: Duration = Duration::from_millis(80);
/// What the first reports are measured against.
const INITIAL_MIN_RTT: Duration = Duration::from_millis(100);
/// Reports after which what is the shortest is learnt anew: a line to the other end of the world is no queue.
const MIN_RTT_WINDOW_REPORTS: u32 = 10;
/// The part of what a line carried that it is trusted to carry on: what it lost took room before it, too.
const BACKOFF_FACTOR: f64 = 0.85;
/// By how much the rate grows with each report, one a second, of a line before which nothing queues.
const RATE_GROWTH: f64 = 1.08;
/// A key is left alone for the time of so many, and until there is a report of it: what was lost of it is asked for, and comes again.
const KEY_FRAME_REPEAT_FACTOR: usize = 2;
/// Reports come so often.
const REPORT_INTERVAL: Duration = Duration::from_secs(1);
/// What a packet has beside its payload, bytes: IP, UDP, RTP with its extensions, SRTP.
const PACKET_OVERHEAD_BYTES: usize = 66;

/// A packet that is to leave.
pub(super) struct Packet {
    pub(super) timestamp: u64,
    pub(super) wallclock: Instant,
    pub(super) marker: bool,
    /// Of a key.
    pub(super) is_key_frame: bool,
    /// To be sent again when it is asked for.
    pub(super) nackable: bool,
    pub(super) payload: Arc<[u8]>,
}

/// The pictures' way out of one connection.
pub(super) struct Pacer {
    /// Bytes a second.
    rate: f64,
    /// Bytes that left and that a line of this rate has not yet carried.
    debt: f64,
    updated_at: Instant,
    queue: VecDeque<Packet>,
    /// The last key, when a packet of it left last, and whether there was a report since.
    last_key_frame: Bytes,
    key_frame_sent_at: Instant,
    key_frame_reported: bool,
    /// The shortest time that a report took there and back, of the last [`MIN_RTT_WINDOW_REPORTS`] reports or fewer, and of those before them.
    min_rtts: [Option<Duration>; 2],
    report_count: u32,
    /// Bytes that left since the last report, and when that was.
    sent_bytes: f64,
    last_report_at: Instant,
    /// The rate fell with the last report; the next one tells of what had left before.
    backed_off: bool,
}

impl Pacer {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            rate: MAX_RATE,
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

    /// Whether a picture shall go out now. Not while others wait, unless others refer to it: the next one says more. And not a key while the
    /// last one is still on its way: who has asked again would only wait for longer. The key of another set is another matter: nothing of
    /// that set can be decoded without.
    pub(super) fn admit_frame(&mut self, now: Instant, frame: &VideoFrame) -> bool {
        if !frame.is_key_frame {
            return frame.base_layer || self.queue.is_empty();
        }
        let since = now.saturating_duration_since(self.key_frame_sent_at);
        let report_wait = if self.key_frame_reported { Duration::ZERO } else { REPORT_INTERVAL };
        let min_interval =
            self.transmission_time(KEY_FRAME_REPEAT_FACTOR * self.last_key_frame.len()).max(report_wait);
        if self.last_key_frame == frame.payload && (!self.queue.is_empty() || since < min_interval) {
            return false;
        }
        self.key_frame_reported = false;
        self.last_key_frame = frame.payload.clone();
        true
    }

    pub(super) fn push(&mut self, packet: Packet) {
        self.queue.push_back(packet);
    }

    /// The next packet, if it may leave by now.
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

    /// Forgets what waits: the track it was for is gone.
    pub(super) fn clear(&mut self) {
        self.queue.clear();
        self.last_key_frame.clear();
    }

    /// Whether so many bytes that the receiver misses are sent again now: they come before what waits, and what does not leave at once does
    /// not leave at all. The receiver asks again for what it does not get, and for no more than that.
    pub(super) fn admit_retransmission(&mut self, now: Instant, bytes: usize) -> bool {
        self.drain_debt(now);
        let admitted = self.debt < 2.0 * MAX_BURST_BYTES;
        if admitted {
            self.add_debt(bytes);
        }
        admitted
    }

    /// The receiver reports which part of the packets it lost, and how long a report takes there and back.
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
            self.rate = (self.rate * RATE_GROWTH).min(MAX_RATE);
        } else if congested && !self.backed_off {
            let carried = self.sent_bytes / seconds * f64::from(1.0 - loss);
            self.rate = (carried * BACKOFF_FACTOR).clamp(MIN_RATE, self.rate);
        }
        self.backed_off = congested && !self.backed_off;
        (self.sent_bytes, self.last_report_at, self.key_frame_reported) = (0.0, now, true);
    }

    /// How long so many bytes are on their way.
    fn transmission_time(&self, bytes: usize) -> Duration {
        Duration::from_secs_f64(bytes as f64 / self.rate)
    }

    /// When [`Self::take`] has something next, unless nothing waits.
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

    /// A line behind a pacer, in steps of a millisecond.
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

        /// Queues a picture, if it is admitted.
        fn push_frame(&mut self, bytes: usize, key: bool, base_layer: bool) -> bool {
            let frame = VideoFrame { payload: vec![0; bytes].into(), is_key_frame: key, base_layer };
            let admitted = self.pacer.admit_frame(self.now, &frame);
            for _ in 0..if admitted { bytes.div_ceil(PACKET_BYTES) } else { 0 } {
                self.pacer.push(Packet {
                    timestamp: 0,
                    wallclock: self.now,
                    marker: false,
                    is_key_frame: key,
                    nackable: key,
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
        assert!(harness.sent_at.chunks(3).all(|of_one| of_one[0] == of_one[2]), "{:?}", harness.sent_at);
        harness.sent_at.clear();
        let begun = harness.now - harness.start;
        assert!(harness.push_frame(KEY_FRAME_BYTES, true, true));
        let due = harness.pacer.next_deadline().expect("the key cannot have left at once");
        assert!(
            due > harness.now && due < harness.now + Duration::from_millis(10),
            "{:?}",
            due - harness.now
        );
        harness.run(200);
        assert_eq!(harness.sent_at.len(), 25);
        let took = (harness.sent_at[24] - begun).as_secs_f64();
        let expected = (25.0 * (PACKET_BYTES + PACKET_OVERHEAD_BYTES) as f64 - MAX_BURST_BYTES) / MAX_RATE;
        assert!((took - expected).abs() < 0.012, "{took} {expected}");
        assert_eq!(harness.pacer.next_deadline(), None);
    }

    #[test]
    fn what_nothing_refers_to_waits_for_nobody_and_a_key_is_not_sent_twice() {
        let mut harness = Harness::new();
        assert!(harness.push_frame(KEY_FRAME_BYTES, true, true));
        assert!(!harness.push_frame(500, false, false), "the key still waits");
        assert!(harness.push_frame(6 * PACKET_BYTES, false, true), "an anchor must not be left out");
        assert!(!harness.push_frame(KEY_FRAME_BYTES, true, true), "the key is on its way");
        harness.run(150);
        assert_eq!(harness.sent_at.len(), 25 + 6);
        assert!(harness.push_frame(500, false, false));
        assert!(!harness.push_frame(KEY_FRAME_BYTES, true, true), "what was lost of it is being sent again");
        for _ in 0..10 {
            harness.run(30);
            harness.push_frame(500, false, false);
        }
        assert!(!harness.push_frame(KEY_FRAME_BYTES, true, true), "nobody knows what became of the last one");
        harness.pacer.on_report(harness.now, 0.1, None);
        assert!(harness.push_frame(KEY_FRAME_BYTES, true, true), "other pictures are no reason to wait");
        harness.run(1200);
        assert!(harness.push_frame(KEY_FRAME_BYTES, true, true), "no report comes");
        let other =
            VideoFrame { payload: vec![1; KEY_FRAME_BYTES].into(), is_key_frame: true, base_layer: true };
        assert!(
            harness.pacer.admit_frame(harness.now, &other),
            "without it nothing of another set can be decoded"
        );
        assert!(!harness.pacer.admit_frame(harness.now, &other));
        harness.pacer.clear();
        assert_eq!(harness.pacer.next_deadline(), None);
        assert!(harness.push_frame(KEY_FRAME_BYTES, true, true), "another track needs a key of its own");
    }

    #[test]
    fn what_is_sent_again_takes_the_room_of_what_waits() {
        let mut harness = Harness::new();
        harness.push_frame(KEY_FRAME_BYTES, true, true);
        let before = harness.sent_at.len();
        let again = (0..10).filter(|_| harness.pacer.admit_retransmission(harness.now, PACKET_BYTES)).count();
        assert!(
            (4..=5).contains(&again),
            "{again} come before what waits, and the others must be asked for again"
        );
        harness.run(15);
        assert_eq!(harness.sent_at.len(), before, "there is no room yet");
        assert!(harness.pacer.admit_retransmission(harness.now, PACKET_BYTES));
        harness.run(150);
        assert_eq!(harness.sent_at.len(), 25);
    }

    #[test]
    fn a_line_to_the_other_end_of_the_world_is_learnt_to_be_no_queue() {
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
        // A queue that stands for seconds only is still known for one.
        assert_eq!(report(0.0, 400), report(0.0, 400));
    }

    #[test]
    fn an_overfull_line_is_taken_for_what_it_carried_and_wins_its_room_back_slowly() {
        let mut harness = Harness::new();
        harness.push_frame(KEY_FRAME_BYTES, true, true);
        harness.run(1000);
        // Lost by chance, or somewhere where packets do not queue, however many they are.
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
        assert_eq!(harness.pacer.rate, rate, "the line is full");
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
        // It never stops altogether.
        harness.pacer.on_report(harness.now, 1.0, QUEUED_RTT);
        assert_eq!(harness.pacer.rate, MIN_RATE);
    }
}
