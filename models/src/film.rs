//! What the server and the process that writes a video exchange.
//!
//! The process reads a [`Task`] from standard input, one line of JSON. It writes a [`Line`] of JSON
//! to standard output for its progress and for the result. Exit status: 0 if the files are written,
//! 2 if the input cannot be used (the last line of standard error is a sentence for the user), 3 if
//! the disk is full, 1 for any other failure.

use std::ops::RangeInclusive;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

mod spool;

pub use spool::{SpoolReader, SpoolRecord, SpoolWriter};

/// Characters (Unicode code points) of a text.
pub const MAX_TEXT_CHARS: usize = 20_000;
/// Bytes of an uploaded audio file.
pub const MAX_AUDIO_BYTES: usize = 50 << 20;
/// Seconds of an uploaded audio file.
pub const MAX_AUDIO_SECONDS: u32 = 30 * 60;
/// Frame rates of a video, in pictures per second.
pub const FRAME_RATES: RangeInclusive<u32> = 10..=30;
/// Longest sum of all pauses of a text, in seconds.
pub const MAX_PAUSE_SECONDS: u32 = 600;

/// A video to write.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq)]
pub struct Task {
    /// The avatar.
    pub picture: Picture,
    /// What it says.
    pub speech: Speech,
    /// Pictures per second, one of [`FRAME_RATES`].
    pub frame_rate: u32,
    /// Seed of gaze, blinks and motion, see [`seed_of`].
    pub seed: u64,
    /// Where the results are written.
    pub files: Files,
    /// Folder of the models.
    pub models: PathBuf,
    /// Folder of further avatars.
    pub avatars: Option<PathBuf>,
}

/// Which avatar is shown.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq)]
#[serde(rename_all = "snake_case")]
pub enum Picture {
    /// An avatar that the program or [`Task::avatars`] has.
    Stock {
        /// Its id.
        id: String,
    },
    /// A file with a pose set.
    Set {
        /// Its path.
        file: PathBuf,
    },
}

/// What the avatar says.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq)]
#[serde(rename_all = "snake_case")]
pub enum Speech {
    /// A text for a built-in voice. It is spoken by the process that writes the video.
    Voice {
        /// The text, with directions such as `[warm]`.
        text: String,
        /// Built-in provider of the voice. Empty, or `builtin`: that which has the voice.
        #[serde(default)]
        provider: String,
        /// Name of the voice. Empty: that of the avatar, if the provider has it, else the provider's
        /// default.
        voice: String,
        /// Language of the text.
        language: Option<String>,
        /// Words and how to pronounce them.
        pronunciation: Vec<(String, String)>,
    },
    /// A text and its sound, which a hosted voice has spoken.
    Spool {
        /// The text, with directions.
        text: String,
        /// A file of [`SpoolRecord`]s.
        file: PathBuf,
    },
    /// An audio file: WAV, MP3 or Ogg.
    Audio {
        /// Its path.
        file: PathBuf,
    },
}

/// Files to write. A file appears under its name when it is complete.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq)]
pub struct Files {
    /// The video: WebM with VP8 and Opus.
    pub video: PathBuf,
    /// A picture of the avatar at rest: WebP.
    pub poster: Option<PathBuf>,
    /// Captions: WebVTT. Audio files have none.
    pub captions: Option<PathBuf>,
}

/// A line of standard output.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq)]
#[serde(untagged)]
pub enum Line {
    /// How much is done.
    Progress {
        /// From 0 to 1. It never falls.
        progress: f32,
    },
    /// All files are written.
    Done(Summary),
}

/// What was written.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq)]
pub struct Summary {
    /// Length of the video in milliseconds.
    pub duration_ms: u64,
    /// Bytes of the video.
    pub bytes: u64,
    /// Width of the video in pixels.
    pub width: u32,
    /// Height of the video in pixels.
    pub height: u32,
    /// CPU time of the process and its children, in microseconds.
    pub cpu_us: u64,
    /// Sentences for the user, such as that another voice speaks.
    pub warnings: Vec<String>,
}

/// The seed of a video with this content. Equal requests have equal seeds.
#[must_use]
pub fn seed_of(content: &[u8]) -> u64 {
    let first = Sha256::digest(content).into_iter().take(8);
    first.enumerate().fold(0, |seed, (n, byte)| seed | u64::from(byte) << (8 * n))
}

/// Type of an audio file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AudioKind {
    /// RIFF WAVE.
    Wav,
    /// MPEG audio layer III, with or without an ID3 tag.
    Mp3,
    /// Ogg.
    Ogg,
}

/// The type of an audio file by its first 12 bytes.
#[must_use]
pub fn audio_kind(start: &[u8]) -> Option<AudioKind> {
    match start {
        [b'R', b'I', b'F', b'F', _, _, _, _, b'W', b'A', b'V', b'E', ..] => Some(AudioKind::Wav),
        [b'O', b'g', b'g', b'S', ..] => Some(AudioKind::Ogg),
        [b'I', b'D', b'3', ..] => Some(AudioKind::Mp3),
        // Eleven bits of synchronization, then any version but the reserved one, layer III.
        [0xFF, second, ..] if second & 0xE6 == 0xE2 && second & 0x18 != 0x08 => {
            Some(AudioKind::Mp3)
        }
        _ => None,
    }
}
