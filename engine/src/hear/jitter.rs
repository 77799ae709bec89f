//! Our own jitter buffer, for a listener that is a program.
//!
//! Nobody hears the user in real time here: the detector and the recogniser want the words, whole and early. So packets in order are
//! handed on at once, and only a packet that waits behind a gap waits for the missing one, as long as the measured jitter says
//! that it may still come (20–200 ms). Then the gap is filled: from the next packet's in-band correction, by the decoder's
//! concealment, or with silence. When nothing comes at all (a pause of a sender with DTX, a network that stands still) time goes on
//! in silence, so that an end of speech is noticed; should the missing packets come after all, they are still handed on, because
//! a word late is better than a word lost.
//!
//! Pure: time is given. Positions are RTP time stamps at 48 kHz, extended to 64 bits.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use bytes::Bytes;

/// Samples of an ordinary packet (20 ms), and of each filled piece.
const FRAME: u64 = 960;
/// Least and longest wait behind a gap.
const TARGET: (i64, i64) = (20_000, 200_000);
/// Least wait from the packet that shows the gap: two packets that changed places come close together.
const SWAPPED: i64 = 10_000;
/// Where nothing comes at all, time goes on in silence this much later still.
const UNDERRUN: i64 = 40_000;
/// Filled pieces in a row that are concealed; the rest is silence.
const MAX_CONCEALED: u32 = 3;
/// Silence that is made without hearing from the sender, then nothing.
const MAX_SILENCE: i64 = 5_000_000;
/// A packet this far from where its time stamp should come belongs to a new numbering.
const RESTART: i64 = 1_000_000;
/// A packet in sequence may be this late and still belong to the old numbering.
const STALL: i64 = 10_000_000;
/// Samples of a gap that is filled in at most.
const LONGEST_GAP: u64 = 2 * 48_000;
/// Packets held at most.
const MAX_HELD: usize = 128;
/// The least transit time is that of this window and the one before it.
const WINDOW: i64 = 5_000_000;
/// Packets after which the measured jitter is believed. Before that, a line that brings packets in bursts looks like one without jitter.
const LEARNT: u64 = 50;
/// Least wait while the jitter is not known: five packets that come together.
const UNKNOWN: i64 = 80_000;
/// A sender may be this much faster than real time for ever, and this many samples ahead of that at once: what a line that stood still held back.
const FASTEST: f64 = 1.2;
const AHEAD: f64 = 5.0 * 48_000.0;

/// Sound, or what stands for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    /// RTP time stamp of its first sample.
    pub timestamp: u64,
    /// Length in samples at 48 kHz.
    pub samples: u32,
    /// When its last sample would have come without any jitter. Never goes back.
    pub at: Instant,
    /// What it is.
    pub kind: Kind,
}

/// What a [`Frame`] is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    /// An Opus packet.
    Packet(Bytes),
    /// A lost one, of which this next packet knows a copy.
    Fec(Bytes),
    /// A lost one: let the decoder invent it.
    Conceal,
    /// Nothing was sent, or too much was lost.
    Silence,
}

/// Counts since the beginning.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Packets handed on.
    pub packets: u64,
    /// Pieces recovered from the next packet.
    pub recovered: u64,
    /// Pieces concealed.
    pub concealed: u64,
    /// Pieces of silence filled in.
    pub silent: u64,
    /// Packets that came after their place was filled.
    pub late: u64,
    /// Packets that came twice.
    pub duplicates: u64,
    /// Packets that are no Opus, or more than can be held.
    pub dropped: u64,
    /// Packets of a sender that is faster than real time.
    pub excess: u64,
    /// New numberings: another source, or a jump.
    pub restarts: u64,
}

struct Held {
    arrived: i64,
    sequence: u64,
    samples: u64,
    payload: Bytes,
}

/// One call's buffer.
#[derive(Default)]
pub struct Buffer {
    held: BTreeMap<u64, Held>,
    origin: Option<Instant>,
    /// Where the next frame begins; `None` before the first packet and after a long silence.
    next: Option<u64>,
    /// End and sequence number of the last true packet.
    heard: Option<(u64, u64)>,
    /// Last arrival, µs since the origin.
    arrived: i64,
    transit: Transit,
    filled: u32,
    at: i64,
    /// Packets by which the jitter was learnt.
    learnt: u64,
    /// The latest end of a packet that came, and of one that was refused as too much: its place is not filled in.
    top: Option<u64>,
    refused: u64,
    allowance: Allowance,
    stats: Stats,
    told_excess: u64,
}

/// How much sound a sender may still bring: a token bucket. Sound costs time of decoder, detector and recogniser, so a sender that is faster
/// than real time would take it from other calls.
struct Allowance {
    samples: f64,
    since: i64,
}

