use std::sync::atomic::Ordering;
use std::time::Duration;

use axum::body::Body;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures_util::{StreamExt, stream};
use serde_json::json;
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::*;
use crate::ErrorKind;
use crate::llm::mock_server::{
    self, MockServer, NO_LIMITS, Reply, collect_reply, error_response, loopback, question, sink,
    sse,
};
use crate::llm::stream::read_stream;
use crate::llm::{Event, Llm, Timeouts, guardrails};

mod servers;

fn text_frame(text: &str) -> String {
    format!(
        "data: {}\n\n",
        json!({"choices": [{"delta": {"content": text}, "finish_reason": null}]})
    )
}

const STOP: &str = "data: {\"choices\":[{\"delta\":{},\"finish_reason\":\"stop\"}]}\n\n";
const USAGE: &str =
    "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":9,\"completion_tokens\":3}}\n\n";
const DONE: &str = "data: [DONE]\n\n";

fn parser() -> AnswerParser {
    AnswerParser::new("the LLM server", &[], Arc::default())
}

/// Runs a stream of these frames, each after a pause on the (paused) clock. Then the stream ends,
/// or stays open.
async fn run_stream(
    frames: Vec<(u64, Result<String, egress::Error>)>,
    ends: bool,
) -> (Reply, Duration) {
    let start = Instant::now();
    let frames = stream::iter(frames).then(|(pause, frame)| async move {
        tokio::time::sleep(Duration::from_millis(pause)).await;
        frame.map(Bytes::from)
    });
    let (sink, events) = sink();
    let times = Timeouts::default();
    let deadline = start + times.first_token;
    let mut parser = parser();
    let result = if ends {
        read_stream(std::pin::pin!(frames), &mut parser, times, deadline, &sink).await
    } else {
        let frames = frames.chain(stream::pending());
        read_stream(std::pin::pin!(frames), &mut parser, times, deadline, &sink).await
    };
    if let Err(error) = result {
        sink.send(Event::Failed(error));
    }
    let took = start.elapsed();
    (collect_reply(events).await, took)
}

#[tokio::test(start_paused = true)]
async fn a_server_that_never_says_a_word_fails_after_five_seconds() {
    let (reply, took) =
        run_stream(vec![(1000, Ok(": keep-alive\n\n".into())), (1000, Ok(text_frame("")))], false)
            .await;
    assert_eq!(
        (reply.failed, took),
        (Some((ErrorKind::Timeout, "no answer came in time".into())), Duration::from_secs(5))
    );
}

