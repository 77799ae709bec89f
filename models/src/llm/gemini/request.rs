//! A request as JSON. Pure.

use serde_json::{Map, Value, json};

use super::super::driver::TOOLS;
use super::super::history::system_prompt;
use super::super::thought_signatures::{ThoughtSignatures, gemini_generation};
use super::super::tool_calls::{ToolNames, parameters_schema};
use super::super::turns::{Block, Speaker, Turn, turns};
use super::Options;
use super::schema::simplify;
use crate::llm::Request;

/// Maximum number of tokens in a reply, if the model does not think: thoughts count, too.
const MAX_TOKENS: u32 = 600;

/// Limits the thoughts, which delay the first word.
const THINKING: &str = "thinking";

/// The parameters that some models refuse, and without which a request works too.
pub(super) const OPTIONAL_PARAMETERS: [&str; 6] =
    [THINKING, "temperature", "topP", "frequencyPenalty", "presencePenalty", "seed"];

/// The body of a request, without the parameters that are `omitted`.
pub(super) fn request_body(
    request: &Request,
    model: &str,
    options: Options,
    omitted: &[&'static str],
    signatures: &ThoughtSignatures,
) -> Value {
    let contents = turns(request).into_iter().map(|turn| content(turn, model, signatures));
    let mut body = Map::new();
    body.insert("systemInstruction".into(), json!({"parts": [{"text": system_prompt(request)}]}));
    body.insert("contents".into(), contents.collect());
    if !request.tools.is_empty() && !omitted.contains(&TOOLS) {
        body.insert("tools".into(), json!([{"functionDeclarations": functions(request)}]));
    }
    let thinking =
        thinking(model, options.reasoning_effort).filter(|_| !omitted.contains(&THINKING));
    let mut generation = Map::new();
    let mut add = |name: &'static str, value: Option<Value>| {
        if let Some(value) = value.filter(|_| !omitted.contains(&name)) {
            generation.insert(name.into(), value);
        }
    };
    let is_thoughtless = thinking.as_ref().is_some_and(|config| config["thinkingBudget"] == 0);
    let limit = options.max_tokens.or_else(|| is_thoughtless.then_some(MAX_TOKENS));
    add("maxOutputTokens", limit.map(Value::from));
    add("temperature", options.temperature.map(Value::from));
    add("topP", options.top_p.map(Value::from));
    add("frequencyPenalty", options.frequency_penalty.map(Value::from));
    add("presencePenalty", options.presence_penalty.map(Value::from));
    add("seed", options.seed.map(Value::from));
    add("thinkingConfig", thinking);
    body.insert("generationConfig".into(), generation.into());
    body.into()
}

/// How long the model thinks: as short as it can, or as long as the agent requests. Generation 2.5
/// has a budget of tokens, later ones have levels, earlier ones do not think.
fn thinking(model: &str, effort: Option<&str>) -> Option<Value> {
    let name = model.rsplit('/').next().unwrap_or(model);
    let is_flash = name.contains("flash");
    if gemini_generation(model).is_some_and(|generation| generation >= 3) {
        let level = match effort {
            Some("medium") => "medium",
            Some("high" | "xhigh") => "high",
            Some("low") => "low",
            _ if is_flash => "minimal",
            _ => "low",
        };
        return Some(json!({"thinkingLevel": level}));
    }
    if !name.starts_with("gemini-2.5") {
        return None;
    }
    let budget = match effort {
        Some("low") => 1024,
        Some("medium") => 8192,
        Some("high" | "xhigh") => 24_576,
        _ if is_flash => 0,
        // The smallest budget of the larger model.
        _ => 128,
    };
    Some(json!({"thinkingBudget": budget}))
}

fn functions(request: &Request) -> Vec<Value> {
    let names = ToolNames::new(&request.tools);
    let functions = request.tools.iter().zip(names.of_server()).map(|(tool, name)| {
        let mut function = json!({"name": name, "description": tool.description});
        let parameters = simplify(&parameters_schema(tool));
        // The server refuses an object without properties.
        if parameters["properties"].as_object().is_some_and(|properties| !properties.is_empty()) {
            function["parameters"] = parameters;
        }
        function
    });
    functions.collect()
}

fn content(turn: Turn, model: &str, signatures: &ThoughtSignatures) -> Value {
    let role = match turn.speaker {
        Speaker::User => "user",
        Speaker::Agent => "model",
    };
    let parts: Vec<Value> =
        turn.blocks.into_iter().map(|block| part(block, model, signatures)).collect();
    json!({"role": role, "parts": parts})
}

fn part(block: Block, model: &str, signatures: &ThoughtSignatures) -> Value {
    match block {
        Block::Text(text) => json!({"text": text}),
        Block::Call { id, tool, name, arguments, first } => {
            let signature = signatures.of_call(&tool, &arguments, first, model);
            let call = json!({"id": id, "name": name, "args": arguments});
            let mut part = json!({"functionCall": call});
            if let Some(signature) = signature {
                part["thoughtSignature"] = signature.into();
            }
            part
        }
        Block::Result { id, name, text } => json!({
            "functionResponse": {"id": id, "name": name, "response": {"output": text}},
        }),
    }
}

#[cfg(test)]
mod tests;
