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
const FASTEST: f64 = 2_000_000.0 / 8.0;
/// Bytes a second at least: the key takes four seconds.
const SLOWEST: f64 = 60_000.0 / 8.0;
/// Bytes that may leave at once: four packets, as many as a deep nod takes.
const AT_ONCE: f64 = 4_800.0;
/// A line that loses more than this part, and before which packets queue, is overfull. All else is lost by chance.
const OVERFULL: f32 = 0.2;
/// Packets queue where a report takes so much longer there and back than it did.
const QUEUES: Duration = Duration::from_millis(80);
/// What the first reports are measured against.
const FAR: Duration = Duration::from_millis(100);
/// Reports after which what is the shortest is learnt anew: a line to the other end of the world is no queue.
const LATELY: u32 = 10;
/// The part of what a line carried that it is trusted to carry on: what it lost took room before it, too.
const TRUSTED: f64 = 0.85;
/// By how much the rate grows with each report, one a second, of a line before which nothing queues.
const GROWTH: f64 = 1.08;
/// A key is left alone for the time of so many, and until there is a report of it: what was lost of it is asked for, and comes again.
const LEFT_ALONE: usize = 2;
/// Reports come so often.
const A_REPORT: Duration = Duration::from_secs(1);
/// What a packet has beside its payload, bytes: IP, UDP, RTP with its extensions, SRTP.
const HEADERS: usize = 66;

/// A packet that is to leave.
pub(super) struct Packet {
    pub(super) timestamp: u64,
    pub(super) wallclock: Instant,
    pub(super) marker: bool,
    /// Of a key.
    pub(super) key: bool,
    /// To be sent again when it is asked for.
    pub(super) again: bool,
    pub(super) payload: Arc<[u8]>,
}

/// The pictures' way out of one connection.
pub(super) struct Pacer {
    /// Bytes a second.
    rate: f64,
    /// Bytes that left and that a line of this rate has not yet carried.
    debt: f64,
    at: Instant,
    waiting: VecDeque<Packet>,
    /// The last key, when a packet of it left last, and whether there was a report since.
    key: Bytes,
    key_left: Instant,
    key_told: bool,
    /// The shortest time that a report took there and back, of the last [`LATELY`] reports or fewer, and of those before them.
    shortest: [Option<Duration>; 2],
    reports: u32,
    /// Bytes that left since the last report, and when that was.
    sent: f64,
    reported: Instant,
    /// The rate fell with the last report; the next one tells of what had left before.
    fell: bool,
}

