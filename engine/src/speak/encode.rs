//! Encodes the agent's audio as Opus: 48 kHz mono, packets of 20 ms, or of 10 ms if a change is
//! near.

use opus::{Application, Bitrate, Channels, Signal};

/// Samples of a packet of 20 ms at 48 kHz.
pub const FRAME_SAMPLES_48K: usize = 960;
/// Maximum size of an encoded packet.
const MAX_PACKET_BYTES: usize = 1000;

/// An error of the Opus library.
#[derive(Debug, thiserror::Error)]
#[error("opus: {0}")]
pub struct Error(#[from] opus::Error);

/// Bits per second, variable bit rate.
const BITRATE: i32 = 40_000;
/// Opus complexity, maximum 10. Higher levels cost more than they gain: at this bit rate, level 5
/// takes twice as long for a packet of speech, and its spectrum is .5 dB closer.
const COMPLEXITY: i32 = 1;
/// Packet loss fraction from which the audio is encoded for a lossy network.
const LOSSY_THRESHOLD: f32 = 0.02;
/// Packet loss fraction below which a report counts as clean.
const CLEAN_THRESHOLD: f32 = 0.005;
/// Number of clean reports after which the encoder switches back; reports come about once a second.
const CLEAN_REPORTS_TO_SWITCH: u32 = 10;

/// Network conditions that the audio is encoded for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LossMode {
    /// Each packet is independent. (CELT-only mode would take half the time, but in Chromium the
    /// audio seemed to arrive later then, for an unknown reason.)
    Clean,
    /// Each packet contains a coarse copy of the previous one (in-band FEC).
    Lossy { clean_reports: u32 },
}

/// The encoder of one call.
pub struct Encoder {
    opus: opus::Encoder,
    packet: [u8; MAX_PACKET_BYTES],
    silence: SilenceCache,
    loss_mode: LossMode,
}

/// Digital silence: after a few encoded frames the packet no longer changes and is cached, one for
/// each packet length.
struct SilenceCache {
    frames: u32,
    packets: [Vec<u8>; 2],
}

/// Number of silent frames that are still encoded, so that the audio before them fades out
/// correctly in the decoder.
const SETTLE_FRAMES: u32 = 5;

impl Encoder {
    /// Creates an encoder.
    ///
    /// # Errors
    ///
    /// The library rejects the configuration, or is out of memory.
    pub fn new() -> Result<Self, Error> {
        let mut opus = opus::Encoder::new(48_000, Channels::Mono, Application::Voip)?;
        opus.set_bitrate(Bitrate::Bits(BITRATE))?;
        opus.set_vbr(true)?;
        opus.set_complexity(COMPLEXITY)?;
        opus.set_signal(Signal::Voice)?;
        let silence = SilenceCache { frames: 0, packets: [Vec::new(), Vec::new()] };
        let mut this =
            Self { opus, packet: [0; MAX_PACKET_BYTES], silence, loss_mode: LossMode::Clean };
        this.set_loss_mode(LossMode::Clean, 0.0)?;
        Ok(this)
    }

    fn set_loss_mode(&mut self, mode: LossMode, fraction: f32) -> Result<(), Error> {
        let lossy = mode != LossMode::Clean;
        self.opus.set_inband_fec(lossy)?;
        self.opus.set_packet_loss_perc(if lossy {
            (fraction * 100.0).clamp(5.0, 25.0) as i32
        } else {
            0
        })?;
        self.loss_mode = mode;
        self.silence.packets.iter_mut().for_each(Vec::clear);
        Ok(())
    }

    /// The receiver reports this fraction of the last packets as lost.
    ///
    /// # Errors
    ///
    /// The library rejects the change; the previous settings stay in effect.
    pub fn on_packet_loss(&mut self, fraction: f32) -> Result<(), Error> {
        match self.loss_mode {
            LossMode::Clean if fraction >= LOSSY_THRESHOLD => {
                self.set_loss_mode(LossMode::Lossy { clean_reports: 0 }, fraction)
            }
            LossMode::Lossy { clean_reports } if fraction < CLEAN_THRESHOLD => {
                let clean_reports = clean_reports + 1;
                if clean_reports >= CLEAN_REPORTS_TO_SWITCH {
                    return self.set_loss_mode(LossMode::Clean, 0.0);
                }
                self.loss_mode = LossMode::Lossy { clean_reports };
                Ok(())
            }
            LossMode::Lossy { .. } if fraction >= LOSSY_THRESHOLD => {
                self.set_loss_mode(LossMode::Lossy { clean_reports: 0 }, fraction)
            }
            LossMode::Clean | LossMode::Lossy { .. } => Ok(()),
        }
    }

