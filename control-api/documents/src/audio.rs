//! Sound of audio files: WAV, MP3, Ogg Vorbis and Ogg Opus.
//!
//! [`decode_as_child`] is the `main` of a child process that confines itself, reads one file from
//! standard input, and writes its sound to standard output while it decodes. The file `pcm` defines
//! the protocol; [`PcmReader`] is its other end. The sample rate is that of the file.
//!
//! A file may be hostile. Lengths that it declares are not believed, tags are skipped unread, and
//! what is decoded is counted, so that no file gives more than 30 minutes. What a library does
//! beyond that (memory, time, a panic) ends the child at its limits or is reported as damage.

mod mp3;
mod ogg;
mod pcm;
#[cfg(test)]
mod tests;
mod wav;

use std::io::{Read as _, Write};
use std::panic::AssertUnwindSafe;

pub use pcm::{AudioError, PcmReader};

use crate::{Limits, confine};

/// Limits of the process that decodes audio. 30 minutes of stereo Vorbis, the slowest type, take
/// 4 s of CPU time.
pub const AUDIO_LIMITS: Limits = Limits { cpu_seconds: 120, memory_bytes: 512 << 20 };
/// Maximum size of an audio file in bytes.
const MAX_FILE_BYTES: u64 = 50 << 20;
/// Maximum length of the sound in seconds.
const MAX_SECONDS: u64 = 30 * 60;

/// Why an audio file cannot be used, as a sentence for the user.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// Its content contradicts its type.
    #[error("the audio is damaged")]
    Damaged,
    /// It has no sample.
    #[error("the audio contains no sound")]
    NoSound,
    /// Its sound is too long.
    #[error("the audio is longer than 30 minutes")]
    TooLong,
    /// It has too many bytes.
    #[error("the audio is larger than 50 MB")]
    TooLarge,
    /// It is of another type.
    #[error("the audio is not WAV, MP3 or Ogg (Vorbis or Opus)")]
    UnknownType,
    /// A WAV file with another encoding, such as ADPCM or numbers of 64 bits.
    #[error("the WAV file is not PCM of 8, 16, 24 or 32 bits")]
    Encoding,
    /// It is neither mono nor stereo.
    #[error("the audio has more than two channels")]
    Channels,
    /// Its sample rate is unusual.
    #[error("the sample rate is not between 8,000 and 96,000 Hz")]
    Rate,
    /// Parts of it have different sample rates.
    #[error("the sample rate changes within the audio")]
    RateChange,
    /// The child was ended by its limits.
    #[error("the audio cannot be read with the permitted memory and time")]
    Limits,
}

impl Refusal {
    const ALL: [Self; 10] = [
        Self::Damaged,
        Self::NoSound,
        Self::TooLong,
        Self::TooLarge,
        Self::UnknownType,
        Self::Encoding,
        Self::Channels,
        Self::Rate,
        Self::RateChange,
        Self::Limits,
    ];

    /// The refusal with this sentence. Other sentences are not shown to users: they can only come
    /// from a child that a file has taken over.
    fn from_sentence(sentence: &[u8]) -> Self {
        let known = |refusal: &Self| refusal.to_string().as_bytes() == sentence;
        Self::ALL.into_iter().find(known).unwrap_or(Self::Damaged)
    }
}

/// Why decoding ended early.
enum Stop {
    /// The file cannot be used.
    Refused(Refusal),
    /// The reader of the sound is gone.
    Pipe(std::io::Error),
}

impl From<Refusal> for Stop {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}

impl From<std::io::Error> for Stop {
    fn from(error: std::io::Error) -> Self {
        Self::Pipe(error)
    }
}

/// Reads an audio file from standard input and writes its sound to standard output, confined by
/// [`confine`] with [`AUDIO_LIMITS`].
///
/// # Errors
/// The limits cannot be set, or a pipe fails. A refusal of the file is part of the output.
pub fn decode_as_child() -> std::io::Result<()> {
    confine(AUDIO_LIMITS)?;
    let mut file = Vec::new();
    // One byte over the limit is enough to detect the excess.
    std::io::stdin().lock().take(MAX_FILE_BYTES + 1).read_to_end(&mut file)?;
    decode_audio(&file, std::io::stdout().lock())
}

/// Writes the sound of an audio file to `out`, in the form that [`PcmReader`] reads. The calling
/// process must be confined if the file is a stranger's.
///
/// # Errors
/// `out` fails. A refusal of the file is part of the output.
pub fn decode_audio<W: Write>(file: &[u8], out: W) -> std::io::Result<()> {
    let mut sound = pcm::Writer::new(out);
    // The libraries index by numbers from the file.
    let decoded = std::panic::catch_unwind(AssertUnwindSafe(|| decode(file, &mut sound)))
        .unwrap_or(Err(Stop::Refused(Refusal::Damaged)));
    match decoded {
        Ok(()) => sound.finish(),
        Err(Stop::Refused(refusal)) => sound.refuse(refusal),
        Err(Stop::Pipe(error)) => Err(error),
    }
}

fn decode<W: Write>(file: &[u8], sound: &mut pcm::Writer<W>) -> Result<(), Stop> {
    if file.len() as u64 > MAX_FILE_BYTES {
        return Err(Refusal::TooLarge.into());
    }
    match file {
        [] => Err(Refusal::NoSound.into()),
        [b'R', b'I', b'F', b'F', _, _, _, _, b'W', b'A', b'V', b'E', ..] => {
            wav::decode(file, sound)
        }
        [b'O', b'g', b'g', b'S', ..] => ogg::decode(file, sound),
        // An ID3 tag, or eleven bits of synchronization.
        [b'I', b'D', b'3', ..] | [0xFF, 0xE0..=0xFF, ..] => mp3::decode(file, sound),
        _ => Err(Refusal::UnknownType.into()),
    }
}

/// The mean of both channels.
fn mean(left: i16, right: i16) -> i16 {
    i16::midpoint(left, right)
}
