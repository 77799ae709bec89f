//! OpenAI's `/v1/realtime` for transcriptions.
//!
//! The adapter resamples the audio to 24 kHz, which destroys stamps in samples. The caller encodes
//! the time in the level of each chunk instead ([`stamp::write_levels`]).

use std::collections::VecDeque;
use std::ops::ControlFlow;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::speech::TRANSCRIPT_DELAY;
use super::{Measured, Protocol, Reply, STAMP, StampKind};
use crate::calls::CHUNK_SAMPLES;
use crate::stamp::{self, LEVEL_SAMPLES};

/// Samples of the user's audio per second.
const RATE: usize = 24_000;
/// Samples of a chunk of the caller, and of each of its two levels.
const CHUNK: usize = CHUNK_SAMPLES * 3 / 2;
const LEVEL: usize = LEVEL_SAMPLES * 3 / 2;
/// The adapter's filter delays the audio by 25 ms.
const FILTER_DELAY: usize = RATE / 40;
/// Samples between two deltas.
const DELTA_INTERVAL: usize = RATE / 4;

pub(super) struct Realtime {
    measured: Arc<Measured>,
    /// Audio since the last commit.
    audio: Vec<i16>,
    /// Number of the chunks in it whose level was read.
    chunks: usize,
    /// Time of the last of these chunks, in units of a level.
    last_stamp: Option<u16>,
    /// Number of the item that the next commit creates.
    item: u32,
}

impl Realtime {
    pub(super) fn new(measured: Arc<Measured>) -> Self {
        Self { measured, audio: Vec::new(), chunks: 0, last_stamp: None, item: 0 }
    }

    fn push(&mut self, pcm: &[u8]) {
        self.audio.extend(pcm.as_chunks::<2>().0.iter().map(|pair| i16::from_le_bytes(*pair)));
        // The middle of each level is free of the filter's ripples.
        let level = |chunk: usize, n: usize| {
            self.audio.get(FILTER_DELAY + chunk * CHUNK + n * LEVEL + LEVEL / 2).copied()
        };
        while let (Some(high), Some(low)) = (level(self.chunks, 0), level(self.chunks, 1)) {
            // Silence follows the last chunk.
            let Some(stamp) = stamp::read_levels(high, low) else { break };
            self.chunks += 1;
            self.last_stamp = Some(stamp);
            let (stamp, latency) = stamp::since_level(stamp);
            self.measured.stt_packing.add(stamp, latency);
        }
    }

    /// A message about the current item. Its text ends with the stamp.
    fn about_item(&self, kind: &str, name: &str, text: &str) -> Reply {
        let mut message = json!({
            "type": format!("conversation.item.input_audio_transcription.{kind}"),
            "event_id": "event_1", "item_id": format!("item_{}", self.item), "content_index": 0,
        });
        message[name] = format!("{text}{STAMP}").into();
        Reply::stamped(Instant::now() + TRANSCRIPT_DELAY, StampKind::Decimal, &message)
    }

    fn commit(&mut self, replies: &mut VecDeque<Reply>) {
        if let Some(stamp) = self.last_stamp.take() {
            let (stamp, latency) = stamp::since_level(stamp);
            self.measured.stt_out.add(stamp, latency);
        }
        let committed = json!({
            "type": "input_audio_buffer.committed", "event_id": "event_2",
            "item_id": format!("item_{}", self.item), "previous_item_id": null,
        });
        replies.push_back(Reply::new(Instant::now(), committed.to_string()));
        replies.push_back(self.about_item("completed", "transcript", "word0 word1 word2 "));
        self.item += 1;
        self.audio.clear();
        self.chunks = 0;
    }
}

impl Protocol for Realtime {
    fn receive_text(&mut self, text: &str, replies: &mut VecDeque<Reply>) -> ControlFlow<()> {
        let message: Value = serde_json::from_str(text).unwrap_or_default();
        match message["type"].as_str() {
            Some("session.update") => {
                let updated = json!({
                    "type": "session.updated", "event_id": "event_3",
                    "session": {"id": "sess_C9G5QPteg4UIbotdKLoYQ", "type": "transcription"},
                });
                replies.push_back(Reply::new(Instant::now(), updated.to_string()));
            }
            Some("input_audio_buffer.append") => {
                let audio = message["audio"].as_str().unwrap_or_default();
                let before = self.audio.len();
                self.push(&STANDARD.decode(audio).expect("audio in base64"));
                if self.audio.len() / DELTA_INTERVAL > before / DELTA_INTERVAL {
                    replies.push_back(self.about_item("delta", "delta", " word "));
                }
            }
            Some("input_audio_buffer.commit") => self.commit(replies),
            _ => {}
        }
        ControlFlow::Continue(())
    }
}
