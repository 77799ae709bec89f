//! Deepgram's `/v2/listen`: Flux.

use std::collections::VecDeque;
use std::ops::ControlFlow;
use std::sync::Arc;

use serde_json::{Value, json};
use tokio::time::Instant;

use super::speech::{INPUT_RATE, TRANSCRIPT_DELAY, UserAudio};
use super::{Measured, Protocol, Reply, STAMP, StampKind};

const REQUEST_ID: &str = "5f9a8f2e-2d5c-4a4b-9f5e-2d0a6b7c8d9e";

pub(super) struct Flux {
    measured: Arc<Measured>,
    audio: UserAudio,
    /// Number of the current turn; `None` before the first audio.
    turn: Option<u32>,
    /// Number of the last message.
    sequence: u32,
}

impl Flux {
    pub(super) fn new(measured: Arc<Measured>) -> Self {
        Self { measured, audio: UserAudio::default(), turn: None, sequence: 0 }
    }

    /// The transcript of the turn so far. Its last word is the stamp.
    fn turn_info(&mut self, is_final: bool) -> Reply {
        let seconds = |samples: usize| samples as f64 / INPUT_RATE as f64;
        let (mut transcript, mut words) = (String::new(), Vec::new());
        for (n, (start, end)) in self.audio.words().enumerate() {
            let word = format!("word{n}");
            transcript.push_str(&word);
            transcript.push(' ');
            words.push(json!({
                "word": word, "start": seconds(start), "end": seconds(end), "confidence": 0.99,
            }));
        }
        transcript.push_str(STAMP);
        self.sequence += 1;
        let mut message = json!({
            "type": "TurnInfo", "request_id": REQUEST_ID, "sequence_id": self.sequence,
            "event": if is_final { "EndOfTurn" } else { "Update" },
            "turn_index": self.turn.unwrap_or_default(),
            "audio_window_start": seconds(self.audio.start),
            "audio_window_end": seconds(self.audio.start + self.audio.samples),
            "transcript": transcript, "words": words, "end_of_turn_confidence": 0.01,
        });
        if is_final {
            message["trigger"] = "manual".into();
        }
        Reply::stamped(Instant::now() + TRANSCRIPT_DELAY, StampKind::Decimal, &message)
    }
}

impl Protocol for Flux {
    fn receive_text(&mut self, text: &str, replies: &mut VecDeque<Reply>) -> ControlFlow<()> {
        let message: Value = serde_json::from_str(text).unwrap_or_default();
        match message["type"].as_str() {
            Some("ForceEndTurn") => {
                replies.push_back(self.turn_info(true));
                self.audio.end();
                self.turn = self.turn.map(|turn| turn + 1);
            }
            Some("CloseStream") => return ControlFlow::Break(()),
            _ => {}
        }
        ControlFlow::Continue(())
    }

    fn receive_audio(&mut self, pcm: &[u8], replies: &mut VecDeque<Reply>) {
        if self.turn.is_none() {
            self.turn = Some(0);
            let connected =
                json!({"type": "Connected", "request_id": REQUEST_ID, "sequence_id": 0});
            replies.push_back(Reply::new(Instant::now(), connected.to_string()));
        }
        if self.audio.push(&self.measured, pcm) {
            replies.push_back(self.turn_info(false));
        }
    }
}
