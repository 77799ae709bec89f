use std::sync::Arc;
use std::sync::atomic::Ordering;

use axum::body::Body;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use futures_util::stream;
use serde_json::{Value, json};
use tokio::sync::mpsc;

use super::*;
use crate::ErrorKind;
use crate::llm::guardrails::{self, GuardrailCheck};
use crate::llm::mock_server::{
    self, MockServer, NO_LIMITS, ask, collect_reply, error_response, loopback, question, sink, sse,
};
use crate::llm::{Event, Llm};

fn frame(data: &Value) -> String {
    format!("event: {}\ndata: {data}\n\n", data["type"].as_str().unwrap())
}

fn text_frame(text: &str) -> String {
    frame(&json!({
        "type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": text},
    }))
}

fn start_frame() -> String {
    frame(&json!({"type": "message_start", "message": {"usage": {"input_tokens": 9}}}))
}

fn end_frames(reason: &str) -> String {
    let delta = json!({"stop_reason": reason});
    frame(&json!({"type": "message_delta", "delta": delta, "usage": {"output_tokens": 3}}))
        + &frame(&json!({"type": "message_stop"}))
}

fn reply(text: &str) -> String {
    start_frame() + &text_frame(text) + &end_frames("end_turn")
}

fn call(name: &str) -> String {
    let block = json!({"type": "tool_use", "id": "toolu_1", "name": name, "input": {}});
    frame(&json!({"type": "content_block_start", "index": 0, "content_block": block}))
        + &end_frames("tool_use")
}

async fn serve(answers: Vec<Response>) -> (Arc<MockServer>, String) {
    mock_server::serve(reply("Hello."), answers).await
}

fn client_of_model(url: String, model: &str, refused: RefusedParameters) -> Anthropic {
    let config = Config {
        url,
        token: Some("secret".into()),
        model: model.into(),
        options: Options::default(),
        timeouts: NO_LIMITS,
    };
    Anthropic::new(config, loopback(), refused, tokio::runtime::Handle::current())
}

fn client(url: String) -> Anthropic {
    client_of_model(url, "tiny", RefusedParameters::default())
}

fn refusal(parameter: &str) -> Response {
    let message = format!("{parameter}: not supported by this model");
    let error = json!({"type": "invalid_request_error", "message": message});
    error_response(400, &json!({"type": "error", "error": error}).to_string())
}

fn bodies(server: &MockServer) -> Vec<Value> {
    server.requests.lock().unwrap().iter().map(|seen| seen.2.clone()).collect()
}

#[test]
fn the_base_url_may_be_an_endpoint_or_end_in_a_version() {
    let of = |base: &str| endpoint(base, "v1/messages").map(String::from);
    for base in ["https://a.example", "https://a.example/", " https://a.example/v1 "] {
        assert_eq!(of(base).unwrap(), "https://a.example/v1/messages");
    }
    assert_eq!(of("wss://a.example/v1/messages/").unwrap(), "https://a.example/v1/messages");
    assert_eq!(of("ws://127.0.0.1:8/p/v1?k=v").unwrap(), "http://127.0.0.1:8/p/v1/messages?k=v");
    assert_eq!(of("mailto:a@b.example"), None);
    assert_eq!(of("nonsense"), None);
}

#[tokio::test]
async fn a_question_reaches_the_server_and_its_answer_comes_back() {
    let (server, url) = serve(vec![sse(&(start_frame()
        + &text_frame("Good ")
        + &text_frame("day.")
        + &end_frames("end_turn")))])
    .await;
    let reply = ask(&client(url + "/v1")).await;
    assert_eq!((reply.text.as_str(), reply.end), ("Good day.", Some((9, 3))));
    let seen = server.requests.lock().unwrap();
    let (headers, uri, body, _) = &seen[0];
    assert_eq!(uri.to_string(), "/v1/messages");
    assert_eq!(
        (&headers["x-api-key"], &headers["anthropic-version"]),
        (&"secret".parse().unwrap(), &"2023-06-01".parse().unwrap())
    );
    assert!(headers.get("authorization").is_none());
    assert_eq!((&body["model"], &body["stream"]), (&json!("tiny"), &json!(true)));
}

#[tokio::test]
async fn the_first_words_arrive_before_the_stream_ends_and_a_cancelled_one_is_dropped() {
    let (frame_sender, more) = mpsc::unbounded_channel::<String>();
    let frames = stream::unfold(more, |mut more| async {
        more.recv().await.map(|frame| (Ok::<_, std::convert::Infallible>(frame), more))
    });
    let (_, url) = serve(vec![
        ([("content-type", "text/event-stream")], Body::from_stream(frames)).into_response(),
    ])
    .await;
    let (sink, mut events) = sink();
    let llm = client(url);
    let handle = llm.ask(question(), sink);
    frame_sender.send(start_frame() + &text_frame("Early ")).unwrap();
    assert!(matches!(events.recv().await, Some(Event::Text(text)) if text == "Early "));
    handle.cancel();
    // The task is gone with its sink: the channel closes, although the server would continue.
    assert!(events.recv().await.is_none());
    // The server sees the closed connection.
    frame_sender.closed().await;
}

