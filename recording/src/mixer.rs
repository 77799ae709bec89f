//! Encodes both voices of a call as one Opus stream.

use std::time::Duration;

use opus::{Application, Bitrate, Encoder};

use crate::timeline::Timeline;
use crate::{Channels, Packet, SAMPLE_RATE, Track};

/// Samples of a packet, 20 ms.
pub(crate) const FRAME_SAMPLES: usize = 960;
/// Bit rate of one channel, and of two.
const MONO_BITRATE: i32 = 48_000;
const STEREO_BITRATE: i32 = 80_000;
/// Effort of the encoder, 0 to 10. The highest one doubles its CPU time, for hardly better speech.
const COMPLEXITY: i32 = 5;
/// Maximum size of a packet in bytes (RFC 6716, 3.2.1, for two frames).
pub(crate) const MAX_PACKET_BYTES: usize = 2_552;

/// Position of a time in samples.
pub(crate) fn samples(time: Duration) -> u64 {
    time.as_micros() as u64 * u64::from(SAMPLE_RATE) / 1_000_000
}

/// An encoder of delivered sound.
///
/// # Errors
/// The library is out of memory.
pub(crate) fn encoder(channels: Channels) -> opus::Result<Encoder> {
    let (bitrate, layout) = match channels {
        Channels::Mixed => (MONO_BITRATE, opus::Channels::Mono),
        Channels::Split => (STEREO_BITRATE, opus::Channels::Stereo),
    };
    // This mode never uses the speech codec of Opus (SILK). For one channel it costs more CPU time
    // than the other one (CELT) for two, and it is better only at lower bit rates.
    let mut encoder = Encoder::new(SAMPLE_RATE, layout, Application::LowDelay)?;
    encoder.set_bitrate(Bitrate::Bits(bitrate))?;
    encoder.set_complexity(COMPLEXITY)?;
    Ok(encoder)
}

/// Samples that a decoder of the stream drops at its beginning.
///
/// # Errors
/// The library fails.
pub(crate) fn delay(encoder: &mut Encoder) -> opus::Result<u16> {
    Ok(u16::try_from(encoder.get_lookahead()?).unwrap_or(0))
}

/// The voices of a call.
pub(crate) struct Mixer {
    agent: Timeline,
    user: Timeline,
    channels: Channels,
    encoder: Encoder,
    /// Position of the next packet in samples.
    position: u64,
    voices: [[i16; FRAME_SAMPLES]; 2],
    frame: Vec<i16>,
}

impl Mixer {
    /// # Errors
    /// The library is out of memory.
    pub(crate) fn new(channels: Channels) -> opus::Result<Self> {
        Ok(Self {
            agent: Timeline::new()?,
            user: Timeline::new()?,
            channels,
            encoder: encoder(channels)?,
            position: 0,
            voices: [[0; FRAME_SAMPLES]; 2],
            frame: Vec::with_capacity(2 * FRAME_SAMPLES),
        })
    }

    /// Samples that a decoder of the stream drops at its beginning.
    ///
    /// # Errors
    /// The library fails.
    pub(crate) fn delay(&mut self) -> opus::Result<u16> {
        delay(&mut self.encoder)
    }

    /// Adds a packet of a voice.
    pub(crate) fn push(&mut self, packet: &Packet) {
        let position = samples(packet.at);
        match packet.track {
            Track::Agent => self.agent.push(position, &packet.data),
            Track::User => self.user.push(position, &packet.data),
            Track::Video(_) => {}
        }
    }

    /// Position up to which the sound is complete, if all packets before `time` are here.
    pub(crate) fn settled(&self, time: Duration) -> u64 {
        let at = samples(time);
        self.agent.settled(at).min(self.user.settled(at))
    }

    /// Position after the last sample of the voices.
    pub(crate) fn end(&self) -> u64 {
        self.agent.end().max(self.user.end())
    }

    /// The next packet and its time in ms, if it ends at or before the position `until`.
    ///
    /// # Errors
    /// The library fails.
    pub(crate) fn next_packet(&mut self, until: u64) -> opus::Result<Option<(u64, Vec<u8>)>> {
        if self.position + FRAME_SAMPLES as u64 > until {
            return Ok(None);
        }
        let [agent, user] = &mut self.voices;
        self.agent.read(self.position, agent);
        self.user.read(self.position, user);
        self.frame.clear();
        match self.channels {
            Channels::Mixed => {
                self.frame.extend(agent.iter().zip(&*user).map(|(a, b)| a.saturating_add(*b)));
            }
            Channels::Split => {
                self.frame.extend(user.iter().zip(&*agent).flat_map(|(user, agent)| [user, agent]));
            }
        }
        let packet = self.encoder.encode_vec(&self.frame, MAX_PACKET_BYTES)?;
        let time = self.position * 1_000 / u64::from(SAMPLE_RATE);
        self.position += FRAME_SAMPLES as u64;
        Ok(Some((time, packet)))
    }
}
