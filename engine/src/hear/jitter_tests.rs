use proptest::prelude::*;
use proptest::test_runner::{RngAlgorithm, TestCaseError, TestRng, TestRunner};

use super::*;

/// An Opus packet of 20 ms whose second and third bytes hold its number (CELT-only, full band,
/// mono).
fn packet(n: u64) -> Bytes {
    Bytes::from(vec![0xf8, n as u8, (n >> 8) as u8])
}

fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

struct Harness {
    buffer: JitterBuffer,
    start: Instant,
}

impl Harness {
    /// A connection whose jitter is known: it had none so far.
    fn new() -> Self {
        Self {
            buffer: JitterBuffer { measured_packets: WARM_UP_PACKETS, ..JitterBuffer::new() },
            ..Self::without_history()
        }
    }

    fn without_history() -> Self {
        Self { buffer: JitterBuffer::new(), start: crate::clock::now() }
    }

    /// Pushes packet `n`, whose last sample was taken at 20·(n+1) ms, `late` ms later.
    fn push(&mut self, n: u64, late: u64) {
        self.push_as(n, n * FRAME_SAMPLES_48K + 7_000, 20 * (n + 1) + late);
    }

    fn push_as(&mut self, sequence: u64, timestamp: u64, at: u64) {
        self.buffer.push(self.start + ms(at), sequence, timestamp, packet(sequence));
    }

    fn pull(&mut self, at: u64) -> Vec<String> {
        let now = self.start + ms(at);
        std::iter::from_fn(|| self.buffer.pull(now))
            .map(|frame| match frame.kind {
                FrameKind::Packet(p) => format!("{}", u16::from_le_bytes([p[1], p[2]])),
                FrameKind::Fec(p) => format!("fec of {}", u16::from_le_bytes([p[1], p[2]])),
                FrameKind::Conceal => "conceal".into(),
                FrameKind::Silence => "silence".into(),
            })
            .collect()
    }
}

#[test]
fn packets_in_order_are_handed_on_at_once() {
    let mut harness = Harness::new();
    for n in 0..10 {
        harness.push(n, 5);
        assert_eq!(harness.pull(20 * (n + 1) + 5), [n.to_string()]);
    }
    assert_eq!(harness.buffer.stats(), Stats { packets: 10, ..Stats::default() });
}

#[test]
fn two_packets_in_the_wrong_order_are_put_right() {
    let mut harness = Harness::new();
    harness.push(0, 0);
    assert_eq!(harness.pull(20), ["0"]);
    harness.push(2, 0);
    assert_eq!(harness.pull(60), Vec::<String>::new());
    harness.push(1, 30);
    assert_eq!(harness.pull(70), ["1", "2"]);
}

#[test]
fn a_lost_packet_is_waited_for_and_then_recovered_from_the_next() {
    let mut harness = Harness::new();
    harness.push(0, 0);
    harness.push(2, 0);
    // Packet 1 was due at 40 ms; the gap showed at 60 ms.
    assert_eq!(harness.pull(69), ["0"]);
    assert_eq!(harness.buffer.timeout(), Some(harness.start + ms(70)));
    assert_eq!(harness.pull(70), ["fec of 2", "2"]);
    harness.push(1, 100);
    assert_eq!(harness.pull(120).len(), 0);
    assert_eq!(harness.buffer.stats().late, 1);
}

#[test]
fn a_longer_loss_is_concealed_then_silent_and_its_end_recovered() {
    let mut harness = Harness::new();
    harness.push(0, 0);
    harness.push(7, 0);
    assert_eq!(harness.pull(20), ["0"]);
    assert_eq!(
        harness.pull(180),
        ["conceal", "conceal", "conceal", "silence", "silence", "fec of 7", "7"]
    );
}

#[test]
fn a_pause_of_the_sender_is_silence_and_no_loss() {
    let mut harness = Harness::new();
    harness.push(0, 0);
    assert_eq!(harness.pull(20), ["0"]);
    // Sequence numbers continue, timestamps jump by 5 packets: DTX.
    harness.push_as(1, 6 * FRAME_SAMPLES_48K + 7_000, 140);
    assert_eq!(harness.pull(140), ["silence", "silence", "silence", "silence", "silence", "1"]);
}

