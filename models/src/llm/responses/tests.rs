use std::sync::atomic::Ordering;

use super::*;
use crate::ErrorKind;
use crate::llm::mock_server::{
    self, NO_LIMITS, agent, ask, error_response, loopback, question, tool_item, user, with_history,
};

const REPLY: &str = include_str!("parser/reply.sse");

fn client(url: String) -> OpenAiResponses {
    let config =
        Config { url, token: Some("secret".into()), model: "tiny".into(), timeouts: NO_LIMITS };
    OpenAiResponses::new(
        config,
        Options::default(),
        false,
        loopback(),
        RefusedParameters::default(),
        tokio::runtime::Handle::current(),
    )
}

fn body_of(request: &Request, model: &str, options: Options, share_data: bool) -> Value {
    let dialect = Dialect::of_url(DEFAULT_URL);
    let protocol = Responses { settings: Settings { dialect, options, share_data } };
    protocol.body(request, model, &[])
}

#[test]
fn a_request_holds_the_whole_history_and_asks_the_vendor_to_store_nothing() {
    let request = with_history(vec![
        user("Weather and time?"),
        agent("Let me see."),
        tool_item("get weather", json!({"city": "Rome"}), "Sunny"),
        tool_item("time", json!({}), "Noon"),
        user("Well?"),
    ]);
    let body = body_of(&request, "tiny", Options::default(), false);
    assert_eq!((&body["store"], &body["stream"]), (&json!(false), &json!(true)));
    assert!(body["instructions"].as_str().unwrap().starts_with("Be kind."));
    assert_eq!(
        body["input"],
        json!([
            {"role": "user", "content": "Weather and time?"},
            {"role": "assistant", "content": "Let me see."},
            {
                "type": "function_call",
                "call_id": "call_1",
                "name": "get_weather",
                "arguments": "{\"city\":\"Rome\"}",
            },
            {"type": "function_call", "call_id": "call_2", "name": "time", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "call_1", "output": "Sunny"},
            {"type": "function_call_output", "call_id": "call_2", "output": "Noon"},
            {"role": "user", "content": "Well?"},
        ])
    );
    assert_eq!(body_of(&request, "tiny", Options::default(), true).get("store"), None);
}

#[test]
fn models_that_think_do_it_as_little_as_they_can_and_options_have_precedence() {
    let of = |model: &str, options: Options| body_of(&question(), model, options, false);
    let body = of("gpt-5.1", Options::default());
    assert_eq!(body["reasoning"], json!({"effort": "none"}));
    assert_eq!(body["text"], json!({"verbosity": "low"}));
    let body = of("gpt-4.1-mini", Options::default());
    assert!(body.get("reasoning").is_none() && body.get("text").is_none());
    let values = json!({
        "max_tokens": 9, "reasoning_effort": "high", "verbosity": "high", "temperature": 1,
        "seed": 1, "store": true,
    });
    let values = values.as_object().cloned().unwrap();
    let (options, ignored) = read_options(&values);
    assert_eq!(ignored, ["seed", "store"]);
    let body = of("gpt-5.1", options);
    assert_eq!(
        (&body["max_output_tokens"], &body["reasoning"]["effort"], &body["text"]["verbosity"]),
        (&json!(9), &json!("high"), &json!("high"))
    );
    assert_eq!((&body["temperature"], &body["store"]), (&json!(1.0), &json!(false)));
}

#[test]
fn tools_are_flat_and_not_strict() {
    let mut request = question();
    request.tools = vec![mock_server::tool("get weather")];
    let body = body_of(&request, "tiny", Options::default(), false);
    assert_eq!(
        body["tools"],
        json!([{
            "type": "function",
            "name": "get_weather",
            "description": "Does it.",
            "parameters": {"type": "object", "properties": {}},
            "strict": false,
        }])
    );
}

#[tokio::test]
async fn a_question_reaches_the_server_and_its_answer_comes_back() {
    let (server, url) = mock_server::serve(REPLY.into(), Vec::new()).await;
    let reply = ask(&client(url + "/v1/responses")).await;
    assert_eq!((reply.text.as_str(), reply.end), ("Grüße 你好 🎈!", Some((120, 15))));
    assert_eq!(reply.calls, ["get_weather"]);
    let seen = server.requests.lock().unwrap();
    let (headers, uri, body, _) = &seen[0];
    assert_eq!(uri.path(), "/v1/responses");
    assert_eq!(headers["authorization"], "Bearer secret");
    assert_eq!(body["input"], json!([{"role": "user", "content": "Hi"}]));
}

#[tokio::test]
async fn what_a_model_refuses_is_left_out_and_the_rest_is_reported_without_the_key() {
    let refusal = |words: &str| {
        let message = json!({"error": {"message": words, "type": "invalid_request_error"}});
        error_response(400, &message.to_string())
    };
    let answers = vec![
        refusal("Unsupported parameter: 'reasoning.effort' is not supported with this model."),
        refusal("the key secret is odd"),
    ];
    let (server, url) = mock_server::serve(REPLY.into(), answers).await;
    let mut request = question();
    request.model = "gpt-5.1".into();
    let reply = mock_server::ask_for(&client(url), request).await;
    let words = "OpenAI refused the request: the key *** is odd";
    assert_eq!(reply.failed, Some((ErrorKind::Rejected, words.to_owned())));
    assert_eq!(server.count.load(Ordering::SeqCst), 2);
    let seen = server.requests.lock().unwrap();
    let sent: Vec<bool> = seen.iter().map(|seen| seen.2.get("reasoning").is_some()).collect();
    assert_eq!(sent, [true, false]);
}
