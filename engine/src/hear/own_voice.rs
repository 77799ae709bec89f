//! Recognizes the agent's own voice in the audio of several people: a participant without
//! headphones sends back what the agent says, up to 2 s later and quieter.
//!
//! Sent and heard audio become energies of [`BANDS`] bands in hops of 10 ms. Their logarithms
//! correlate if the one is an echo of the other: a level, a filter and a constant delay change only
//! the means, which are removed. Speech of another person, alone or over the echo, correlates less.
//! The delay is unknown at first. By chance, some delay correlates well for a moment; so it must do
//! so repeatedly. From then on, only this delay is compared, over a shorter time.
//!
//! ```text
//!          CONFIRMATIONS of one delay          correlation at this delay
//! unknown ──────────────────────────> clear ──────────────────────────────> own
//!                                       ^                                    │
//!                                       └── RELEASE_BLOCKS without it ───────┘
//! ```
//!
//! A room with much reverberation smears the echo, and it does not correlate.

use std::collections::VecDeque;
use std::f32::consts::TAU;
use std::ops::RangeInclusive;
use std::time::Duration;

use conversation::time::Time;

/// Samples of a hop, 10 ms at 16 kHz.
const HOP_SAMPLES: usize = 160;
/// Samples of a hop at 48 kHz.
const HOP_SAMPLES_48K: usize = 480;
/// Number of bands.
const BANDS: usize = 12;
/// Centers of the lowest and the highest band, in Hz.
const BAND_RANGE: (f32, f32) = (180.0, 3_600.0);
/// Bandwidth of a band is its center divided by this.
const BAND_Q: f32 = 3.0;
/// Mean square of the sample that counts as silence.
const FLOOR: f32 = 64.0;
/// Hops in memory: 5.12 s.
const HOPS: usize = 512;
/// Longest delay of an echo, in hops.
const MAX_LAG: usize = 200;
/// Share of the mean over all bands that is removed from each hop. All voices start and stop; their
/// spectra differ more.
const COMMON_SHARE: f32 = 0.5;
/// Hops that are compared while the delay is unknown, and those of them with sound.
const SEARCH_HOPS: usize = 50;
const MIN_SOUND_HOPS: usize = 20;
/// Correlation of a delay that may be that of an echo: other voices reach it 1 % of the time.
const SEARCH_CORRELATION: f32 = 0.9;
/// Consecutive searches that must find the same delay.
const CONFIRMATIONS: u32 = 3;
/// Blocks between two searches while the delay is unknown, and once one is known.
const SEARCH_INTERVAL: u32 = 2;
const RARE_SEARCH_INTERVAL: u32 = 10;
/// Hops that are compared once the delay is known.
const KNOWN_HOPS: usize = 30;
/// Correlation of an echo at the known delay: 99 % of an echo alone, 1 % of other voices.
const KNOWN_CORRELATION: f32 = 0.8;
/// Hops by which the delay of an echo may drift.
const LAG_TOLERANCE: usize = 2;
/// Blocks without an echo after which the audio is another person's.
const RELEASE_BLOCKS: u32 = 2;
/// Mean logarithm of the energies over [`FLOOR`] from which a hop has sound.
const SOUND: f32 = 0.7;
/// Sum of squares from which hops have a shape to compare.
const MIN_POWER: f32 = 20.0;
/// Muted samples in memory: .25 s. So long, the correlation may stay high after another person has
/// begun to speak.
const TAIL_SAMPLES: usize = 4_000;

/// Logarithms of energies.
type Bands = [f32; BANDS];

/// A bank of band-pass filters and the energies of the last hops.
struct Spectrum {
    gain: Bands,
    a1: Bands,
    a2: Bands,
    y1: Bands,
    y2: Bands,
    x1: f32,
    x2: f32,
    energy: Bands,
    last_energy: Bands,
    samples: usize,
    hops: Box<[Bands; HOPS]>,
    has_sound: Box<[bool; HOPS]>,
    /// Number of hops since the start of the call.
    count: usize,
}

impl Spectrum {
    fn new() -> Self {
        let mut bank = Self {
            gain: [0.0; BANDS],
            a1: [0.0; BANDS],
            a2: [0.0; BANDS],
            y1: [0.0; BANDS],
            y2: [0.0; BANDS],
            x1: 0.0,
            x2: 0.0,
            energy: [0.0; BANDS],
            last_energy: [0.0; BANDS],
            samples: 0,
            hops: Box::new([[FLOOR.ln(); BANDS]; HOPS]),
            has_sound: Box::new([false; HOPS]),
            count: 0,
        };
        let ratio = (BAND_RANGE.1 / BAND_RANGE.0).powf(1.0 / (BANDS - 1) as f32);
        for band in 0..BANDS {
            let w = TAU * BAND_RANGE.0 * ratio.powi(band as i32) / 16_000.0;
            let alpha = w.sin() / (2.0 * BAND_Q);
            bank.gain[band] = alpha / (1.0 + alpha);
            bank.a1[band] = -2.0 * w.cos() / (1.0 + alpha);
            bank.a2[band] = (1.0 - alpha) / (1.0 + alpha);
        }
        bank
    }

