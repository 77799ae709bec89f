//! Jitter buffer for a receiver that is a program.
//!
//! No person listens to the user's audio in real time; the VAD and the STT need it complete and
//! early. Packets in order are therefore passed on at once. Only a packet behind a gap waits for
//! the missing one, as long as the measured jitter allows it to arrive (20–200 ms). The gap is then
//! filled: by in-band FEC of the next packet, by the decoder's concealment, or with silence.
//!
//! When no packet arrives at all (a pause of a sender with DTX, a stalled network), the buffer
//! emits silence, so that the end of speech is detected. If the missing packets arrive after that,
//! they are still passed on: a late word is better than a lost one.
//!
//! Pure: the caller supplies the time. Positions are RTP timestamps at 48 kHz, extended to 64 bits.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use bytes::Bytes;

/// Samples of an ordinary packet (20 ms at 48 kHz), and of each filled frame.
const FRAME_SAMPLES_48K: u64 = 960;
/// Minimum and maximum wait behind a gap, in µs.
const TARGET_DELAY_MICROS: (i64, i64) = (20_000, 200_000);
/// Minimum wait after the packet that shows the gap: reordered packets arrive close together.
const MIN_REORDER_WAIT_MICROS: i64 = 10_000;
/// Additional delay before silence is emitted when no packet arrives at all.
const UNDERRUN_MARGIN_MICROS: i64 = 40_000;
/// Maximum number of consecutive filled frames that are concealed; further ones are silence.
const MAX_CONCEALED_FRAMES: u32 = 3;
/// Maximum silence that is emitted after the last packet; then nothing is emitted.
const MAX_SILENCE_MICROS: i64 = 5_000_000;
/// A packet farther than this from its expected arrival belongs to a new numbering.
const MAX_TIMESTAMP_JUMP_MICROS: i64 = 1_000_000;
/// A packet in sequence may be this late and still belong to the old numbering.
const MAX_STALL_MICROS: i64 = 10_000_000;
/// Maximum number of samples of a gap that is filled in.
const MAX_GAP_SAMPLES: u64 = 2 * 48_000;
/// Maximum number of buffered packets.
const MAX_BUFFERED_PACKETS: usize = 128;
/// The minimum transit time is taken over this window and the previous one.
const TRANSIT_WINDOW_MICROS: i64 = 5_000_000;
/// Number of packets after which the jitter estimate is valid. With fewer packets, a network that
/// delivers in bursts cannot be distinguished from one without jitter.
const WARM_UP_PACKETS: u64 = 50;
/// Minimum wait while the jitter is unknown: five packets that arrive together.
const WARM_UP_DELAY_MICROS: i64 = 80_000;
/// Sustained rate that a sender may reach, relative to real time, and the burst in samples that it
/// may send beyond that: audio that a stalled network held back.
const MAX_SENDER_SPEED: f64 = 1.2;
const MAX_BURST_SAMPLES: f64 = 5.0 * 48_000.0;

/// Audio, or a replacement for missing audio.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    /// RTP timestamp of the first sample.
    pub timestamp: u64,
    /// Length in samples at 48 kHz.
    pub samples: u32,
    /// When the last sample would have arrived without jitter. Never decreases.
    pub end_time: Instant,
    /// What the frame contains.
    pub kind: FrameKind,
}

/// What a [`Frame`] contains.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FrameKind {
    /// An Opus packet.
    Packet(Bytes),
    /// A lost packet, of which this next packet contains a copy (FEC).
    Fec(Bytes),
    /// A lost packet, to be concealed by the decoder.
    Conceal,
    /// The sender paused, or too much was lost.
    Silence,
}

/// Counters since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Packets passed on.
    pub packets: u64,
    /// Frames recovered from the next packet.
    pub recovered: u64,
    /// Frames concealed.
    pub concealed: u64,
    /// Frames of silence inserted.
    pub silent: u64,
    /// Packets that arrived after their place was filled.
    pub late: u64,
    /// Packets that arrived twice.
    pub duplicates: u64,
    /// Packets that are not valid Opus, exceed the buffer, or were buffered at a restart.
    pub dropped: u64,
    /// Packets dropped because the sender was faster than real time.
    pub excess_packets: u64,
    /// New numberings: another source, or a jump.
    pub restarts: u64,
}

struct BufferedPacket {
    arrived: i64,
    sequence: u64,
    samples: u64,
    payload: Bytes,
}

