//! How servers refuse a request or a connection. Each answer repeats the key or a part of it.

use serde_json::json;

use super::{KEY, Status};
use crate::ErrorKind::{self, Busy, Failed, InvalidKey, NoCredit, Rejected};

/// The text with the key for `KEY`, and with its beginning and its end for `HEAD` and `TAIL`.
pub(crate) fn with_key(text: &str) -> String {
    let (head, tail) = (&KEY[..10], &KEY[KEY.len() - 8..]);
    text.replace("HEAD", head).replace("TAIL", tail).replace("KEY", KEY)
}

/// Statuses, and what each means. No repetition within a turn helps.
pub(crate) fn refusals() -> Vec<(Status, ErrorKind)> {
    let quota = json!({"error": {"message": "You exceeded it, KEY", "code": "insufficient_quota"}});
    let elevenlabs = json!({"detail": {"status": "quota_exceeded", "message": "0 left, KEY"}});
    let model = json!({"error": {"message": "The model `x` does not exist, KEY",
        "type": "invalid_request_error", "code": "model_not_found"}});
    let said = |words: &str| json!({"error": {"message": words}}).to_string();
    [
        ("401 Unauthorized", said("Incorrect API key: HEAD******TAIL"), InvalidKey),
        ("401 Unauthorized", "KEY".to_owned(), InvalidKey),
        ("403 Forbidden", said("KEY may not do this; it ends in TAIL."), Rejected),
        ("403 Forbidden", said("Invalid API key: KEY"), InvalidKey),
        ("402 Payment Required", said("pay for KEY"), NoCredit),
        ("401 Unauthorized", elevenlabs.to_string(), NoCredit),
        ("429 Too Many Requests", quota.to_string(), NoCredit),
        ("429 Too Many Requests\r\nretry-after: 60", said("slow down, 'KEY'"), Busy),
        ("400 Bad Request", said("unknown voice for key=KEY (HEAD…TAIL)"), Rejected),
        ("404 Not Found", model.to_string(), Rejected),
        ("404 Not Found", "<html>KEY</html>".to_owned(), Rejected),
        ("422 Unprocessable Entity", said(&"KEY is bad. ".repeat(300)), Rejected),
    ]
    .map(|(line, body, kind)| (Status::new(line, with_key(&body)), kind))
    .into()
}

/// Statuses of servers that may work later. The same request may be repeated.
pub(crate) fn failures() -> Vec<(Status, ErrorKind)> {
    let said = |words: &str| json!({"error": {"message": words}}).to_string();
    [
        ("429 Too Many Requests", said("slow down, KEY"), Busy),
        ("500 Internal Server Error", said("oops: TAIL KEY"), Failed),
        ("503 Service Unavailable", "<html>KEY".to_owned(), Failed),
        ("529 Overloaded", said("KEY"), Failed),
    ]
    .map(|(line, body, kind)| (Status::new(line, with_key(&body)), kind))
    .into()
}

/// Codes and reasons of close frames, and what each means.
pub(crate) fn closes() -> Vec<(u16, String, ErrorKind)> {
    [
        (1008, "Unauthorized: invalid API key KEY (TAIL)", InvalidKey),
        (4001, "KEY", InvalidKey),
        (1008, "insufficient_quota of KEY", NoCredit),
        (4002, "KEY", NoCredit),
        (1008, "no such voice or model, KEY", Rejected),
        (1003, "", Rejected),
        (1007, "bad UTF-8 from KEY", Rejected),
        (1008, "concurrency_limited for KEY", Busy),
        (1011, "oops HEAD TAIL", Failed),
        (1000, "", Failed),
    ]
    .map(|(code, reason, kind)| (code, with_key(reason), kind))
    .into()
}
