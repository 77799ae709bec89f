//! Deepgram's `/v1/listen`: Nova.

use std::collections::VecDeque;
use std::ops::ControlFlow;
use std::sync::Arc;

use serde_json::{Value, json};
use tokio::time::Instant;

use super::speech::{INPUT_RATE, TRANSCRIPT_DELAY, UserAudio};
use super::{Measured, Protocol, Reply, STAMP, StampKind};

pub(super) struct Deepgram {
    measured: Arc<Measured>,
    audio: UserAudio,
}

impl Deepgram {
    pub(super) fn new(measured: Arc<Measured>) -> Self {
        Self { measured, audio: UserAudio::default() }
    }

    /// The transcript of the utterance so far. Its last word is the stamp.
    fn results(&self, is_final: bool) -> Reply {
        let seconds = |samples: usize| samples as f64 / INPUT_RATE as f64;
        let (mut text, mut words) = (String::new(), Vec::new());
        for (n, (start, end)) in self.audio.words().enumerate() {
            let word = format!("word{n}");
            text.push_str(&word);
            text.push(' ');
            words.push(json!({
                "word": word, "start": seconds(start), "end": seconds(end), "confidence": 0.99,
                "punctuated_word": word,
            }));
        }
        text.push_str(STAMP);
        let message = json!({
            "type": "Results", "channel_index": [0, 1], "duration": seconds(self.audio.samples),
            "start": seconds(self.audio.start), "is_final": is_final, "speech_final": false,
            "channel": {
                "alternatives": [{"transcript": text, "confidence": 0.99, "words": words}],
            },
            "metadata": {
                "request_id": "5f9a8f2e-2d5c-4a4b-9f5e-2d0a6b7c8d9e",
                "model_info": {
                    "name": "general-nova-3", "version": "2025-07-31.0", "arch": "nova-3",
                },
                "model_uuid": "40bd3654-e622-47c4-a111-63a61b23bfe8",
            },
            "from_finalize": is_final,
        });
        Reply::stamped(Instant::now() + TRANSCRIPT_DELAY, StampKind::Decimal, &message)
    }
}

impl Protocol for Deepgram {
    fn receive_text(&mut self, text: &str, replies: &mut VecDeque<Reply>) -> ControlFlow<()> {
        let message: Value = serde_json::from_str(text).unwrap_or_default();
        match message["type"].as_str() {
            Some("Finalize") => {
                replies.push_back(self.results(true));
                self.audio.end();
            }
            Some("CloseStream") => return ControlFlow::Break(()),
            _ => {}
        }
        ControlFlow::Continue(())
    }

    fn receive_audio(&mut self, pcm: &[u8], replies: &mut VecDeque<Reply>) {
        if self.audio.push(&self.measured, pcm) {
            replies.push_back(self.results(false));
        }
    }
}
