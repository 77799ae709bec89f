use serde_json::json;

use super::*;
use crate::llm::mock_server::{assert_same_in_pieces, parse_chunks, tool};

/// A reply with a text, as the server streams it.
const TEXT_STREAM: &str = include_str!("text.sse");

/// A reply with thoughts, a text and two tool calls.
const TOOL_STREAM: &str = include_str!("tool_calls.sse");

fn tools() -> [Tool; 2] {
    [tool("get weather"), tool("time")]
}

fn parser() -> MessageParser {
    MessageParser::new(&tools(), "tiny")
}

fn parse(stream: &str) -> (String, Result<Vec<Event>, Error>) {
    parse_chunks(parser(), [stream.as_bytes()])
}

/// The text and the events of a reply with these data.
fn parse_data(data: &[Value]) -> (String, Result<Vec<Event>, Error>) {
    let frames: Vec<String> = data.iter().map(|data| format!("data: {data}\n\n")).collect();
    parse(&frames.concat())
}

fn text_delta(text: &str) -> Value {
    let delta = json!({"type": "text_delta", "text": text});
    json!({"type": "content_block_delta", "index": 0, "delta": delta})
}

fn tool_start(index: u64, id: &str, name: &str, input: Value) -> Value {
    let block = json!({"type": "tool_use", "id": id, "name": name, "input": input});
    json!({"type": "content_block_start", "index": index, "content_block": block})
}

fn input_delta(index: u64, json: &str) -> Value {
    let delta = json!({"type": "input_json_delta", "partial_json": json});
    json!({"type": "content_block_delta", "index": index, "delta": delta})
}

fn stop(reason: &str) -> Value {
    let usage = json!({"output_tokens": 4});
    json!({"type": "message_delta", "delta": {"stop_reason": reason}, "usage": usage})
}

fn only_call(events: &[Event]) -> (&str, &str, &Value) {
    match events {
        [Event::ToolCall { id, name, arguments }, Event::End { .. }] => (id, name, arguments),
        other => panic!("{other:?}"),
    }
}

fn assert_text_reply((text, events): (String, Result<Vec<Event>, Error>)) {
    assert_eq!(text, "Grüße 你好 🎈!");
    let events = events.unwrap();
    let [Event::End { prompt_tokens: 1120, cached_tokens: 1000, completion_tokens: 15 }] =
        &events[..]
    else {
        panic!("{events:?}")
    };
}

fn assert_tool_reply((text, events): (String, Result<Vec<Event>, Error>)) {
    assert_eq!(text, "Let me see.");
    let events = events.unwrap();
    let [
        Event::ToolCall { id, name, arguments },
        Event::ToolCall { id: second_id, name: second_name, arguments: second_arguments },
        Event::End { prompt_tokens: 472, completion_tokens: 89, .. },
    ] = &events[..]
    else {
        panic!("{events:?}")
    };
    assert_eq!(
        (id.as_str(), name.as_str(), arguments),
        ("toolu_01", "get weather", &json!({"city": "Rome"}))
    );
    assert_eq!(
        (second_id.as_str(), second_name.as_str(), second_arguments),
        ("toolu_02", "time", &json!({}))
    );
}

#[test]
fn replies_are_the_same_however_their_bytes_are_cut() {
    assert_text_reply(parse(TEXT_STREAM));
    assert_tool_reply(parse(TOOL_STREAM));
    for stream in [TEXT_STREAM, TOOL_STREAM] {
        assert_same_in_pieces(stream, parser);
    }
}

#[test]
fn a_truncated_stream_fails_until_its_end_mark() {
    let end = TOOL_STREAM.find("event: message_delta").unwrap();
    for at in 0..end {
        let (_, events) = parse_chunks(parser(), [&TOOL_STREAM.as_bytes()[..at]]);
        let error = events.err().unwrap_or_else(|| panic!("complete at {at}"));
        assert_eq!(error.kind(), ErrorKind::Failed, "cut at {at}: {error}");
    }
    let stop = TOOL_STREAM.find("event: message_stop").unwrap();
    assert_tool_reply(parse(&TOOL_STREAM[..stop]));
}

