//! The sound on its way from the child to the process that started it.
//!
//! ```text
//! stream  = refused | PCM_MARKER, rate: u32, block*, end
//! refused = ERROR_MARKER, sentence until the end of the stream
//! block   = count: u32 from 1 to MAX_BLOCK_SAMPLES, count samples: i16
//! end     = 0: u32, INCOMPLETE or another u32 | REFUSED: u32, sentence until the end of the stream
//! ```
//!
//! Numbers are little endian, sentences UTF-8. A stream without `end` comes from a child that was
//! ended by its limits. So a reader tells a complete sound, a refusal and an interruption apart,
//! whatever the samples are.

use std::io::{self, ErrorKind, Read, Write};
use std::ops::RangeInclusive;

use super::{MAX_SECONDS, Refusal, Stop};
use crate::ERROR_MARKER;

/// Precedes the sample rate.
const PCM_MARKER: &[u8] = b"\0visavis-pcm\0";
/// Sample rates that are passed on, in Hz.
const RATES: RangeInclusive<u32> = 8_000..=96_000;
/// Samples of a block that the child writes.
const BLOCK_SAMPLES: usize = 8_192;
/// Samples of a block that is accepted.
const MAX_BLOCK_SAMPLES: usize = 65_536;
/// In place of a count: the file is refused.
const REFUSED: u32 = u32::MAX;
/// After the end: parts of the sound are missing.
const INCOMPLETE: u32 = 1;
/// Bytes of a sentence that are read.
const MAX_SENTENCE_BYTES: u64 = 256;

/// Writes the sound, in blocks.
pub(super) struct Writer<W> {
    out: W,
    /// Of the sound, as soon as it is known.
    rate: Option<u32>,
    /// Samples that are not written yet.
    block: Vec<i16>,
    /// Number of samples, including those of `block`.
    total: u64,
    /// Whether anything is written.
    begun: bool,
    /// Whether parts of the file could not be decoded.
    is_incomplete: bool,
}

impl<W: Write> Writer<W> {
    pub(super) fn new(out: W) -> Self {
        let block = Vec::with_capacity(BLOCK_SAMPLES);
        Self { out, rate: None, block, total: 0, begun: false, is_incomplete: false }
    }

    /// Sets the sample rate of what follows. Each part of a file calls this.
    pub(super) fn set_rate(&mut self, rate: u32) -> Result<(), Refusal> {
        if !RATES.contains(&rate) {
            return Err(Refusal::Rate);
        }
        match self.rate.replace(rate) {
            Some(before) if before != rate => Err(Refusal::RateChange),
            _ => Ok(()),
        }
    }

    /// Most samples that the sound may have.
    pub(super) fn max_samples(&self) -> u64 {
        MAX_SECONDS * u64::from(self.rate.unwrap_or(0))
    }

    /// Number of samples so far.
    pub(super) fn total(&self) -> u64 {
        self.total
    }

    /// Parts of the file are missing, or could not be decoded.
    pub(super) fn mark_incomplete(&mut self) {
        self.is_incomplete = true;
    }

    pub(super) fn push(&mut self, sample: i16) -> Result<(), Stop> {
        if self.total >= self.max_samples() {
            return Err(Refusal::TooLong.into());
        }
        self.total += 1;
        self.block.push(sample);
        if self.block.len() == BLOCK_SAMPLES {
            self.write_block()?;
        }
        Ok(())
    }

    fn write_block(&mut self) -> io::Result<()> {
        let mut bytes = Vec::with_capacity(PCM_MARKER.len() + 8 + 2 * self.block.len());
        if !self.begun {
            self.begun = true;
            bytes.extend(PCM_MARKER);
            bytes.extend(self.rate.unwrap_or(0).to_le_bytes());
        }
        bytes.extend((self.block.len() as u32).to_le_bytes());
        bytes.extend(self.block.drain(..).flat_map(i16::to_le_bytes));
        self.out.write_all(&bytes)
    }

    /// The sound is complete.
    pub(super) fn finish(mut self) -> io::Result<()> {
        if self.total == 0 {
            return self.refuse(Refusal::NoSound);
        }
        if !self.block.is_empty() {
            self.write_block()?;
        }
        let end = if self.is_incomplete { INCOMPLETE } else { 0 };
        self.out.write_all(&[0u32.to_le_bytes(), end.to_le_bytes()].concat())?;
        self.out.flush()
    }

