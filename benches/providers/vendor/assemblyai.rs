//! AssemblyAI's `/v3/ws`: Universal-3.

use std::collections::VecDeque;
use std::ops::ControlFlow;
use std::sync::Arc;

use serde_json::{Value, json};
use tokio::time::Instant;

use super::speech::{INPUT_RATE, TRANSCRIPT_DELAY, UserAudio};
use super::{Measured, Protocol, Reply, STAMP, StampKind};

const BEGIN: &str =
    r#"{"type":"Begin","id":"3c1f6a5e-6b1c-4a57-9f0e-0f2d4c1b7a90","expires_at":1999999999}"#;

pub(super) struct AssemblyAi {
    measured: Arc<Measured>,
    audio: UserAudio,
    /// Number of the current turn; `None` before the first audio.
    turn: Option<u32>,
}

impl AssemblyAi {
    pub(super) fn new(measured: Arc<Measured>) -> Self {
        Self { measured, audio: UserAudio::default(), turn: None }
    }

    /// The turn so far. Its last word is the stamp: of `words` before the end of the turn, of the
    /// transcript at its end.
    fn turn(&self, is_final: bool) -> Reply {
        let ms = |samples: usize| samples * 1_000 / INPUT_RATE;
        let count = self.audio.words().len();
        let (mut transcript, mut words) = (String::new(), Vec::new());
        for (n, (start, end)) in self.audio.words().enumerate() {
            let is_last = n + 1 == count;
            let word = if is_last && !is_final { STAMP.to_owned() } else { format!("word{n}") };
            if is_final || !is_last {
                transcript.push_str(&word);
                transcript.push(' ');
            }
            words.push(json!({
                "start": ms(start), "end": ms(end), "text": word, "confidence": 0.99,
                "word_is_final": is_final || !is_last,
            }));
        }
        if is_final {
            transcript.push_str(STAMP);
        }
        let message = json!({
            "type": "Turn", "turn_order": self.turn.unwrap_or_default(),
            "turn_is_formatted": is_final, "end_of_turn": is_final,
            "end_of_turn_confidence": 0.01, "transcript": transcript, "words": words,
        });
        Reply::stamped(Instant::now() + TRANSCRIPT_DELAY, StampKind::Decimal, &message)
    }
}

impl Protocol for AssemblyAi {
    fn receive_text(&mut self, text: &str, replies: &mut VecDeque<Reply>) -> ControlFlow<()> {
        let message: Value = serde_json::from_str(text).unwrap_or_default();
        match message["type"].as_str() {
            Some("ForceEndpoint") => {
                replies.push_back(self.turn(true));
                self.audio.end();
                self.turn = self.turn.map(|turn| turn + 1);
            }
            Some("Terminate") => return ControlFlow::Break(()),
            _ => {}
        }
        ControlFlow::Continue(())
    }

    fn receive_audio(&mut self, pcm: &[u8], replies: &mut VecDeque<Reply>) {
        if self.turn.is_none() {
            self.turn = Some(0);
            replies.push_back(Reply::new(Instant::now(), BEGIN));
        }
        if self.audio.push(&self.measured, pcm) {
            replies.push_back(self.turn(false));
        }
    }
}