impl Default for Allowance {
    fn default() -> Self {
        Self { samples: AHEAD, since: 0 }
    }
}

impl Allowance {
    /// Whether so many samples more may come at `now`, µs.
    fn take(&mut self, now: i64, samples: u64) -> bool {
        let passed = (now - self.since).max(0) as f64 * 48e-3;
        self.since = now;
        self.samples = (self.samples + passed * FASTEST).min(AHEAD);
        let admits = self.samples >= samples as f64;
        if admits {
            self.samples -= samples as f64;
        }
        admits
    }
}

/// Transit times: arrival less time stamp, in µs, with an unknown constant. Follows the drift of the two clocks.
#[derive(Default)]
struct Transit {
    least: Option<i64>,
    previous: i64,
    began: i64,
    /// What nearly all packets exceed the least transit by; rises at once, falls slowly.
    jitter: f64,
}

impl Transit {
    fn measure(&mut self, now: i64, transit: i64) {
        match self.least {
            None => {
                *self = Self { least: Some(transit), previous: transit, began: now, jitter: 0.0 };
            }
            Some(least) if now - self.began > WINDOW => {
                (self.previous, self.least, self.began) = (least, Some(transit), now);
            }
            Some(least) => self.least = Some(least.min(transit)),
        }
        let excess = (transit - self.base()).max(0) as f64;
        let weight = if excess > self.jitter { 0.5 } else { 0.01 };
        self.jitter += (excess - self.jitter) * weight;
    }

    fn base(&self) -> i64 {
        self.least.unwrap_or(0).min(self.previous)
    }

    fn target(&self) -> i64 {
        ((self.jitter * 1.5) as i64).clamp(TARGET.0, TARGET.1)
    }
}

fn micros(samples: u64) -> i64 {
    (samples as i128 * 1000 / 48) as i64
}