#[test]
fn text_comes_out_as_it_arrives_and_only_text_and_calls_are_progress() {
    let mut parser = parser();
    let progress: Vec<(String, bool)> = TOOL_STREAM
        .lines()
        .filter_map(|line| line.strip_prefix("data: "))
        .map(|data| parser.push(data).unwrap())
        .map(|delta| (delta.text, delta.progressed))
        .collect();
    let nth = |n: usize| (progress[n].0.as_str(), progress[n].1);
    assert_eq!((nth(0), nth(2), nth(3)), (("", false), ("", false), ("", false)));
    assert_eq!((nth(6), nth(8), nth(10)), (("Let me see.", true), ("", true), ("", true)));
    assert!(parser.is_finished() && parser.is_closed());
}

#[test]
fn unknown_events_blocks_and_fields_are_ignored() {
    let unknown = [
        json!({"type": "message_start", "message": {"usage": {"input_tokens": 3, "new": {}}}}),
        json!({"type": "future_event", "index": 0, "delta": {"type": "text_delta", "text": "No"}}),
        json!({"type": "content_block_start", "index": 9, "content_block": {"type": "thing"}}),
        json!({"type": "content_block_delta", "index": 9, "delta": {"type": "x", "text": "No"}}),
        input_delta(9, "{"),
        json!({"no": "type"}),
        json!([1, 2]),
        json!("text"),
        text_delta("Yes."),
        json!({"type": "content_block_stop", "index": 9}),
        json!({"type": "message_delta", "delta": {}, "usage": null}),
        stop("some_future_reason"),
    ];
    let (text, events) = parse_data(&unknown);
    assert_eq!(text, "Yes.");
    let events = events.unwrap();
    assert!(
        matches!(
            events[..],
            [Event::End { prompt_tokens: 3, cached_tokens: 0, completion_tokens: 4 }]
        ),
        "{events:?}"
    );
}

#[test]
fn an_error_within_the_stream_fails_the_reply() {
    let cases = [
        ("overloaded_error", ErrorKind::Failed, "Anthropic is overloaded"),
        ("api_error", ErrorKind::Failed, "Anthropic failed: it broke"),
        ("rate_limit_error", ErrorKind::Busy, "Anthropic is at its limit of requests"),
        ("invalid_request_error", ErrorKind::Rejected, "Anthropic refused the request: it broke"),
        ("a_new_error", ErrorKind::Failed, "Anthropic failed: it broke"),
    ];
    for (error_type, kind, words) in cases {
        let error = json!({"type": "error", "error": {"type": error_type, "message": "it broke"}});
        let (text, events) = parse_data(&[text_delta("Well, "), error, text_delta("more")]);
        let error = events.unwrap_err();
        assert_eq!((text.as_str(), error.kind()), ("Well, ", kind), "{error_type}");
        assert_eq!(error.to_string(), words);
    }
}

#[test]
fn garbage_fails_the_reply_and_keeps_its_text_out() {
    for garbage in ["<html>", "{\"type\":", "\u{fffd}\u{1}"] {
        let (text, events) =
            parse(&format!("data: {}\n\ndata: {garbage}\n\n", text_delta("Hello.")));
        assert_eq!(text, "Hello.");
        assert_eq!(events.unwrap_err().to_string(), "Anthropic sent an event that is not JSON");
    }
}

#[test]
fn arguments_may_be_whole_in_the_start_of_a_block() {
    let whole = tool_start(0, "a", "get_weather", json!({"city": "Rome"}));
    let (_, events) = parse_data(&[whole, stop("tool_use")]);
    assert_eq!(only_call(&events.unwrap()), ("a", "get weather", &json!({"city": "Rome"})));
    // A call without an id gets one; the model may name a tool that does not exist.
    let (_, events) = parse_data(&[tool_start(0, "", "other", json!({})), stop("tool_use")]);
    assert_eq!(only_call(&events.unwrap()), ("call_1", "other", &json!({})));
}

