//! Decodes one voice of a call and places its samples at their times.

use std::collections::VecDeque;

use bytes::Bytes;
use opus::{Channels, Decoder};

use crate::{OPUS_DELAY, SAMPLE_RATE};

/// Samples of the longest Opus packet, 120 ms.
const MAX_PACKET_SAMPLES: usize = 5_760;
/// Difference between the time of a packet and the end of the one before, up to which they are
/// contiguous, in samples: the times are in ms, and clocks drift.
const TOLERANCE: u64 = 720;
/// Longest loss that is concealed, in samples; a longer one is silence.
const MAX_CONCEALED: u64 = 2_880;

/// Samples of a voice, at 48 kHz. Positions count from the start of the call.
pub(crate) struct Timeline {
    decoder: Decoder,
    /// Position after the last sample, of those that the codec delays; `None` before the first
    /// packet.
    end: Option<u64>,
    /// Pieces without gaps in them, with the positions at which they begin, of those that the codec
    /// delays.
    pieces: VecDeque<(u64, Vec<i16>)>,
    buffer: Box<[i16; MAX_PACKET_SAMPLES]>,
}

impl Timeline {
    /// A silent voice.
    ///
    /// # Errors
    /// The decoder cannot be created.
    pub(crate) fn new() -> opus::Result<Self> {
        Ok(Self {
            decoder: Decoder::new(SAMPLE_RATE, Channels::Mono)?,
            end: None,
            pieces: VecDeque::new(),
            buffer: Box::new([0; MAX_PACKET_SAMPLES]),
        })
    }

    /// Position after the last sample.
    pub(crate) fn end(&self) -> u64 {
        self.end.unwrap_or(0).saturating_sub(OPUS_DELAY.into())
    }

    /// Position up to which no packet can change the samples any more, if all packets before `at` are
    /// here: the next one continues this voice, or conceals a loss.
    pub(crate) fn settled(&self, at: u64) -> u64 {
        let settled = self.end.filter(|end| at <= end + MAX_CONCEALED).unwrap_or(at);
        settled.saturating_sub(OPUS_DELAY.into())
    }

    /// Adds a packet whose first sample has this position. Packets that cannot be decoded are
    /// silence.
    pub(crate) fn push(&mut self, position: u64, packet: &Bytes) {
        let Ok(samples) = self.decoder.get_nb_samples(packet) else { return };
        let mut skipped = 0;
        match self.end {
            Some(end) if position > end + TOLERANCE => self.fill_gap(end, position, packet),
            Some(end) if position + TOLERANCE < end => skipped = end - position,
            Some(_) => {}
            None => self.end = Some(position),
        }
        let decoded = self.decoder.decode(packet, &mut self.buffer[..], false);
        let decoded = decoded.unwrap_or(0).min(samples).min(MAX_PACKET_SAMPLES);
        let skipped = usize::try_from(skipped).unwrap_or(usize::MAX).min(decoded);
        self.append(skipped, decoded);
    }

    /// Conceals a short loss. After a longer one, the voice continues at `position`.
    fn fill_gap(&mut self, end: u64, position: u64, next: &Bytes) {
        let missing = position - end;
        if missing <= MAX_CONCEALED {
            // The next packet may contain a copy of the last lost one.
            let last = self.decoder.get_last_packet_duration().map_or(0, u64::from).min(missing);
            for (samples, with_copy) in [(missing - last, false), (last, true)] {
                // The library conceals multiples of 2.5 ms.
                let samples = usize::try_from(samples / 120 * 120).unwrap_or(0);
                if samples == 0 {
                    continue;
                }
                let input: &[u8] = if with_copy { next } else { &[] };
                let concealed =
                    self.decoder.decode(input, &mut self.buffer[..samples], with_copy).unwrap_or(0);
                self.append(0, concealed.min(samples));
            }
        } else {
            self.end = Some(position);
        }
    }

    /// Appends samples of the buffer.
    fn append(&mut self, from: usize, to: usize) {
        let Some(end) = self.end else { return };
        let samples = &self.buffer[from..to];
        self.end = Some(end + samples.len() as u64);
        match self.pieces.back_mut() {
            Some((start, piece)) if *start + piece.len() as u64 == end => {
                piece.extend_from_slice(samples);
            }
            _ => self.pieces.push_back((end, samples.to_vec())),
        }
    }

