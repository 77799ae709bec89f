//! Audio of a caller: the microphone's packets, encoded once for all callers, and the receiver.

use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use opus::{Application, Bitrate, Channels};

use super::DISCONNECTED_AFTER;
use super::clock_offset::ClockOffsets;
use crate::lateness::{Lateness, TimestampUnwrapper};
use crate::score::{Scorer, Scores};
use crate::turns::UNJUDGED_TAIL;
use crate::workload::{FRAME_SAMPLES_16K, SAMPLE_RATE, Workload};

/// Bit rate of the microphone in bit/s, as browsers use it.
const BITRATE: i32 = 32_000;
/// RTP clock rate, in Hz.
const RTP_CLOCK_RATE: u32 = 48_000;
/// Samples of the longest Opus packet, 120 ms.
const MAX_PACKET_SAMPLES: usize = SAMPLE_RATE * 120 / 1_000;
/// Maximum number of lost frames that are concealed: earlier audio does not predict more.
const MAX_CONCEALED_FRAMES: u64 = 5;

/// Encodes the recording as packets of 20 ms.
///
/// # Errors
/// The encoder's error.
pub(crate) fn encode_recording(workload: &Workload) -> Result<Vec<Bytes>, String> {
    let describe = |e: opus::Error| format!("cannot encode the recording: {e}");
    let mut encoder = opus::Encoder::new(SAMPLE_RATE as u32, Channels::Mono, Application::Voip)
        .map_err(describe)?;
    encoder.set_bitrate(Bitrate::Bits(BITRATE)).map_err(describe)?;
    let blocks = (0..workload.speech.len() / FRAME_SAMPLES_16K).map(|n| workload.frame(n));
    blocks
        .map(|block| encoder.encode_vec(block, 1_275).map(Bytes::from).map_err(describe))
        .collect()
}

/// Statistics of the received audio.
#[derive(Default)]
pub(super) struct AudioStats {
    /// When the first packet arrived.
    pub(super) first_packet_at: Option<Instant>,
    pub(super) scores: Scores,
    pub(super) lateness: Lateness,
    /// Time without a packet at the end, in s.
    pub(super) trailing_silence: f64,
    /// Transit time of the packets, up to a constant.
    pub(super) clock_offset: Option<f64>,
}

/// Decodes and scores the received audio.
pub(super) struct AudioReceiver {
    decoder: Option<opus::Decoder>,
    started_at: Instant,
    first_packet_at: Option<Instant>,
    timestamps: TimestampUnwrapper,
    lateness: Lateness,
    scorer: Scorer,
    pcm: Box<[i16; MAX_PACKET_SAMPLES]>,
    pub(super) offsets: ClockOffsets,
}

impl AudioReceiver {
    /// A receiver for a caller whose first sample is spoken at `started_at`. The caller speaks no
    /// utterance that ends after `until` (s).
    pub(super) fn new(workload: Arc<Workload>, started_at: Instant, until: f64) -> Self {
        let mut scorer = Scorer::new(workload, SAMPLE_RATE);
        scorer.set_end(until);
        Self {
            // Fails only if memory runs out. Then nothing is received, which the scores show.
            decoder: opus::Decoder::new(SAMPLE_RATE as u32, Channels::Mono).ok(),
            started_at,
            first_packet_at: None,
            timestamps: TimestampUnwrapper::default(),
            lateness: Lateness::from_fastest(),
            scorer,
            pcm: Box::new([0; MAX_PACKET_SAMPLES]),
            offsets: ClockOffsets::new(48_000.0),
        }
    }

    fn seconds_since_start(&self, at: Instant) -> f64 {
        at.saturating_duration_since(self.started_at).as_secs_f64()
    }

    /// Handles a packet.
    pub(super) fn handle_packet(&mut self, at: Instant, timestamp: u32, payload: &[u8]) {
        self.first_packet_at = self.first_packet_at.or(Some(at));
        let time = self.seconds_since_start(at);
        self.offsets.add_packet(time, timestamp);
        let stamp = self.timestamps.unwrap_timestamp(timestamp);
        let samples = opus::packet::get_nb_samples(payload, RTP_CLOCK_RATE)
            .unwrap_or(RTP_CLOCK_RATE as usize / 50);
        let Some(lost) = self.lateness.record_packet(time, stamp, samples as i64) else {
            return;
        };
        let Some(decoder) = &mut self.decoder else {
            return;
        };
        for _ in 0..lost.min(MAX_CONCEALED_FRAMES) {
            // Concealed frames update the decoder's state and are not scored.
            let _ = decoder.decode(&[], &mut self.pcm[..FRAME_SAMPLES_16K], false);
        }
        if let Ok(samples) = decoder.decode(payload, &mut *self.pcm, false) {
            self.scorer.process_audio(time, &self.pcm[..samples]);
        }
    }

    /// Records a video frame.
    pub(super) fn record_frame(&mut self, at: Instant) {
        self.scorer.record_frame(self.seconds_since_start(at));
    }

    /// Returns the statistics of the audio until `at`.
    pub(super) fn finish(&mut self, at: Instant) -> AudioStats {
        let lateness_so_far = self.lateness;
        let silent = self.lateness.finish(self.seconds_since_start(at));
        // Audio that is missing after the end of a call is not late.
        let disconnected = silent >= DISCONNECTED_AFTER;
        let until = self.seconds_since_start(at) - if disconnected { silent } else { 0.0 };
        AudioStats {
            trailing_silence: silent,
            first_packet_at: self.first_packet_at,
            scores: self.scorer.finish(until - UNJUDGED_TAIL),
            lateness: if disconnected { lateness_so_far } else { self.lateness },
            clock_offset: self.offsets.median(),
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
        let packets = encode_recording(&workload).unwrap();
        assert_eq!(packets.len(), 2121);
        assert!(packets.iter().all(|p| !p.is_empty() && p.len() < 400));
    }

    #[test]
    fn an_answer_in_packets_is_heard_when_its_first_packet_comes() {
        let started_at = clock::now();
        let mut receiver =
            AudioReceiver::new(Arc::new(Workload::built_in().unwrap()), started_at, 10.0);
        let mut encoder = opus::Encoder::new(48_000, Channels::Mono, Application::Voip).unwrap();
        for n in 0..300_u32 {
            // The reply starts with the packet at 4.02 s; the first utterance ends at 3.1 s.
            let sounds = n >= 200;
            let tone = |i: u32| {
                ((n * 960 + i) as f64 * 220.0 / 48_000.0 * std::f64::consts::TAU).sin() * 8000.0
            };
            let pcm: Vec<i16> = (0..960).map(|i| if sounds { tone(i) as i16 } else { 0 }).collect();
            let payload = encoder.encode_vec(&pcm, 1_275).unwrap();
            if n == 250 {
                continue; // lost
            }
            let at = started_at + Duration::from_millis(20) * (n + 1);
            receiver.handle_packet(
                at,
                n.wrapping_mul(960).wrapping_add(u32::MAX - 5_000),
                &payload,
            );
        }
        let stats = receiver.finish(started_at + Duration::from_millis(6_040));
        assert_eq!(stats.scores.voice_to_voice.len(), 1);
        assert!((stats.scores.voice_to_voice[0] - 0.92).abs() < 1e-6, "{:?}", stats.scores);
        assert_eq!(
            (stats.lateness.frames, stats.lateness.late_frames, stats.trailing_silence),
            (300, 1, 0.0)
        );
        assert!((stats.lateness.concealed_seconds - 0.02).abs() < 1e-9);
    }
}
