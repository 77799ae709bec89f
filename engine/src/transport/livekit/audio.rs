//! The voices of a room: each has a jitter buffer and a decoder. One voice passes unchanged. Of
//! several, the active speaker is heard in full and the others 12 dB lower, so that the STT follows
//! one person.
//!
//! The active speaker changes only when that person has been silent for .3 s, so never within a
//! stretch of speech.
//!
//! While several people are in the room, whoever has a voice, reports say who speaks.

use std::collections::{HashMap, VecDeque};
use std::time::{Duration, Instant};

use bytes::Bytes;
use str0m::media::Mid;

use super::people::MAX_VOICES;
use super::speech_level::SpeechLevel;
use crate::hear::decode::Decoder;
use crate::hear::jitter::JitterBuffer;

/// Samples of a block of the mix: 20 ms at 16 kHz.
const BLOCK_SAMPLES: usize = 320;
const BLOCK: Duration = Duration::from_millis(20);
/// Maximum number of samples that one voice may be ahead of the mix; older ones are dropped.
const MAX_WAITING_SAMPLES: usize = 25 * BLOCK_SAMPLES;
/// Gain of those who are not the active speaker: −12 dB.
const BACKGROUND_GAIN: f32 = 0.25;
/// If the mix is later than this, it starts anew instead of catching up.
const MAX_DELAY: Duration = Duration::from_millis(500);

/// A report that somebody started or stopped speaking.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct SpeakerReport {
    /// Track of the voice.
    pub(super) track: String,
    pub(super) is_speaking: bool,
    pub(super) at: Instant,
}

struct Voice {
    mid: Mid,
    track: String,
    jitter: JitterBuffer,
    decoder: Decoder,
    waiting: VecDeque<i16>,
    /// The voice is silent until two blocks wait, or one has waited for the length of a block.
    is_filling: bool,
    has_waited: bool,
    level: SpeechLevel,
    gain: f32,
}

/// The voices of a room.
#[derive(Default)]
pub(super) struct RoomAudio {
    voices: Vec<Voice>,
    /// Track of the active speaker.
    active: Option<String>,
    /// End of the next block of the mix; `None` unless there are several voices.
    next_block: Option<Instant>,
    /// Whether several people are in the room.
    has_several_people: bool,
    reports: Vec<SpeakerReport>,
    scratch: Vec<i16>,
}

impl RoomAudio {
    /// Sets which track arrives in which media section. Voices whose track stays are not interrupted.
    pub(super) fn assign(&mut self, tracks: &HashMap<Mid, String>) {
        self.voices.retain(|voice| tracks.get(&voice.mid) == Some(&voice.track));
        for (mid, track) in tracks {
            let is_known = self.voices.iter().any(|voice| voice.mid == *mid);
            if is_known || self.voices.len() >= MAX_VOICES {
                continue;
            }
            let Ok(decoder) = Decoder::new() else { continue };
            self.voices.push(Voice {
                mid: *mid,
                track: track.clone(),
                jitter: JitterBuffer::default(),
                decoder,
                waiting: VecDeque::new(),
                is_filling: true,
                has_waited: false,
                level: SpeechLevel::default(),
                gain: BACKGROUND_GAIN,
            });
        }
        self.active.take_if(|active| !self.voices.iter().any(|voice| voice.track == *active));
    }

    /// Sets whether several people are in the room. Those who speak already are reported then.
    pub(super) fn set_several_people(&mut self, now: Instant, several: bool) {
        let were_several = std::mem::replace(&mut self.has_several_people, several);
        let is_new = several && !were_several;
        for voice in self.voices.iter().filter(|voice| is_new && voice.level.is_speaking()) {
            let track = voice.track.clone();
            self.reports.push(SpeakerReport { track, is_speaking: true, at: now });
        }
    }

    /// Whether a voice of this track is heard.
    pub(super) fn has_voice(&self, track: &str) -> bool {
        self.voices.iter().any(|voice| voice.track == track)
    }

    /// Takes a packet. Packets of unknown sections are dropped.
    pub(super) fn push(
        &mut self,
        now: Instant,
        mid: Mid,
        sequence: u64,
        timestamp: u64,
        payload: Bytes,
    ) -> bool {
        let voice = self.voices.iter_mut().find(|voice| voice.mid == mid);
        let Some(voice) = voice else { return false };
        voice.jitter.push(now, sequence, timestamp, payload);
        true
    }

