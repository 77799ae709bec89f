//! What was said and heard: one list for the transcript, and the order in which the LLM sees it.

use std::sync::Arc;

use serde_json::Value;

use crate::event::{HistoryItem, Role, UtteranceId};
use crate::input::GenerationId;
use crate::time::Time;

/// The items that the LLM sees, in its order.
#[derive(Default)]
pub(crate) struct History {
    /// Shared with the questions: each would copy all that was ever said otherwise.
    items: Vec<(Arc<HistoryItem>, Option<GenerationId>)>,
    /// Rises with each change that the LLM can see.
    pub(crate) version: u64,
}

impl History {
    /// Adds an item. What is said of a step, its words and the messages of its tools, goes before the results of its tools, which may have
    /// come meanwhile: a model's calls are answered by their results, and by nothing in between.
    pub(crate) fn push(&mut self, item: HistoryItem, generation: Option<GenerationId>) {
        if !item.in_context {
            return;
        }
        self.version += 1;
        let mut at = self.items.len();
        if item.role == Role::Assistant && generation.is_some() {
            let results = self.items.iter().rev().take_while(|(item, _)| item.role == Role::Tool).count();
            let last = &self.items[at - results..];
            at -= last.iter().position(|(_, of)| *of == generation).map_or(0, |first| results - first);
        }
        self.items.insert(at, (Arc::new(item), generation));
    }

    /// Forgets what earlier context commands added.
    pub(crate) fn remove_context(&mut self) {
        self.items.retain(|(item, _)| !matches!(item.role, Role::System | Role::Visitor));
        self.version += 1;
    }

    /// Forgets what clients added.
    pub(crate) fn remove_visitor_context(&mut self) {
        self.items.retain(|(item, _)| item.role != Role::Visitor);
        self.version += 1;
    }

    /// Bytes that clients added and nobody took back.
    pub(crate) fn visitor_context_bytes(&self) -> usize {
        let visitor_items = self.items.iter().filter(|(item, _)| item.role == Role::Visitor);
        visitor_items.map(|(item, _)| item.text.len()).sum()
    }

    /// For the LLM; `open` = the text of a turn that is not committed yet.
    pub(crate) fn for_llm(&self, open_turn_text: Option<&str>) -> Vec<Arc<HistoryItem>> {
        let open_turn_text = open_turn_text.map(|text| Arc::new(text_item(Role::User, text.to_owned())));
        self.items.iter().map(|(item, _)| Arc::clone(item)).chain(open_turn_text).collect()
    }
}

/// Words of the user, or of a context command.
pub(crate) fn text_item(role: Role, text: String) -> HistoryItem {
    HistoryItem {
        role,
        name: None,
        arguments: None,
        text,
        interrupted: false,
        utterance: None,
        started_at: None,
        in_context: true,
    }
}

/// Words of the agent.
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

/// A tool's call and result.
pub(crate) fn tool_item(name: String, arguments: Value, text: String, began: Time) -> HistoryItem {
    HistoryItem {
        name: Some(name),
        arguments: Some(arguments),
        started_at: Some(began),
        ..text_item(Role::Tool, text)
    }
}
