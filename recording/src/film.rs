//! Writes a video in which an avatar speaks: encoded frames and one channel of sound, with an index.

use std::collections::VecDeque;
use std::io::{self, Seek, Write};
use std::time::Duration;

use bytes::Bytes;
use opus::Encoder;

use crate::delivery::LAST_PICTURE;
use crate::delivery::video::{Video, VideoBlock};
use crate::delivery::writer::DeliveryWriter;
use crate::mixer::{self, FRAME_SAMPLES, MAX_PACKET_BYTES, samples};
use crate::{Channels, Frame, SAMPLE_RATE, Size};

/// Why a video could not be written.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The file cannot be written.
    #[error("the video cannot be written: {0}")]
    Write(#[from] io::Error),
    /// The Opus library fails.
    #[error("the sound cannot be encoded: {0}")]
    Sound(#[from] opus::Error),
}

/// What was written.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Summary {
    /// Duration of the video.
    pub duration: Duration,
    /// Size of the file in bytes.
    pub bytes: u64,
}

/// Writes a video. Equal frames and samples give equal bytes.
pub struct FilmWriter<W: Write + Seek> {
    writer: DeliveryWriter<W>,
    video: Video,
    /// Frames that wait for the sound before them.
    blocks: VecDeque<VideoBlock>,
    /// End of the last picture.
    end: Duration,
    encoder: Encoder,
    /// Samples that the encoder delays.
    delay: u64,
    /// Samples that do not fill a packet.
    rest: Vec<i16>,
    /// Position of the next packet in samples.
    position: u64,
}

impl<W: Write + Seek> FilmWriter<W> {
    /// Begins a file with a video of this size.
    ///
    /// # Errors
    /// See [`Error`].
    pub fn new(out: W, size: Size) -> Result<Self, Error> {
        let mut encoder = mixer::encoder(Channels::Mixed)?;
        let delay = mixer::delay(&mut encoder)?;
        Ok(Self {
            writer: DeliveryWriter::new(out, Some(size), "speech", Channels::Mixed, delay)?,
            video: Video::default(),
            blocks: VecDeque::new(),
            end: Duration::ZERO,
            encoder,
            delay: delay.into(),
            rest: Vec::with_capacity(FRAME_SAMPLES),
            position: 0,
        })
    }

    /// Adds a frame that is shown from `at` on. The times of frames must not fall, and a frame is
    /// added before the sound of its time.
    pub fn push_video(&mut self, at: Duration, frame: Frame, data: &Bytes) {
        let time = u64::try_from(at.as_millis()).unwrap_or(u64::MAX);
        self.video.push(time, frame, data, &mut self.blocks);
        self.end = at + LAST_PICTURE;
    }

    /// Adds the next samples of the sound, at 48 kHz. The sound begins at time zero.
    ///
    /// # Errors
    /// See [`Error`].
    pub fn push_sound(&mut self, mut samples: &[i16]) -> Result<(), Error> {
        while self.rest.len() + samples.len() >= FRAME_SAMPLES {
            let (now, later) = samples.split_at(FRAME_SAMPLES - self.rest.len());
            self.rest.extend_from_slice(now);
            samples = later;
            self.write_packet()?;
        }
        self.rest.extend_from_slice(samples);
        Ok(())
    }

    /// Encodes [`Self::rest`], which is a whole packet.
    fn write_packet(&mut self) -> Result<(), Error> {
        let packet = self.encoder.encode_vec(&self.rest, MAX_PACKET_BYTES)?;
        self.rest.clear();
        let time = self.position * 1_000 / u64::from(SAMPLE_RATE);
        self.position += FRAME_SAMPLES as u64;
        // The video of the same time comes first: a cluster begins with it.
        while let Some(block) = self.blocks.pop_front_if(|block| block.time <= time) {
            self.writer.write_video(&block)?;
        }
        Ok(self.writer.write_sound(time, &packet)?)
    }

    /// Completes the file. Sound that ends before the last picture is continued by silence.
    ///
    /// # Errors
    /// See [`Error`].
    pub fn finish(mut self) -> Result<Summary, Error> {
        let end = samples(self.end).max(self.position + self.rest.len() as u64);
        // The last packet contains the last sample, which leaves the encoder after its delay.
        while self.position < end + self.delay {
            self.rest.resize(FRAME_SAMPLES, 0);
            self.write_packet()?;
        }
        for block in std::mem::take(&mut self.blocks) {
            self.writer.write_video(&block)?;
        }
        let duration = Duration::from_micros(end * 1_000_000 / u64::from(SAMPLE_RATE));
        Ok(Summary { duration, bytes: self.writer.finish(duration)? })
    }
}