    fn push_sample(&mut self, x: f32) {
        let dx = x - self.x2;
        (self.x2, self.x1) = (self.x1, x);
        for band in 0..BANDS {
            let y = self.gain[band] * dx
                - self.a1[band] * self.y1[band]
                - self.a2[band] * self.y2[band];
            self.y2[band] = self.y1[band];
            self.y1[band] = y;
            self.energy[band] += y * y;
        }
        self.samples += 1;
        if self.samples == HOP_SAMPLES {
            self.end_hop();
        }
    }

    fn end_hop(&mut self) {
        let energy = std::mem::replace(&mut self.energy, [0.0; BANDS]);
        let last = std::mem::replace(&mut self.last_energy, energy);
        let hop = &mut self.hops[self.count % HOPS];
        for band in 0..BANDS {
            // Two hops: the delay of an echo is no multiple of a hop.
            let mean = (energy[band] + last[band]) / (2 * HOP_SAMPLES) as f32;
            hop[band] = (mean + FLOOR).ln();
        }
        let level = hop.iter().sum::<f32>() / BANDS as f32 - FLOOR.ln();
        hop.iter_mut().for_each(|band| *band -= COMMON_SHARE * level);
        self.has_sound[self.count % HOPS] = level >= SOUND;
        self.samples = 0;
        self.count += 1;
    }

    /// A hop of silence. Filters that have faded are cleared: denormal numbers are slow.
    fn push_silence(&mut self) {
        if self.last_energy.iter().all(|energy| *energy < 1.0) {
            (self.y1, self.y2) = ([0.0; BANDS], [0.0; BANDS]);
            (self.x1, self.x2) = (0.0, 0.0);
            self.energy = [0.0; BANDS];
            self.end_hop();
        } else {
            while self.samples < HOP_SAMPLES - 1 {
                self.push_sample(0.0);
            }
            self.push_sample(0.0);
        }
    }

    fn hop(&self, number: usize) -> &Bands {
        &self.hops[number % HOPS]
    }

    /// Continues at a later hop, after audio that was never pushed.
    fn skip_to(&mut self, number: usize) {
        if number > self.count + 1 {
            for _ in 0..(number - self.count).min(HOPS) {
                self.push_silence();
            }
            self.count = number;
        }
    }

    /// Number of the last `n` hops with sound.
    fn sound_hops(&self, n: usize) -> usize {
        let first = self.count.saturating_sub(n);
        (first..self.count).filter(|number| self.has_sound[number % HOPS]).count()
    }
}

/// What a block of the heard audio is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Silence, or another person's voice.
    Clear,
    /// The agent's own voice, after a block that was clear.
    OwnFromNow,
    /// The agent's own voice.
    Own,
    /// Another person's voice, after blocks with the agent's own ([`OwnVoice::muted_tail`]).
    ClearFromNow,
}

/// The recognition of one call.
pub struct OwnVoice {
    sent: Spectrum,
    heard: Spectrum,
    /// Number of the hop after the last sent one with speech.
    speech_end: usize,
    /// Delay of the echo in hops, once it is known.
    lag: Option<usize>,
    /// Delay that the last searches found, and their number.
    candidate: (usize, u32),
    blocks_to_search: u32,
    is_own: bool,
    blocks_without_echo: u32,
    muted_tail: VecDeque<i16>,
}

impl Default for OwnVoice {
    fn default() -> Self {
        Self {
            sent: Spectrum::new(),
            heard: Spectrum::new(),
            speech_end: 0,
            lag: None,
            candidate: (0, 0),
            blocks_to_search: 0,
            is_own: false,
            blocks_without_echo: 0,
            muted_tail: VecDeque::with_capacity(2 * TAIL_SAMPLES),
        }
    }
}

impl OwnVoice {
    /// Takes a frame of the agent's audio, 48 kHz mono, that leaves at `at`.
    pub fn push_sent(&mut self, pcm: &[i16], at: Time, is_speech: bool) {
        self.sent.skip_to(hop_number(at));
        if !is_speech {
            return (0..pcm.len() / HOP_SAMPLES_48K).for_each(|_| self.sent.push_silence());
        }
        for samples in pcm.as_chunks::<3>().0 {
            let sum: f32 = samples.iter().map(|sample| f32::from(*sample)).sum();
            self.sent.push_sample(sum / 3.0);
        }
        self.speech_end = self.sent.count;
    }

    /// Takes a block of the heard audio, 16 kHz mono, which ends at `end`.
    pub fn push_heard(&mut self, pcm: &[i16], end: Time) -> Verdict {
        self.heard.skip_to(hop_number(end).saturating_sub(pcm.len() / HOP_SAMPLES));
        for sample in pcm {
            self.heard.push_sample(f32::from(*sample));
        }
        let was_own = self.is_own;
        if self.is_echo() {
            (self.is_own, self.blocks_without_echo) = (true, 0);
        } else {
            self.blocks_without_echo = self.blocks_without_echo.saturating_add(1);
            self.is_own &= self.blocks_without_echo < RELEASE_BLOCKS;
        }
        if !was_own {
            self.muted_tail.clear();
        }
        let surplus = (self.muted_tail.len() + pcm.len()).saturating_sub(TAIL_SAMPLES);
        if self.is_own {
            self.muted_tail.drain(..surplus.min(self.muted_tail.len()));
            self.muted_tail.extend(pcm);
        }
        match (was_own, self.is_own) {
            (false, false) => Verdict::Clear,
            (false, true) => Verdict::OwnFromNow,
            (true, true) => Verdict::Own,
            (true, false) => Verdict::ClearFromNow,
        }
    }

