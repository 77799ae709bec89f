use serde_json::json;

use super::*;

fn body(error_type: &str, message: &str) -> String {
    json!({"type": "error", "error": {"type": error_type, "message": message}, "request_id": "r"})
        .to_string()
}

fn failure(status: u16, body: &str) -> Failure {
    Failure::of_status("Anthropic", status).with_key(true).with_body(body)
}

fn with_wait(status: u16, millis: Option<&str>, seconds: Option<&str>) -> Failure {
    let owned = |text: Option<&str>| text.map(str::to_owned);
    Failure::of_status("Anthropic", status).with_key(true).with_headers(
        owned(millis),
        owned(seconds),
        None,
    )
}

#[test]
fn each_failure_has_a_kind_and_a_sentence() {
    use ErrorKind::{Busy, Failed, InvalidKey, NoCredit, Rejected};
    let key = "the API key for Anthropic is not valid";
    let credit = "the Anthropic account has no credit left";
    let limit = "Anthropic is at its limit of requests";
    let cases = [
        (401, body("authentication_error", "invalid x-api-key"), InvalidKey, key),
        (
            403,
            body("permission_error", "not in this region"),
            Rejected,
            "the API key for Anthropic does not permit this request: not in this region",
        ),
        (403, body("permission_error", "Invalid API key"), InvalidKey, key),
        (402, body("billing_error", "pay"), NoCredit, credit),
        (
            400,
            body("invalid_request_error", "Your credit balance is too low to use the API."),
            NoCredit,
            credit,
        ),
        (
            404,
            body("not_found_error", "model: tiny"),
            Rejected,
            "Anthropic does not have the model \"tiny\"",
        ),
        (404, "no page".into(), Rejected, "Anthropic refused the request: no page"),
        (
            400,
            body("invalid_request_error", "messages: too many"),
            Rejected,
            "Anthropic refused the request: messages: too many",
        ),
        (
            413,
            body("request_too_large", "too large"),
            Rejected,
            "Anthropic refused the request: too large",
        ),
        (302, String::new(), Rejected, "Anthropic refused the request"),
        (429, body("rate_limit_error", "slow down"), Busy, limit),
        (500, body("api_error", "oops"), Failed, "Anthropic failed with 500: oops"),
        (503, String::new(), Failed, "Anthropic failed with 503"),
        (504, body("timeout_error", "late"), Failed, "Anthropic failed with 504: late"),
        (408, "{}".into(), Failed, "Anthropic failed with 408: no reason given"),
        (529, body("overloaded_error", "Overloaded"), Failed, "Anthropic is overloaded"),
    ];
    for (status, body, kind, sentence) in cases {
        let error = failure(status, &body).into_error("tiny");
        assert_eq!((error.kind(), error.to_string().as_str()), (kind, sentence), "{status}");
    }
    let waiting = with_wait(429, None, Some("6.2")).into_error("tiny");
    assert_eq!(waiting.to_string(), format!("{limit} and asks to wait 7 s"));
}

#[test]
fn only_failures_that_may_pass_are_repeated_and_the_servers_advice_has_precedence() {
    for status in [400, 401, 402, 403, 404, 413, 422, 529] {
        assert_eq!(failure(status, "").retry_wait(), None, "{status}");
    }
    for status in [408, 409, 500, 502, 503, 504] {
        assert_eq!(failure(status, "").retry_wait(), Some(Duration::ZERO), "{status}");
    }
    let wait = failure(429, "").retry_wait().unwrap();
    assert!((BUSY_WAIT..=2 * BUSY_WAIT).contains(&wait), "{wait:?}");
    let ms = Duration::from_millis;
    assert_eq!(with_wait(429, None, Some("7")).retry_wait(), Some(ms(7_000)));
    assert_eq!(with_wait(429, Some("120"), Some("7")).retry_wait(), Some(ms(120)));
    for nonsense in ["-1", "soon", "1e300", "NaN"] {
        let wait = with_wait(429, None, Some(nonsense)).retry_wait().unwrap();
        assert!((BUSY_WAIT..=2 * BUSY_WAIT).contains(&wait), "{nonsense}: {wait:?}");
    }
    let advised = |status: u16, advice: &str| {
        Failure::of_status("Anthropic", status)
            .with_key(true)
            .with_headers(None, None, Some(advice.into()))
            .retry_wait()
    };
    assert_eq!(advised(500, "false"), None);
    assert_eq!(advised(429, "false"), None);
    assert_eq!(advised(529, "true"), Some(Duration::ZERO));
}

