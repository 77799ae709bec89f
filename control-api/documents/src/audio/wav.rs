//! WAV files: integers of 8, 16, 24 and 32 bits, and floating-point numbers of 32 bits.
//!
//! `hound` reads the format and the samples. It does not accept some common files: those of a
//! program that wrote to a pipe and declares an endless length, those that were cut off, and chunks
//! of an odd length, which a pad byte follows. Therefore it gets a new header with the two chunks
//! that matter.

use std::io::{Cursor, Read as _, Write};

use hound::{SampleFormat, WavReader};

use super::{Refusal, Stop, mean, pcm};

/// Formats of the chunk `fmt ` for which its first 16 bytes suffice.
const PCM: u16 = 1;
const FLOAT: u16 = 3;
/// A length from here on is that of a program that cannot know it.
const UNKNOWN_LENGTH: usize = 0x7FFF_0000;

/// Decodes a file that begins with the header of RIFF WAVE.
pub(super) fn decode<W: Write>(file: &[u8], sound: &mut pcm::Writer<W>) -> Result<(), Stop> {
    let Chunks { format, data, is_cut } = find_chunks(file)?;
    if is_cut {
        sound.mark_incomplete();
    }
    let format_number = |at: usize| Some(u16::from_le_bytes(*format.get(at..)?.first_chunk()?));
    let (Some(tag), Some(frame_bytes @ 1..), Some(bits)) =
        (format_number(0), format_number(12), format_number(14))
    else {
        return Err(Refusal::Damaged.into());
    };
    if bits % 8 != 0 || !(8..=32).contains(&bits) || (tag == FLOAT && bits != 32) {
        return Err(Refusal::Encoding.into());
    }
    // Other lengths of these formats contradict the library's expectations, but say nothing new.
    let format = match tag {
        PCM | FLOAT => &format[..16],
        _ => &format[..format.len().min(40)],
    };
    let data = &data[..data.len() - data.len() % usize::from(frame_bytes)];
    let header = [
        b"RIFF\0\0\0\0WAVEfmt ",
        &(format.len() as u32).to_le_bytes()[..],
        format,
        b"data",
        &(data.len() as u32).to_le_bytes(),
    ];
    let file = Cursor::new(header.concat()).chain(data);
    let reader = WavReader::new(file).map_err(refusal)?;
    let spec = reader.spec();
    if spec.channels > 2 {
        return Err(Refusal::Channels.into());
    }
    sound.set_rate(spec.sample_rate)?;
    if u64::from(reader.duration()) > sound.max_samples() {
        return Err(Refusal::TooLong.into());
    }
    let stereo = spec.channels == 2;
    match (spec.sample_format, spec.bits_per_sample) {
        // The cast limits numbers beyond full scale, and makes NaN silence.
        (SampleFormat::Float, 32) => {
            let samples = reader.into_samples::<f32>();
            push_all(samples.map(|s| s.map(|s| (s * 32_768.0).round() as i16)), stereo, sound)
        }
        (SampleFormat::Int, bits @ (8 | 16 | 24 | 32)) => {
            let to_16_bits = |s: i32| ((i64::from(s) << 16) >> bits) as i16;
            push_all(reader.into_samples::<i32>().map(|s| s.map(to_16_bits)), stereo, sound)
        }
        _ => Err(Refusal::Encoding.into()),
    }
}

/// The content of the chunks `fmt ` and `data`.
struct Chunks<'a> {
    format: &'a [u8],
    data: &'a [u8],
    /// Whether the file ends before the length that it declares.
    is_cut: bool,
}

/// Finds the chunks. A data chunk that declares no length, or more than there is, lasts to the end
/// of the file. A program that writes to a pipe declares the greatest length, or one near it.
fn find_chunks(file: &[u8]) -> Result<Chunks<'_>, Refusal> {
    let mut format = None;
    let mut rest = file.get(12..).unwrap_or_default();
    while let Some((header, body)) = rest.split_first_chunk::<8>() {
        let (name, length) = header.split_at(4);
        let length = length.first_chunk().map_or(0, |bytes| u32::from_le_bytes(*bytes)) as usize;
        let content = &body[..length.min(body.len())];
        match name {
            b"fmt " => format = format.or(Some(content)),
            b"data" => {
                let data = if length == 0 { body } else { content };
                let is_cut = length > body.len() && length < UNKNOWN_LENGTH;
                let chunks = format.map(|format| Chunks { format, data, is_cut });
                return chunks.ok_or(Refusal::Damaged);
            }
            _ => {}
        }
        rest = body.get(length.saturating_add(length % 2)..).unwrap_or_default();
    }
    Err(Refusal::Damaged)
}

fn push_all<W: Write>(
    mut samples: impl Iterator<Item = hound::Result<i16>>,
    stereo: bool,
    sound: &mut pcm::Writer<W>,
) -> Result<(), Stop> {
    while let Some(sample) = samples.next() {
        let mut sample = sample.map_err(refusal)?;
        if stereo {
            let Some(right) = samples.next() else { break };
            sample = mean(sample, right.map_err(refusal)?);
        }
        sound.push(sample)?;
    }
    Ok(())
}

fn refusal(error: hound::Error) -> Refusal {
    match error {
        hound::Error::Unsupported | hound::Error::TooWide => Refusal::Encoding,
        _ => Refusal::Damaged,
    }
}

#[cfg(test)]
#[path = "wav_tests.rs"]
mod tests;
