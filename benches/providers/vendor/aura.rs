//! Deepgram's `/v1/speak`: Aura. It sends no times of words.

use std::collections::VecDeque;
use std::ops::ControlFlow;
use std::sync::Arc;

use serde_json::{Value, json};

use super::speech::AgentSpeech;
use super::{Measured, Protocol, Reply};

pub(super) struct Aura {
    measured: Arc<Measured>,
    speech: AgentSpeech,
    /// Text that waits for a flush.
    text: String,
    /// Number of flushes.
    flushes: u32,
}

impl Aura {
    pub(super) fn new(measured: Arc<Measured>) -> Self {
        Self { measured, speech: AgentSpeech::default(), text: String::new(), flushes: 0 }
    }

    fn flush(&mut self, replies: &mut VecDeque<Reply>) {
        let text = std::mem::take(&mut self.text);
        let stamp = text.split(' ').next().and_then(|stamp| stamp.parse().ok());
        self.measured.tts_out.record(stamp.unwrap_or_default());
        // Texts of the measurement are ASCII.
        let (parts, end) = self.speech.parts(text.len());
        replies.extend(parts.into_iter().map(Reply::samples));
        let mark = json!({"type": "Flushed", "sequence_id": self.flushes});
        self.flushes += 1;
        replies.push_back(Reply::new(end, mark.to_string()));
    }
}

impl Protocol for Aura {
    fn receive_text(&mut self, text: &str, replies: &mut VecDeque<Reply>) -> ControlFlow<()> {
        let message: Value = serde_json::from_str(text).unwrap_or_default();
        match message["type"].as_str() {
            Some("Speak") => self.text.push_str(message["text"].as_str().unwrap_or_default()),
            Some("Flush") => self.flush(replies),
            Some("Close") => return ControlFlow::Break(()),
            _ => {}
        }
        ControlFlow::Continue(())
    }
}