#[test]
fn a_refused_parameter_is_one_that_the_server_names() {
    let optional = ["thinking", "temperature", "cache_prompt", "seed"];
    let sent = r#"{"thinking":{},"temperature":1,"cache_prompt":true}"#;
    let refused = |status: u16, message: &str, omitted: &[&'static str]| {
        let failure = failure(status, &body("invalid_request_error", message));
        failure.refused_parameter(&optional, omitted, sent)
    };
    let thinking = Some("thinking");
    assert_eq!(refused(400, "thinking.type: unexpected value", &[]), thinking);
    assert_eq!(refused(400, "thinking.type: unexpected", &["thinking"]), None);
    assert_eq!(refused(500, "thinking failed", &[]), None);
    assert_eq!(
        refused(400, "`temperature` is deprecated for this model", &[]),
        Some("temperature")
    );
    assert_eq!(refused(400, "max_tokens: too large", &[]), None);
    assert_eq!(refused(400, "seed: not sent", &[]), None);
    // A check by a schema, and a name in another style.
    let invalid = json!({"detail": [{"loc": ["body", "cache_prompt"], "msg": "Extra inputs"}]});
    let failure = failure(422, &invalid.to_string());
    assert_eq!(failure.refused_parameter(&optional, &[], sent), Some("cache_prompt"));
    assert_eq!(refused(400, "Unknown name \"cachePrompt\"", &[]), Some("cache_prompt"));
}

#[test]
fn the_request_id_for_the_log_has_no_secret() {
    let id = |failure: Failure| failure.with_redacted_id(|id| id.replace("KEY", "***")).request_id;
    let of_status = || Failure::of_status("Anthropic", 500);
    let header = of_status().with_request_id(Some("req_1\n KEY".into()));
    assert_eq!(id(header).as_deref(), Some("req_1"));
    let repeats = r#"{"request_id":"KEY:2"}"#;
    assert_eq!(id(of_status().with_body(repeats)).as_deref(), Some(":2"));
    let event = serde_json::from_str(repeats).unwrap();
    assert_eq!(Failure::of_event("Anthropic", &event).request_id, None);
}

#[test]
fn a_request_without_a_key_is_told_to_have_one() {
    for status in [401, 403] {
        let error = Failure::of_status("Groq", status).with_key(false).into_error("tiny");
        assert_eq!(error.to_string(), "Groq requires an API key", "{status}");
    }
}

#[test]
fn the_account_and_the_key_are_recognized_whatever_the_status() {
    let says = |status: u16, body: serde_json::Value| {
        let failure = Failure::of_status("Them", status).with_key(true);
        failure.with_body(&body.to_string()).into_error("tiny").to_string()
    };
    let credit = "the Them account has no credit left";
    let quota = json!({"error": {"message": "You exceeded your quota", "type": "x",
        "code": "insufficient_quota"}});
    assert_eq!(says(429, quota), credit);
    assert_eq!(
        says(402, json!({"error": {"message": "Insufficient credits", "code": 402}})),
        credit
    );
    let key = "the API key for Them is not valid";
    let google = json!({"error": {"code": 400, "status": "INVALID_ARGUMENT",
        "message": "API key not valid. Please pass a valid API key."}});
    assert_eq!(says(400, google.clone()), key);
    assert_eq!(says(400, json!([google])), key);
    let reason = json!({"error": {"code": 400, "message": "no", "details": [
        {"reason": "API_KEY_INVALID"}]}});
    assert_eq!(says(400, reason), key);
}

#[test]
fn the_wait_may_be_a_detail_of_the_body() {
    let error = json!({"error": {"code": 429, "status": "RESOURCE_EXHAUSTED", "message": "slow",
        "details": [{"retryDelay": "12s"}]}});
    let failure = failure(429, &error.to_string());
    assert_eq!(failure.retry_wait(), Some(Duration::from_secs(12)));
}

#[test]
fn an_error_in_a_stream_may_have_a_status_as_its_code() {
    let of = |error: serde_json::Value| {
        let error = Failure::of_event("Them", &json!({"error": error})).into_error("tiny");
        (error.kind(), error.to_string())
    };
    let broken = (ErrorKind::Failed, "Them failed with 502: lost".to_owned());
    assert_eq!(of(json!({"code": 502, "message": "lost"})), broken);
    let busy = (ErrorKind::Busy, "Them is at its limit of requests".to_owned());
    assert_eq!(of(json!({"code": "rate_limit_exceeded", "message": "slow"})), busy);
    assert_eq!(of(json!("it broke")), (ErrorKind::Failed, "Them failed: it broke".to_owned()));
}
