use std::sync::atomic::Ordering;

use serde_json::json;

use super::*;
use crate::ErrorKind;
use crate::llm::Llm as _;
use crate::llm::mock_server::{self, NO_LIMITS, ask, error_response, loopback, question, sse};

const REPLY: &str = include_str!("parser/reply.sse");

fn client(url: String) -> Gemini {
    let config = Config {
        url,
        token: Some("secret".into()),
        model: "gemini-2.5-flash".into(),
        timeouts: NO_LIMITS,
    };
    let runtime = tokio::runtime::Handle::current();
    Gemini::new(config, Options::default(), loopback(), RefusedParameters::default(), runtime)
}

fn url_of(base: &str, model: &str) -> Option<String> {
    let protocol = GenerateContent { options: Options::default(), signatures: Arc::default() };
    protocol.url(base, model).map(|url| url.to_string())
}

#[test]
fn the_model_is_part_of_the_url_and_cannot_leave_its_place() {
    let base = DEFAULT_URL;
    let flash = format!("{base}/v1beta/models/gemini-2.5-flash:streamGenerateContent?alt=sse");
    for base in [base, "wss://generativelanguage.googleapis.com/v1beta/", &format!("{base}/v1")] {
        for model in ["gemini-2.5-flash", "models/gemini-2.5-flash"] {
            assert_eq!(url_of(base, model).as_ref(), Some(&flash), "{base} {model}");
        }
    }
    assert_eq!(
        url_of("http://127.0.0.1:9/p?k=v", "a?b#c").as_deref(),
        Some("http://127.0.0.1:9/p/v1beta/models/a%3Fb%23c:streamGenerateContent?k=v&alt=sse")
    );
    let escaping = url_of(base, "../../upload/x").unwrap();
    assert_eq!(escaping, format!("{base}/v1beta/..%2F..%2Fupload/x:streamGenerateContent?alt=sse"));
    assert_eq!(url_of("nonsense", "m"), None);
}

#[tokio::test]
async fn a_question_reaches_the_server_and_its_answer_comes_back() {
    let (server, url) = mock_server::serve(REPLY.into(), Vec::new()).await;
    let reply = ask(&client(url)).await;
    assert_eq!((reply.text.as_str(), reply.end), ("Grüße 你好 🎈!", Some((120, 15))));
    assert_eq!(reply.calls, ["get_weather", "time"]);
    let seen = server.requests.lock().unwrap();
    let (headers, uri, body, _) = &seen[0];
    assert_eq!(uri.to_string(), "/v1beta/models/gemini-2.5-flash:streamGenerateContent?alt=sse");
    assert_eq!(headers["x-goog-api-key"], "secret");
    assert!(headers.get("authorization").is_none());
    assert_eq!(body["contents"], json!([{"role": "user", "parts": [{"text": "Hi"}]}]));
}

#[tokio::test]
async fn failures_are_one_sentence_without_the_key() {
    let says = |code: u16, status: &str, message: &str| {
        let error = json!({"code": code, "status": status, "message": message});
        json!({ "error": error }).to_string()
    };
    let cases = [
        (
            400,
            says(400, "INVALID_ARGUMENT", "API key not valid. Please pass a valid API key."),
            ErrorKind::InvalidKey,
            "the API key for Google is not valid",
        ),
        (
            404,
            says(404, "NOT_FOUND", "models/x is not found for API version v1beta"),
            ErrorKind::Rejected,
            "Google does not have the model \"gemini-2.5-flash\"",
        ),
        (
            400,
            says(400, "INVALID_ARGUMENT", "odd: secret"),
            ErrorKind::Rejected,
            "Google refused the request: odd: ***",
        ),
    ];
    for (status, body, kind, words) in cases {
        let (_, url) = mock_server::serve(REPLY.into(), vec![error_response(status, &body)]).await;
        assert_eq!(ask(&client(url)).await.failed, Some((kind, words.to_owned())));
    }
}

#[tokio::test]
async fn a_wrong_call_is_requested_once_more() {
    let wrong = || {
        sse("data: {\"candidates\":[{\"finishReason\":\"MALFORMED_FUNCTION_CALL\"}],\
             \"usageMetadata\":{}}\n\n")
    };
    let asked = async |answers| {
        let (server, url) = mock_server::serve(REPLY.into(), answers).await;
        let reply = ask(&client(url)).await;
        (reply.failed.map(|failed| failed.1), server.count.load(Ordering::SeqCst))
    };
    assert_eq!(asked(vec![wrong()]).await, (None, 2));
    let words = "Google: the model called a tool wrongly".to_owned();
    assert_eq!(asked(vec![wrong(), wrong()]).await, (Some(words), 2));
}

#[tokio::test]
async fn a_model_that_must_think_is_asked_without_the_limit() {
    let refusal = json!({"error": {"code": 400, "status": "INVALID_ARGUMENT",
        "message": "Budget 0 is invalid. This model only works in thinking mode."}});
    let answers = vec![error_response(400, &refusal.to_string())];
    let (server, url) = mock_server::serve(REPLY.into(), answers).await;
    assert!(ask(&client(url)).await.failed.is_none());
    let seen = server.requests.lock().unwrap();
    let sent: Vec<bool> = seen
        .iter()
        .map(|seen| seen.2["generationConfig"].get("thinkingConfig").is_some())
        .collect();
    assert_eq!(sent, [true, false]);
}

#[tokio::test]
async fn warming_opens_the_connection() {
    let (server, url) = mock_server::serve(REPLY.into(), Vec::new()).await;
    let llm = client(url);
    llm.warm_up();
    while server.count.load(Ordering::SeqCst) == 0 {
        tokio::task::yield_now().await;
    }
    assert!(mock_server::ask_for(&llm, question()).await.failed.is_none());
    let seen = server.requests.lock().unwrap();
    assert_eq!(seen[0].1.path(), "/v1beta/models");
}
