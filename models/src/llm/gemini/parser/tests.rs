use serde_json::json;

use super::*;
use crate::llm::mock_server::{assert_same_in_pieces, parse_chunks, tool};

/// A reply with thoughts, a text and two tool calls, as the server streams it.
const STREAM: &str = include_str!("reply.sse");

fn parser() -> ContentParser {
    ContentParser::new(&[tool("get weather"), tool("time")], "tiny", Arc::default())
}

/// The text and the events of a reply with these data.
fn parse_data(data: &[Value]) -> (String, Result<Vec<Event>, Error>) {
    let frames: Vec<String> = data.iter().map(|data| format!("data: {data}\n\n")).collect();
    parse_chunks(parser(), [frames.concat().as_bytes()])
}

fn chunk(parts: Value) -> Value {
    json!({"candidates": [{"content": {"role": "model", "parts": parts}}]})
}

fn text(words: &str) -> Value {
    chunk(json!([{"text": words}]))
}

fn finish(reason: &str) -> Value {
    json!({"candidates": [{"finishReason": reason}]})
}

fn call(arguments: Value) -> Value {
    chunk(json!([{"functionCall": {"name": "time", "args": arguments}}]))
}

#[test]
fn a_reply_is_the_same_however_its_bytes_are_cut() {
    let (text, events) = parse_chunks(parser(), [STREAM.as_bytes()]);
    assert_eq!(text, "Grüße 你好 🎈!");
    let events = events.unwrap();
    let [
        Event::ToolCall { id, name, arguments },
        Event::ToolCall { id: second_id, name: second_name, .. },
        Event::End { prompt_tokens: 120, cached_tokens: 100, completion_tokens: 15 },
    ] = &events[..]
    else {
        panic!("{events:?}")
    };
    assert_eq!((id.as_str(), name.as_str()), ("call_a", "get weather"));
    assert_eq!(arguments, &json!({"city": "Rome"}));
    assert_eq!((second_id.as_str(), second_name.as_str()), ("call_2", "time"));
    assert_same_in_pieces(STREAM, parser);
}

#[test]
fn a_truncated_stream_fails_until_its_last_chunk() {
    let end = STREAM.rfind("data: ").unwrap();
    for at in 0..end {
        let (_, events) = parse_chunks(parser(), [&STREAM.as_bytes()[..at]]);
        let error = events.err().unwrap_or_else(|| panic!("complete at {at}"));
        assert_eq!(error.kind(), ErrorKind::Failed, "cut at {at}: {error}");
    }
}

#[test]
fn the_signatures_of_calls_are_remembered() {
    let signatures = Arc::<ThoughtSignatures>::default();
    let parser =
        ContentParser::new(&[tool("get weather")], "gemini-3-flash", Arc::clone(&signatures));
    assert!(parse_chunks(parser, [STREAM.as_bytes()]).1.is_ok());
    let of = |name: &str, arguments: Value| signatures.of_call(name, &arguments, false, "");
    assert_eq!(of("get weather", json!({"city": "Rome"})).as_deref(), Some("c2lnbmF0dXJl"));
    assert_eq!(of("time", json!({})), None);
}

#[test]
fn filters_fail_the_reply() {
    for (event, words) in [
        (finish("SAFETY"), "Google's filter stopped the answer (safety)"),
        (finish("PROHIBITED_CONTENT"), "Google's filter stopped the answer (prohibited content)"),
        (
            json!({"promptFeedback": {"blockReason": "OTHER"}}),
            "Google's filter blocked the request (other)",
        ),
    ] {
        let error = parse_data(&[text("Well"), event]).1.unwrap_err();
        assert_eq!((error.kind(), error.to_string().as_str()), (ErrorKind::Rejected, words));
    }
    for reason in ["STOP", "MAX_TOKENS", "SOME_FUTURE_REASON"] {
        assert!(parse_data(&[text("Hi."), finish(reason)]).1.is_ok(), "{reason}");
    }
    assert_eq!(parse_data(&[finish("STOP")]).1.unwrap_err().to_string(), "the answer is empty");
}

#[test]
fn a_wrong_call_may_be_right_the_next_time_unless_text_was_spoken() {
    for (data, repetition) in [
        (vec![finish("MALFORMED_FUNCTION_CALL")], Some(Repetition::Same)),
        (vec![text("Well"), finish("MALFORMED_FUNCTION_CALL")], None),
        (vec![finish("SAFETY")], None),
    ] {
        let mut parser = parser();
        for data in &data {
            parser.push(&data.to_string()).unwrap();
        }
        assert!(parser.finish().is_err());
        assert_eq!(parser.repetition(), repetition, "{data:?}");
    }
}

#[test]
fn errors_within_the_stream_are_one_sentence() {
    let error = json!({"error": {"code": 503, "status": "UNAVAILABLE", "message": "overloaded"}});
    for event in [error.clone(), json!([error])] {
        let (words, events) = parse_data(&[text("Well, "), event, text("more")]);
        let error = events.unwrap_err();
        assert_eq!((words.as_str(), error.kind()), ("Well, ", ErrorKind::Failed));
        assert_eq!(error.to_string(), "Google failed with 503: overloaded");
    }
    let (_, events) = parse_chunks(parser(), [&b"data: \xff\x00\n\n"[..]]);
    assert_eq!(events.unwrap_err().to_string(), "Google sent an event that is not JSON");
}

#[test]
fn odd_parts_are_ignored_and_arguments_must_be_an_object() {
    let odd = [
        json!({"candidates": "none"}),
        json!([]),
        json!(7),
        chunk(json!([{"inlineData": {}}, {"text": 5}, "part", {"functionCall": "odd"}])),
        text("Yes."),
        finish("STOP"),
    ];
    let (words, events) = parse_data(&odd);
    assert!(words == "Yes." && events.is_ok(), "{words} {events:?}");
    assert!(parse_data(&[call(json!([1])), finish("STOP")]).1.is_err());
    assert!(parse_data(&[call(json!(null)), finish("STOP")]).1.is_ok());
    let many = vec![call(json!({})); 65];
    assert!(parse_data(&many).1.unwrap_err().to_string().contains("exceed the limit"));
}

#[test]
fn a_list_of_chunks_is_understood() {
    let chunks: Vec<&str> = STREAM.lines().filter_map(|line| line.strip_prefix("data: ")).collect();
    let mut parser = parser();
    let text = parser.push(&format!("[{}]", chunks.join(","))).unwrap().text;
    assert_eq!(text, "Grüße 你好 🎈!");
    assert!(parser.is_closed() && parser.finish().unwrap().len() == 3);
}
