//! Tool selection without a language model: a tool is called if the text clearly requests it and
//! its required parameters can be filled.

use std::collections::HashSet;

use knowledge::{is_stop_word, normalize_words, words};
use serde_json::{Map, Value};

use super::super::Tool;
use super::farewell::ends_call;
use super::phrases::Phrases;
use super::speakable::speakable;
use super::template::Placeholder;

/// The tool that the text requests, with its arguments.
pub(super) fn select_tool<'a>(tools: &'a [Tool], user_text: &str) -> Option<(&'a Tool, Value)> {
    let stems: HashSet<String> = words(user_text).into_iter().map(|word| word.stem).collect();
    let mut best: Option<(f32, &Tool, Value)> = None;
    for tool in tools.iter().filter(|tool| tool.rule.is_none() && !ends_call(tool)) {
        let Some(fit) = match_score(tool, &stems) else { continue };
        let Some(arguments) = extract_arguments(&tool.parameters, user_text) else { continue };
        if best.as_ref().is_none_or(|(best_score, ..)| fit > *best_score) {
            best = Some((fit, tool, arguments));
        }
    }
    best.map(|(_, tool, arguments)| (tool, arguments))
}

/// How well the text matches the tool's name and description; `None` if not clearly.
fn match_score(tool: &Tool, stems: &HashSet<String>) -> Option<f32> {
    let generic_words = &Phrases::english().tools.generic_words;
    let telling = |text: &str| -> HashSet<String> {
        words(&split_words(text))
            .into_iter()
            .filter(|word| !word.is_stop_word() && !generic_words.contains(&word.normalized))
            .map(|word| word.stem)
            .collect()
    };
    let (name, description) = (telling(&tool.name), telling(&tool.description));
    let named = name.intersection(stems).count();
    let described = description.difference(&name).filter(|stem| stems.contains(*stem)).count();
    let share = if name.is_empty() { 0.0 } else { named as f32 / name.len() as f32 };
    let plainly =
        share == 1.0 || (share >= 0.5 && described >= 1) || (named == 0 && described >= 3);
    plainly.then_some(share * 2.0 + described as f32 * 0.25)
}

/// Splits a name into words: `getOrderStatus` and `get_order-status` become "get order status".
fn split_words(name: &str) -> String {
    let mut out = String::with_capacity(name.len() + 4);
    let mut lower = false;
    for c in name.chars() {
        if c.is_uppercase() && lower {
            out.push(' ');
        }
        lower = c.is_lowercase();
        out.push(if c.is_alphanumeric() { c } else { ' ' });
    }
    out
}

/// The arguments in the text; `None` if a required one is missing.
fn extract_arguments(schema: &Value, user_text: &str) -> Option<Value> {
    let required: Vec<&str> =
        schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    let mut numbers = words(user_text)
        .into_iter()
        .filter(knowledge::Word::is_number)
        .map(|word| word.normalized)
        .collect::<Vec<_>>()
        .into_iter();
    let mut object = prepositional_object(user_text);
    let mut arguments = Map::new();
    for (name, property) in schema["properties"].as_object().into_iter().flatten() {
        let must = required.contains(&name.as_str());
        let value = if let Some(values) = property["enum"].as_array() {
            let lower = normalize_words(user_text).join(" ");
            values
                .iter()
                .find(|value| {
                    value.as_str().is_some_and(|value| {
                        format!(" {lower} ")
                            .contains(&format!(" {} ", normalize_words(value).join(" ")))
                    })
                })
                .cloned()
        } else {
            match property["type"].as_str().unwrap_or("string") {
                "integer" | "number" => {
                    numbers.next().and_then(|number| serde_json::from_str(&number).ok())
                }
                "string" => string_argument(name, user_text, &mut object).map(Value::from),
                _ => None,
            }
        };
        match value {
            Some(value) => drop(arguments.insert(name.clone(), value)),
            None if must => return None,
            None => {}
        }
    }
    required.iter().all(|name| arguments.contains_key(*name)).then_some(Value::Object(arguments))
}

