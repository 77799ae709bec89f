//! The built-in answerer, which needs no server: it finds the sentence that answers, and says so
//! when it knows none.
//!
//! It replies in this order:
//!
//! - a guardrail whose rule matches is called ([`rules`]);
//! - a text that is nothing but a goodbye ends the call ([`farewell`]);
//! - greetings and small talk follow rules ([`small_talk`]);
//! - a tool is called if its name matches and its parameters can be filled ([`tools`]);
//! - otherwise the knowledge is read as candidates ([`candidates`]), which are ranked ([`ranking`]) by how
//!   well they answer the question ([`question`]). A text that refers to the turn before is
//!   completed first ([`follow_up`]). The reply is the best candidate, or a request to say it again, or
//!   the statement that no answer is known ([`knowledge_answer`]).
//!
//! With a sentence encoder ([`encoder`]), it recognizes paraphrases. Without one, it compares words
//! and their synonyms ([`lexicon`]). What it understands and says is in `assets/answers/en.toml`
//! ([`phrases`]).

mod candidates;
mod encoder;
mod farewell;
mod follow_up;
mod knowledge_answer;
mod lexicon;
mod phrases;
mod prompt;
mod question;
mod ranking;
mod rules;
mod small_talk;
mod speakable;
mod template;
mod tools;

use std::sync::Arc;

use conversation::event::{HistoryItem, Role, Snippet};
use knowledge::normalize_words;
use serde_json::{Value, json};
use tokio::runtime::Handle as Runtime;

pub use self::encoder::{CachedEncoder, TextEncoder};
use self::knowledge_answer::{Candidates, Finding};
use self::phrases::Phrases;
use super::guardrails::{GuardrailCheck, GuardrailFuture, GuardrailRule};
use super::{Event, Llm, Request, Tool};
use crate::{Error, ErrorKind, Handle, Sink};

/// Maximum length of an answer in bytes, because it is spoken.
const MAX_ANSWER_BYTES: usize = 320;

/// Maximum number of passages of the knowledge that are ranked. Encoding a passage takes some ten
/// milliseconds at the start of the first call.
const MAX_PASSAGES: usize = 48;

/// The built-in answerer, under an agent's name.
pub struct BuiltinLlm {
    name: Arc<str>,
    runtime: Runtime,
    encoder: Option<Arc<CachedEncoder>>,
}

impl BuiltinLlm {
    /// An answerer that calls itself `name`. Without an encoder, it compares words only.
    #[must_use]
    pub fn new(name: &str, runtime: Runtime, encoder: Option<Arc<CachedEncoder>>) -> Self {
        Self { name: name.trim().into(), runtime, encoder }
    }

    /// As [`Llm::prepare`], on the caller's thread.
    pub fn prepare_now(&self, passages: Vec<Snippet>, prompt: &str) {
        if let Some(encoder) = &self.encoder {
            encode(&request_for(passages, prompt), encoder);
        }
    }
}

fn request_for(passages: Vec<Snippet>, prompt: &str) -> Request {
    Request {
        prompt: prompt.to_owned(),
        history: Vec::new(),
        snippets: passages,
        tools: Vec::new(),
        model: String::new(),
    }
}

/// Encodes the knowledge of a request, so that later turns need not.
fn encode(request: &Request, encoder: &CachedEncoder) {
    let talk = TurnContext { request, history: &[], user_text: "", agent_name: "" };
    Candidates::collect(&talk).prepare(encoder);
}

