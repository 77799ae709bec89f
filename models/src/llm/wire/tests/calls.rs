//! Tools and their calls.

use super::*;

#[test]
fn calls_that_do_not_end_fail_the_answer() {
    let call = |n: u64, arguments: &str| {
        delta_chunk(json!({
            "tool_calls": [{
                "index": n,
                "id": format!("c{n}"),
                "function": {"name": "look", "arguments": arguments},
            }],
        }))
    };
    let many: Vec<String> = (0..65).map(|n| call(n, "{}")).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    assert!(parse_stream(&[tool("look")], &many).1.is_err_and(|e| e.kind() == ErrorKind::Failed));
    let long = vec![call(0, &"x".repeat(5_000)); 60];
    let long: Vec<&str> = long.iter().map(String::as_str).collect();
    assert!(
        parse_stream(&[tool("look")], &long)
            .1
            .is_err_and(|e| e.to_string().contains("exceed the limit"))
    );
}

#[test]
fn tools_have_clean_names_of_their_own_and_a_schema() {
    let mut request = request(vec![item(Role::User, "Hi")]);
    request.tools = vec![tool("get weather"), tool("get.weather"), tool("")];
    request.tools[0].parameters =
        json!({"type": "object", "properties": {"city": {"type": "string"}}});
    let body = body_without(&request, "m", &[]);
    let functions: Vec<(&str, &Value)> = body["tools"]
        .as_array()
        .unwrap()
        .iter()
        .map(|t| (t["function"]["name"].as_str().unwrap(), &t["function"]["parameters"]))
        .collect();
    assert_eq!(
        functions.iter().map(|f| f.0).collect::<Vec<_>>(),
        ["get_weather", "get_weather_2", "tool"]
    );
    assert_eq!(functions[0].1, &request.tools[0].parameters);
    assert_eq!(functions[1].1, &json!({"type": "object", "properties": {}}));
}

#[test]
fn calls_are_put_together_from_fragments() {
    let call = |index: u64, more: Value| {
        delta_chunk(json!({"tool_calls": [{"index": index, "function": more}]}))
    };
    let (_, events) = parse_stream(
        &[tool("get weather"), tool("time")],
        &[
            &delta_chunk(json!({
                "tool_calls": [{
                    "index": 0,
                    "id": "a",
                    "type": "function",
                    "function": {"name": "get_weather", "arguments": ""},
                }],
            })),
            &delta_chunk(json!({
                "tool_calls": [{
                    "index": 1,
                    "id": "b",
                    "type": "function",
                    "function": {"name": "time", "arguments": ""},
                }],
            })),
            &call(0, json!({"arguments": "{\"ci"})),
            &call(1, json!({"arguments": ""})),
            &call(0, json!({"arguments": "ty\":\"Rome\"}"})),
            &finish_chunk("tool_calls"),
        ],
    );
    let events = events.unwrap();
    let [
        Event::ToolCall { id, name, arguments },
        Event::ToolCall { id: id_b, name: name_b, arguments: arguments_b },
        Event::End { .. },
    ] = &events[..]
    else {
        panic!("{events:?}")
    };
    assert_eq!(
        (id.as_str(), name.as_str(), arguments),
        ("a", "get weather", &json!({"city": "Rome"}))
    );
    assert_eq!((id_b.as_str(), name_b.as_str(), arguments_b), ("b", "time", &json!({})));
}

#[test]
fn calls_without_numbers_are_told_apart_by_their_ids() {
    let whole = |id: &str| {
        delta_chunk(json!({
            "tool_calls": [{
                "index": 0,
                "id": id,
                "function": {"name": "time", "arguments": "{}"},
            }],
        }))
    };
    let (_, events) =
        parse_stream(&[tool("time")], &[&whole("a"), &whole("b"), &finish_chunk("tool_calls")]);
    assert_eq!(events.unwrap().len(), 3);
    let both = delta_chunk(json!({
        "tool_calls": [
            {"id": "a", "function": {"name": "time", "arguments": {"x": 1}}},
            {"id": "b", "function": {"name": "time"}},
        ],
    }));
    let (_, events) = parse_stream(&[tool("time")], &[&both, &finish_chunk("stop")]);
    let events = events.unwrap();
    assert!(
        matches!(&events[0], Event::ToolCall { arguments, .. } if *arguments == json!({"x": 1})),
        "{events:?}"
    );
    assert_eq!(events.len(), 3);
}