    /// The last samples that were muted, at most .25 s.
    #[must_use]
    pub fn muted_tail(&self) -> &VecDeque<i16> {
        &self.muted_tail
    }

    /// Whether sound was heard in the last .25 s.
    #[must_use]
    pub fn has_sound(&self) -> bool {
        self.heard.sound_hops(TAIL_SAMPLES / HOP_SAMPLES) > 0
    }

    /// Whether an echo may come whose delay is not known.
    #[must_use]
    pub fn is_undecided(&self) -> bool {
        self.lag.is_none() && self.may_echo()
    }

    /// Delay of the echo, if it is known.
    #[must_use]
    pub fn delay(&self) -> Option<Duration> {
        self.lag.map(|lag| Duration::from_millis(10 * lag as u64))
    }

    fn may_echo(&self) -> bool {
        self.speech_end > 0 && self.heard.count <= self.speech_end + MAX_LAG + SEARCH_HOPS
    }

    fn is_echo(&mut self) -> bool {
        if !self.may_echo() || self.heard.sound_hops(KNOWN_HOPS) == 0 {
            return false;
        }
        if let Some(lag) = self.lag {
            let lags = lag.saturating_sub(LAG_TOLERANCE)..=(lag + LAG_TOLERANCE).min(MAX_LAG);
            let (correlation, best) = self.correlate::<KNOWN_HOPS>(lags);
            if correlation >= KNOWN_CORRELATION {
                self.lag = Some(best);
                self.candidate.1 = 0;
                return true;
            }
        }
        self.blocks_to_search = self.blocks_to_search.saturating_sub(1);
        if self.blocks_to_search > 0 || self.heard.sound_hops(SEARCH_HOPS) < MIN_SOUND_HOPS {
            return false;
        }
        let (correlation, lag) = self.correlate::<SEARCH_HOPS>(0..=MAX_LAG);
        let is_found = correlation >= SEARCH_CORRELATION;
        let is_same = lag.abs_diff(self.candidate.0) <= LAG_TOLERANCE;
        self.candidate =
            (lag, if is_found { 1 + if is_same { self.candidate.1 } else { 0 } } else { 0 });
        let rarely = self.lag.is_some() && !is_found;
        self.blocks_to_search = if rarely { RARE_SEARCH_INTERVAL } else { SEARCH_INTERVAL };
        if self.candidate.1 >= CONFIRMATIONS {
            self.lag = Some(lag);
        }
        self.candidate.1 >= CONFIRMATIONS
    }

    /// The best correlation of the last `N` heard hops with those sent earlier by one of `lags`.
    fn correlate<const N: usize>(&self, lags: RangeInclusive<usize>) -> (f32, usize) {
        let end = self.heard.count;
        let mut heard = [[0.0; BANDS]; N];
        let Some(first) = end.checked_sub(N) else { return (0.0, 0) };
        let mut mean = [0.0; BANDS];
        for (number, hop) in (first..end).zip(&mut heard) {
            *hop = *self.heard.hop(number);
            mean.iter_mut().zip(hop).for_each(|(mean, band)| *mean += *band / N as f32);
        }
        let mut power = 0.0;
        for hop in &mut heard {
            for (band, mean) in hop.iter_mut().zip(&mean) {
                *band -= mean;
                power += *band * *band;
            }
        }
        let mut best = (0.0, 0);
        if power < MIN_POWER {
            return best;
        }
        for lag in lags {
            let Some(first) = first.checked_sub(lag).filter(|_| end - lag <= self.sent.count)
            else {
                continue;
            };
            let (mut dot, mut sum, mut square) = ([0.0; BANDS], [0.0; BANDS], [0.0; BANDS]);
            for (number, heard) in (first..).zip(&heard) {
                let sent = self.sent.hop(number);
                for band in 0..BANDS {
                    dot[band] += sent[band] * heard[band];
                    sum[band] += sent[band];
                    square[band] += sent[band] * sent[band];
                }
            }
            let sums = sum.iter().map(|sum| sum * sum / N as f32).sum::<f32>();
            let sent_power = square.iter().sum::<f32>() - sums;
            if sent_power < MIN_POWER {
                continue;
            }
            let correlation = dot.iter().sum::<f32>() / (power * sent_power).sqrt();
            if correlation > best.0 {
                best = (correlation, lag);
            }
        }
        best
    }
}

/// Number of the hop that begins at this time.
fn hop_number(at: Time) -> usize {
    ((at.as_micros() + 5_000) / 10_000) as usize
}
