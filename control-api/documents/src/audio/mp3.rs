//! MP3 files. The delay of the encoder at the begin is removed if the file tells it. The padding at
//! the end is kept: it is less than 0.1 s of silence, and files that were concatenated tell it only
//! for their first part.

use std::io::Write;

use nanomp3::{DecodeError, Decoder, MAX_SAMPLES_PER_FRAME, VbrTag};

use super::{Refusal, Stop, mean, pcm};

/// Samples by which a decoder of layer III is late.
const DECODER_DELAY: usize = 529;
/// Frames of another sample rate that are taken for bytes which only look like frames. In the last
/// frames of a file the library cannot tell them apart.
const MAX_STRAY_FRAMES: u32 = 10;
/// A file is incomplete if a 50th of the declared frames is missing.
const MIN_MISSING: u64 = 50;
/// A file is damaged if it has more bytes than these between its frames, and more than a 20th of
/// its bytes. Tags between joined parts are permitted.
const MAX_SKIPPED_BYTES: usize = 8_192;
const MIN_SKIPPED: usize = 20;

/// Decodes a file that begins with an ID3 tag or a frame.
pub(super) fn decode<W: Write>(file: &[u8], sound: &mut pcm::Writer<W>) -> Result<(), Stop> {
    let first = nanomp3::frames(file).next().ok_or(Refusal::Damaged)?;
    if first.layer != 3 {
        return Err(Refusal::UnknownType.into());
    }
    sound.set_rate(first.sample_rate)?;
    // What a tag declares may be wrong: these are the frames.
    let (mut frames, mut samples, mut bytes) = (0u64, 0u64, 0);
    for frame in nanomp3::frames(file) {
        frames += 1;
        samples += frame.samples as u64;
        bytes += frame.data.len();
    }
    // Some frames may not be decodable.
    if samples > sound.max_samples() + MAX_SAMPLES_PER_FRAME as u64 {
        return Err(Refusal::TooLong.into());
    }
    let tag = VbrTag::parse(first.data);
    let sound_file = nanomp3::strip_trailing_tags(file);
    let skipped = sound_file.len().saturating_sub(first.offset + bytes);
    let declared = tag.as_ref().and_then(|tag| tag.frames).map_or(0, u64::from);
    // The tag's own frame is not counted by it.
    if frames.saturating_sub(1) < declared - declared / MIN_MISSING
        || skipped > MAX_SKIPPED_BYTES.max(sound_file.len() / MIN_SKIPPED)
    {
        sound.mark_incomplete();
    }
    let (begin, mut skip) = match tag {
        // This frame contains no sound.
        Some(tag) => (
            first.offset + first.data.len(),
            tag.encoder_delay_padding.map_or(0, |(delay, _)| usize::from(delay) + DECODER_DELAY),
        ),
        None => (first.offset, 0),
    };
    let mut rest = sound_file.get(begin..).unwrap_or_default();
    let mut decoder = Decoder::new();
    let mut decoded = [0i16; MAX_SAMPLES_PER_FRAME];
    let mut stray_frames = 0;
    loop {
        let (used, frame) = decoder.decode(rest, &mut decoded);
        rest = &rest[used..];
        let frame = match frame {
            Ok(frame) => frame,
            Err(DecodeError::NoFrame) if used == 0 || rest.is_empty() => break,
            // It is damaged, or the file was cut out of a longer one and the frame needs what was
            // before it.
            Err(_) => continue,
        };
        if frame.sample_rate != first.sample_rate {
            stray_frames += 1;
            if stray_frames > MAX_STRAY_FRAMES {
                return Err(Refusal::RateChange.into());
            }
            continue;
        }
        let channels = usize::from(frame.channels.num());
        let count = frame.samples_produced;
        for samples in decoded[..count * channels].chunks_exact(channels).skip(skip) {
            sound.push(match samples {
                [left, right] => mean(*left, *right),
                _ => samples[0],
            })?;
        }
        skip = skip.saturating_sub(count);
    }
    if sound.total() == 0 {
        return Err(Refusal::Damaged.into());
    }
    Ok(())
}

#[cfg(test)]
#[path = "mp3_tests.rs"]
mod tests;
