//! ElevenLabs' `text-to-speech/VOICE/multi-stream-input`.

use std::collections::{HashMap, VecDeque};
use std::ops::ControlFlow;
use std::sync::Arc;

use serde_json::{Value, json};
use tokio::time::Instant;

use super::speech::{AgentSpeech, CHARACTER_SAMPLES, Part, sound};
use super::{Measured, Protocol, Reply, StampKind};

/// Samples per millisecond.
const SAMPLES_PER_MS: usize = 24;

pub(super) struct ElevenLabs {
    measured: Arc<Measured>,
    speech: AgentSpeech,
    /// Samples of each context so far.
    contexts: HashMap<String, usize>,
}

impl ElevenLabs {
    pub(super) fn new(measured: Arc<Measured>) -> Self {
        Self { measured, speech: AgentSpeech::default(), contexts: HashMap::new() }
    }

    fn speak(&mut self, context: &str, text: &str, replies: &mut VecDeque<Reply>) {
        let stamp = text.split(' ').next().and_then(|stamp| stamp.parse().ok());
        self.measured.tts_out.record(stamp.unwrap_or_default());
        let characters: Vec<char> = text.chars().collect();
        let position = self.contexts.entry(context.to_owned()).or_default();
        let (parts, end) = self.speech.parts(characters.len());
        for part in &parts {
            let alignment = alignment(&characters, part, *position);
            let message = json!({
                "audio": sound(part), "isFinal": null, "normalizedAlignment": alignment,
                "alignment": alignment, "contextId": context,
            });
            replies.push_back(Reply::stamped(part.due, StampKind::Samples, &message));
        }
        *position += characters.len() * CHARACTER_SAMPLES;
        let mark = json!({"type": "flush_done", "contextId": context});
        replies.push_back(Reply::new(end, mark.to_string()));
    }
}

/// The characters that begin in a message, with their times in the context.
fn alignment(characters: &[char], part: &Part, position: usize) -> Value {
    let (from, to) = part.samples;
    let range = from.div_ceil(CHARACTER_SAMPLES)..to.div_ceil(CHARACTER_SAMPLES);
    let texts: Vec<String> = characters[range.clone()].iter().map(char::to_string).collect();
    let ms = |n: usize| (position + n * CHARACTER_SAMPLES) / SAMPLES_PER_MS;
    let starts: Vec<usize> = range.clone().map(ms).collect();
    let durations: Vec<usize> = range.map(|n| ms(n + 1) - ms(n)).collect();
    json!({"chars": texts, "charStartTimesMs": starts, "charDurationsMs": durations})
}

impl Protocol for ElevenLabs {
    fn receive_text(&mut self, text: &str, replies: &mut VecDeque<Reply>) -> ControlFlow<()> {
        let message: Value = serde_json::from_str(text).unwrap_or_default();
        if message["close_socket"] == true {
            return ControlFlow::Break(());
        }
        let Some(context) = message["context_id"].as_str() else {
            return ControlFlow::Continue(());
        };
        if message["close_context"] == true {
            self.contexts.remove(context);
            let last = json!({"isFinal": true, "contextId": context});
            replies.push_back(Reply::new(Instant::now(), last.to_string()));
        } else if message["flush"] == true {
            self.speak(context, message["text"].as_str().unwrap_or_default(), replies);
        }
        ControlFlow::Continue(())
    }
}
