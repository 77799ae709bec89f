use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::json;

use super::*;
use crate::stt::streaming::test_support::{
    CodecHarness, expect_one_final_per_utterance, interim, last, texts,
};

type Harness = CodecHarness<RealtimeCodec>;

impl Harness {
    fn realtime() -> Self {
        Self::new(RealtimeCodec::new(r#"{"type":"session.update"}"#.into()))
    }

    fn named(&mut self, id: &str) {
        let message = json!({"type": "input_audio_buffer.committed", "item_id": id,
                             "previous_item_id": null});
        assert_eq!(self.receive(&message.to_string()), []);
    }

    fn delta(&mut self, id: &str, delta: &str) -> Vec<Output> {
        let kind = format!("{TRANSCRIPTION}delta");
        self.receive(&json!({"type": kind, "item_id": id, "delta": delta}).to_string())
    }

    fn completed(&mut self, id: &str, text: &str) -> Vec<Output> {
        let kind = format!("{TRANSCRIPTION}completed");
        self.receive(&json!({"type": kind, "item_id": id, "transcript": text}).to_string())
    }
}

#[test]
fn a_completed_item_is_the_final_transcript() {
    let mut h = Harness::realtime();
    let mut messages = Vec::new();
    h.codec.reset(&mut messages);
    assert_eq!(texts(&messages), [r#"{"type":"session.update"}"#]);
    h.receive(r#"{"type":"session.created","event_id":"e","session":{"id":"s-1","object":"x"}}"#);
    assert_eq!(h.codec.stream_id(), "s-1");
    let messages = h.speak(500);
    for text in texts(&messages) {
        let message: Value = serde_json::from_str(text).unwrap();
        assert_eq!(message["type"], "input_audio_buffer.append");
        let audio = STANDARD.decode(message["audio"].as_str().unwrap()).unwrap();
        assert_eq!(audio.len(), 2_400);
    }
    assert_eq!(messages.len(), 10);
    let messages = h.end();
    assert_eq!((messages.len(), texts(&messages)[1]), (2, COMMIT), "the rest of the filter");
    h.named("i1");
    assert_eq!(h.delta("i1", "I'd"), interim("I'd"));
    assert_eq!(h.delta("i1", " like"), interim("I'd like"));
    let recorded = r#"{"type":"conversation.item.input_audio_transcription.completed",
        "event_id":"e","item_id":"i1","content_index":0,"transcript":"I'd like to.",
        "usage":{"type":"tokens","total_tokens":17,"input_tokens":14,"output_tokens":3}}"#;
    let tokens = Output::Tokens(TokenUsage { input: 14, output: 3 });
    assert_eq!(h.receive(recorded), [vec![tokens], last("I'd like to.")].concat());
    assert_eq!(h.completed("i1", "I'd like to."), [], "once more");
    assert_eq!(h.counts().late, 1);
}

#[test]
fn words_come_during_the_speech_from_some_models() {
    let mut h = Harness::realtime();
    h.speak(500);
    assert_eq!(h.delta("i1", "one"), interim("one"));
    h.push(500);
    assert_eq!(h.delta("i1", " two"), interim("one two"));
    h.end();
    h.named("i1");
    assert_eq!(h.delta("i1", " three"), interim("one two three"));
    assert_eq!(h.completed("i1", "One, two, three."), last("One, two, three."));
}

#[test]
fn items_that_are_completed_in_another_order_are_delivered_in_order() {
    let mut h = Harness::realtime();
    for id in ["i1", "i2", "i3"] {
        h.speak(200);
        h.end();
        h.named(id);
    }
    assert_eq!(h.delta("i2", "Tw"), [], "not the oldest");
    assert_eq!(h.completed("i3", "Three."), []);
    assert_eq!(h.completed("i2", "Two."), []);
    assert_eq!(h.completed("i1", "One."), [last("One."), last("Two."), last("Three.")].concat());
}

#[test]
fn a_late_item_is_dropped() {
    let mut h = Harness::realtime();
    h.speak(500);
    h.delta("i1", "one");
    h.end();
    assert_eq!(h.expire(), (2_500, last("one")));
    h.speak(500);
    h.end();
    h.named("i1");
    h.named("i2");
    assert_eq!(h.completed("i1", "One."), []);
    assert_eq!(h.completed("i2", "Two."), last("Two."));
    assert_eq!((h.counts().late, h.counts().unanswered), (1, 1));
}

#[test]
fn a_server_that_completes_nothing_has_stalled() {
    let mut h = Harness::realtime();
    h.speak(5_000);
    assert_eq!(h.codec.utterances().deadline(), None, "it may be silent while the user speaks");
    h.end();
    h.named("i1");
    assert_eq!(h.expire(), (7_500, vec![Output::Stalled]));
}

#[test]
fn errors_are_classified_and_an_empty_commit_is_harmless() {
    for (kind, code, fault) in [
        ("invalid_request_error", "invalid_api_key", Fault::Key),
        ("invalid_request_error", "invalid_model", Fault::Refused),
        ("invalid_request_error", "session_expired", Fault::Broken),
        ("insufficient_quota", "x", Fault::NoCredit),
        ("x", "rate_limit_exceeded", Fault::Busy),
        ("server_error", "x", Fault::Broken),
    ] {
        let error = json!({"type": kind, "code": code, "message": "words", "param": null});
        let mut h = Harness::realtime();
        let outputs = h.receive(&json!({"type": "error", "error": error}).to_string());
        assert_eq!(outputs, [Output::Failed(fault, "words".into())], "{kind} {code}");
    }
    let mut h = Harness::realtime();
    h.speak(0);
    assert_eq!(h.end().len(), 3, "100 ms of silence");
    let empty = r#"{"type":"error","error":{"type":"invalid_request_error",
        "code":"input_audio_buffer_commit_empty","message":"buffer too small"}}"#;
    assert_eq!(h.receive(empty), last(""));
    assert_eq!(h.receive(empty), []);
    let failed = r#"{"type":"conversation.item.input_audio_transcription.failed","item_id":"i",
        "error":{"type":"transcription_error","code":null,"message":"no"}}"#;
    assert_eq!(h.receive(failed), [Output::Failed(Fault::Broken, "no".into())]);
    assert_eq!(h.receive(r#"{"type":"input_audio_buffer.speech_started"}"#), []);
    assert_eq!((h.counts().errors, h.counts().unknown), (2, 1));
}

#[test]
fn damaged_messages_change_nothing() {
    let mut h = Harness::realtime();
    h.speak(500);
    h.end();
    let message = r#"{"type":"conversation.item.input_audio_transcription.completed",
        "item_id":"i1","transcript":"Grüße."}"#;
    h.expect_garbage_to_be_ignored(message);
    assert_eq!(h.receive(message), last("Grüße."));
}

#[test]
fn each_utterance_gets_one_final_transcript_whatever_the_server_sends() {
    let error = json!({"code": "input_audio_buffer_commit_empty"});
    let mut messages = vec![json!({"type": "error", "error": error}).to_string()];
    for n in 0..30 {
        for kind in ["input_audio_buffer.committed", "delta", "completed"] {
            let kind = match kind.contains('.') {
                true => kind.to_owned(),
                false => format!("{TRANSCRIPTION}{kind}"),
            };
            let id = format!("i{n}");
            messages.push(
                json!({"type": kind, "item_id": id, "delta": "a", "transcript": id}).to_string(),
            );
        }
    }
    let make_codec = || RealtimeCodec::new("{}".into());
    // Resampling by test code is slow.
    expect_one_final_per_utterance(3, make_codec, &messages);
}
