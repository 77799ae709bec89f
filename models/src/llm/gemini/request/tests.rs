use super::*;
use crate::llm::mock_server::{agent, question, snippet, tool, tool_item, user, with_history};

fn body_of(request: &Request, model: &str) -> Value {
    request_body(request, model, Options::default(), &[], &ThoughtSignatures::default())
}

fn generation(model: &str, options: Options, omitted: &[&'static str]) -> Value {
    let signatures = ThoughtSignatures::default();
    request_body(&question(), model, options, omitted, &signatures)["generationConfig"].clone()
}

#[test]
fn turns_alternate_and_calls_are_followed_by_their_results() {
    let mut request = with_history(vec![
        agent("Hello!"),
        user("Weather and time?"),
        agent("Let me see."),
        tool_item("get weather", json!({"city": "Rome"}), "Sunny"),
        tool_item("time", json!({}), "Noon"),
        user("Well?"),
    ]);
    request.snippets = vec![snippet("Fact.")];
    let body = body_of(&request, "gemini-2.5-flash");
    let system = body["systemInstruction"]["parts"][0]["text"].as_str().unwrap();
    assert!(system.starts_with("Be kind.") && !system.contains("Fact."), "{system}");
    let contents = body["contents"].as_array().unwrap();
    let roles: Vec<&str> = contents.iter().map(|turn| turn["role"].as_str().unwrap()).collect();
    assert_eq!(roles, ["user", "model", "user", "model", "user"]);
    assert_eq!(
        contents[3]["parts"],
        json!([
            {"text": "Let me see."},
            {"functionCall": {"id": "call_1", "name": "get_weather", "args": {"city": "Rome"}}},
            {"functionCall": {"id": "call_2", "name": "time", "args": {}}},
        ])
    );
    let last = contents[4]["parts"].as_array().unwrap();
    assert_eq!(
        last[0],
        json!({"functionResponse": {
            "id": "call_1", "name": "get_weather", "response": {"output": "Sunny"},
        }})
    );
    assert_eq!(last[1]["functionResponse"]["name"], "time");
    assert!(last[2]["text"].as_str().unwrap().contains("Fact."));
    assert_eq!(last[3]["text"], "Well?");
}

#[test]
fn signatures_are_sent_back_with_their_calls() {
    let request = with_history(vec![
        user("Go"),
        tool_item("get weather", json!({"city": "Rome"}), "Sunny"),
        tool_item("time", json!({}), "Noon"),
        agent("Sunny at noon."),
        user("And now?"),
        tool_item("time", json!({"zone": 1}), "One"),
    ]);
    let signatures = ThoughtSignatures::default();
    signatures.remember("get weather", &json!({"city": "Rome"}), "c2ln");
    let sent = |model: &str| -> Vec<Option<String>> {
        let body = request_body(&request, model, Options::default(), &[], &signatures);
        let parts = body["contents"].as_array().unwrap().iter();
        let parts = parts.flat_map(|turn| turn["parts"].as_array().unwrap().clone());
        parts
            .filter(|part| part.get("functionCall").is_some())
            .map(|part| part["thoughtSignature"].as_str().map(str::to_owned))
            .collect()
    };
    let known = Some("c2ln".to_owned());
    assert_eq!(sent("gemini-2.5-flash"), [known.clone(), None, None]);
    // The first call of a step must have one.
    let placeholder = Some("skip_thought_signature_validator".to_owned());
    assert_eq!(sent("gemini-3-flash-preview"), [known, None, placeholder]);
}

#[test]
fn each_generation_thinks_as_little_as_it_can() {
    let of = |model: &str, effort: Option<&'static str>| {
        let options = Options { reasoning_effort: effort, ..Options::default() };
        generation(model, options, &[]).get("thinkingConfig").cloned()
    };
    let budget = |n: u32| Some(json!({"thinkingBudget": n}));
    let level = |name: &str| Some(json!({"thinkingLevel": name}));
    assert_eq!(of("gemini-2.5-flash", None), budget(0));
    assert_eq!(of("models/gemini-2.5-flash-lite", None), budget(0));
    assert_eq!(of("gemini-2.5-pro", None), budget(128));
    assert_eq!(of("gemini-2.5-pro", Some("low")), budget(1024));
    assert_eq!(of("gemini-3-flash-preview", None), level("minimal"));
    assert_eq!(of("gemini-3.1-pro-preview", None), level("low"));
    assert_eq!(of("gemini-4-argon", Some("high")), level("high"));
    assert_eq!(of("gemini-2.0-flash", None), None);
    assert_eq!(of("gemma-3-27b-it", Some("high")), None);
}

#[test]
fn options_are_sent_and_refused_parameters_are_not() {
    let plain = generation("gemini-2.5-flash", Options::default(), &[]);
    assert_eq!(plain, json!({"maxOutputTokens": 600, "thinkingConfig": {"thinkingBudget": 0}}));
    // Thoughts count as tokens of the reply, too.
    let thinking = generation("gemini-2.5-flash", Options::default(), &[THINKING]);
    assert_eq!(thinking, json!({}));
    let options = Options {
        max_tokens: Some(9),
        temperature: Some(0.5),
        top_p: Some(0.5),
        frequency_penalty: Some(1.0),
        presence_penalty: Some(1.0),
        seed: Some(3),
        ..Options::default()
    };
    for name in OPTIONAL_PARAMETERS {
        let key = if name == THINKING { "thinkingConfig" } else { name };
        assert!(generation("gemini-2.5-flash", options, &[]).get(key).is_some(), "{name}");
        assert!(generation("gemini-2.5-flash", options, &[name]).get(key).is_none(), "{name}");
    }
    assert_eq!(generation("gemini-2.5-pro", options, &[])["maxOutputTokens"], 9);
}

#[test]
fn tools_without_parameters_have_no_schema_and_the_others_a_simple_one() {
    let mut request = question();
    request.tools = vec![tool("get weather"), tool("time")];
    request.tools[0].parameters = json!({
        "type": "object", "additionalProperties": false,
        "properties": {"city": {"type": "string", "const": "Rome"}},
    });
    let body = body_of(&request, "tiny");
    assert_eq!(
        body["tools"],
        json!([{"functionDeclarations": [
            {
                "name": "get_weather",
                "description": "Does it.",
                "parameters": {
                    "type": "object",
                    "properties": {"city": {"type": "string", "enum": ["Rome"]}},
                },
            },
            {"name": "time", "description": "Does it."},
        ]}])
    );
    let signatures = ThoughtSignatures::default();
    let without = request_body(&request, "tiny", Options::default(), &[TOOLS], &signatures);
    assert_eq!(without.get("tools"), None);
}