#[test]
fn arguments_that_are_no_object_or_were_cut_off_fail_the_reply() {
    let start = || tool_start(0, "a", "time", json!({}));
    for bad in ["{\"a\":", "[1]", "7"] {
        let (_, events) = parse_data(&[start(), input_delta(0, bad), stop("tool_use")]);
        assert!(events.unwrap_err().to_string().contains("not a JSON object"), "{bad}");
    }
    for limit in ["max_tokens", "model_context_window_exceeded"] {
        let (_, events) = parse_data(&[start(), stop(limit)]);
        assert_eq!(events.unwrap_err().to_string(), "the limit of tokens cut off a tool call");
        let (_, events) = parse_data(&[start(), input_delta(0, "{\"a\":1}"), stop(limit)]);
        assert_eq!(only_call(&events.unwrap()).2, &json!({"a": 1}));
    }
}

#[test]
fn calls_that_do_not_end_fail_the_reply() {
    let many: Vec<Value> =
        (0..65).map(|n| tool_start(n, &format!("c{n}"), "time", json!({}))).collect();
    assert!(parse_data(&many).1.unwrap_err().to_string().contains("exceed the limit"));
    let mut long = vec![tool_start(0, "a", "time", json!({}))];
    long.extend((0..60).map(|_| input_delta(0, &"x".repeat(5_000))));
    assert!(parse_data(&long).1.unwrap_err().to_string().contains("exceed the limit"));
}

#[test]
fn every_stop_reason_ends_the_reply_and_a_refusal_fails_it() {
    let reasons = ["end_turn", "max_tokens", "stop_sequence", "pause_turn", "tool_use"];
    for reason in reasons {
        let (text, events) = parse_data(&[text_delta("Hi."), stop(reason)]);
        assert!(text == "Hi." && events.is_ok(), "{reason}");
        let (_, events) = parse_data(&[stop(reason)]);
        assert_eq!(events.unwrap_err().to_string(), "the answer is empty", "{reason}");
    }
    let (_, events) = parse_data(&[text_delta("Hi."), stop("refusal")]);
    assert_eq!(events.unwrap_err().kind(), ErrorKind::Rejected);
    let (_, events) = parse_data(&[text_delta("Hi."), json!({"type": "message_stop"})]);
    assert!(events.is_ok());
}

#[test]
fn thoughts_at_the_start_of_a_block_are_left_out_however_they_are_cut() {
    let words = "<thinking>The user </think wants <b>.</thinking>\n\nIt is <thinking> four.";
    for size in 1..words.len() {
        let mut data: Vec<Value> = words
            .as_bytes()
            .chunks(size)
            .map(|chunk| text_delta(std::str::from_utf8(chunk).unwrap()))
            .collect();
        data.push(stop("end_turn"));
        assert_eq!(parse_data(&data).0, "It is <thinking> four.", "chunks of {size}");
    }
    // What may be a tag is text if the block ends there.
    let block_stop = json!({"type": "content_block_stop", "index": 0});
    let (text, events) = parse_data(&[text_delta("<thin"), block_stop, stop("end_turn")]);
    assert!(text == "<thin" && events.is_ok(), "{text}");
}

#[test]
fn a_message_that_is_not_streamed_is_understood() {
    let message = json!({
        "type": "message", "role": "assistant", "stop_reason": "tool_use",
        "content": [
            {"type": "text", "text": "Let me see."},
            {"type": "tool_use", "id": "a", "name": "get_weather", "input": {"city": "Rome"}},
        ],
        "usage": {"input_tokens": 5, "output_tokens": 6},
    });
    let mut parser = parser();
    assert_eq!(parser.push(&message.to_string()).unwrap().text, "Let me see.");
    assert_eq!(only_call(&parser.finish().unwrap()).2, &json!({"city": "Rome"}));
}