    /// Fills `out` with the samples from `position` on. Earlier samples are dropped.
    pub(crate) fn read(&mut self, position: u64, out: &mut [i16]) {
        out.fill(0);
        let position = position + u64::from(OPUS_DELAY);
        let end = position + out.len() as u64;
        for (start, piece) in &self.pieces {
            let (from, to) = (position.max(*start), end.min(*start + piece.len() as u64));
            if from < to {
                let source = &piece[(from - start) as usize..(to - start) as usize];
                out[(from - position) as usize..(to - position) as usize].copy_from_slice(source);
            }
        }
        self.drop_until(end);
    }

    fn drop_until(&mut self, position: u64) {
        while let Some((start, piece)) = self.pieces.front_mut() {
            let used = usize::try_from(position.saturating_sub(*start)).unwrap_or(usize::MAX);
            if used < piece.len() {
                // Moving the rest costs less often than it saves memory.
                if used >= MAX_PACKET_SAMPLES {
                    piece.drain(..used);
                    *start += used as u64;
                }
                return;
            }
            self.pieces.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use opus::{Application, Encoder};

    use super::*;

    /// Packets of 20 ms of a tone of 440 Hz.
    pub(crate) fn tone_packets(count: usize) -> Vec<Bytes> {
        let mut encoder = Encoder::new(SAMPLE_RATE, Channels::Mono, Application::Voip).unwrap();
        encoder.set_inband_fec(true).unwrap();
        encoder.set_packet_loss_perc(10).unwrap();
        (0..count)
            .map(|n| {
                let frame: Vec<i16> = (0..960)
                    .map(|i| {
                        let time = (n * 960 + i) as f64 / 48_000.0;
                        ((time * 440.0 * std::f64::consts::TAU).sin() * 9_000.0) as i16
                    })
                    .collect();
                encoder.encode_vec(&frame, 1_500).unwrap().into()
            })
            .collect()
    }

    fn loudness(samples: &[i16]) -> f64 {
        let sum: f64 = samples.iter().map(|s| f64::from(*s).powi(2)).sum();
        (sum / samples.len() as f64).sqrt()
    }

    fn read(timeline: &mut Timeline, frames: usize) -> Vec<f64> {
        (0..frames as u64)
            .map(|n| {
                let mut frame = [0; 960];
                timeline.read(n * 960, &mut frame);
                loudness(&frame)
            })
            .collect()
    }

    #[test]
    fn a_voice_stands_at_its_time_and_a_pause_is_silence() {
        let mut timeline = Timeline::new().unwrap();
        for (n, packet) in tone_packets(50).iter().enumerate() {
            // One second of silence after 25 packets, and times rounded to ms.
            let pause = if n < 25 { 0 } else { 48_000 };
            timeline.push(48_000 + n as u64 * 960 + pause + n as u64 % 3 * 16, packet);
        }
        let loudness = read(&mut timeline, 150);
        assert!(loudness[..49].iter().all(|level| *level < 1.0), "{:?}", &loudness[..49]);
        assert!(loudness[52..74].iter().all(|level| *level > 5_000.0), "{:?}", &loudness[52..74]);
        assert!(loudness[76..124].iter().all(|level| *level < 1.0), "{:?}", &loudness[76..124]);
        assert!(loudness[126..148].iter().all(|level| *level > 5_000.0), "{:?}", &loudness[126..]);
    }

    #[test]
    fn lost_packets_are_concealed_and_a_late_one_replaces_nothing() {
        let mut timeline = Timeline::new().unwrap();
        for (n, packet) in tone_packets(60).iter().enumerate() {
            if n == 20 || n == 30 || n == 31 {
                continue;
            }
            timeline.push(n as u64 * 960, packet);
        }
        let overlapping = timeline.end() - 3 * 960;
        timeline.push(overlapping, &tone_packets(1)[0]);
        assert_eq!(timeline.end(), 60 * 960 - 312);
        let loudness = read(&mut timeline, 59);
        // A copy of one lost packet is in the next one. Of two, the first one fades.
        assert!(loudness[2..29].iter().all(|level| *level > 5_000.0), "{loudness:?}");
        assert!(loudness[29..33].iter().all(|level| *level > 300.0), "{loudness:?}");
        assert!(loudness[33..].iter().all(|level| *level > 5_000.0), "{loudness:?}");
    }

    #[test]
    fn packets_that_are_not_opus_change_nothing() {
        let mut timeline = Timeline::new().unwrap();
        timeline.push(0, &Bytes::new());
        timeline.push(0, &Bytes::from_static(&[0xff, 0xff, 0xff, 1]));
        assert!(timeline.end() <= 5_760);
        for packet in tone_packets(10) {
            let end = timeline.end();
            timeline.push(end, &packet);
        }
        assert!(read(&mut timeline, 8)[7] > 5_000.0);
    }
}