impl Pacer {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            rate: FASTEST,
            debt: 0.0,
            at: now,
            waiting: VecDeque::new(),
            key: Bytes::new(),
            key_left: now,
            key_told: false,
            shortest: [None, Some(FAR)],
            reports: 0,
            sent: 0.0,
            reported: now,
            fell: false,
        }
    }

    /// Whether a picture shall go out now. Not while others wait, unless others refer to it: the next one says more. And not a key while the
    /// last one is still on its way: who has asked again would only wait for longer. The key of another set is another matter: nothing of
    /// that set can be decoded without.
    pub(super) fn admits(&mut self, now: Instant, frame: &VideoFrame) -> bool {
        if !frame.key {
            return frame.base_layer || self.waiting.is_empty();
        }
        let since = now.saturating_duration_since(self.key_left);
        let unheard_of = if self.key_told { Duration::ZERO } else { A_REPORT };
        let alone = self.takes(LEFT_ALONE * self.key.len()).max(unheard_of);
        if self.key == frame.payload && (!self.waiting.is_empty() || since < alone) {
            return false;
        }
        self.key_told = false;
        self.key = frame.payload.clone();
        true
    }

    pub(super) fn push(&mut self, packet: Packet) {
        self.waiting.push_back(packet);
    }

    /// The next packet, if it may leave by now.
    pub(super) fn take(&mut self, now: Instant) -> Option<Packet> {
        self.forget(now);
        if self.debt >= AT_ONCE {
            return None;
        }
        let packet = self.waiting.pop_front()?;
        if packet.key {
            self.key_left = now;
        }
        self.owe(packet.payload.len() + HEADERS);
        Some(packet)
    }

    /// Forgets what waits: the track it was for is gone.
    pub(super) fn clear(&mut self) {
        self.waiting.clear();
        self.key.clear();
    }

    /// Whether so many bytes that the receiver misses are sent again now: they come before what waits, and what does not leave at once does
    /// not leave at all. The receiver asks again for what it does not get, and for no more than that.
    pub(super) fn send_again(&mut self, now: Instant, bytes: usize) -> bool {
        self.forget(now);
        let leaves = self.debt < 2.0 * AT_ONCE;
        if leaves {
            self.owe(bytes);
        }
        leaves
    }

    /// The receiver reports which part of the packets it lost, and how long a report takes there and back.
    pub(super) fn reported(&mut self, now: Instant, lost: f32, round_trip: Option<Duration>) {
        self.forget(now);
        let [lately, before] = &mut self.shortest;
        let queues = round_trip.is_some_and(|took| {
            let shortest = lately.map_or(took, |least| least.min(took));
            *lately = Some(shortest);
            took > before.map_or(shortest, |least| least.min(shortest)) + QUEUES
        });
        self.reports += 1;
        if self.reports.is_multiple_of(LATELY) && lately.is_some() {
            self.shortest = [None, *lately];
        }
        let seconds = now.saturating_duration_since(self.reported).as_secs_f64().max(0.1);
        let overfull = lost > OVERFULL && queues;
        if !overfull && !queues {
            self.rate = (self.rate * GROWTH).min(FASTEST);
        } else if overfull && !self.fell {
            let carried = self.sent / seconds * f64::from(1.0 - lost);
            self.rate = (carried * TRUSTED).clamp(SLOWEST, self.rate);
        }
        self.fell = overfull && !self.fell;
        (self.sent, self.reported, self.key_told) = (0.0, now, true);
    }

    /// How long so many bytes are on their way.
    fn takes(&self, bytes: usize) -> Duration {
        Duration::from_secs_f64(bytes as f64 / self.rate)
    }

    /// When [`Self::take`] has something next, unless nothing waits.
    pub(super) fn due(&self) -> Option<Instant> {
        let seconds = ((self.debt - AT_ONCE) / self.rate).max(0.0);
        (!self.waiting.is_empty())
            .then(|| self.at + Duration::from_secs_f64(seconds) + Duration::from_micros(1))
    }

    fn owe(&mut self, bytes: usize) {
        self.debt += bytes as f64;
        self.sent += bytes as f64;
    }

    fn forget(&mut self, now: Instant) {
        let seconds = now.saturating_duration_since(self.at).as_secs_f64();
        self.debt = (self.debt - seconds * self.rate).max(0.0);
        self.at = self.at.max(now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PACKET: usize = 1120;
    const KEY: usize = 25 * PACKET;
    const QUEUED: Option<Duration> = Some(Duration::from_millis(300));

    /// A line behind a pacer, in steps of a millisecond.
    struct World {
        now: Instant,
        pacer: Pacer,
        /// When packets left.
        left: Vec<Duration>,
        start: Instant,
    }

    impl World {
        fn new() -> Self {
            let now = crate::clock::now();
            Self { now, pacer: Pacer::new(now), left: Vec::new(), start: now }
        }

        /// Queues a picture, if it is admitted.
        fn show(&mut self, bytes: usize, key: bool, base_layer: bool) -> bool {
            let frame = VideoFrame { payload: vec![0; bytes].into(), key, base_layer };
            let admitted = self.pacer.admits(self.now, &frame);
            for _ in 0..if admitted { bytes.div_ceil(PACKET) } else { 0 } {
                self.pacer.push(Packet {
                    timestamp: 0,
                    wallclock: self.now,
                    marker: false,
                    key,
                    again: key,
                    payload: vec![0; PACKET].into(),
                });
            }
            self.run(0);
            admitted
        }

        fn run(&mut self, millis: u32) {
            for step in 0..=millis {
                self.now += Duration::from_millis(u64::from(step > 0));
                while self.pacer.take(self.now).is_some() {
                    self.left.push(self.now - self.start);
                }
            }
        }
    }

    #[test]
    fn a_picture_of_speech_leaves_at_once_and_a_key_at_the_pace_of_the_line() {
        let mut world = World::new();
        for _ in 0..100 {
            assert!(world.show(3 * PACKET, false, false));
            world.run(40);
        }
        assert_eq!(world.left.len(), 300);
        assert!(world.left.chunks(3).all(|of_one| of_one[0] == of_one[2]), "{:?}", world.left);
        world.left.clear();
        let begun = world.now - world.start;
        assert!(world.show(KEY, true, true));
        let due = world.pacer.due().expect("the key cannot have left at once");
        assert!(due > world.now && due < world.now + Duration::from_millis(10), "{:?}", due - world.now);
        world.run(200);
        assert_eq!(world.left.len(), 25);
        let took = (world.left[24] - begun).as_secs_f64();
        let expected = (25.0 * (PACKET + HEADERS) as f64 - AT_ONCE) / FASTEST;
        assert!((took - expected).abs() < 0.012, "{took} {expected}");
        assert_eq!(world.pacer.due(), None);
    }

    #[test]
    fn what_nothing_refers_to_waits_for_nobody_and_a_key_is_not_sent_twice() {
        let mut world = World::new();
        assert!(world.show(KEY, true, true));
        assert!(!world.show(500, false, false), "the key still waits");
        assert!(world.show(6 * PACKET, false, true), "an anchor must not be left out");
        assert!(!world.show(KEY, true, true), "the key is on its way");
        world.run(150);
        assert_eq!(world.left.len(), 25 + 6);
        assert!(world.show(500, false, false));
        assert!(!world.show(KEY, true, true), "what was lost of it is being sent again");
        for _ in 0..10 {
            world.run(30);
            world.show(500, false, false);
        }
        assert!(!world.show(KEY, true, true), "nobody knows what became of the last one");
        world.pacer.reported(world.now, 0.1, None);
        assert!(world.show(KEY, true, true), "other pictures are no reason to wait");
        world.run(1200);
        assert!(world.show(KEY, true, true), "no report comes");
        let other = VideoFrame { payload: vec![1; KEY].into(), key: true, base_layer: true };
        assert!(world.pacer.admits(world.now, &other), "without it nothing of another set can be decoded");
        assert!(!world.pacer.admits(world.now, &other));
        world.pacer.clear();
        assert_eq!(world.pacer.due(), None);
        assert!(world.show(KEY, true, true), "another track needs a key of its own");
    }

    #[test]
    fn what_is_sent_again_takes_the_room_of_what_waits() {
        let mut world = World::new();
        world.show(KEY, true, true);
        let before = world.left.len();
        let again = (0..10).filter(|_| world.pacer.send_again(world.now, PACKET)).count();
        assert!(
            (4..=5).contains(&again),
            "{again} come before what waits, and the others must be asked for again"
        );
        world.run(15);
        assert_eq!(world.left.len(), before, "there is no room yet");
        assert!(world.pacer.send_again(world.now, PACKET));
        world.run(150);
        assert_eq!(world.left.len(), 25);
    }

    #[test]
    fn a_line_to_the_other_end_of_the_world_is_learnt_to_be_no_queue() {
        let mut world = World::new();
        let mut report = |lost, millis| {
            world.run(1000);
            world.pacer.reported(world.now, lost, Some(Duration::from_millis(millis)));
            world.pacer.rate
        };
        let fell = report(0.3, 260);
        assert!(fell < FASTEST, "so far it could be one");
        for _ in 1..10 {
            assert_eq!(report(0.0, 260), fell);
        }
        assert!(report(0.0, 250) > fell);
        for _ in 0..60 {
            report(0.0, 270);
        }
        assert_eq!(report(0.5, 280), FASTEST, "lost by chance");
        assert!(report(0.5, 400) < FASTEST, "this is a queue");
        // A queue that stands for seconds only is still known for one.
        assert_eq!(report(0.0, 400), report(0.0, 400));
    }

    #[test]
    fn an_overfull_line_is_taken_for_what_it_carried_and_wins_its_room_back_slowly() {
        let mut world = World::new();
        world.show(KEY, true, true);
        world.run(1000);
        // Lost by chance, or somewhere where packets do not queue, however many they are.
        for (lost, round_trip) in [(0.15, 300), (0.7, 40), (0.7, 100)] {
            world.pacer.reported(world.now, lost, Some(Duration::from_millis(round_trip)));
            assert_eq!(world.pacer.rate, FASTEST, "{lost} {round_trip}");
        }
        for _ in 0..20 {
            assert!(world.pacer.send_again(world.now, 2000));
            world.run(50);
        }
        world.pacer.reported(world.now, 0.5, QUEUED);
        let rate = world.pacer.rate;
        assert!((16_000.0..18_000.0).contains(&rate), "{rate}");
        world.pacer.reported(world.now, 0.9, QUEUED);
        assert_eq!(world.pacer.rate, rate, "that left before");
        world.pacer.reported(world.now, 0.0, QUEUED);
        assert_eq!(world.pacer.rate, rate, "the line is full");
        let needs = ((FASTEST / rate).ln() / GROWTH.ln()).ceil() as u32;
        assert!((30..40).contains(&needs), "{needs} s");
        for seconds in 1..=60 {
            world.run(1000);
            world.pacer.reported(world.now, 0.0, Some(Duration::from_millis(40)));
            assert_eq!(
                world.pacer.rate >= FASTEST,
                seconds >= needs,
                "after {seconds} s {}",
                world.pacer.rate
            );
        }
        // It never stops altogether.
        world.pacer.reported(world.now, 1.0, QUEUED);
        assert_eq!(world.pacer.rate, SLOWEST);
    }
}
