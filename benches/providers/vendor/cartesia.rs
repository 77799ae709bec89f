//! Cartesia's `/tts/websocket`.

use std::collections::{HashMap, VecDeque};
use std::ops::ControlFlow;
use std::sync::Arc;

use serde_json::{Value, json};

use super::speech::{AgentSpeech, CHARACTER_SAMPLES, Part, sound};
use super::{Measured, Protocol, Reply, StampKind};

/// Samples per second.
const RATE: f64 = 24_000.0;

pub(super) struct Cartesia {
    measured: Arc<Measured>,
    speech: AgentSpeech,
    /// Samples of each context so far.
    contexts: HashMap<String, usize>,
}

impl Cartesia {
    pub(super) fn new(measured: Arc<Measured>) -> Self {
        Self { measured, speech: AgentSpeech::default(), contexts: HashMap::new() }
    }

    fn speak(&mut self, context: &str, text: &str, replies: &mut VecDeque<Reply>) {
        let stamp = text.split(' ').next().and_then(|stamp| stamp.parse().ok());
        self.measured.tts_out.record(stamp.unwrap_or_default());
        let position = self.contexts.entry(context.to_owned()).or_default();
        let (parts, end) = self.speech.parts(text.len());
        for part in &parts {
            if let Some(times) = word_times(context, text, part, *position) {
                replies.push_back(Reply::new(part.due, times));
            }
            let message = json!({
                "type": "chunk", "context_id": context, "data": sound(part), "done": false,
                "status_code": 206, "step_time": 9.5,
            });
            replies.push_back(Reply::stamped(part.due, StampKind::Samples, &message));
        }
        *position += text.len() * CHARACTER_SAMPLES;
        let mark = json!({
            "type": "flush_done", "context_id": context, "flush_id": 1, "flush_done": true,
            "done": false, "status_code": 206,
        });
        replies.push_back(Reply::new(end, mark.to_string()));
    }
}

/// The words that begin in a message, with their times in the context.
fn word_times(context: &str, text: &str, part: &Part, position: usize) -> Option<String> {
    let (mut words, mut starts, mut ends) = (Vec::new(), Vec::new(), Vec::new());
    let seconds = |n: usize| (position + n * CHARACTER_SAMPLES) as f64 / RATE;
    let mut at = 0;
    for word in text.split(' ') {
        let end = at + word.len();
        let is_here = (part.samples.0..part.samples.1).contains(&(at * CHARACTER_SAMPLES));
        if is_here && !word.is_empty() {
            words.push(word);
            starts.push(seconds(at));
            ends.push(seconds(end));
        }
        at = end + 1;
    }
    let message = json!({
        "type": "timestamps", "context_id": context, "done": false, "status_code": 206,
        "word_timestamps": {"words": words, "start": starts, "end": ends},
    });
    (!words.is_empty()).then(|| message.to_string())
}

impl Protocol for Cartesia {
    fn receive_text(&mut self, text: &str, replies: &mut VecDeque<Reply>) -> ControlFlow<()> {
        let message: Value = serde_json::from_str(text).unwrap_or_default();
        if let (Some(context), Some(text)) =
            (message["context_id"].as_str(), message["transcript"].as_str())
        {
            // Texts of the measurement are ASCII.
            self.speak(context, text, replies);
        }
        ControlFlow::Continue(())
    }
}