impl Llm for BuiltinLlm {
    fn ask(&self, request: Request, sink: Sink<Event>) -> Handle {
        let (name, encoder) = (Arc::clone(&self.name), self.encoder.clone());
        let task = self.runtime.spawn(async move {
            let prompt_tokens = request
                .history
                .iter()
                .map(|item| item.text.split_whitespace().count())
                .sum::<usize>();
            let prompt_tokens = u32::try_from(prompt_tokens).unwrap_or(u32::MAX);
            let tool_results =
                request.history.iter().filter(|item| item.role == Role::Tool).count();
            let mut completion_tokens = 0;
            // Encoding takes milliseconds, which would delay other tasks of the runtime.
            let answer = tokio::task::spawn_blocking(move || {
                let answer = answer(&request, &name, encoder.as_deref());
                if let Some(encoder) = encoder.filter(|encoder| encoder.take_incomplete()) {
                    // For the turns after this one.
                    drop(tokio::task::spawn_blocking(move || encode(&request, &encoder)));
                }
                answer
            });
            match answer.await {
                Ok(Answer::Say(text)) => {
                    for token in text.split_inclusive(' ') {
                        completion_tokens += 1;
                        sink.send(Event::Text(token.to_owned()));
                    }
                }
                Ok(Answer::ToolCall { name, arguments }) => {
                    let id = format!("call_{}", tool_results + 1);
                    sink.send(Event::ToolCall { id, name, arguments });
                }
                Err(error) => {
                    let failed = Error::new(ErrorKind::Failed, "the answerer failed");
                    sink.send(Event::Failed(failed.with_source(error.to_string())));
                    return;
                }
            }
            sink.send(Event::End { prompt_tokens, cached_tokens: 0, completion_tokens });
        });
        Handle::new(move || task.abort())
    }

    fn max_passages(&self) -> Option<usize> {
        Some(MAX_PASSAGES)
    }

    fn follows_directions(&self) -> bool {
        false
    }

    fn prepare(&self, passages: Vec<Snippet>, prompt: &str) {
        let Some(encoder) = self.encoder.clone() else { return };
        let request = request_for(passages, prompt);
        drop(self.runtime.spawn_blocking(move || encode(&request, &encoder)));
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

fn answer(request: &Request, name: &str, encoder: Option<&CachedEncoder>) -> Answer {
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
    // An agent may have another name in the list of agents than for its users.
    let prompt_name = prompt::name(&request.prompt);
    let context = TurnContext {
        request,
        history: &visible_items[..turn],
        user_text: &user_text,
        agent_name: prompt_name.as_deref().unwrap_or(name),
    };
    let candidates = Candidates::collect(&context);
    let subjects = &candidates.subjects;
    let mut names = normalize_words(name);
    names.extend(normalize_words(context.agent_name));
    if farewell::is_goodbye(&user_text, &names) {
        let templates = &Phrases::english().farewell.reply;
        let words = small_talk::from_templates(&context, templates, subjects, None);
        let words = words.unwrap_or_default();
        return match request.tools.iter().find(|tool| farewell::ends_call(tool)) {
            Some(tool) => {
                Answer::ToolCall { name: tool.name.clone(), arguments: farewell::arguments(&words) }
            }
            None => Answer::Say(words),
        };
    }
    if let Some(words) = small_talk::reply(&context, subjects) {
        return Answer::Say(words);
    }
    if let Some((tool, arguments)) = tools::select_tool(&request.tools, &user_text) {
        return Answer::ToolCall { name: tool.name.clone(), arguments };
    }
    Answer::Say(phrase(&context, &candidates, candidates.find(&context, encoder)))
}

/// A finding in words that differ from the last replies.
fn phrase(talk: &TurnContext<'_>, candidates: &Candidates, finding: Finding) -> String {
    let Phrases { unknown, knowledge, not_understood, .. } = Phrases::english();
    let (templates, answer) = match finding {
        Finding::Answer(answer) => return small_talk::not_repeated(talk, answer),
        Finding::UserStatement(answer) => (&knowledge.user_statement, Some(answer)),
        Finding::Related(answer) => (&unknown.hedges, Some(answer)),
        Finding::Unknown => (&unknown.replies, None),
        Finding::Garbled => (not_understood, None),
        Finding::NoReason => (&unknown.no_reason, None),
        Finding::NoMore => (&unknown.no_more, None),
    };
    small_talk::from_templates(talk, templates, &candidates.subjects, answer.as_deref())
        .or(answer)
        .unwrap_or_default()
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

#[cfg(test)]
mod tests;