#[tokio::test]
async fn a_stream_that_breaks_off_fails_the_reply() {
    let overloaded = frame(&json!({
        "type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"},
    }));
    let cases = [
        (text_frame("Once"), "Anthropic: the stream ended early"),
        (text_frame("Once") + &overloaded, "Anthropic is overloaded"),
        (text_frame("Once") + "data: <html>\n\n", "Anthropic sent an event that is not JSON"),
    ];
    for (stream, reason) in cases {
        let (_, url) = serve(vec![sse(&stream)]).await;
        let reply = ask(&client(url)).await;
        assert_eq!(reply.text, "Once");
        assert_eq!(reply.failed, Some((ErrorKind::Failed, reason.to_owned())));
    }
}

#[tokio::test]
async fn a_tool_call_and_its_result_go_round() {
    let (server, url) = serve(vec![sse(&call("get_weather"))]).await;
    let llm = client(url);
    let mut request = question();
    request.tools = vec![mock_server::tool("get weather")];
    let (sink, mut events) = sink();
    let _handle = llm.ask(request.clone(), sink);
    let Some(Event::ToolCall { name, arguments, .. }) = events.recv().await else {
        panic!("no call")
    };
    assert_eq!((name.as_str(), &arguments), ("get weather", &json!({})));
    request.history.push(Arc::new(mock_server::tool_item(&name, arguments, "Sunny")));
    let (sink, events) = mock_server::sink();
    let _handle = llm.ask(request, sink);
    assert_eq!(collect_reply(events).await.text, "Hello.");
    let second = &bodies(&server)[1]["messages"];
    assert_eq!(second[1]["content"][0]["name"], "get_weather");
    assert_eq!(second[1]["content"][0]["id"], second[2]["content"][0]["tool_use_id"]);
    assert_eq!(second[2]["content"][0]["content"], "Sunny");
}

#[tokio::test]
async fn parameters_that_a_model_refuses_are_left_out_and_remembered() {
    let (server, url) = serve(vec![refusal("thinking"), refusal("cache_control")]).await;
    let refused = RefusedParameters::default();
    let llm = client_of_model(url.clone(), "tiny", refused.clone());
    assert_eq!(ask(&llm).await.text, "Hello.");
    // Another client of the model knows it; another model is asked with all parameters.
    assert_eq!(ask(&client_of_model(url.clone(), "tiny", refused.clone())).await.text, "Hello.");
    assert_eq!(ask(&client_of_model(url, "other", refused)).await.text, "Hello.");
    let sent: Vec<(bool, bool)> = bodies(&server)
        .iter()
        .map(|body| (body.get("thinking").is_some(), body.to_string().contains("cache_control")))
        .collect();
    assert_eq!(sent, [(true, true), (false, true), (false, false), (false, false), (true, true)]);
}

#[tokio::test]
async fn a_parameter_that_is_refused_twice_fails_the_request() {
    let (server, url) = serve(vec![refusal("thinking"), refusal("thinking")]).await;
    let (kind, words) = ask(&client(url)).await.failed.unwrap();
    assert_eq!(kind, ErrorKind::Rejected);
    assert!(words.contains("thinking: not supported"), "{words}");
    assert_eq!(server.count.load(Ordering::SeqCst), 2);
}

/// A response with headers that advise about a repetition.
fn advice(status: u16, headers: &[(&'static str, &'static str)]) -> Response {
    let mut response = error_response(status, "");
    for (name, value) in headers {
        response.headers_mut().insert(*name, value.parse().unwrap());
    }
    response
}

#[tokio::test]
async fn a_failure_that_may_pass_is_repeated_once() {
    let asked = async |answers: Vec<Response>| {
        let (server, url) = serve(answers).await;
        let reply = ask(&client(url)).await;
        (reply.text, reply.failed.map(|failed| failed.0), server.count.load(Ordering::SeqCst))
    };
    let hello = ("Hello.".to_owned(), None, 2);
    assert_eq!(asked(vec![error_response(500, "")]).await, hello);
    assert_eq!(asked(vec![advice(429, &[("retry-after", "0")])]).await, hello);
    assert_eq!(asked(vec![advice(429, &[("retry-after-ms", "1")])]).await, hello);
    let failed = |kind, count| (String::new(), Some(kind), count);
    let twice = vec![error_response(500, ""), error_response(502, "")];
    assert_eq!(asked(twice).await, failed(ErrorKind::Failed, 2));
    // A long wait does not help the turn.
    let long = vec![advice(429, &[("retry-after", "30")])];
    assert_eq!(asked(long).await, failed(ErrorKind::Busy, 1));
    let never = vec![advice(500, &[("x-should-retry", "false")])];
    assert_eq!(asked(never).await, failed(ErrorKind::Failed, 1));
    assert_eq!(asked(vec![error_response(529, "")]).await, failed(ErrorKind::Failed, 1));
    assert_eq!(asked(vec![error_response(401, "")]).await, failed(ErrorKind::InvalidKey, 1));
}