#[test]
fn when_nothing_comes_time_goes_on_in_silence_and_then_rests() {
    let mut harness = Harness::new();
    harness.push(0, 0);
    assert_eq!(harness.pull(20), ["0"]);
    assert_eq!(harness.pull(99), Vec::<String>::new());
    let first = harness.pull(1_000);
    assert_eq!(first.len(), 46);
    assert_eq!(first[..4], ["conceal", "conceal", "conceal", "silence"]);
    let rest = harness.pull(60_000);
    assert!((200..=250).contains(&rest.len()), "{}", rest.len());
    assert_eq!(harness.buffer.timeout(), None);
    harness.push_as(1, 3_000 * FRAME_SAMPLES_48K, 60_020);
    assert_eq!(harness.pull(60_020), ["1"]);
}

#[test]
fn the_first_burst_is_waited_for_before_the_jitter_is_known() {
    let mut harness = Harness::without_history();
    for burst in 0..4 {
        let at = 100 * (burst + 1);
        assert_eq!(harness.pull(at - 1).len(), 0);
        for n in 5 * burst..5 * (burst + 1) {
            harness.push(n, at - 20 * (n + 1));
        }
        assert_eq!(
            harness.pull(at),
            (5 * burst..5 * (burst + 1)).map(|n| n.to_string()).collect::<Vec<_>>()
        );
    }
}

#[test]
fn a_sender_that_is_faster_than_real_time_is_bounded() {
    // A packet of 20 ms each millisecond, for two seconds; all are pulled at once.
    let mut harness = Harness::new();
    for n in 0..2_000 {
        harness.push_as(n, n * FRAME_SAMPLES_48K, n);
        harness.pull(n);
    }
    let stats = harness.buffer.stats();
    let max =
        (MAX_BURST_SAMPLES / FRAME_SAMPLES_48K as f64 + 2_000.0 / 20.0 * MAX_SENDER_SPEED) as u64;
    assert!((max - 2..=max).contains(&stats.packets), "{stats:?}");
    assert_eq!(stats.packets + stats.excess_packets, 2_000);
    // The decoder fills in neither refused packets nor gaps that a sender leaves between packets:
    // whatever the sender does, the output is bounded.
    for (packets, apart, step) in
        [(2_000, 1, 1), (2_000, 10, 1), (4_000, 2, 4), (2_000, 5, 90), (500, 20, 2)]
    {
        let mut harness = Harness::new();
        let mut samples = 0;
        for n in 0..packets {
            let now = harness.start + ms(n * apart);
            harness.push_as(n * step, n * step * FRAME_SAMPLES_48K, n * apart);
            samples += std::iter::from_fn(|| harness.buffer.pull(now))
                .map(|frame| u64::from(frame.samples))
                .sum::<u64>();
        }
        let max = MAX_BURST_SAMPLES + (packets * apart) as f64 * 48.0 * MAX_SENDER_SPEED;
        assert!(
            samples as f64 <= max + 10_000.0,
            "{packets} packets, {apart} ms apart, each {step}th: {samples} of {max}"
        );
        assert!(samples as f64 > 0.3 * max.min((packets * FRAME_SAMPLES_48K) as f64), "{samples}");
    }
    // A sender whose clock is fast by a tenth loses nothing. The same holds for audio that a
    // network held back for four seconds.
    let mut harness = Harness::new();
    for n in 0..6_000 {
        harness.push_as(n, n * FRAME_SAMPLES_48K, 18 * n);
        harness.pull(18 * n);
    }
    for n in 6_000..6_200 {
        harness.push_as(n, n * FRAME_SAMPLES_48K, 18 * 6_000 + 4_000);
        harness.pull(18 * 6_000 + 4_000);
    }
    assert_eq!(harness.buffer.stats().excess_packets, 0);
}

