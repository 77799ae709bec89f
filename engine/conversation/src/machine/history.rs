//! The history: what was said and heard, in the order in which the LLM sees it. The transcript is
//! built from the events of the same items.

use std::sync::Arc;

use serde_json::Value;

use crate::contract::event::{HistoryItem, Role, UtteranceId};
use crate::contract::input::GenerationId;
use crate::contract::time::Time;

/// The items that the LLM sees, in its order.
#[derive(Default)]
pub(crate) struct History {
    /// Shared with the requests to the LLM. Otherwise each request would copy the whole history.
    items: Vec<(Arc<HistoryItem>, Option<GenerationId>)>,
    /// Increases with each change that the LLM can see.
    pub(crate) version: u64,
}

impl History {
    /// Adds an item. The words of a generation and the messages of its tools are inserted before
    /// the results of its tools, which may have arrived earlier. The reason: an LLM expects the
    /// results directly after its tool calls.
    pub(crate) fn push(&mut self, item: HistoryItem, generation: Option<GenerationId>) {
        if !item.in_context {
            return;
        }
        self.version += 1;
        let item = with_speaker(item);
        let mut at = self.items.len();
        if item.role == Role::Assistant && generation.is_some() {
            let results =
                self.items.iter().rev().take_while(|(item, _)| item.role == Role::Tool).count();
            let last = &self.items[at - results..];
            at -= last
                .iter()
                .position(|(_, of)| *of == generation)
                .map_or(0, |first| results - first);
        }
        self.items.insert(at, (Arc::new(item), generation));
    }

    /// Removes the items that earlier context commands added, including those of visitors.
    pub(crate) fn remove_context(&mut self) {
        self.items.retain(|(item, _)| !matches!(item.role, Role::System | Role::Visitor));
        self.version += 1;
    }

    /// Removes the items that clients added.
    pub(crate) fn remove_visitor_context(&mut self) {
        self.items.retain(|(item, _)| item.role != Role::Visitor);
        self.version += 1;
    }

    /// Bytes of the items that clients added and that were not removed.
    pub(crate) fn visitor_context_bytes(&self) -> usize {
        let visitor_items = self.items.iter().filter(|(item, _)| item.role == Role::Visitor);
        visitor_items.map(|(item, _)| item.text.len()).sum()
    }

    /// The items for a request to the LLM. `open_turn_text`: the text of a turn that is not
    /// committed yet.
    pub(crate) fn for_llm(&self, open_turn_text: Option<&str>) -> Vec<Arc<HistoryItem>> {
        let open_turn_text =
            open_turn_text.map(|text| Arc::new(text_item(Role::User, text.to_owned())));
        self.items.iter().map(|(item, _)| Arc::clone(item)).chain(open_turn_text).collect()
    }
}

impl HistoryItem {
    /// The words, without the name of the speaker that the LLM sees before them.
    #[must_use]
    pub fn words(&self) -> &str {
        let words = self.speaker.as_deref().and_then(|name| self.text.strip_prefix(name));
        words.and_then(|words| words.strip_prefix(": ")).unwrap_or(&self.text)
    }
}

/// The item as the LLM sees it: with the name of the speaker before the words.
fn with_speaker(mut item: HistoryItem) -> HistoryItem {
    if let Some(speaker) = &item.speaker {
        item.text = format!("{speaker}: {}", item.text);
    }
    item
}

/// An item with text of the user, or of a context command.
pub(crate) fn text_item(role: Role, text: String) -> HistoryItem {
    HistoryItem {
        role,
        speaker: None,
        name: None,
        arguments: None,
        text,
        interrupted: false,
        utterance: None,
        started_at: None,
        ended_at: None,
        in_context: true,
    }
}

/// An item with text that the user spoke, or typed. `speech`: true onset and end.
pub(crate) fn user_item(text: String, speech: Option<(Time, Time)>) -> HistoryItem {
    let (started_at, ended_at) = speech.unzip();
    HistoryItem { started_at, ended_at, ..text_item(Role::User, text) }
}

/// An item with text that the agent spoke.
pub(crate) fn assistant_item(
    text: String,
    interrupted: bool,
    utterance: UtteranceId,
    began: Time,
    in_context: bool,
) -> HistoryItem {
    HistoryItem {
        interrupted,
        utterance: Some(utterance),
        started_at: Some(began),
        in_context,
        ..text_item(Role::Assistant, text)
    }
}

/// An item with the call and the result of a tool.
pub(crate) fn tool_item(name: String, arguments: Value, text: String, began: Time) -> HistoryItem {
    HistoryItem {
        name: Some(name),
        arguments: Some(arguments),
        started_at: Some(began),
        ..text_item(Role::Tool, text)
    }
}