/// The jitter buffer of one call.
#[derive(Default)]
pub struct JitterBuffer {
    packets: BTreeMap<u64, BufferedPacket>,
    origin: Option<Instant>,
    /// Timestamp of the next frame; `None` before the first packet and after a long silence.
    next_timestamp: Option<u64>,
    /// End timestamp and sequence number of the last packet passed on.
    last_packet: Option<(u64, u64)>,
    /// Last arrival, µs since the origin.
    last_arrival: i64,
    transit: TransitEstimator,
    consecutive_fills: u32,
    last_end_time: i64,
    /// Number of packets that the jitter estimate is based on.
    measured_packets: u64,
    /// Latest end of any packet that was refused as excess: its place is not filled in.
    excess_end: u64,
    rate_limit: AudioRateLimit,
    stats: Stats,
    reported_excess: u64,
}

/// Limit on the audio that a sender causes: a token bucket. Audio costs CPU time of decoder, VAD
/// and STT, so a sender that is faster than real time would take it from other calls. A packet is
/// counted when it arrives, whatever its timestamp. A gap between packets is counted when it is
/// filled in. The silence while no packet arrives is not counted: it follows the clock.
struct AudioRateLimit {
    samples: f64,
    last_refill: i64,
}

impl Default for AudioRateLimit {
    fn default() -> Self {
        Self { samples: MAX_BURST_SAMPLES, last_refill: 0 }
    }
}

impl AudioRateLimit {
    /// Whether this many more samples are admitted at `now`, µs; takes them if so.
    fn try_take(&mut self, now: i64, samples: u64) -> bool {
        let passed = (now - self.last_refill).max(0) as f64 * 48e-3;
        self.last_refill = self.last_refill.max(now);
        self.samples = (self.samples + passed * MAX_SENDER_SPEED).min(MAX_BURST_SAMPLES);
        let admits = self.samples >= samples as f64;
        if admits {
            self.samples -= samples as f64;
        }
        admits
    }
}

/// Transit times: arrival minus timestamp, in µs, with an unknown constant. Follows the drift of
/// the two clocks.
#[derive(Default)]
struct TransitEstimator {
    min: Option<i64>,
    previous_min: i64,
    window_start: i64,
    /// Excess over the minimum transit that nearly all packets stay below; rises fast, falls
    /// slowly.
    jitter: f64,
}

impl TransitEstimator {
    fn measure(&mut self, now: i64, transit: i64) {
        match self.min {
            None => {
                *self = Self {
                    min: Some(transit),
                    previous_min: transit,
                    window_start: now,
                    jitter: 0.0,
                };
            }
            Some(min) if now - self.window_start > TRANSIT_WINDOW_MICROS => {
                (self.previous_min, self.min, self.window_start) = (min, Some(transit), now);
            }
            Some(min) => self.min = Some(min.min(transit)),
        }
        let excess = (transit - self.min_transit()).max(0) as f64;
        let weight = if excess > self.jitter { 0.5 } else { 0.01 };
        self.jitter += (excess - self.jitter) * weight;
    }

    fn min_transit(&self) -> i64 {
        self.min.unwrap_or(0).min(self.previous_min)
    }

    fn target_delay(&self) -> i64 {
        ((self.jitter * 1.5) as i64).clamp(TARGET_DELAY_MICROS.0, TARGET_DELAY_MICROS.1)
    }
}

fn samples_to_micros(samples: u64) -> i64 {
    (samples as i128 * 1000 / 48) as i64
}

