use serde_json::json;

use super::*;
use crate::ErrorKind;
use crate::llm::mock_server::{assert_same_in_pieces, parse_chunks, tool};

/// A reply with thoughts, a comment, a text and a tool call, as the server streams it.
const STREAM: &str = include_str!("reply.sse");

fn parser() -> ResponseParser {
    ResponseParser::new("OpenAI", &[tool("get weather")], "tiny")
}

/// The text and the events of a reply with these data.
fn parse_data(data: &[Value]) -> (String, Result<Vec<Event>, Error>) {
    let frames: Vec<String> = data.iter().map(|data| format!("data: {data}\n\n")).collect();
    parse_chunks(parser(), [frames.concat().as_bytes()])
}

fn text_delta(text: &str) -> Value {
    json!({"type": "response.output_text.delta", "output_index": 0, "delta": text})
}

fn call(place: u64, arguments: &str) -> Value {
    json!({"type": "response.output_item.done", "output_index": place, "item": {
        "type": "function_call", "call_id": "a", "name": "get_weather", "arguments": arguments,
    }})
}

fn completed() -> Value {
    json!({"type": "response.completed", "response": {"usage": {"input_tokens": 3}}})
}

fn incomplete(reason: &str) -> Value {
    let response = json!({"incomplete_details": {"reason": reason}});
    json!({"type": "response.incomplete", "response": response})
}

#[test]
fn a_reply_is_the_same_however_its_bytes_are_cut() {
    let (text, events) = parse_chunks(parser(), [STREAM.as_bytes()]);
    assert_eq!(text, "Grüße 你好 🎈!");
    let events = events.unwrap();
    let [
        Event::ToolCall { id, name, arguments },
        Event::End { prompt_tokens: 120, cached_tokens: 100, completion_tokens: 15 },
    ] = &events[..]
    else {
        panic!("{events:?}")
    };
    assert_eq!((id.as_str(), name.as_str()), ("call_a", "get weather"));
    assert_eq!(arguments, &json!({"city": "Rome"}));
    assert_same_in_pieces(STREAM, parser);
}

#[test]
fn a_truncated_stream_fails_until_its_end() {
    let end = STREAM.find("event: response.completed").unwrap();
    for at in 0..end {
        let (_, events) = parse_chunks(parser(), [&STREAM.as_bytes()[..at]]);
        let error = events.err().unwrap_or_else(|| panic!("complete at {at}"));
        assert_eq!(error.kind(), ErrorKind::Failed, "cut at {at}: {error}");
    }
}

#[test]
fn unknown_events_are_ignored_and_a_refusal_is_spoken() {
    let refusal = json!({"type": "response.refusal.delta", "output_index": 0, "delta": "No."});
    let unknown = [
        json!({"type": "response.future", "delta": "No"}),
        json!({"no": "type"}),
        json!([1]),
        json!({"type": "response.output_text.delta", "output_index": 0, "delta": 7}),
        json!({"type": "response.output_item.done", "item": "odd"}),
        refusal,
        completed(),
    ];
    let (text, events) = parse_data(&unknown);
    assert_eq!(text, "No.");
    assert!(matches!(events.unwrap()[..], [Event::End { prompt_tokens: 3, .. }]));
}

#[test]
fn failures_of_the_server_are_one_sentence() {
    let cases = [
        (
            json!({"type": "error", "code": "rate_limit_exceeded", "message": "slow"}),
            ErrorKind::Busy,
            "OpenAI is at its limit of requests",
        ),
        (
            json!({"type": "response.failed", "response": {"error": {
                "code": "server_error", "message": "it broke"}}}),
            ErrorKind::Failed,
            "OpenAI failed: it broke",
        ),
        (
            json!({"type": "response.failed", "response": {"error": {
                "code": "insufficient_quota", "message": "pay"}}}),
            ErrorKind::NoCredit,
            "the OpenAI account has no credit left",
        ),
        (json!({"error": {"message": "it broke"}}), ErrorKind::Failed, "OpenAI failed: it broke"),
    ];
    for (event, kind, words) in cases {
        let (text, events) = parse_data(&[text_delta("Well, "), event, text_delta("more")]);
        let error = events.unwrap_err();
        assert_eq!((text.as_str(), error.kind()), ("Well, ", kind), "{words}");
        assert_eq!(error.to_string(), words);
    }
    let (_, events) = parse_chunks(parser(), ["data: <html>\n\n".as_bytes()]);
    assert_eq!(events.unwrap_err().to_string(), "OpenAI sent an event that is not JSON");
}

#[test]
fn a_limit_ends_the_reply_and_a_filter_fails_it() {
    assert!(parse_data(&[text_delta("Hi."), incomplete("max_output_tokens")]).1.is_ok());
    let (_, events) = parse_data(&[text_delta("Hi."), incomplete("content_filter")]);
    assert_eq!(events.unwrap_err().kind(), ErrorKind::Rejected);
    let (_, events) = parse_data(&[call(0, ""), incomplete("max_output_tokens")]);
    assert_eq!(events.unwrap_err().to_string(), "the limit of tokens cut off a tool call");
    assert_eq!(parse_data(&[completed()]).1.unwrap_err().to_string(), "the answer is empty");
}

#[test]
fn calls_without_arguments_are_valid_and_those_that_do_not_end_fail() {
    let events = parse_data(&[call(0, ""), completed()]).1.unwrap();
    assert!(
        matches!(&events[0], Event::ToolCall { arguments, .. } if *arguments == json!({})),
        "{events:?}"
    );
    assert!(parse_data(&[call(0, "[1]"), completed()]).1.is_err());
    let many: Vec<Value> = (0..65).map(|place| call(place, "{}")).collect();
    assert!(parse_data(&many).1.unwrap_err().to_string().contains("exceed the limit"));
    let more =
        json!({"type": "response.function_call_arguments.delta", "delta": "x".repeat(5_000)});
    assert!(parse_data(&vec![more; 60]).1.unwrap_err().to_string().contains("exceed the limit"));
}

#[test]
fn a_response_that_is_not_streamed_is_understood() {
    let whole = STREAM.lines().rfind(|line| line.starts_with("data: ")).unwrap();
    let whole: Value = serde_json::from_str(&whole["data: ".len()..]).unwrap();
    let mut parser = parser();
    let text = parser.push(&whole["response"].to_string()).unwrap().text;
    assert_eq!(text, "Grüße 你好 🎈!");
    assert_eq!(parser.finish().unwrap().len(), 2);
}
