//! Send times of the microphone packets: even, or as a network delivers them that delays, reorders
//! and bunches packets. Pure: it reads no clock.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};

/// Duration of a packet.
const PACKET_DURATION: Duration = Duration::from_millis(20);

/// When the microphone packets are sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pacing {
    /// Packets per burst, at least one.
    pub(crate) burst: u32,
    /// Each packet is delayed by a random time of up to this. A packet that is delayed by over 20
    /// ms more than the next one is overtaken by it.
    pub(crate) jitter: Duration,
}

/// The packets of one call, without end, in send order: the time since the start of the call, and
/// the packet's number.
///
/// A packet is spoken once its last sample is. It is first delayed on its own, which may change the
/// order. It then waits until its burst is complete, as behind the last hop of a mobile network.
pub(crate) struct SendSchedule {
    pacing: Pacing,
    rng: StdRng,
    /// Number of packets whose delay has been drawn.
    drawn_count: u32,
    /// Packets among these that have not joined their burst yet, the earliest first.
    delayed: BinaryHeap<Reverse<(Duration, u32)>>,
    /// The rest of a burst, and its send time.
    burst: VecDeque<u32>,
    burst_sent_at: Duration,
}

impl SendSchedule {
    /// The same seed gives the same delays, for any burst size.
    pub(crate) fn new(pace: Pacing, seed: u64) -> Self {
        Self {
            pacing: pace,
            rng: StdRng::seed_from_u64(seed),
            drawn_count: 0,
            delayed: BinaryHeap::new(),
            burst: VecDeque::new(),
            burst_sent_at: Duration::ZERO,
        }
    }

    /// The next packet that joins the burst, and when it does.
    fn next_arrival(&mut self) -> (Duration, u32) {
        loop {
            // No packet with an undrawn delay joins before this time.
            let spoken = PACKET_DURATION * (self.drawn_count + 1);
            if let Some(Reverse((at, n))) = self.delayed.peek().copied()
                && at <= spoken
            {
                self.delayed.pop();
                return (at, n);
            }
            let delay = self.rng.random_range(Duration::ZERO..=self.pacing.jitter);
            self.delayed.push(Reverse((spoken + delay, self.drawn_count)));
            self.drawn_count += 1;
        }
    }
}

impl Iterator for SendSchedule {
    type Item = (Duration, u32);

    fn next(&mut self) -> Option<Self::Item> {
        if self.burst.is_empty() {
            for _ in 0..self.pacing.burst {
                let (at, n) = self.next_arrival();
                self.burst_sent_at = at;
                self.burst.push_back(n);
            }
        }
        self.burst.pop_front().map(|n| (self.burst_sent_at, n))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The first `count` packets of this pacing, `jitter` in ms.
    fn scheduled_packets(burst: u32, jitter: u64, seed: u64, count: usize) -> Vec<(Duration, u32)> {
        let pace = Pacing { burst, jitter: Duration::from_millis(jitter) };
        SendSchedule::new(pace, seed).take(count).collect()
    }

    fn packet_numbers(sent: &[(Duration, u32)]) -> Vec<u32> {
        sent.iter().map(|(_, n)| *n).collect()
    }

    #[test]
    fn packets_leave_evenly_once_they_are_spoken() {
        let evenly: Vec<_> = (0..100_u32).map(|n| (PACKET_DURATION * (n + 1), n)).collect();
        assert_eq!(scheduled_packets(1, 0, 7, 100), evenly);
    }

    #[test]
    fn a_burst_leaves_with_its_last_packet() {
        for burst in [2, 3, 5] {
            let bursts: Vec<_> =
                (0..90_u32).map(|n| (PACKET_DURATION * burst * (n / burst + 1), n)).collect();
            assert_eq!(scheduled_packets(burst, 0, 7, 90), bursts);
        }
    }

    #[test]
    fn each_packet_is_late_by_a_part_of_the_jitter_and_some_overtake_others() {
        let sent = scheduled_packets(1, 60, 7, 1_000);
        assert!(sent.windows(2).all(|pair| pair[0].0 <= pair[1].0), "time goes back");
        let late: Vec<u128> =
            sent.iter().map(|(at, n)| (*at - PACKET_DURATION * (n + 1)).as_millis()).collect();
        assert!(late.iter().all(|ms| *ms <= 60) && late.iter().any(|ms| *ms > 50), "{late:?}");
        let mut once = packet_numbers(&sent);
        let overtaken = once.windows(2).filter(|pair| pair[0] > pair[1]).count();
        assert!((100..400).contains(&overtaken), "{overtaken} of 1000");
        // A packet is sent at most three positions later than without jitter, so only the last
        // three may be missing.
        once.sort_unstable();
        assert_eq!(once[..997], (0..997_u32).collect::<Vec<_>>());
    }

    #[test]
    fn late_packets_leave_in_bursts_in_the_order_in_which_they_come() {
        let (single, bursts) = (scheduled_packets(1, 60, 7, 900), scheduled_packets(3, 60, 7, 900));
        assert_eq!(packet_numbers(&single), packet_numbers(&bursts));
        for (single, burst) in single.chunks(3).zip(bursts.chunks(3)) {
            assert!(burst.iter().all(|(at, _)| *at == single[2].0), "{single:?} {burst:?}");
        }
    }

    #[test]
    fn the_seed_decides() {
        assert_eq!(scheduled_packets(1, 60, 7, 100), scheduled_packets(1, 60, 7, 100));
        assert_ne!(scheduled_packets(1, 60, 7, 100), scheduled_packets(1, 60, 8, 100));
    }
}
