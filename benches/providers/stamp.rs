//! Times inside of messages, and the latencies that they show.

use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::time::{ClockId, clock_gettime};
use serde_json::{Value, json};

/// Samples that contain a stamp: 64 bits.
pub(crate) const STAMP_SAMPLES: usize = 4;
/// Samples of a message with the agent's speech, which begins with a stamp: 100 ms at 24 kHz.
pub(crate) const MESSAGE_SAMPLES: usize = 2_400;
/// The longest latency of a valid stamp, in ns.
const MAX_LATENCY: u64 = 30_000_000_000;

/// Nanoseconds of the monotonic clock, which is the same in all processes.
pub(crate) fn now() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    u64::try_from(time.tv_sec * 1_000_000_000 + time.tv_nsec).unwrap_or_default()
}

/// Writes the time into the first samples.
pub(crate) fn write(samples: &mut [i16]) {
    let bytes = now().to_le_bytes();
    let (pairs, _) = bytes.as_chunks::<2>();
    samples.iter_mut().zip(pairs).for_each(|(sample, pair)| *sample = i16::from_le_bytes(*pair));
}

/// The time in the first samples; 0 if there are too few.
pub(crate) fn read(samples: &[i16]) -> u64 {
    let Some(samples) = samples.first_chunk::<STAMP_SAMPLES>() else { return 0 };
    samples.iter().rev().fold(0, |stamp, sample| stamp << 16 | u64::from(*sample as u16))
}

/// Samples at 16 kHz of each of the two levels in a chunk.
pub(crate) const LEVEL_SAMPLES: usize = crate::calls::CHUNK_SAMPLES / 2;
/// Unit of the time in levels, in ns. The time has 14 bits, so it repeats after .8 s.
const LEVEL_UNIT: u64 = 50_000;
const LEVEL_BITS: u64 = 7;
const LEVEL_MASK: u64 = (1 << LEVEL_BITS) - 1;
/// Distance of two levels. A filter may change a level by less than half of it.
const LEVEL_STEP: i16 = 200;
/// The lowest level. It differs from silence.
const LOWEST_LEVEL: i16 = 1_000;

/// Writes the time as two levels of a chunk, which a resampler keeps.
pub(crate) fn write_levels(chunk: &mut [i16]) {
    let time = now() / LEVEL_UNIT;
    let level = |bits: u64| LOWEST_LEVEL + LEVEL_STEP * (bits & LEVEL_MASK) as i16;
    let (high, low) = chunk.split_at_mut(LEVEL_SAMPLES);
    high.fill(level(time >> LEVEL_BITS));
    low.fill(level(time));
}

/// The time in two levels; `None` for silence.
pub(crate) fn read_levels(high: i16, low: i16) -> Option<u16> {
    let bits = |level: i16| {
        let steps = (f32::from(level - LOWEST_LEVEL) / f32::from(LEVEL_STEP)).round();
        (0.0..=LEVEL_MASK as f32).contains(&steps).then_some(steps as u16)
    };
    Some(bits(high)? << LEVEL_BITS | bits(low)?)
}

/// The last time with this code in levels, in ns, and the latency since it.
pub(crate) fn since_level(code: u16) -> (u64, u64) {
    let now = now();
    let units = (now / LEVEL_UNIT).wrapping_sub(u64::from(code)) & ((1 << (2 * LEVEL_BITS)) - 1);
    let latency = units * LEVEL_UNIT + now % LEVEL_UNIT;
    (now - latency, latency)
}

/// Latencies with the times of their stamps, in ns.
#[derive(Default)]
pub(crate) struct Latencies(Mutex<Vec<(u64, u64)>>);

impl Latencies {
    /// A message with this stamp has arrived now.
    pub(crate) fn record(&self, stamp: u64) {
        self.add(stamp, now().wrapping_sub(stamp));
    }

    /// Adds a latency.
    pub(crate) fn add(&self, stamp: u64, latency: u64) {
        self.lock().push((stamp, latency));
    }

    /// Number and percentiles in ms of the messages with stamps in this range; `invalid` counts the
    /// messages whose stamp cannot be one.
    pub(crate) fn summary(&self, from: u64, to: u64) -> Value {
        let all = self.lock();
        let mut valid: Vec<u64> = all
            .iter()
            .filter(|(stamp, latency)| (from..to).contains(stamp) && *latency < MAX_LATENCY)
            .map(|(_, latency)| *latency)
            .collect();
        valid.sort_unstable();
        let invalid = all.iter().filter(|(_, latency)| *latency >= MAX_LATENCY).count();
        // The smallest value that is not exceeded by this share.
        let percentile = |share: f64| {
            let rank = (share * valid.len() as f64).ceil() as usize;
            valid.get(rank.saturating_sub(1)).map(|ns| (*ns as f64 / 1e3).round() / 1e3)
        };
        json!({
            "n": valid.len(),
            "p50": percentile(0.5),
            "p95": percentile(0.95),
            "p99": percentile(0.99),
            "max": percentile(1.0),
            "invalid": invalid,
        })
    }

    fn lock(&self) -> MutexGuard<'_, Vec<(u64, u64)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