#[tokio::test]
async fn refusals_are_reported_without_the_key() {
    let says = |text: &str| json!({"error": {"type": "x", "message": text}}).to_string();
    let cases = [
        (
            400,
            says("the key secret is\n odd"),
            ErrorKind::Rejected,
            "Anthropic refused the request: the key *** is odd",
        ),
        (
            403,
            says("(secret) and sk-ant-other"),
            ErrorKind::Rejected,
            "the API key for Anthropic does not permit this request: *** and ***",
        ),
        (
            401,
            says("invalid x-api-key secret"),
            ErrorKind::InvalidKey,
            "the API key for Anthropic is not valid",
        ),
    ];
    for (status, body, kind, reason) in cases {
        let (_, url) = serve(vec![error_response(status, &body)]).await;
        let failed = ask(&client(url)).await.failed.unwrap();
        assert_eq!(failed, (kind, reason.to_owned()));
    }
    let event = json!({"type": "error", "error": {"type": "api_error", "message": "key secret"}});
    let (_, url) = serve(vec![sse(&frame(&event))]).await;
    let failed = ask(&client(url)).await.failed.unwrap();
    assert_eq!(failed, (ErrorKind::Failed, "Anthropic failed: key ***".into()));
}

#[tokio::test]
async fn a_refused_address_is_a_failed_model() {
    let config = |url: &str| Config {
        url: url.into(),
        token: None,
        model: "tiny".into(),
        options: Options::default(),
        timeouts: Timeouts::default(),
    };
    let strict = |url: &str| {
        Anthropic::new(
            config(url),
            egress::Client::new(egress::Policy::default()).unwrap(),
            RefusedParameters::default(),
            tokio::runtime::Handle::current(),
        )
    };
    let failed = ask(&strict("http://127.0.0.1:1")).await.failed;
    assert_eq!(
        failed,
        Some((
            ErrorKind::Rejected,
            "The address of Anthropic is private, which this server does not allow".into()
        ))
    );
    let failed = ask(&strict("nonsense")).await.failed;
    assert_eq!(failed, Some((ErrorKind::Rejected, "Anthropic: llm.url is not a URL".into())));
}

#[tokio::test]
async fn warming_opens_the_connection_that_the_questions_use() {
    let (server, url) = serve(vec![error_response(404, "no models here")]).await;
    let llm = client(url);
    llm.warm_up();
    while server.count.load(Ordering::SeqCst) == 0 {
        tokio::task::yield_now().await;
    }
    for _ in 0..3 {
        assert_eq!(ask(&llm).await.text, "Hello.");
    }
    let seen = server.requests.lock().unwrap();
    assert_eq!((seen[0].1.path(), seen[1].1.path()), ("/v1/models", "/v1/messages"));
    let ports: std::collections::HashSet<u16> = seen[1..].iter().map(|seen| seen.3).collect();
    assert_eq!(ports.len(), 1, "one connection serves question after question");
}

#[tokio::test]
async fn rules_are_tools_and_the_one_that_is_called_fits() {
    let (server, url) = serve(vec![sse(&call("law")), sse(&reply("OK"))]).await;
    let llm = client(url);
    let rule = |key: &str| guardrails::GuardrailRule {
        key: key.into(),
        prompt: format!("The user speaks of {key}"),
    };
    let check = || GuardrailCheck {
        user_text: "May I sue?".into(),
        rules: vec![rule("money"), rule("law")],
    };
    assert_eq!(llm.check_guardrails(check()).await.unwrap().as_deref(), Some("law"));
    assert_eq!(llm.check_guardrails(check()).await.unwrap(), None);
    let sent = bodies(&server);
    assert_eq!(sent[0]["tools"][1]["name"], "law");
    assert_eq!(sent[0]["tools"][1]["description"], "The user speaks of law");
    assert_eq!(sent[0]["messages"][0]["content"][0]["text"], "May I sue?");
}

#[tokio::test]
async fn a_server_that_does_not_stream_is_understood() {
    let body = json!({
        "type": "message", "role": "assistant", "stop_reason": "end_turn",
        "content": [{"type": "text", "text": "All at once."}],
        "usage": {"input_tokens": 1, "output_tokens": 2},
    });
    let response = (StatusCode::OK, axum::Json(body)).into_response();
    let (_, url) = serve(vec![response]).await;
    let reply = ask(&client(url)).await;
    assert_eq!((reply.text.as_str(), reply.end), ("All at once.", Some((1, 2))));
}