    /// The file cannot be used. Samples that are not written yet are dropped.
    pub(super) fn refuse(mut self, refusal: Refusal) -> io::Result<()> {
        let mark = if self.begun { &REFUSED.to_le_bytes()[..] } else { ERROR_MARKER };
        self.out.write_all(mark)?;
        self.out.write_all(refusal.to_string().as_bytes())?;
        self.out.flush()
    }
}

/// Why no more sound comes.
#[derive(Debug, thiserror::Error)]
pub enum AudioError {
    /// The file cannot be used.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The pipe cannot be read.
    #[error("the sound cannot be read from the child process")]
    Read(#[source] io::Error),
}

/// Reads the sound that [`decode_as_child`](super::decode_as_child) writes.
///
/// A hostile file may have taken over the child, so what it writes is limited here, too: the sample
/// rate, the size of a block, the length of the sound, and the sentences.
pub struct PcmReader<R> {
    input: R,
    rate: u32,
    /// The bytes of a block, and its samples.
    bytes: Vec<u8>,
    samples: Vec<i16>,
    /// Number of samples that may still come.
    left: u64,
    /// Whether the end was read.
    has_ended: bool,
    is_incomplete: bool,
}

impl<R: Read> PcmReader<R> {
    /// Reads the begin of the sound. Blocks until the child has decoded some of it.
    ///
    /// # Errors
    /// The file is refused, or the pipe fails.
    pub fn new(mut input: R) -> Result<Self, AudioError> {
        let mut mark = [0; PCM_MARKER.len()];
        read_exact(&mut input, &mut mark)?;
        if mark == ERROR_MARKER {
            return Err(read_refusal(&mut input));
        }
        if mark != PCM_MARKER {
            return Err(Refusal::Damaged.into());
        }
        let rate = read_number(&mut input)?;
        if !RATES.contains(&rate) {
            return Err(Refusal::Rate.into());
        }
        let left = MAX_SECONDS * u64::from(rate);
        Ok(Self {
            input,
            rate,
            bytes: Vec::new(),
            samples: Vec::new(),
            left,
            has_ended: false,
            is_incomplete: false,
        })
    }

    /// Samples per second, from 8,000 to 96,000.
    pub fn rate(&self) -> u32 {
        self.rate
    }

    /// Whether parts of the file are missing or could not be decoded. Known at the end of the sound.
    pub fn is_incomplete(&self) -> bool {
        self.is_incomplete
    }

    /// The next samples, mono, at least one. `None`: the sound ends.
    ///
    /// # Errors
    /// The file is refused, even if earlier samples were decoded, or the pipe fails.
    pub fn next_block(&mut self) -> Result<Option<&[i16]>, AudioError> {
        if self.has_ended {
            return Ok(None);
        }
        let count = match read_number(&mut self.input)? {
            0 => {
                self.is_incomplete = read_number(&mut self.input)? == INCOMPLETE;
                self.has_ended = true;
                return Ok(None);
            }
            REFUSED => return Err(read_refusal(&mut self.input)),
            count => count as usize,
        };
        if count > MAX_BLOCK_SAMPLES {
            return Err(Refusal::Damaged.into());
        }
        self.left = self.left.checked_sub(count as u64).ok_or(Refusal::TooLong)?;
        self.bytes.resize(2 * count, 0);
        read_exact(&mut self.input, &mut self.bytes)?;
        let (pairs, _) = self.bytes.as_chunks();
        self.samples.clear();
        self.samples.extend(pairs.iter().map(|pair| i16::from_le_bytes(*pair)));
        Ok(Some(&self.samples))
    }
}

fn read_number(input: &mut impl Read) -> Result<u32, AudioError> {
    let mut bytes = [0; 4];
    read_exact(input, &mut bytes)?;
    Ok(u32::from_le_bytes(bytes))
}

/// A stream that ends early is that of a child that was ended.
fn read_exact(input: &mut impl Read, bytes: &mut [u8]) -> Result<(), AudioError> {
    input.read_exact(bytes).map_err(|error| match error.kind() {
        ErrorKind::UnexpectedEof => Refusal::Limits.into(),
        _ => AudioError::Read(error),
    })
}

fn read_refusal(input: &mut impl Read) -> AudioError {
    let mut sentence = Vec::new();
    match input.take(MAX_SENTENCE_BYTES).read_to_end(&mut sentence) {
        Ok(_) => Refusal::from_sentence(&sentence).into(),
        Err(error) => AudioError::Read(error),
    }
}

#[cfg(test)]
#[path = "pcm_tests.rs"]
mod tests;
