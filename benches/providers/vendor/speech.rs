//! What the fake servers of one kind share: the stamps in the user's audio, and the agent's speech.

use std::sync::LazyLock;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use tokio::time::Instant;

use super::{Measured, STAMP};
use crate::calls::CHUNK_SAMPLES;
use crate::stamp::{self, MESSAGE_SAMPLES, STAMP_SAMPLES};

/// Samples of the user's audio per second.
pub(super) const INPUT_RATE: usize = 16_000;
/// Time from audio to the transcript that it leads to.
pub(super) const TRANSCRIPT_DELAY: Duration = Duration::from_millis(120);
/// Samples of audio between two interim transcripts.
const INTERIM_INTERVAL: usize = INPUT_RATE / 4;
/// Duration of a word of the user, in samples.
const WORD_SAMPLES: usize = INPUT_RATE * 2 / 5;

/// Samples of the agent's speech per character, at 24 kHz: 15 characters per second.
pub(super) const CHARACTER_SAMPLES: usize = 1_600;
/// Time to the first sound of a segment.
const FIRST_SOUND: Duration = Duration::from_millis(150);
/// Time between two messages with sound: five times as fast as real time.
const MESSAGE_INTERVAL: Duration = Duration::from_millis(20);

/// The audio of the utterances of a connection.
#[derive(Default)]
pub(super) struct UserAudio {
    /// Samples before the current utterance.
    pub(super) start: usize,
    /// Samples of the current utterance.
    pub(super) samples: usize,
}

impl UserAudio {
    /// Takes a message. Each chunk of the caller begins with a stamp. Returns whether an interim
    /// transcript follows. Silence between utterances keeps the connection open, and has no stamps.
    pub(super) fn push(&mut self, measured: &Measured, pcm: &[u8]) -> bool {
        let (first, pairs) = (self.samples, pcm.as_chunks::<2>().0);
        if first == 0 && pcm.iter().all(|byte| *byte == 0) {
            self.start += pairs.len();
            return false;
        }
        let starts = (first.next_multiple_of(CHUNK_SAMPLES)..).step_by(CHUNK_SAMPLES);
        let stamps = starts.map_while(|start| {
            let samples = pairs.get(start - first..)?.first_chunk::<STAMP_SAMPLES>()?;
            Some(stamp::read(&samples.map(i16::from_le_bytes)))
        });
        let stamps: Vec<u64> = stamps.collect();
        if let Some(last) = stamps.last() {
            // The message is complete with the last chunk of which it contains samples.
            measured.stt_out.record(*last);
            for stamp in &stamps {
                measured.stt_packing.add(*stamp, last.wrapping_sub(*stamp));
            }
        }
        self.samples += pairs.len();
        self.samples / INTERIM_INTERVAL > first / INTERIM_INTERVAL
    }

    /// The utterance has ended.
    pub(super) fn end(&mut self) {
        self.start += std::mem::take(&mut self.samples);
    }

    /// Start and end of each word so far, in samples from the beginning of the connection. The last
    /// one is the place of the stamp.
    pub(super) fn words(&self) -> impl ExactSizeIterator<Item = (usize, usize)> {
        let start = self.start;
        let word = move |n| (start + n * WORD_SAMPLES, start + (n + 1) * WORD_SAMPLES);
        (0..self.samples / WORD_SAMPLES + 1).map(word)
    }
}

/// The speech of the contexts of a connection.
#[derive(Default)]
pub(super) struct AgentSpeech {
    last_due: Option<Instant>,
}

/// A message of a segment.
#[derive(Clone, Copy)]
pub(super) struct Part {
    pub(super) due: Instant,
    /// Its first sample and the one after its last sample, in the segment.
    pub(super) samples: (usize, usize),
}

impl AgentSpeech {
    /// The messages of a segment with this number of characters, and the time of its last one.
    pub(super) fn parts(&mut self, characters: usize) -> (Vec<Part>, Instant) {
        let now = Instant::now() + FIRST_SOUND;
        let mut due = self.last_due.map_or(now, |last| now.max(last + MESSAGE_INTERVAL));
        let total = characters * CHARACTER_SAMPLES;
        let mut parts = Vec::with_capacity(total.div_ceil(MESSAGE_SAMPLES));
        for start in (0..total).step_by(MESSAGE_SAMPLES) {
            parts.push(Part { due, samples: (start, (start + MESSAGE_SAMPLES).min(total)) });
            due += MESSAGE_INTERVAL;
        }
        self.last_due = Some(due);
        (parts, due)
    }
}

/// The samples of a message without a stamp.
static TONE: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let tone = (0..MESSAGE_SAMPLES).map(|n| (8_000.0 * (n as f64 * 0.06).sin()) as i16);
    tone.flat_map(i16::to_le_bytes).collect()
});

/// The samples of a message as bytes, with the current time.
pub(super) fn stamped_samples(part: &Part) -> Bytes {
    let mut bytes = TONE[..2 * (part.samples.1 - part.samples.0)].to_vec();
    bytes[..8].copy_from_slice(&stamp::now().to_le_bytes());
    bytes.into()
}

/// The samples of a message in base64, with a stamp.
pub(super) fn sound(part: &Part) -> String {
    static ENCODED: LazyLock<String> = LazyLock::new(|| STANDARD.encode(&TONE[9..]));
    // The stamp has 9 bytes, which are 12 characters.
    let length = (2 * (part.samples.1 - part.samples.0)).div_ceil(3) * 4 - 12;
    format!("{STAMP}{}", &ENCODED[..length.min(ENCODED.len())])
}
