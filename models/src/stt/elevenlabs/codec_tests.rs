use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::*;
use crate::stt::streaming::test_support::{
    CodecHarness, expect_one_final_per_utterance, interim, last, texts,
};

type Harness = CodecHarness<ScribeCodec>;

impl Harness {
    fn scribe() -> Self {
        Self::new(ScribeCodec::default())
    }

    fn partial(&mut self, text: &str) -> Vec<Output> {
        self.receive(&json!({"message_type": "partial_transcript", "text": text}).to_string())
    }

    fn committed(&mut self, text: &str) -> Vec<Output> {
        self.receive(&json!({"message_type": "committed_transcript", "text": text}).to_string())
    }
}

#[test]
fn a_committed_transcript_is_the_final_one() {
    let mut h = Harness::scribe();
    h.receive(r#"{"message_type":"session_started","session_id":"s-1","config":{"x":1}}"#);
    assert_eq!(h.codec.stream_id(), "s-1");
    let messages = h.speak(500);
    let message: Value = serde_json::from_str(texts(&messages)[0]).unwrap();
    assert_eq!(
        (&message["message_type"], &message["commit"], &message["sample_rate"]),
        (&json!("input_audio_chunk"), &json!(false), &json!(16_000))
    );
    let audio = STANDARD.decode(message["audio_base_64"].as_str().unwrap()).unwrap();
    assert_eq!((messages.len(), audio), (10, vec![1; BYTES_PER_SECOND / 20]));
    assert_eq!(h.partial("I'd"), interim("I'd"));
    assert_eq!(h.partial("i'd like"), interim("i'd like"), "it replaces the first");
    assert_eq!(texts(&h.end()), [COMMIT]);
    assert_eq!(h.committed("I'd like to open an account."), last("I'd like to open an account."));
    // A second answer, which is never requested.
    let timed = r#"{"message_type":"committed_transcript_with_timestamps","text":"x","words":[]}"#;
    assert_eq!((h.receive(timed), h.counts().unknown), (vec![], 1));
    assert_eq!((h.committed("x"), h.counts().late), (vec![], 1));
    h.speak(500);
    h.end();
    assert_eq!(h.committed(""), last(""), "noise");
}

#[test]
fn a_short_utterance_is_committed_with_silence() {
    let mut h = Harness::scribe();
    h.speak(250);
    let messages = h.end();
    let texts = texts(&messages);
    assert_eq!((texts.len(), texts[1]), (2, COMMIT));
    let message: Value = serde_json::from_str(texts[0]).unwrap();
    let audio = STANDARD.decode(message["audio_base_64"].as_str().unwrap()).unwrap();
    assert_eq!(audio, vec![0; 9_600]);
    // The vendor may refuse it nevertheless.
    assert_eq!(h.receive(r#"{"message_type":"commit_throttled","error":"short"}"#), last(""));
    assert_eq!(h.counts().errors, 1);
    assert_eq!(h.receive(r#"{"message_type":"insufficient_audio_activity"}"#), []);
}

#[test]
fn a_commit_without_an_answer_leaves_the_partial_transcript() {
    let mut h = Harness::scribe();
    h.speak(1_000);
    h.partial("one");
    h.end();
    assert_eq!(h.expire(), (1_700, last("one")));
    h.speak(500);
    assert_eq!(h.partial("one two"), [], "still of the first");
    h.end();
    assert_eq!(h.committed("One two."), [], "late");
    assert_eq!(h.partial("three"), interim("three"));
    assert_eq!(h.committed("Three."), last("Three."));
    // An answer that never comes.
    h.speak(500);
    h.partial("four");
    h.end();
    h.expire();
    h.wait(3_000);
    h.speak(500);
    h.end();
    assert_eq!(h.committed("Five."), last("Five."));
}

#[test]
fn a_server_that_answers_no_commit_has_stalled() {
    let mut h = Harness::scribe();
    h.speak(500);
    h.end();
    assert_eq!(h.expire(), (2_500, vec![Output::Stalled]));
}

#[test]
fn error_messages_are_classified() {
    for (kind, fault) in [
        ("auth_error", Fault::Key),
        ("quota_exceeded", Fault::NoCredit),
        ("rate_limited", Fault::Busy),
        ("unaccepted_terms", Fault::Refused),
        ("transcriber_error", Fault::Broken),
        ("session_time_limit_exceeded", Fault::Broken),
    ] {
        let text = json!({"message_type": kind, "error": "words"}).to_string();
        let mut h = Harness::scribe();
        assert_eq!(h.receive(&text), [Output::Failed(fault, text.clone())]);
    }
}

#[test]
fn damaged_messages_change_nothing() {
    let mut h = Harness::scribe();
    h.speak(500);
    h.end();
    let message = r#"{"message_type":"committed_transcript","text":"Grüße."}"#;
    h.expect_garbage_to_be_ignored(message);
    assert_eq!(h.receive(message), last("Grüße."));
}

#[test]
fn an_empty_chunk_keeps_the_connection_open() {
    let mut h = Harness::scribe();
    let mut messages = Vec::new();
    h.codec.keep_alive(&mut messages);
    assert_eq!(texts(&messages), [format!("{}{}", AUDIO.0, AUDIO.1)]);
    assert_eq!(h.codec.keep_alive_interval(), Duration::from_secs(10));
}

#[test]
fn each_utterance_gets_one_final_transcript_whatever_the_server_sends() {
    let kinds = [
        "partial_transcript",
        "committed_transcript",
        "committed_transcript",
        "commit_throttled",
        "transcriber_error",
        "zap",
    ];
    let message = |kind| json!({"message_type": kind, "text": kind}).to_string();
    expect_one_final_per_utterance(100, ScribeCodec::default, &kinds.map(message));
}