fn string_argument(name: &str, user_text: &str, object: &mut Option<String>) -> Option<String> {
    let kind = normalize_words(&split_words(name));
    let is = |list: &[&str]| kind.iter().any(|word| list.contains(&word.as_str()));
    if is(&["query", "q", "question", "text", "message", "search", "prompt", "input", "utterance"])
    {
        return Some(user_text.trim().to_owned());
    }
    if is(&["date", "day", "when"]) {
        let days = &Phrases::english().tools.days;
        return normalize_words(user_text).into_iter().find(|word| days.contains(word));
    }
    if is(&["id", "number", "code", "reference"]) {
        let number = words(user_text)
            .into_iter()
            .filter(knowledge::Word::is_number)
            .map(|word| word.normalized)
            .next_back();
        if number.is_some() {
            return number;
        }
    }
    object.take()
}

/// The object of the last preposition: "new york" in "the weather in new york please".
fn prepositional_object(user_text: &str) -> Option<String> {
    let phrases = &Phrases::english().tools;
    let tokens: Vec<&str> = user_text
        .split_whitespace()
        .map(|token| token.trim_matches(|c: char| !c.is_alphanumeric()))
        .filter(|token| !token.is_empty())
        .collect();
    let lower: Vec<String> = tokens.iter().map(|token| token.to_lowercase()).collect();
    let mut end = lower.len();
    while end > 0 && phrases.trailing_words.contains(&lower[end - 1]) {
        end -= 1;
    }
    let mut from = lower[..end].iter().rposition(|word| phrases.prepositions.contains(word))? + 1;
    while from < end && phrases.articles.contains(&lower[from]) {
        from += 1;
    }
    let object = &tokens[from..end];
    (!object.is_empty()
        && object.len() <= 5
        && !lower[from..end].iter().all(|word| is_stop_word(word)))
    .then(|| object.join(" "))
}

/// A tool's result as spoken text.
pub(super) fn spoken_result(result: &str) -> String {
    const MAX_SPOKEN_BYTES: usize = 320;
    let phrases = &Phrases::english().tools;
    // How the messages of failed calls start.
    let failed = [
        "timeout",
        "unknown tool",
        "refused address",
        "the tool's server",
        "cannot resolve",
        "cannot connect",
        "connection failed",
        "the argument",
    ];
    let text = match serde_json::from_str::<Value>(result) {
        Ok(value) => main_text(&value),
        Err(_) if failed.iter().any(|start| result.starts_with(start)) => {
            return phrases.failed.clone();
        }
        Err(_) => Some(result.to_owned()),
    };
    let text = text.filter(|text| !text.trim().is_empty()).unwrap_or_else(|| phrases.done.clone());
    let mut spoken = String::new();
    for sentence in knowledge::sentences(&text).iter().take(3).map(|sentence| speakable(sentence)) {
        if spoken.is_empty() || spoken.len() + sentence.len() < MAX_SPOKEN_BYTES {
            spoken.push_str(if spoken.is_empty() { "" } else { " " });
            spoken.extend(sentence.chars().take(MAX_SPOKEN_BYTES));
        }
    }
    if spoken.is_empty() { phrases.done.clone() } else { spoken }
}

/// The main text of a result: a field with a typical name, else its plain fields one after the
/// other.
fn main_text(value: &Value) -> Option<String> {
    const MAIN_FIELDS: [&str; 11] = [
        "answer",
        "speech",
        "message",
        "text",
        "summary",
        "result",
        "description",
        "response",
        "content",
        "output",
        "value",
    ];
    let phrases = &Phrases::english().tools;
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        Value::Bool(yes) => Some(if *yes { &phrases.yes } else { &phrases.no }.clone()),
        Value::Array(items) => {
            let sentences: Vec<String> = items.iter().take(3).filter_map(main_text).collect();
            (!sentences.is_empty()).then(|| sentences.join(", "))
        }
        Value::Object(fields) => {
            if let Some(main) = MAIN_FIELDS
                .iter()
                .find_map(|name| fields.get(*name))
                .filter(|value| !value.is_null())
            {
                return main_text(main);
            }
            let plain = fields
                .iter()
                .filter(|(_, value)| value.is_string() || value.is_number() || value.is_boolean());
            let sentences: Vec<String> = plain
                .take(4)
                .filter_map(|(name, value)| {
                    let name = split_words(name).to_lowercase();
                    let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
                    phrases.field.fill(|placeholder| match placeholder {
                        Placeholder::Field => Some(name.trim().into()),
                        Placeholder::Value => Some(value.trim_end_matches('.').into()),
                        _ => None,
                    })
                })
                .collect();
            match sentences.is_empty() {
                true => fields.values().find_map(main_text),
                false => Some(sentences.join(" ")),
            }
        }
        Value::Null => None,
    }
}