    /// Appends the next audio to `pcm`, 16 kHz mono, and returns the time of its end.
    pub(super) fn pull(&mut self, now: Instant, pcm: &mut Vec<i16>) -> Option<Instant> {
        if let [voice] = &mut self.voices[..] {
            self.next_block = None;
            voice.waiting.clear();
            let frame = voice.jitter.pull(now)?;
            let start = pcm.len();
            voice.decoder.decode(&frame, pcm);
            let mut rest = pcm.len() - start;
            for block in pcm[start..].chunks(BLOCK_SAMPLES) {
                rest -= block.len();
                let end = frame.end_time.checked_sub(samples_duration(rest));
                let report = voice.observe(block, end.unwrap_or(frame.end_time));
                self.reports.extend(report.filter(|_| self.has_several_people));
            }
            return Some(frame.end_time);
        }
        if self.voices.is_empty() {
            return None;
        }
        self.decode_due(now);
        let end = self.next_block.unwrap_or(now);
        if end > now {
            return None;
        }
        let is_late = now.saturating_duration_since(end) > MAX_DELAY;
        let end = if is_late { now } else { end };
        self.next_block = Some(end + BLOCK);
        self.mix(end, pcm);
        Some(end)
    }

    fn decode_due(&mut self, now: Instant) {
        for voice in &mut self.voices {
            while let Some(frame) = voice.jitter.pull(now) {
                self.scratch.clear();
                voice.decoder.decode(&frame, &mut self.scratch);
                voice.waiting.extend(&self.scratch);
            }
            let surplus = voice.waiting.len().saturating_sub(MAX_WAITING_SAMPLES);
            voice.waiting.drain(..surplus);
        }
    }

    /// Mixes the next block, which ends at `end`.
    fn mix(&mut self, end: Instant, pcm: &mut Vec<i16>) {
        let mut blocks = [[0_i16; BLOCK_SAMPLES]; MAX_VOICES];
        for (voice, block) in self.voices.iter_mut().zip(&mut blocks) {
            voice.take_block(block);
            let report = voice.observe(block, end);
            self.reports.extend(report.filter(|_| self.has_several_people));
        }
        self.select_active();
        let mut sum = [0.0_f32; BLOCK_SAMPLES];
        for (voice, block) in self.voices.iter_mut().zip(&blocks) {
            let is_active = self.active.as_deref() == Some(voice.track.as_str());
            let target = if is_active { 1.0 } else { BACKGROUND_GAIN };
            // A sudden change would click.
            let step = (target - voice.gain) / BLOCK_SAMPLES as f32;
            for (out, sample) in sum.iter_mut().zip(block) {
                voice.gain += step;
                *out += f32::from(*sample) * voice.gain;
            }
            voice.gain = target;
        }
        // The conversion saturates.
        pcm.extend(sum.iter().map(|sample| sample.round() as i16));
    }

    fn select_active(&mut self) {
        let is_speaking = |track: &str| {
            self.voices.iter().any(|voice| voice.track == track && voice.level.is_speaking())
        };
        if self.active.as_deref().is_some_and(is_speaking) {
            return;
        }
        let speaking = self.voices.iter().filter(|voice| voice.level.is_speaking());
        let loudest = speaking.max_by(|a, b| a.level.level_dbfs().total_cmp(&b.level.level_dbfs()));
        if let Some(voice) = loudest {
            self.active = Some(voice.track.clone());
        }
    }

    /// Reports since the last call of this method. There are none while one person is alone.
    pub(super) fn take_reports(&mut self) -> Vec<SpeakerReport> {
        std::mem::take(&mut self.reports)
    }

    /// Track of the active speaker, or of the only voice.
    pub(super) fn active_track(&self) -> Option<&str> {
        match &self.voices[..] {
            [voice] => Some(&voice.track),
            _ => self.active.as_deref(),
        }
    }

    pub(super) fn take_excess_packets(&mut self) -> u64 {
        self.voices.iter_mut().map(|voice| voice.jitter.take_excess_packets()).sum()
    }
}

impl Voice {
    /// Takes a block of the voice that ends at `end`. Returns whether it started or stopped.
    fn observe(&mut self, block: &[i16], end: Instant) -> Option<SpeakerReport> {
        let (is_speaking, at) = self.level.push(block, end)?;
        Some(SpeakerReport { track: self.track.clone(), is_speaking, at })
    }

    /// Fills a block, with silence if the voice has not enough.
    fn take_block(&mut self, block: &mut [i16; BLOCK_SAMPLES]) {
        if self.is_filling {
            let is_complete = self.waiting.len() >= 2 * BLOCK_SAMPLES
                || (self.has_waited && !self.waiting.is_empty());
            self.has_waited = !self.waiting.is_empty();
            if !is_complete {
                return;
            }
            self.is_filling = false;
        }
        let n = self.waiting.len().min(BLOCK_SAMPLES);
        for (out, sample) in block.iter_mut().zip(self.waiting.drain(..n)) {
            *out = sample;
        }
        if n < BLOCK_SAMPLES {
            (self.is_filling, self.has_waited) = (true, false);
        }
    }
}

/// Duration of samples at 16 kHz.
fn samples_duration(samples: usize) -> Duration {
    Duration::from_nanos(samples as u64 * 62_500)
}

#[cfg(test)]
#[path = "audio_tests.rs"]
mod tests;