    /// Encodes 20 or 10 ms of audio as one packet. A silent frame is a packet too: when a track
    /// stops, the browser conceals with artificial audio.
    ///
    /// # Errors
    ///
    /// The library fails, or the frame has another length; nothing was encoded.
    pub fn encode(&mut self, frame: &[i16]) -> Result<&[u8], Error> {
        let length_index = usize::from(frame.len() < FRAME_SAMPLES_48K);
        if frame.iter().any(|sample| *sample != 0) {
            self.silence.frames = 0;
        } else {
            self.silence.frames = (self.silence.frames + 1).min(SETTLE_FRAMES + 1);
            if self.silence.frames > SETTLE_FRAMES && !self.silence.packets[length_index].is_empty()
            {
                return Ok(&self.silence.packets[length_index]);
            }
        }
        let length = self.opus.encode(frame, &mut self.packet)?;
        if self.silence.frames > SETTLE_FRAMES {
            self.silence.packets[length_index] = self.packet[..length].to_vec();
        }
        Ok(&self.packet[..length])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tone(at: usize) -> [i16; FRAME_SAMPLES_48K] {
        core::array::from_fn(|i| {
            ((((at * FRAME_SAMPLES_48K + i) as f32) * 0.05).sin() * 8000.0) as i16
        })
    }

    #[test]
    fn silence_settles_into_one_cached_packet_that_decodes_to_silence() {
        let mut encoder = Encoder::new().unwrap();
        for i in 0..10 {
            assert!(!encoder.encode(&tone(i)).unwrap().is_empty());
        }
        let quiet: Vec<Vec<u8>> =
            (0..20).map(|_| encoder.encode(&[0; FRAME_SAMPLES_48K]).unwrap().to_vec()).collect();
        assert!(quiet[6..].iter().all(|packet| *packet == quiet[6]));
        let mut decoder = opus::Decoder::new(48_000, Channels::Mono).unwrap();
        let mut out = [1; FRAME_SAMPLES_48K];
        for packet in &quiet {
            assert_eq!(decoder.decode(packet, &mut out, false).unwrap(), FRAME_SAMPLES_48K);
        }
        assert!(out.iter().all(|sample| sample.abs() <= 4), "{:?}", out.iter().max());
    }

    #[test]
    fn sound_after_silence_is_encoded_again() {
        let mut encoder = Encoder::new().unwrap();
        (0..20).for_each(|_| drop(encoder.encode(&[0; FRAME_SAMPLES_48K]).map(<[u8]>::len)));
        let silent = encoder.encode(&[0; FRAME_SAMPLES_48K]).unwrap().to_vec();
        let loud: Vec<_> = (0..3).map(|i| encoder.encode(&tone(i)).unwrap().to_vec()).collect();
        assert!(loud.iter().all(|packet| *packet != silent && packet.len() > silent.len()));
    }

    #[test]
    fn silence_and_sound_may_change_the_length_of_their_packets_at_any_time() {
        let (mut encoder, mut decoder) =
            (Encoder::new().unwrap(), opus::Decoder::new(48_000, Channels::Mono).unwrap());
        let mut out = [1; FRAME_SAMPLES_48K];
        for at in 0..400 {
            let (sounds, short) = (at / 20 % 2 == 0, at / 7 % 2 == 0);
            let frame = if sounds { tone(at) } else { [0; FRAME_SAMPLES_48K] };
            let frame = if short { &frame[..FRAME_SAMPLES_48K / 2] } else { &frame[..] };
            let packet = encoder.encode(frame).unwrap();
            assert_eq!(decoder.decode(packet, &mut out, false).unwrap(), frame.len(), "frame {at}");
            let settled = !sounds && at % 20 > 10;
            assert!(!settled || out[..frame.len()].iter().all(|s| s.abs() <= 4), "frame {at}");
        }
        assert!(encoder.encode(&[1; 100]).is_err());
    }

    #[test]
    fn a_line_that_loses_gets_copies_until_it_was_good_for_ten_reports() {
        let mut encoder = Encoder::new().unwrap();
        let mut report = |part: f32, times: usize| {
            (0..times).for_each(|_| encoder.on_packet_loss(part).unwrap());
            encoder.opus.get_inband_fec().unwrap()
        };
        assert!(!report(0.01, 3), "a low loss rate is ignored");
        assert!(report(0.08, 1));
        assert!(report(0.0, 9) && report(0.03, 1) && report(0.0, 9), "not good for long enough");
        assert!(!report(0.0, 1));
    }

    #[test]
    fn the_rate_is_near_what_was_asked_for() {
        let mut encoder = Encoder::new().unwrap();
        let bytes: usize = (0..100).map(|i| encoder.encode(&tone(i)).unwrap().len()).sum();
        assert!((2_500..7_000).contains(&(bytes / 2)), "{bytes} bytes in 2 s");
    }
}
