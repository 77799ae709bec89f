//! What the model is asked about in a conversation of several people, and what it has sent so far.
//! Plain data and queries on it; `model_decision` has the rules.

use core::time::Duration;

use crate::contract::direction;
use crate::contract::event::{Event, TurnTimes};
use crate::contract::input::{GenerationId, LlmEvent};
use crate::contract::output::STAY_SILENT;
use crate::contract::time::Time;
use crate::machine::reply::Reply;

/// Maximum age of an utterance about which the model is asked.
const MAX_UTTERANCE_AGE: Duration = Duration::from_secs(15);

/// An utterance that the rules leave open.
pub(crate) struct OpenUtterance {
    pub(crate) committed_at: Time,
    pub(crate) speaker: Option<String>,
    pub(crate) times: TurnTimes,
    /// True end of its speech.
    pub(crate) speech_end: Option<Time>,
}

impl OpenUtterance {
    /// Whether the model may still be asked about it.
    pub(crate) fn is_fresh(&self, now: Time) -> bool {
        now.since(self.committed_at) <= MAX_UTTERANCE_AGE
    }
}

/// A request whose outcome is not known.
pub(crate) struct PendingDecision {
    pub(crate) reply: Reply,
    /// The last utterance that it is about.
    pub(crate) utterance: OpenUtterance,
    /// What the model has sent.
    pub(crate) held_events: Vec<LlmEvent>,
    pub(crate) held_chars: usize,
    /// The results of its knowledge search.
    pub(crate) held_snippets: Vec<Event>,
    /// Whether the model has called [`STAY_SILENT`].
    pub(crate) is_silent: bool,
}

/// The open utterances and the request about them.
#[derive(Default)]
pub(crate) struct ModelDecisions {
    /// Oldest first.
    pub(crate) collected: Vec<OpenUtterance>,
    pub(crate) last_request_at: Option<Time>,
    pub(crate) pending: Option<Box<PendingDecision>>,
}

impl PendingDecision {
    pub(crate) fn new(reply: Reply, utterance: OpenUtterance) -> Self {
        Self {
            reply,
            utterance,
            held_events: Vec::new(),
            held_chars: 0,
            held_snippets: Vec::new(),
            is_silent: false,
        }
    }

    /// Whether its answer says nothing. Some models write the tool's name instead of calling it.
    pub(crate) fn says_nothing(&self) -> bool {
        let mut text = String::new();
        for event in &self.held_events {
            match event {
                LlmEvent::Text(more) => text.push_str(more),
                LlmEvent::ToolCall { .. } => return false,
                _ => {}
            }
        }
        let (text, _) = direction::split(&text);
        let words = text.trim_matches(|c: char| !c.is_alphanumeric());
        self.is_silent || words.is_empty() || words.eq_ignore_ascii_case(STAY_SILENT)
    }
}

impl ModelDecisions {
    /// The reply that the model may still leave out.
    pub(crate) fn pending_reply(&self) -> Option<&Reply> {
        self.pending.as_deref().map(|pending| &pending.reply)
    }

    /// The pending request with this id.
    pub(crate) fn pending_of(&mut self, id: GenerationId) -> Option<&mut PendingDecision> {
        let is_of = |reply: &Reply| reply.generation.as_ref().is_some_and(|found| found.id == id);
        self.pending.as_deref_mut().filter(|pending| is_of(&pending.reply))
    }
}