impl JitterBuffer {
    /// An empty buffer.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Counters so far.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.stats
    }

    /// Packets that were dropped since the last call because the sender was faster than real time.
    pub(crate) fn take_excess_packets(&mut self) -> u64 {
        let new = self.stats.excess_packets - self.reported_excess;
        self.reported_excess = self.stats.excess_packets;
        new
    }

    /// Current maximum wait for a missing packet.
    #[must_use]
    pub fn target_delay(&self) -> Duration {
        Duration::from_micros(self.target_delay_micros() as u64)
    }

    /// [`JitterBuffer::target_delay`] in µs.
    fn target_delay_micros(&self) -> i64 {
        self.transit.target_delay().max(if self.measured_packets < WARM_UP_PACKETS {
            WARM_UP_DELAY_MICROS
        } else {
            0
        })
    }

    fn since_origin(&self, now: Instant) -> i64 {
        self.origin.map_or(0, |origin| now.saturating_duration_since(origin).as_micros() as i64)
    }

    /// Adds a packet. `sequence` and `timestamp` are extended, so that they do not wrap.
    pub fn push(&mut self, now: Instant, sequence: u64, timestamp: u64, payload: Bytes) {
        let Ok(samples) = opus::packet::get_nb_samples(&payload, 48_000) else {
            self.stats.dropped += 1;
            return;
        };
        let samples = samples as u64;
        self.origin.get_or_insert(now);
        let now = self.since_origin(now);
        let transit = now - samples_to_micros(timestamp + samples);
        if self.transit.min.is_some() {
            let excess = transit - self.transit.min_transit();
            let follows = self
                .last_packet
                .is_some_and(|(_, last)| sequence > last && sequence - last < 1_000);
            if !(-MAX_TIMESTAMP_JUMP_MICROS..=MAX_STALL_MICROS).contains(&excess)
                || (excess > MAX_TIMESTAMP_JUMP_MICROS && !follows)
            {
                self.restart();
            }
        }
        self.last_arrival = now;
        self.transit.measure(now, transit);
        self.measured_packets += 1;
        if self.packets.contains_key(&timestamp) {
            self.stats.duplicates += 1;
            return;
        }
        match (self.next_timestamp, self.last_packet) {
            (Some(next), Some((end, last))) if timestamp < next && timestamp < end => {
                if sequence == last {
                    self.stats.duplicates += 1;
                } else {
                    self.stats.late += 1;
                }
                return;
            }
            _ => {}
        }
        if !self.rate_limit.try_take(now, samples) {
            self.stats.excess_packets += 1;
            self.excess_end = self.excess_end.max(timestamp + samples);
            return;
        }
        match (self.next_timestamp, self.last_packet) {
            (Some(next), Some(_)) if timestamp < next => {
                // Its place was filled, but no later packet was passed on: still use it.
                self.next_timestamp = Some(timestamp);
                self.consecutive_fills = 0;
            }
            (None, _) => self.next_timestamp = Some(timestamp),
            _ => {}
        }
        if self.packets.len() >= MAX_BUFFERED_PACKETS {
            self.packets.pop_first();
            self.stats.dropped += 1;
            self.next_timestamp = self.packets.first_key_value().map(|(first, _)| *first);
        }
        self.packets.insert(timestamp, BufferedPacket { arrived: now, sequence, samples, payload });
    }

    fn restart(&mut self) {
        self.stats.restarts += 1;
        self.stats.dropped += self.packets.len() as u64;
        self.packets.clear();
        self.next_timestamp = None;
        self.last_packet = None;
        self.consecutive_fills = 0;
        self.excess_end = 0;
        self.transit =
            TransitEstimator { jitter: self.transit.jitter, ..TransitEstimator::default() };
        self.transit.min = None;
    }

    /// When the samples before `end` should have arrived, µs since the origin.
    fn expected_arrival(&self, end: u64) -> i64 {
        self.transit.min_transit() + samples_to_micros(end)
    }

    /// The next action, and the time from which it applies, µs since the origin.
    fn next_action(&self) -> Option<(i64, Action)> {
        let next = self.next_timestamp?;
        let Some((&first, held)) = self.packets.first_key_value() else {
            // Also measured from the last packet: if all packets are later than before, each is
            // late and none is missing.
            let end = next + FRAME_SAMPLES_48K;
            let after = self.last_packet.map_or(0, |(last_end, _)| {
                self.last_arrival + samples_to_micros(end.saturating_sub(last_end))
            });
            let at = self.expected_arrival(end).max(after)
                + self.target_delay_micros()
                + UNDERRUN_MARGIN_MICROS;
            if at > self.last_arrival + MAX_SILENCE_MICROS {
                return Some((at, Action::Idle));
            }
            let action = if self.consecutive_fills < MAX_CONCEALED_FRAMES {
                Action::Conceal(FRAME_SAMPLES_48K)
            } else {
                Action::Silence(FRAME_SAMPLES_48K)
            };
            return Some((at, action));
        };
        if first <= next {
            return Some((i64::MIN, Action::Packet));
        }
        let gap = first - next;
        let in_sequence = self.last_packet.is_some_and(|(_, last)| last + 1 == held.sequence);
        if gap > MAX_GAP_SAMPLES || next < self.excess_end {
            return Some((i64::MIN, Action::Skip));
        }
        if in_sequence {
            return Some((i64::MIN, Action::Silence(gap.min(FRAME_SAMPLES_48K))));
        }
        let at = (self.expected_arrival(next + gap.min(FRAME_SAMPLES_48K))
            + self.target_delay_micros())
        .max(held.arrived + MIN_REORDER_WAIT_MICROS);
        let action = if gap <= held.samples.min(2 * FRAME_SAMPLES_48K) {
            Action::Fec(gap)
        } else if self.consecutive_fills < MAX_CONCEALED_FRAMES {
            Action::Conceal(gap.min(FRAME_SAMPLES_48K))
        } else {
            Action::Silence(gap.min(FRAME_SAMPLES_48K))
        };
        Some((at, action))
    }

    /// Returns the next frame if it is available or its wait is over. Call it until `None`, after
    /// each push and at [`JitterBuffer::timeout`].
    pub fn pull(&mut self, now: Instant) -> Option<Frame> {
        let now = self.since_origin(now);
        loop {
            let (at, action) = self.next_action()?;
            if now < at {
                return None;
            }
            let next = self.next_timestamp?;
            // A gap for which the rate limit has no room is skipped.
            let action = match action.gap_samples() {
                Some(gap) if !self.packets.is_empty() && !self.rate_limit.try_take(now, gap) => {
                    Action::Skip
                }
                _ => action,
            };
            let (samples, kind) = match action {
                Action::Idle => {
                    self.next_timestamp = None;
                    self.last_packet = None;
                    self.consecutive_fills = 0;
                    return None;
                }
                Action::Skip => {
                    self.next_timestamp = self.packets.first_key_value().map(|(first, _)| *first);
                    continue;
                }
                Action::Packet => {
                    let (timestamp, held) = self.packets.pop_first()?;
                    self.consecutive_fills = 0;
                    self.stats.packets += 1;
                    self.last_packet = Some((timestamp + held.samples, held.sequence));
                    self.next_timestamp = Some(timestamp + held.samples);
                    let frame =
                        self.make_frame(timestamp, held.samples, FrameKind::Packet(held.payload));
                    return Some(frame);
                }
                Action::Fec(samples) => {
                    self.stats.recovered += 1;
                    (samples, FrameKind::Fec(self.packets.first_key_value()?.1.payload.clone()))
                }
                Action::Conceal(samples) => {
                    self.stats.concealed += 1;
                    (samples, FrameKind::Conceal)
                }
                Action::Silence(samples) => {
                    self.stats.silent += 1;
                    (samples, FrameKind::Silence)
                }
            };
            self.consecutive_fills += 1;
            self.next_timestamp = Some(next + samples);
            return Some(self.make_frame(next, samples, kind));
        }
    }

    #[expect(clippy::expect_used, reason = "a packet has arrived")]
    fn make_frame(&mut self, timestamp: u64, samples: u64, kind: FrameKind) -> Frame {
        self.last_end_time = self.last_end_time.max(self.expected_arrival(timestamp + samples));
        let at = self
            .origin
            .map(|origin| origin + Duration::from_micros(self.last_end_time.max(0) as u64));
        Frame {
            timestamp,
            samples: samples as u32,
            end_time: at.expect("a packet has arrived"),
            kind,
        }
    }

    /// When to call [`JitterBuffer::pull`] next if no packet arrives.
    #[must_use]
    pub fn timeout(&self) -> Option<Instant> {
        let (at, _) = self.next_action()?;
        self.origin.map(|origin| origin + Duration::from_micros(at.max(0) as u64))
    }
}

enum Action {
    Packet,
    Fec(u64),
    Conceal(u64),
    Silence(u64),
    /// Skip a gap that is too long to fill, or whose packets were refused.
    Skip,
    /// Wait for a first packet again.
    Idle,
}

impl Action {
    /// The samples that it fills in.
    fn gap_samples(&self) -> Option<u64> {
        match self {
            Self::Fec(samples) | Self::Conceal(samples) | Self::Silence(samples) => Some(*samples),
            Self::Packet | Self::Skip | Self::Idle => None,
        }
    }
}

#[cfg(test)]
#[path = "jitter_tests.rs"]
mod tests;