impl Buffer {
    /// An empty one.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Counts so far.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.stats
    }

    /// Packets since the last call of a sender that was faster than real time. They were dropped.
    pub(crate) fn take_excess(&mut self) -> u64 {
        let new = self.stats.excess - self.told_excess;
        self.told_excess = self.stats.excess;
        new
    }

    /// How long a missing packet is waited for at present.
    #[must_use]
    pub fn target(&self) -> Duration {
        Duration::from_micros(self.wait() as u64)
    }

    /// [`Buffer::target`] in µs.
    fn wait(&self) -> i64 {
        self.transit.target().max(if self.learnt < LEARNT { UNKNOWN } else { 0 })
    }

    fn since_origin(&self, now: Instant) -> i64 {
        self.origin.map_or(0, |origin| now.saturating_duration_since(origin).as_micros() as i64)
    }

    /// A packet came. `sequence` and `timestamp` are extended, so that they do not wrap.
    pub fn push(&mut self, now: Instant, sequence: u64, timestamp: u64, payload: Bytes) {
        let Ok(samples) = opus::packet::get_nb_samples(&payload, 48_000) else {
            self.stats.dropped += 1;
            return;
        };
        let samples = samples as u64;
        self.origin.get_or_insert(now);
        let now = self.since_origin(now);
        let transit = now - micros(timestamp + samples);
        if self.transit.least.is_some() {
            let excess = transit - self.transit.base();
            let follows = self.heard.is_some_and(|(_, last)| sequence > last && sequence - last < 1_000);
            if !(-RESTART..=STALL).contains(&excess) || (excess > RESTART && !follows) {
                self.restart();
            }
        }
        self.arrived = now;
        self.transit.measure(now, transit);
        self.learnt += 1;
        if self.held.contains_key(&timestamp) {
            self.stats.duplicates += 1;
            return;
        }
        match (self.next, self.heard) {
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
        // What lies between this packet and those before is filled in, and costs as much as sound does. Over a longer gap it is jumped.
        let end = timestamp + samples;
        let more = end.saturating_sub(self.top.unwrap_or(timestamp));
        let more = if more > samples + LONGEST_GAP { samples } else { more };
        self.top = Some(self.top.map_or(end, |top| top.max(end)));
        if !self.allowance.take(now, more) {
            self.stats.excess += 1;
            self.refused = self.refused.max(end);
            return;
        }
        match (self.next, self.heard) {
            (Some(next), Some(_)) if timestamp < next => {
                // Time went on in silence, but nothing true was passed: hand it on after all.
                self.next = Some(timestamp);
                self.filled = 0;
            }
            (None, _) => self.next = Some(timestamp),
            _ => {}
        }
        if self.held.len() >= MAX_HELD {
            self.held.pop_first();
            self.stats.dropped += 1;
            self.next = self.held.first_key_value().map(|(first, _)| *first);
        }
        self.held.insert(timestamp, Held { arrived: now, sequence, samples, payload });
    }

    fn restart(&mut self) {
        self.stats.restarts += 1;
        self.stats.dropped += self.held.len() as u64;
        self.held.clear();
        self.next = None;
        self.heard = None;
        self.filled = 0;
        (self.top, self.refused) = (None, 0);
        self.transit = Transit { jitter: self.transit.jitter, ..Transit::default() };
        self.transit.least = None;
    }

    /// When the samples before `end` should have come, µs since the origin.
    fn due(&self, end: u64) -> i64 {
        self.transit.base() + micros(end)
    }

    /// What to do next, and from when on.
    fn plan(&self) -> Option<(i64, Plan)> {
        let next = self.next?;
        let Some((&first, held)) = self.held.first_key_value() else {
            // Counted from the last packet too: where all packets come later than they used to, each is late, and none is missing.
            let end = next + FRAME;
            let after = self.heard.map_or(0, |(heard, _)| self.arrived + micros(end.saturating_sub(heard)));
            let at = self.due(end).max(after) + self.wait() + UNDERRUN;
            if at > self.arrived + MAX_SILENCE {
                return Some((at, Plan::Rest));
            }
            let plan = if self.filled < MAX_CONCEALED { Plan::Conceal(FRAME) } else { Plan::Silence(FRAME) };
            return Some((at, plan));
        };
        if first <= next {
            return Some((i64::MIN, Plan::Packet));
        }
        let gap = first - next;
        let in_sequence = self.heard.is_some_and(|(_, last)| last + 1 == held.sequence);
        if gap > LONGEST_GAP || next < self.refused {
            return Some((i64::MIN, Plan::Skip));
        }
        if in_sequence {
            return Some((i64::MIN, Plan::Silence(gap.min(FRAME))));
        }
        let at = (self.due(next + gap.min(FRAME)) + self.wait()).max(held.arrived + SWAPPED);
        let plan = if gap <= held.samples.min(2 * FRAME) {
            Plan::Fec(gap)
        } else if self.filled < MAX_CONCEALED {
            Plan::Conceal(gap.min(FRAME))
        } else {
            Plan::Silence(gap.min(FRAME))
        };
        Some((at, plan))
    }

    /// The next frame, if it is there or its time is over. Call it until `None`, after each push and at [`Buffer::timeout`].
    pub fn pull(&mut self, now: Instant) -> Option<Frame> {
        let now = self.since_origin(now);
        loop {
            let (at, plan) = self.plan()?;
            if now < at {
                return None;
            }
            let next = self.next?;
            let (samples, kind) = match plan {
                Plan::Rest => {
                    self.next = None;
                    self.heard = None;
                    self.filled = 0;
                    return None;
                }
                Plan::Skip => {
                    self.next = self.held.first_key_value().map(|(first, _)| *first);
                    continue;
                }
                Plan::Packet => {
                    let (timestamp, held) = self.held.pop_first()?;
                    self.filled = 0;
                    self.stats.packets += 1;
                    self.heard = Some((timestamp + held.samples, held.sequence));
                    self.next = Some(timestamp + held.samples);
                    let frame = self.frame(timestamp, held.samples, Kind::Packet(held.payload));
                    return Some(frame);
                }
                Plan::Fec(samples) => {
                    self.stats.recovered += 1;
                    (samples, Kind::Fec(self.held.first_key_value()?.1.payload.clone()))
                }
                Plan::Conceal(samples) => {
                    self.stats.concealed += 1;
                    (samples, Kind::Conceal)
                }
                Plan::Silence(samples) => {
                    self.stats.silent += 1;
                    (samples, Kind::Silence)
                }
            };
            self.filled += 1;
            self.next = Some(next + samples);
            return Some(self.frame(next, samples, kind));
        }
    }

    fn frame(&mut self, timestamp: u64, samples: u64, kind: Kind) -> Frame {
        self.at = self.at.max(self.due(timestamp + samples));
        let at = self.origin.map(|origin| origin + Duration::from_micros(self.at.max(0) as u64));
        Frame { timestamp, samples: samples as u32, at: at.expect("a packet has come"), kind }
    }

    /// When [`Buffer::pull`] will have something though nothing comes.
    #[must_use]
    pub fn timeout(&self) -> Option<Instant> {
        let (at, _) = self.plan()?;
        self.origin.map(|origin| origin + Duration::from_micros(at.max(0) as u64))
    }
}

enum Plan {
    Packet,
    Fec(u64),
    Conceal(u64),
    Silence(u64),
    /// Jump over a gap that is no loss.
    Skip,
    /// Wait for a first packet again.
    Rest,
}

#[cfg(test)]
#[path = "jitter_tests.rs"]
mod tests;