#[test]
fn arguments_that_are_no_object_fail_the_answer() {
    let call = |arguments: &str| {
        delta_chunk(json!({
            "tool_calls": [{
                "index": 0,
                "id": "a",
                "function": {"name": "time", "arguments": arguments},
            }],
        }))
    };
    for bad in ["{\"a\":", "[1]", "7", "\"text\""] {
        let (_, events) = parse_stream(&[tool("time")], &[&call(bad), &finish_chunk("tool_calls")]);
        assert!(events.unwrap_err().to_string().contains("not a JSON object"), "{bad}");
    }
    for fine in ["", "null", " {} ", r#""{\"a\":1}""#] {
        assert!(
            parse_stream(&[tool("time")], &[&call(fine), &finish_chunk("tool_calls")]).1.is_ok(),
            "{fine}"
        );
    }
}

#[test]
fn whole_calls_without_ids_and_numbers_are_told_apart() {
    let whole = |arguments: Value| {
        let function = json!({"name": "time", "arguments": arguments});
        delta_chunk(json!({"tool_calls": [{"function": function}]}))
    };
    for arguments in [[json!({"x": 1}), json!({"x": 2})], [json!("{\"x\":1}"), json!("{}")]] {
        let [first, second] = arguments;
        let chunks = [whole(first), whole(second), finish_chunk("stop")];
        let chunks: Vec<&str> = chunks.iter().map(String::as_str).collect();
        let events = parse_stream(&[tool("time")], &chunks).1.unwrap();
        let [Event::ToolCall { id, .. }, Event::ToolCall { id: other, .. }, _] = &events[..] else {
            panic!("{events:?}")
        };
        assert_eq!((id.as_str(), other.as_str()), ("call_1", "call_2"));
    }
}

#[test]
fn a_limit_that_cut_off_a_call_fails_the_reply() {
    let call = json!({"index": 0, "id": "a", "function": {"name": "time", "arguments": ""}});
    let call = delta_chunk(json!({"tool_calls": [call]}));
    let (_, events) = parse_stream(&[tool("time")], &[&call, &finish_chunk("length")]);
    assert_eq!(events.unwrap_err().to_string(), "the limit of tokens cut off a tool call");
    let cut = delta_chunk(json!({"content": "A long"}));
    assert!(parse_stream(&[], &[&cut, &finish_chunk("length")]).1.is_ok());
}

#[test]
fn the_signature_of_a_call_is_sent_back_with_it() {
    let signatures = Arc::<ThoughtSignatures>::default();
    let mut answer = AnswerParser::new("Google", &[tool("get time")], Arc::clone(&signatures));
    let call = json!({
        "id": "a",
        "function": {"name": "get_time", "arguments": "{\"zone\":1}"},
        "extra_content": {"google": {"thought_signature": "c2ln"}},
    });
    answer.push(&delta_chunk(json!({"tool_calls": [call]}))).unwrap();
    answer.push(&finish_chunk("tool_calls")).unwrap();
    answer.finish().unwrap();
    let history = vec![
        item(Role::User, "When?"),
        tool_item("get time", json!({"zone": 1}), "Noon"),
        tool_item("get time", json!({"zone": 2}), "One"),
    ];
    let messages = crate::llm::wire::messages(&request(history), &signatures, "");
    let sent = &messages[2]["tool_calls"];
    assert_eq!(sent[0]["extra_content"]["google"]["thought_signature"], "c2ln");
    assert_eq!(sent[1].get("extra_content"), None);
}

#[test]
fn a_wrong_call_in_the_stream_asks_for_a_reply_without_tools() {
    let error = r#"{"error":{"message":"Failed to call a function","code":"tool_use_failed"}}"#;
    let mut silent = parser(&[]);
    assert!(silent.push(error).is_err());
    assert_eq!(silent.repetition(), Some(Repetition::WithoutTools));
    let mut speaking = parser(&[]);
    speaking.push(&delta_chunk(json!({"content": "Well"}))).unwrap();
    assert!(speaking.push(error).is_err());
    assert_eq!(speaking.repetition(), None);
}
