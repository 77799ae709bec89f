//! Audio of a caller: the microphone's packets, encoded once for all callers, and the receiver.

use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use opus::{Application, Bitrate, Channels};

use super::GONE;
use super::offset::Offsets;
use crate::late::{Late, Unwrap};
use crate::score::{Scorer, Scores};
use crate::turns::LAST;
use crate::workload::{BLOCK, RATE, Workload};

/// Bit rate of the microphone in bit/s, as browsers use it.
const BITRATE: i32 = 32_000;
/// RTP clock rate, in Hz.
const STAMPS: u32 = 48_000;
/// Samples of the longest Opus packet, 120 ms.
const LONGEST: usize = RATE * 120 / 1_000;
/// Maximum number of lost frames that are concealed: earlier audio does not predict more.
const MADE_UP: u64 = 5;

/// Encodes the recording as packets of 20 ms.
///
/// # Errors
/// The encoder's error.
pub(crate) fn encode(workload: &Workload) -> Result<Vec<Bytes>, String> {
    let told = |e: opus::Error| format!("cannot encode the recording: {e}");
    let mut encoder = opus::Encoder::new(RATE as u32, Channels::Mono, Application::Voip).map_err(told)?;
    encoder.set_bitrate(Bitrate::Bits(BITRATE)).map_err(told)?;
    let blocks = (0..workload.speech.len() / BLOCK).map(|n| workload.block(n));
    blocks.map(|block| encoder.encode_vec(block, 1_275).map(Bytes::from).map_err(told)).collect()
}

/// Statistics of the received audio.
#[derive(Default)]
pub(super) struct Heard {
    /// When the first packet arrived.
    pub(super) first: Option<Instant>,
    pub(super) scores: Scores,
    pub(super) late: Late,
    /// Time without a packet at the end, in s.
    pub(super) silent: f64,
    /// Transit time of the packets, up to a constant.
    pub(super) offset: Option<f64>,
}

/// Decodes and scores the received audio.
pub(super) struct Ear {
    decoder: Option<opus::Decoder>,
    begun: Instant,
    first: Option<Instant>,
    stamps: Unwrap,
    late: Late,
    scorer: Scorer,
    pcm: Box<[i16; LONGEST]>,
    pub(super) offsets: Offsets,
}

impl Ear {
    /// A receiver for a caller whose first sample is spoken at `started_at`. The caller speaks no
    /// utterance that ends after `until` (s).
    pub(super) fn new(workload: Arc<Workload>, begun: Instant, until: f64) -> Self {
        let mut scorer = Scorer::new(workload, RATE);
        scorer.end(until);
        Self {
            // Fails only if memory runs out. Then nothing is received, which the scores show.
            decoder: opus::Decoder::new(RATE as u32, Channels::Mono).ok(),
            begun,
            first: None,
            stamps: Unwrap::default(),
            late: Late::by_the_fastest(),
            scorer,
            pcm: Box::new([0; LONGEST]),
            offsets: Offsets::new(48_000.0),
        }
    }

    fn time(&self, at: Instant) -> f64 {
        at.saturating_duration_since(self.begun).as_secs_f64()
    }

    /// Handles a packet.
    pub(super) fn packet(&mut self, at: Instant, timestamp: u32, payload: &[u8]) {
        self.first = self.first.or(Some(at));
        let time = self.time(at);
        self.offsets.packet(time, timestamp);
        let stamp = self.stamps.next(timestamp);
        let samples = opus::packet::get_nb_samples(payload, STAMPS).unwrap_or(STAMPS as usize / 50);
        let Some(lost) = self.late.packet(time, stamp, samples as i64) else {
            return;
        };
        let Some(decoder) = &mut self.decoder else {
            return;
        };
        for _ in 0..lost.min(MADE_UP) {
            // Concealed frames update the decoder's state and are not scored.
            let _ = decoder.decode(&[], &mut self.pcm[..BLOCK], false);
        }
        if let Ok(samples) = decoder.decode(payload, &mut *self.pcm, false) {
            self.scorer.frame(time, &self.pcm[..samples]);
        }
    }

    /// Records a video frame.
    pub(super) fn picture(&mut self, at: Instant) {
        self.scorer.picture(self.time(at));
    }

    /// Returns the statistics of the audio until `at`.
    pub(super) fn leave(&mut self, at: Instant) -> Heard {
        let came = self.late;
        let silent = self.late.end(self.time(at));
        // Audio that is missing after the end of a call is not late.
        let over = silent >= GONE;
        let until = self.time(at) - if over { silent } else { 0.0 };
        Heard {
            silent,
            first: self.first,
            scores: self.scorer.finish(until - LAST),
            late: if over { came } else { self.late },
            offset: self.offsets.median(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use engine::clock;

    use super::*;

    #[test]
    fn the_recording_becomes_a_packet_for_each_block() {
        let workload = Workload::built_in().unwrap();
        let packets = encode(&workload).unwrap();
        assert_eq!(packets.len(), 2121);
        assert!(packets.iter().all(|p| !p.is_empty() && p.len() < 400));
    }

    #[test]
    fn an_answer_in_packets_is_heard_when_its_first_packet_comes() {
        let begun = clock::now();
        let mut ear = Ear::new(Arc::new(Workload::built_in().unwrap()), begun, 10.0);
        let mut encoder = opus::Encoder::new(48_000, Channels::Mono, Application::Voip).unwrap();
        for n in 0..300_u32 {
            // The reply starts with the packet at 4.02 s; the first utterance ends at 3.1 s.
            let sounds = n >= 200;
            let tone =
                |i: u32| ((n * 960 + i) as f64 * 220.0 / 48_000.0 * std::f64::consts::TAU).sin() * 8000.0;
            let pcm: Vec<i16> = (0..960).map(|i| if sounds { tone(i) as i16 } else { 0 }).collect();
            let payload = encoder.encode_vec(&pcm, 1_275).unwrap();
            if n == 250 {
                continue; // lost
            }
            let at = begun + Duration::from_millis(20) * (n + 1);
            ear.packet(at, n.wrapping_mul(960).wrapping_add(u32::MAX - 5_000), &payload);
        }
        let heard = ear.leave(begun + Duration::from_millis(6_040));
        assert_eq!(heard.scores.voice_to_voice.len(), 1);
        assert!((heard.scores.voice_to_voice[0] - 0.92).abs() < 1e-6, "{:?}", heard.scores);
        assert_eq!((heard.late.frames, heard.late.late, heard.silent), (300, 1, 0.0));
        assert!((heard.late.concealed - 0.02).abs() < 1e-9);
    }
}