#[test]
fn every_packet_counts_whatever_its_timestamp() {
    let max_samples = |ms: u64| MAX_BURST_SAMPLES + ms as f64 * 48.0 * MAX_SENDER_SPEED;
    let max_packets = |ms: u64| (max_samples(ms) / FRAME_SAMPLES_48K as f64) as u64;
    // Each 1.2 s, the numbering restarts. After a pause of 1.1 s comes a packet behind a gap that
    // is too long to be filled in, and at once all packets of the gap: 104 packets in 1.2 s.
    let mut harness = Harness::new();
    for cycle in 0..50 {
        let start = cycle * 1_200;
        let packets = [(0, start), (103, start + 1_100)]
            .into_iter()
            .chain((1..103).map(|n| (n, start + 1_100)));
        for (n, at) in packets {
            harness.push_as(cycle * 1_000 + n, (cycle * 5_000 + n) * FRAME_SAMPLES_48K, at);
            if n == 0 {
                harness.pull(at);
            }
        }
        harness.pull(start + 1_100);
    }
    let stats = harness.buffer.stats();
    assert_eq!((stats.packets + stats.excess_packets, stats.restarts), (50 * 104, 49), "{stats:?}");
    assert!(stats.packets <= max_packets(50 * 1_200), "{stats:?}");
    // Packets of 20 ms whose timestamps are one sample apart, a hundred in each tick.
    let mut harness = Harness::new();
    for tick in 0..500 {
        for n in 0..100 {
            harness.push_as(tick * 100 + n, tick * 1_100 + n, tick * 10);
        }
        harness.pull(tick * 10);
    }
    let stats = harness.buffer.stats();
    assert!(stats.packets <= max_packets(500 * 10), "{stats:?}");
    assert!(
        stats.packets >= max_packets(500 * 10) - 10,
        "frames in the buffer may be used: {stats:?}"
    );
}

#[test]
fn words_that_a_standing_network_held_back_are_still_heard() {
    let mut harness = Harness::new();
    for n in 0..50 {
        harness.push(n, 0);
        harness.pull(20 * (n + 1));
    }
    assert!(!harness.pull(1_700).is_empty());
    for n in 50..85 {
        harness.push_as(n, n * FRAME_SAMPLES_48K + 7_000, 1_710);
    }
    let burst = harness.pull(1_710);
    assert_eq!(burst, (50..85).map(|n| n.to_string()).collect::<Vec<_>>());
    assert_eq!(harness.buffer.stats().late, 0);
}

#[test]
fn a_path_that_becomes_longer_for_good_costs_one_pause() {
    let mut harness = Harness::new();
    let mut pulled = Vec::new();
    let mut packets =
        (0..200_u64).map(|n| (20 * (n + 1) + if n < 50 { 0 } else { 400 }, n)).peekable();
    for at in (0..4_500).step_by(10) {
        while let Some((due, n)) = packets.next_if(|(due, _)| *due <= at) {
            harness.push_as(n, n * FRAME_SAMPLES_48K + 7_000, due);
        }
        pulled.extend(harness.pull(at));
    }
    let words: Vec<_> = pulled.iter().filter(|kind| kind.parse::<u64>().is_ok()).cloned().collect();
    assert_eq!(words, (0..200).map(|n| n.to_string()).collect::<Vec<_>>());
    let pause = pulled.iter().position(|kind| kind == "50").unwrap() - 50;
    assert!((10..=20).contains(&pause), "{pause}");
    let after = &pulled[50 + pause..];
    assert_eq!(after[..150], words[50..], "nothing is filled in between");
}

#[test]
fn a_new_source_with_other_numbers_goes_on_at_once() {
    let mut harness = Harness::new();
    for n in 0..5 {
        harness.push(n, 0);
    }
    assert_eq!(harness.pull(100).len(), 5);
    harness.push_as(40_000, 3_000_000_000, 120);
    assert_eq!(harness.pull(120), ["40000"]);
    harness.push_as(3, 17, 140);
    assert_eq!(harness.pull(140), ["3"]);
    assert_eq!(harness.buffer.stats().restarts, 2);
}

#[test]
fn the_wait_follows_the_jitter_up_and_slowly_down() {
    let mut harness = Harness::new();
    for n in 0..100 {
        harness.push(n, if n % 3 == 0 { 80 } else { 0 });
        harness.pull(20 * (n + 1) + 80);
    }
    let high = harness.buffer.target_delay();
    assert!((ms(60)..=ms(200)).contains(&high), "{high:?}");
    for n in 100..1_000 {
        harness.push(n, 0);
        harness.pull(20 * (n + 1));
    }
    assert_eq!(harness.buffer.target_delay(), ms(20));
}

