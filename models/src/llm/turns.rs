//! The history as turns that alternate, for protocols whose first and last message must be the
//! user's.

use conversation::event::HistoryItem;
use serde_json::{Value, json};

use super::Request;
use super::history::{Step, excerpts, steps, visitor_message};
use super::tool_calls::sanitize_tool_name;

/// The user message before agent speech that begins a conversation.
const CALL_BEGINS: &str = "(The call begins.)";

/// The user message after agent speech.
pub(super) const USER_IS_SILENT: &str = "(The user says nothing. Continue the conversation.)";

/// Who speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Speaker {
    User,
    Agent,
}

/// Part of a turn.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Block {
    Text(String),
    /// A call of a tool, by the agent.
    Call {
        id: String,
        /// The agent's name of the tool.
        tool: String,
        /// The server's name of the tool.
        name: String,
        /// An object.
        arguments: Value,
        /// Whether it is the first of the calls that ran together.
        first: bool,
    },
    /// The result of a call, in the turn of the user that follows.
    Result {
        id: String,
        name: String,
        text: String,
    },
}

/// Blocks of one speaker, at least one.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Turn {
    pub(super) speaker: Speaker,
    pub(super) blocks: Vec<Block>,
}

/// The turns of a request. The first and the last one are the user's.
///
/// A tool's item becomes a call of the agent and its result in the user's turn that follows: the
/// results of all calls of a turn first, then text. The excerpts stand before the words of the last
/// turn, for which they were found: in the system prompt they would end the prefix that the server
/// caches.
pub(super) fn turns(request: &Request) -> Vec<Turn> {
    let mut turns: Vec<Turn> = Vec::new();
    if let Some(visitor_text) = visitor_message(request) {
        push_text(&mut turns, Speaker::User, &visitor_text);
    }
    for step in steps(request) {
        match step {
            Step::Text("assistant", text) => push_text(&mut turns, Speaker::Agent, text),
            Step::Text(_, text) => push_text(&mut turns, Speaker::User, text),
            Step::Calls { items, first } => push_calls(&mut turns, &items, first),
        }
    }
    if turns.first().is_none_or(|first| first.speaker != Speaker::User) {
        let blocks = vec![Block::Text(CALL_BEGINS.into())];
        turns.insert(0, Turn { speaker: Speaker::User, blocks });
    }
    if turns.last().is_some_and(|last| last.speaker != Speaker::User) {
        push_text(&mut turns, Speaker::User, USER_IS_SILENT);
    }
    if let (Some(excerpts), Some(last)) = (excerpts(request), turns.last_mut()) {
        let results = last.blocks.iter().take_while(|block| matches!(block, Block::Result { .. }));
        last.blocks.insert(results.count(), Block::Text(format!("{excerpts}\n\n")));
    }
    turns
}

/// The blocks of the last turn if it is this speaker's, else of a new one.
fn blocks_of(turns: &mut Vec<Turn>, speaker: Speaker) -> &mut Vec<Block> {
    if turns.last().is_none_or(|last| last.speaker != speaker) {
        turns.push(Turn { speaker, blocks: Vec::new() });
    }
    let last = turns.len() - 1;
    &mut turns[last].blocks
}

fn push_text(turns: &mut Vec<Turn>, speaker: Speaker, text: &str) {
    if text.trim().is_empty() {
        return;
    }
    let blocks = blocks_of(turns, speaker);
    if let Some(Block::Text(words)) = blocks.last_mut() {
        words.push('\n');
        words.push_str(text);
    } else {
        blocks.push(Block::Text(text.to_owned()));
    }
}

fn push_calls(turns: &mut Vec<Turn>, items: &[&HistoryItem], before: usize) {
    let id = |i: usize| format!("call_{}", before + i + 1);
    let tool = |item: &HistoryItem| item.name.clone().unwrap_or_default();
    let calls = items.iter().enumerate().map(|(i, item)| Block::Call {
        id: id(i),
        tool: tool(item),
        name: sanitize_tool_name(&tool(item)),
        arguments: item.arguments.clone().filter(Value::is_object).unwrap_or_else(|| json!({})),
        first: i == 0,
    });
    blocks_of(turns, Speaker::Agent).extend(calls);
    let results = items.iter().enumerate().map(|(i, item)| Block::Result {
        id: id(i),
        name: sanitize_tool_name(&tool(item)),
        text: item.text.clone(),
    });
    blocks_of(turns, Speaker::User).extend(results);
}
