//! When the packets of a microphone leave: evenly, or as a line brings them that delays, swaps and bunches them. Pure: no clock is read.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};

/// Length of a packet.
const FRAME: Duration = Duration::from_millis(20);

/// How the packets of a microphone leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pace {
    /// Packets that leave together, at least one.
    pub(crate) burst: u32,
    /// Each packet is late by a random part of this. One that is late by over 20 ms more than the next is overtaken.
    pub(crate) jitter: Duration,
}

/// The packets of one call without end, in the order in which they leave: when, since the call began, and which.
///
/// A packet is spoken once its last sample is. First it is late by its own delay, which may change the order; then it waits until its burst is
/// whole, as behind the last hop of a mobile network.
pub(crate) struct Departures {
    pace: Pace,
    chance: StdRng,
    /// Packets whose delay was drawn.
    drawn: u32,
    /// Those of them that have not come to the burst, the earliest first.
    late: BinaryHeap<Reverse<(Duration, u32)>>,
    /// The rest of a burst, and when it leaves.
    burst: VecDeque<u32>,
    leaves: Duration,
}

impl Departures {
    /// The same seed draws the same delays, whatever the burst.
    pub(crate) fn new(pace: Pace, seed: u64) -> Self {
        Self {
            pace,
            chance: StdRng::seed_from_u64(seed),
            drawn: 0,
            late: BinaryHeap::new(),
            burst: VecDeque::new(),
            leaves: Duration::ZERO,
        }
    }

    /// The next packet that comes to the burst, and when.
    fn arrival(&mut self) -> (Duration, u32) {
        loop {
            // No packet whose delay is not drawn comes before this.
            let spoken = FRAME * (self.drawn + 1);
            if let Some(Reverse((at, n))) = self.late.peek().copied()
                && at <= spoken
            {
                self.late.pop();
                return (at, n);
            }
            let delay = self.chance.random_range(Duration::ZERO..=self.pace.jitter);
            self.late.push(Reverse((spoken + delay, self.drawn)));
            self.drawn += 1;
        }
    }
}

impl Iterator for Departures {
    type Item = (Duration, u32);

    fn next(&mut self) -> Option<Self::Item> {
        if self.burst.is_empty() {
            for _ in 0..self.pace.burst {
                let (at, n) = self.arrival();
                self.leaves = at;
                self.burst.push_back(n);
            }
        }
        self.burst.pop_front().map(|n| (self.leaves, n))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The first `count` packets at this pace, `jitter` in ms.
    fn sent(burst: u32, jitter: u64, seed: u64, count: usize) -> Vec<(Duration, u32)> {
        let pace = Pace { burst, jitter: Duration::from_millis(jitter) };
        Departures::new(pace, seed).take(count).collect()
    }

    fn numbers(sent: &[(Duration, u32)]) -> Vec<u32> {
        sent.iter().map(|(_, n)| *n).collect()
    }

    #[test]
    fn packets_leave_evenly_once_they_are_spoken() {
        let evenly: Vec<_> = (0..100_u32).map(|n| (FRAME * (n + 1), n)).collect();
        assert_eq!(sent(1, 0, 7, 100), evenly);
    }

    #[test]
    fn a_burst_leaves_with_its_last_packet() {
        for burst in [2, 3, 5] {
            let bursts: Vec<_> = (0..90_u32).map(|n| (FRAME * burst * (n / burst + 1), n)).collect();
            assert_eq!(sent(burst, 0, 7, 90), bursts);
        }
    }

    #[test]
    fn each_packet_is_late_by_a_part_of_the_jitter_and_some_overtake_others() {
        let sent = sent(1, 60, 7, 1_000);
        assert!(sent.windows(2).all(|pair| pair[0].0 <= pair[1].0), "time goes back");
        let late: Vec<u128> = sent.iter().map(|(at, n)| (*at - FRAME * (n + 1)).as_millis()).collect();
        assert!(late.iter().all(|ms| *ms <= 60) && late.iter().any(|ms| *ms > 50), "{late:?}");
        let mut once = numbers(&sent);
        let overtaken = once.windows(2).filter(|pair| pair[0] > pair[1]).count();
        assert!((100..400).contains(&overtaken), "{overtaken} of 1000");
        // A packet leaves at most three places later than it would evenly, so only the last three may be missing.
        once.sort_unstable();
        assert_eq!(once[..997], (0..997_u32).collect::<Vec<_>>());
    }

    #[test]
    fn late_packets_leave_in_bursts_in_the_order_in_which_they_come() {
        let (single, bursts) = (sent(1, 60, 7, 900), sent(3, 60, 7, 900));
        assert_eq!(numbers(&single), numbers(&bursts));
        for (single, burst) in single.chunks(3).zip(bursts.chunks(3)) {
            assert!(burst.iter().all(|(at, _)| *at == single[2].0), "{single:?} {burst:?}");
        }
    }

    #[test]
    fn the_seed_decides() {
        assert_eq!(sent(1, 60, 7, 100), sent(1, 60, 7, 100));
        assert_ne!(sent(1, 60, 7, 100), sent(1, 60, 8, 100));
    }
}