#[test]
fn clocks_that_drift_apart_lose_nothing_in_an_hour() {
    // The sender's clock runs 200 ppm fast, then 200 ppm slow.
    for ppm in [200_i64, -200] {
        let mut harness = Harness::new();
        let mut pulled = 0;
        for n in 0..180_000_u64 {
            let at = 20_000 * (n as i64 + 1) * (1_000_000 - ppm) / 1_000_000;
            let now = harness.start + Duration::from_micros(at as u64);
            harness.buffer.push(now, n, n * FRAME_SAMPLES_48K, packet(n));
            while let Some(frame) = harness.buffer.pull(now) {
                assert!(matches!(frame.kind, FrameKind::Packet(_)));
                assert!(now.saturating_duration_since(frame.end_time) < ms(10));
                pulled += 1;
            }
        }
        assert_eq!(pulled, 180_000);
    }
}

#[test]
fn nonsense_is_dropped() {
    let mut harness = Harness::new();
    harness.buffer.push(harness.start, 0, 0, Bytes::new());
    harness.buffer.push(harness.start, 0, 0, Bytes::from_static(&[0xff, 0xff]));
    assert_eq!(harness.buffer.pull(harness.start), None);
    assert_eq!(harness.buffer.stats().dropped, 2);
}

/// The seed of `VISAVIS_SEED`, or a random one.
#[allow(clippy::print_stdout, reason = "who looks into a failure needs it")]
fn random_seed() -> u64 {
    let seed = std::env::var("VISAVIS_SEED")
        .ok()
        .map(|seed| seed.parse().expect("VISAVIS_SEED is a number"));
    let seed = seed.unwrap_or_else(rand::random);
    println!("VISAVIS_SEED={seed}");
    seed
}

#[test]
fn any_network() {
    check_random_networks(1, 256);
}

#[test]
#[ignore = "long: fuzz"]
fn long_fuzz_any_network() {
    check_random_networks(random_seed(), 100_000);
}

/// Invariants on any network. Every packet is passed on once or counted, in order. Frames are
/// contiguous except where the numbering restarts or time goes back to a late packet. No packet
/// stays in the buffer.
fn check_random_networks(seed: u64, cases: u32) {
    let bytes: Vec<u8> = seed.to_le_bytes().repeat(4);
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &bytes);
    let config = ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() };
    let packets = prop::collection::vec((0_u64..300, 0_u8..20), 1..400);
    let run =
        TestRunner::new_with_rng(config, rng).run(&packets, |packets| simulate_network(&packets));
    run.unwrap_or_else(|why| panic!("seed {seed}: {why}"));
}

/// Each packet is lost, duplicated, or late by this many milliseconds.
fn simulate_network(packets: &[(u64, u8)]) -> Result<(), TestCaseError> {
    let start = crate::clock::now();
    let mut arrivals: Vec<(u64, u64)> = Vec::new();
    for (n, (late, outcome)) in packets.iter().enumerate() {
        let n = n as u64;
        let at = 20 * (n + 1) + if *outcome < 4 { *late } else { late % 10 };
        match outcome {
            0 => {}
            1 => arrivals.extend([(at, n), (at + 3, n)]),
            _ => arrivals.push((at, n)),
        }
    }
    arrivals.sort();
    let mut buffer = JitterBuffer::new();
    let mut received: Vec<u64> = Vec::new();
    let mut at = None;
    let mut pending = arrivals.iter().peekable();
    for tick in 0..(packets.len() as u64 * 2 + 200) {
        let now = start + ms(tick * 10);
        while let Some((_, n)) = pending.next_if(|(due, _)| *due <= tick * 10) {
            buffer.push(now, *n, n * FRAME_SAMPLES_48K, packet(*n));
        }
        let mut pulled = 0;
        while let Some(frame) = buffer.pull(now) {
            pulled += 1;
            prop_assert!(pulled < 400);
            prop_assert!(at.is_none_or(|at| at <= frame.end_time));
            at = Some(frame.end_time);
            if let FrameKind::Packet(p) = frame.kind {
                received.push(u64::from(u16::from_le_bytes([p[1], p[2]])));
            }
        }
        prop_assert!(buffer.timeout().is_none_or(|timeout| timeout > now));
    }
    prop_assert!(received.windows(2).all(|pair| pair[0] < pair[1]), "{received:?}");
    let stats = buffer.stats();
    prop_assert_eq!(stats.packets as usize, received.len());
    prop_assert_eq!(
        stats.packets + stats.late + stats.duplicates + stats.dropped + stats.excess_packets,
        arrivals.len() as u64
    );
    prop_assert_eq!(buffer.packets.len(), 0);
    Ok(())
}