#[tokio::test(start_paused = true)]
async fn a_gap_of_five_seconds_fails_what_had_begun_and_comments_are_no_tokens() {
    let (reply, took) = run_stream(
        vec![
            (4900, Ok(text_frame("Hello "))),
            (4900, Ok(text_frame("there"))),
            (3000, Ok(": still here\n\n".into())),
        ],
        false,
    )
    .await;
    assert_eq!((reply.text.as_str(), reply.failed.unwrap().0), ("Hello there", ErrorKind::Timeout));
    assert_eq!(took, Duration::from_millis(14_800));
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_breaks_off_failed_whether_it_ends_or_breaks() {
    let (reply, _) = run_stream(vec![(10, Ok(text_frame("Once upon")))], true).await;
    assert_eq!(
        (reply.text.as_str(), reply.failed),
        ("Once upon", Some((ErrorKind::Failed, "the stream ended early".into())))
    );
    let (reply, _) = run_stream(
        vec![
            (10, Ok(text_frame("Once"))),
            (10, Err(egress::Error::Connection("connection failed".into()))),
        ],
        true,
    )
    .await;
    assert_eq!(reply.failed, Some((ErrorKind::Failed, "connection failed".into())));
}

#[tokio::test(start_paused = true)]
async fn the_end_does_not_wait_long_for_the_count_of_tokens() {
    let (reply, took) =
        run_stream(vec![(100, Ok(text_frame("Hi"))), (0, Ok(STOP.into()))], false).await;
    assert_eq!((reply.end, took), (Some((0, 0)), Duration::from_millis(350)));
    let (reply, took) = run_stream(
        vec![(100, Ok(text_frame("Hi") + STOP)), (50, Ok(USAGE.to_owned() + DONE))],
        true,
    )
    .await;
    assert_eq!((reply.end, took), (Some((9, 3)), Duration::from_millis(150)));
    // Without [DONE], and broken after the end mark: still a reply.
    let (reply, _) = run_stream(
        vec![
            (100, Ok(text_frame("Hi") + STOP)),
            (50, Err(egress::Error::Connection("reset".into()))),
        ],
        true,
    )
    .await;
    assert!(reply.failed.is_none() && reply.end.is_some());
}

/// A client of the server at `url` in the dialect of `provider`.
fn client_of(provider: &str, url: String, options: Options) -> OpenAi {
    let dialect = dialect(provider).unwrap();
    let config =
        Config { url, token: Some("secret".into()), model: "tiny".into(), timeouts: NO_LIMITS };
    OpenAi::with_settings(
        config,
        Settings { dialect, options, share_data: false },
        loopback(),
        RefusedParameters::default(),
        tokio::runtime::Handle::current(),
    )
}

async fn serve(answers: Vec<Response>) -> (Arc<MockServer>, String) {
    let (server, url) = mock_server::serve(text_frame("Hello.") + STOP + DONE, answers).await;
    (server, url + "/v1")
}

fn client(url: String, token: Option<&str>) -> OpenAi {
    let config =
        Config { url, token: token.map(str::to_owned), model: "tiny".into(), timeouts: NO_LIMITS };
    OpenAi::new(config, loopback(), tokio::runtime::Handle::current())
}

async fn ask(llm: &OpenAi) -> Reply {
    mock_server::ask(llm).await
}

#[tokio::test]
async fn a_question_reaches_the_server_and_its_answer_comes_back() {
    let (server, url) =
        serve(vec![sse(&(text_frame("Good ") + &text_frame("day.") + STOP + USAGE + DONE))]).await;
    let reply = ask(&client(url + "/?api-version=7", Some("secret"))).await;
    assert_eq!((reply.text.as_str(), reply.end), ("Good day.", Some((9, 3))));
    let seen = server.requests.lock().unwrap();
    let (headers, uri, body, _) = &seen[0];
    assert_eq!(uri.to_string(), "/v1/chat/completions?api-version=7");
    assert_eq!(headers["authorization"], "Bearer secret");
    assert_eq!(
        (&body["model"], &body["stream"], &body["stream_options"]["include_usage"]),
        (&json!("tiny"), &json!(true), &json!(true))
    );
}

#[tokio::test]
async fn the_first_words_are_told_before_the_stream_ends() {
    let (frame_sender, more) = mpsc::unbounded_channel::<String>();
    let frames = stream::unfold(more, |mut more| async {
        more.recv().await.map(|frame| (Ok::<_, std::convert::Infallible>(frame), more))
    });
    let (_, url) = serve(vec![
        ([("content-type", "text/event-stream")], Body::from_stream(frames)).into_response(),
    ])
    .await;
    let (sink, mut events) = sink();
    let llm = client(url, None);
    let _handle = llm.ask(question(), sink);
    frame_sender.send(text_frame("Early ")).unwrap();
    assert!(matches!(events.recv().await, Some(Event::Text(text)) if text == "Early "));
    frame_sender.send(text_frame("late.") + STOP + DONE).unwrap();
    assert_eq!(collect_reply(events).await.text, "late.");
}

#[tokio::test]
async fn one_connection_serves_question_after_question() {
    let (server, url) = serve(Vec::new()).await;
    let llm = client(url, None);
    for _ in 0..4 {
        assert_eq!(ask(&llm).await.text, "Hello.");
    }
    let ports: std::collections::HashSet<u16> =
        server.requests.lock().unwrap().iter().map(|seen| seen.3).collect();
    assert_eq!(ports.len(), 1);
}

#[tokio::test]
async fn a_server_that_knows_no_stream_options_is_asked_without_them() {
    let (server, url) = serve(vec![error_response(
        400,
        "{\"error\":{\"message\":\"unknown field stream_options\"}}",
    )])
    .await;
    let llm = client(url, None);
    assert_eq!(ask(&llm).await.text, "Hello.");
    assert_eq!(ask(&llm).await.text, "Hello.");
    let requested_usage: Vec<bool> = server
        .requests
        .lock()
        .unwrap()
        .iter()
        .map(|seen| seen.2.get("stream_options").is_some())
        .collect();
    assert_eq!(requested_usage, [true, false, false], "it is remembered");
}

#[tokio::test]
async fn refusals_are_told_in_the_servers_words_without_secrets() {
    let key = "sk-verysecret123";
    let says = |text: &str| json!({"error": {"message": text}}).to_string();
    let cases = [
        (
            401,
            says(&format!("Incorrect API key provided: {key}.")),
            ErrorKind::InvalidKey,
            "the API key for the LLM server is not valid",
        ),
        (
            400,
            says(&format!("odd key {key}")),
            ErrorKind::Rejected,
            "the LLM server refused the request: odd key ***",
        ),
        (
            404,
            "{\"message\":\"no model tiny\"}".into(),
            ErrorKind::Rejected,
            "the LLM server does not have the model \"tiny\"",
        ),
        (
            429,
            "{\"detail\":\"slow down\"}".into(),
            ErrorKind::Busy,
            "the LLM server is at its limit of requests",
        ),
        (
            500,
            "it\n  broke at ?key=hushhush".into(),
            ErrorKind::Failed,
            "the LLM server failed with 500: it broke at ***",
        ),
        (
            503,
            "{\"error\":\"loading model\"}".into(),
            ErrorKind::Failed,
            "the LLM server failed with 503: loading model",
        ),
        (504, "<html>".into(), ErrorKind::Failed, "the LLM server failed with 504"),
        (
            302,
            "{}".into(),
            ErrorKind::Rejected,
            "the LLM server refused the request: no reason given",
        ),
    ];
    for (status, body, kind, reason) in cases {
        // The request is repeated after some of them.
        let twice = vec![error_response(status, &body), error_response(status, &body)];
        let (_, url) = serve(twice).await;
        let reply = ask(&client(url + "?key=hushhush", Some(key))).await;
        assert_eq!(reply.failed, Some((kind, reason.to_owned())));
    }
}

#[tokio::test]
async fn a_refused_address_is_a_failed_model() {
    let config = Config {
        url: "http://127.0.0.1:1/v1".into(),
        token: None,
        model: String::new(),
        timeouts: Timeouts::default(),
    };
    let llm = OpenAi::new(
        config,
        egress::Client::new(egress::Policy::default()).unwrap(),
        tokio::runtime::Handle::current(),
    );
    assert_eq!(
        ask(&llm).await.failed,
        Some((
            ErrorKind::Rejected,
            "The address of the LLM server is private, which this server does not allow".into()
        ))
    );
    assert_eq!(
        ask(&client("nonsense".into(), None)).await.failed,
        Some((ErrorKind::Rejected, "the LLM server: llm.url is not a URL".into()))
    );
}

#[tokio::test]
async fn a_server_that_does_not_stream_is_understood() {
    let body = json!({"choices": [{
        "message": {"role": "assistant", "content": "All at once."}, "finish_reason": "stop",
    }]});
    let (_, url) =
        serve(vec![([("content-type", "application/json")], body.to_string()).into_response()])
            .await;
    let reply = ask(&client(url, None)).await;
    assert_eq!((reply.text.as_str(), reply.end), ("All at once.", Some((0, 0))));
}

#[tokio::test]
async fn a_cancelled_question_tells_nothing_more() {
    let (frame_sender, more) = mpsc::unbounded_channel::<String>();
    let frames = stream::unfold(more, |mut more| async {
        more.recv().await.map(|frame| (Ok::<_, std::convert::Infallible>(frame), more))
    });
    let (_, url) = serve(vec![
        ([("content-type", "text/event-stream")], Body::from_stream(frames)).into_response(),
    ])
    .await;
    let (sink, mut events) = sink();
    let llm = client(url, None);
    let handle = llm.ask(question(), sink);
    frame_sender.send(text_frame("One")).unwrap();
    assert!(matches!(events.recv().await, Some(Event::Text(_))));
    handle.cancel();
    // The task is gone with its sink: the channel closes, although the server would continue.
    assert!(events.recv().await.is_none());
    // The server sees the closed connection.
    frame_sender.closed().await;
}

#[tokio::test]
async fn warming_opens_the_connection_that_the_question_uses() {
    let (server, url) = serve(vec![error_response(404, "no models here")]).await;
    let llm = client(url, Some("secret"));
    llm.warm_up();
    while server.count.load(Ordering::SeqCst) == 0 {
        tokio::task::yield_now().await;
    }
    assert_eq!(ask(&llm).await.text, "Hello.");
    let seen = server.requests.lock().unwrap();
    assert_eq!((seen[0].1.path(), seen[1].1.path()), ("/v1/models", "/v1/chat/completions"));
}

#[tokio::test]
async fn rules_are_tools_and_the_one_that_is_called_fits() {
    let call = r#"data: {"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"id":"c","function":{"name":"law","arguments":"{}"}}]}}]}"#;
    let end =
        "\n\ndata: {\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"tool_calls\"}]}\n\n";
    let (server, url) =
        serve(vec![sse(&(call.to_owned() + end + DONE)), sse(&(text_frame("OK") + STOP + DONE))])
            .await;
    let llm = client(url, None);
    let rule = |key: &str| guardrails::GuardrailRule {
        key: key.into(),
        prompt: format!("The user speaks of {key}"),
    };
    let check = || guardrails::GuardrailCheck {
        user_text: "May I sue?".into(),
        rules: vec![rule("money"), rule("law")],
    };
    assert_eq!(llm.check_guardrails(check()).await.unwrap().as_deref(), Some("law"));
    assert_eq!(llm.check_guardrails(check()).await.unwrap(), None);
    let seen = server.requests.lock().unwrap();
    let body = &seen[0].2;
    assert_eq!(body["tools"][1]["function"]["name"], "law");
    assert_eq!(body["tools"][1]["function"]["description"], "The user speaks of law");
    assert_eq!(body["messages"][1]["content"], "May I sue?");
}

#[tokio::test]
async fn a_moderation_is_told_as_the_server_says_it() {
    let verdict = json!({"results": [{"flagged": true}]});
    let answers = vec![
        axum::Json(verdict.clone()).into_response(),
        "fine".into_response(),
        error_response(404, "no such thing"),
    ];
    let (server, url) = serve(answers).await;
    let llm = client(url, Some("secret"));
    assert_eq!(llm.moderate("Hm".into()).await.unwrap(), verdict);
    assert_eq!(llm.moderate("Hm".into()).await.unwrap(), json!({"raw": "fine"}));
    assert!(llm.moderate("Hm".into()).await.is_err());
    let seen = server.requests.lock().unwrap();
    let (headers, uri, body, _) = &seen[0];
    assert_eq!((uri.to_string().as_str(), body), ("/v1/moderations", &json!({"input": "Hm"})));
    assert_eq!(headers["authorization"], "Bearer secret");
}
