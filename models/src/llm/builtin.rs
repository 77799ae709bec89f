//! The built-in answerer, which needs no server: it finds the sentence that answers, and says so
//! when it knows none.
//!
//! It replies in this order:
//!
//! - a guardrail whose rule matches is called ([`rules`]);
//! - greetings and small talk follow rules ([`small_talk`]);
//! - a tool is called if its name matches and its parameters can be filled ([`tools`]);
//! - otherwise the best one or two sentences of its knowledge are the reply ([`knowledge_answer`]).
//!
//! What it understands and says is in `assets/answers/en.toml` ([`phrases`]).

mod knowledge_answer;
mod phrases;
mod rules;
mod small_talk;
mod template;
mod tools;

use conversation::event::{HistoryItem, Role};
use serde_json::{Value, json};
use tokio::runtime::Handle as Runtime;

use self::phrases::Phrases;
use super::guardrails::{GuardrailCheck, GuardrailFuture, GuardrailRule};
use super::{Event, Llm, Request, Tool};
use crate::{Handle, Sink};

/// The built-in answerer, under an agent's name.
pub struct BuiltinLlm {
    name: String,
    runtime: Runtime,
}

impl BuiltinLlm {
    /// An answerer that calls itself `name`.
    #[must_use]
    pub fn new(name: &str, runtime: Runtime) -> Self {
        Self { name: name.trim().to_owned(), runtime }
    }
}

impl Llm for BuiltinLlm {
    fn ask(&self, request: Request, sink: Sink<Event>) -> Handle {
        let name = self.name.clone();
        let task = self.runtime.spawn(async move {
            let prompt_tokens = request
                .history
                .iter()
                .map(|item| item.text.split_whitespace().count())
                .sum::<usize>();
            let prompt_tokens = u32::try_from(prompt_tokens).unwrap_or(u32::MAX);
            let mut completion_tokens = 0;
            match answer(&request, &name) {
                Answer::Say(text) => {
                    for token in text.split_inclusive(' ') {
                        completion_tokens += 1;
                        sink.send(Event::Text(token.to_owned()));
                    }
                }
                Answer::ToolCall { name, arguments } => {
                    let id = format!(
                        "call_{}",
                        request.history.iter().filter(|item| item.role == Role::Tool).count() + 1
                    );
                    sink.send(Event::ToolCall { id, name, arguments });
                }
            }
            sink.send(Event::End { prompt_tokens, completion_tokens });
        });
        Handle::new(move || task.abort())
    }

    fn check_guardrails(&self, check: GuardrailCheck) -> GuardrailFuture {
        Box::pin(async move {
            Ok(rules::first_match(&check.rules, &check.user_text).map(str::to_owned))
        })
    }
}

/// Reaction to a request.
#[derive(Debug, PartialEq)]
enum Answer {
    Say(String),
    ToolCall { name: String, arguments: Value },
}

fn answer(request: &Request, name: &str) -> Answer {
    // Notes of the visitor's client were neither said nor heard.
    let talked = |item: &&HistoryItem| item.in_context && item.role != Role::Visitor;
    let visible_items: Vec<&HistoryItem> =
        request.history.iter().map(AsRef::as_ref).filter(talked).collect();
    if visible_items.last().is_some_and(|item| item.role == Role::Tool) {
        let results: Vec<String> = visible_items
            .iter()
            .rev()
            .take_while(|item| item.role == Role::Tool)
            .map(|item| {
                match request.tools.iter().find(|tool| Some(&tool.name) == item.name.as_ref()) {
                    Some(Tool { rule: Some(_), .. }) => Phrases::english().decline.clone(),
                    _ => tools::spoken_result(&item.text),
                }
            })
            .collect();
        return Answer::Say(results.into_iter().rev().collect::<Vec<_>>().join(" "));
    }
    // Adjacent items of the user are one turn.
    let turn = visible_items.iter().rposition(|item| item.role != Role::User).map_or(0, |i| i + 1);
    let user_text =
        visible_items[turn..].iter().map(|item| item.text.as_str()).collect::<Vec<_>>().join(" ");
    if let Some(name) = rules::first_match(&guardrail_rules(&request.tools), &user_text) {
        return Answer::ToolCall { name: name.to_owned(), arguments: json!({}) };
    }
    let context = TurnContext {
        request,
        history: &visible_items[..turn],
        user_text: &user_text,
        agent_name: name,
    };
    if let Some(words) = small_talk::reply(&context) {
        return Answer::Say(words);
    }
    if let Some((tool, arguments)) = tools::select_tool(&request.tools, &user_text) {
        return Answer::ToolCall { name: tool.name.clone(), arguments };
    }
    Answer::Say(
        knowledge_answer::reply(&context).unwrap_or_else(|| small_talk::unknown_reply(&context)),
    )
}

/// The guardrails among the tools.
fn guardrail_rules(tools: &[Tool]) -> Vec<GuardrailRule> {
    let rule =
        |tool: &Tool| Some(GuardrailRule { key: tool.name.clone(), prompt: tool.rule.clone()? });
    tools.iter().filter_map(rule).collect()
}

/// Everything that a reply is made from.
struct TurnContext<'a> {
    request: &'a Request,
    /// The items before this turn.
    history: &'a [&'a HistoryItem],
    /// The user's text of this turn.
    user_text: &'a str,
    /// The agent's name.
    agent_name: &'a str,
}

impl<'a> TurnContext<'a> {
    /// The last text of `role` before this turn.
    fn last_text(&self, role: Role) -> Option<&'a str> {
        self.history.iter().rev().find(|item| item.role == role).map(|item| item.text.as_str())
    }
}

/// Converts text to speakable text: no markup, no list marks, a final punctuation mark.
fn speakable(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text.trim();
    for label in &Phrases::english().knowledge.labels {
        rest = rest.strip_prefix(label.as_str()).unwrap_or(rest).trim_start();
    }
    let mut chars = rest.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '*' | '`' | '#' | '[' | ']' | '|' => {}
            '_' if out.ends_with(' ')
                || out.is_empty()
                || chars.peek().is_none_or(|next| !next.is_alphanumeric()) => {}
            // [text](where): the URL is not spoken.
            '(' if text.contains("](") && matches!(chars.peek(), Some('h' | '/' | '#')) => {
                while chars.next_if(|c| *c != ')').is_some() {}
            }
            ')' if text.contains("](") => {}
            c => out.push(c),
        }
    }
    let mut out = out.split_whitespace().collect::<Vec<_>>().join(" ");
    if let Some(first) = out.chars().next().filter(|c| c.is_lowercase()) {
        out.replace_range(..first.len_utf8(), &first.to_uppercase().to_string());
    }
    let end = out.trim_end_matches([',', ';', ':', '-', ' ']).len();
    out.truncate(end);
    if out.chars().last().is_some_and(char::is_alphanumeric)
        || out.ends_with([')', '"', '%', '€', '$'])
    {
        out.push('.');
    }
    out
}

#[cfg(test)]
mod tests;
