//! ElevenLabs' `speech-to-text/realtime`: Scribe.

use std::collections::VecDeque;
use std::ops::ControlFlow;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::speech::{TRANSCRIPT_DELAY, UserAudio};
use super::{Measured, Protocol, Reply, STAMP, StampKind};

pub(super) struct Scribe {
    measured: Arc<Measured>,
    audio: UserAudio,
    has_started: bool,
}

impl Scribe {
    pub(super) fn new(measured: Arc<Measured>) -> Self {
        Self { measured, audio: UserAudio::default(), has_started: false }
    }

    /// The text since the last commit. Its last word is the stamp.
    fn transcript(&self, kind: &str) -> Reply {
        let words = (0..self.audio.words().len()).map(|n| format!("word{n} "));
        let text = format!("{}{STAMP}", words.collect::<String>());
        let message = json!({"message_type": kind, "text": text});
        Reply::stamped(Instant::now() + TRANSCRIPT_DELAY, StampKind::Decimal, &message)
    }
}

impl Protocol for Scribe {
    fn receive_text(&mut self, text: &str, replies: &mut VecDeque<Reply>) -> ControlFlow<()> {
        let message: Value = serde_json::from_str(text).unwrap_or_default();
        if message["message_type"] != "input_audio_chunk" {
            return ControlFlow::Continue(());
        }
        if !self.has_started {
            self.has_started = true;
            let started = json!({
                "message_type": "session_started", "session_id": "0b0a72b57fd743ecaf8a1e3bd6a0b8d4",
                "config": {"sample_rate": 16_000, "model_id": "scribe_v2_realtime"},
            });
            replies.push_back(Reply::new(Instant::now(), started.to_string()));
        }
        let audio = message["audio_base_64"].as_str().unwrap_or_default();
        let pcm = STANDARD.decode(audio).expect("audio in base64");
        if self.audio.push(&self.measured, &pcm) {
            replies.push_back(self.transcript("partial_transcript"));
        }
        if message["commit"] == true {
            replies.push_back(self.transcript("committed_transcript"));
            self.audio.end();
        }
        ControlFlow::Continue(())
    }
}
