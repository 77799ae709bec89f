use serde_json::json;

use super::*;
use crate::stt::streaming::test_support::{
    CodecHarness, expect_one_final_per_utterance, interim, last, texts,
};

type Harness = CodecHarness<FluxCodec>;

impl Harness {
    fn flux(sends_hints: bool) -> Self {
        Self::new(FluxCodec::new(sends_hints))
    }

    /// Receives an event whose words are spoken between two times in seconds. The trigger of an
    /// end is in brackets.
    fn info(&mut self, event: &str, turn: u64, range: (f64, f64), text: &str) -> Vec<Output> {
        let (event, trigger) = event.trim_end_matches(')').split_once('(').unwrap_or((event, ""));
        let words: Vec<_> = [text.split_whitespace().next(), text.split_whitespace().next_back()]
            .into_iter()
            .flatten()
            .zip([(range.0, range.0 + 0.1), (range.1 - 0.1, range.1)])
            .map(|(word, (start, end))| {
                json!({"word": word, "confidence": 0.98, "start": start, "end": end})
            })
            .collect();
        let message = json!({
            "type": "TurnInfo", "request_id": "r", "sequence_id": 12, "event": event,
            "turn_index": turn, "audio_window_start": 0.0, "audio_window_end": 2.4,
            "transcript": text, "words": words, "end_of_turn_confidence": 0.72,
            "trigger": (!trigger.is_empty()).then_some(trigger),
        });
        self.receive(&message.to_string())
    }
}

/// As the vendor's documentation shows it.
const RECORDED: &str = r#"{"type":"TurnInfo","request_id":"r","sequence_id":12,"event":"EagerEndOfTurn","turn_index":0,"audio_window_start":0.0,"audio_window_end":2.4,"transcript":"Hello there.","words":[{"word":"Hello","confidence":0.98,"start":0.3,"end":0.6}],"end_of_turn_confidence":0.72}"#;

#[test]
fn a_turn_that_was_forced_to_end_is_the_final_transcript() {
    let mut h = Harness::flux(false);
    h.receive(r#"{"type":"Connected","request_id":"r-1","sequence_id":0}"#);
    assert_eq!(h.codec.stream_id(), "r-1");
    h.speak(2_000);
    assert_eq!(h.info("StartOfTurn", 0, (0.3, 0.6), "Hello"), interim("Hello"));
    assert_eq!(h.receive(RECORDED), interim("Hello there."), "no hint");
    assert_eq!(texts(&h.end()), [r#"{"type":"ForceEndTurn"}"#]);
    // Far from the end of the audio, but it is the answer.
    let text = "Hello there.";
    assert_eq!(h.info("EndOfTurn(manual)", 0, (0.3, 0.9), text), last(text));
    assert_eq!(h.info("EndOfTurn(manual)", 0, (0.3, 0.9), text), [], "once more");
    assert_eq!(h.info("Update", 1, (0.0, 0.0), ""), []);
    h.speak(500);
    h.end();
    assert_eq!(h.info("EndOfTurn(manual)", 1, (2.1, 2.4), "Yes."), last("Yes."));
    assert_eq!((h.counts().repeated, h.counts().late), (1, 0));
}

#[test]
fn turns_that_the_model_ends_are_hints_and_segments() {
    let mut h = Harness::flux(true);
    let hint = |hint| vec![Output::Turn(hint)];
    h.speak(2_000);
    assert_eq!(
        h.info("EagerEndOfTurn", 0, (0.3, 0.9), "So"),
        [interim("So"), hint(TurnHint::EagerEnd)].concat()
    );
    assert_eq!(
        h.info("TurnResumed", 0, (0.3, 1.2), "So what"),
        [interim("So what"), hint(TurnHint::Resumed)].concat()
    );
    assert_eq!(
        h.info("EndOfTurn(model)", 0, (0.3, 1.2), "So what?"),
        [interim("So what?"), hint(TurnHint::End)].concat()
    );
    assert_eq!(
        h.info("StartOfTurn", 1, (1.6, 1.8), "I"),
        [interim("So what? I"), hint(TurnHint::Resumed)].concat()
    );
    h.end();
    assert_eq!(h.info("EagerEndOfTurn", 1, (1.6, 1.9), "I see"), interim("So what? I see"));
    let text = "So what? I see.";
    assert_eq!(h.info("EndOfTurn(manual)", 1, (1.6, 1.9), "I see."), last(text));
}

#[test]
fn an_end_mark_without_an_open_turn_is_not_waited_for() {
    let mut h = Harness::flux(false);
    let warning = r#"{"type":"Warning","code":"NO_OPEN_TURN","description":"d"}"#;
    h.speak(1_000);
    h.end();
    h.wait(100);
    assert_eq!(h.receive(warning), []);
    assert_eq!(h.info("Update", 0, (0.0, 0.0), ""), [], "still nothing");
    assert_eq!(h.expire(), (1_400, last("")));
    h.speak(1_000);
    assert_eq!(h.info("EndOfTurn(model)", 0, (1.1, 1.5), "Yes."), interim("Yes."));
    h.end();
    assert_eq!(h.receive(warning), []);
    assert_eq!(h.expire().1, last("Yes."));
    assert_eq!(h.counts().errors, 2);
    // Before the end, a warning means nothing.
    h.speak(1_000);
    h.receive(warning);
    assert_eq!(h.codec.utterances().deadline(), None);
}

#[test]
fn silence_flows_when_audio_is_missing() {
    let mut h = Harness::flux(false);
    let mut messages = Vec::new();
    h.codec.keep_alive(&mut messages);
    assert_eq!(h.codec.keep_alive_interval(), Duration::from_secs(5));
    h.speak(500);
    assert_eq!(h.codec.keep_alive_interval(), Duration::from_millis(500));
    h.codec.keep_alive(&mut messages);
    h.codec.close_stream(&mut messages);
    let silence = |bytes| Outgoing::Binary(vec![0; bytes].into());
    assert_eq!(
        messages,
        [silence(3_200), silence(16_000), Outgoing::text(r#"{"type":"CloseStream"}"#)]
    );
    // It counts in the times of words: .1 s of silence, .5 s of audio, .5 s of silence.
    h.end();
    h.speak(500);
    assert_eq!(
        h.info("Update", 0, (1.2, 1.5), "yes"),
        [last(""), interim("yes")].concat(),
        "words of the second utterance"
    );
}

#[test]
fn errors_end_the_connection_and_damaged_messages_change_nothing() {
    let mut h = Harness::flux(false);
    let error = r#"{"type":"Error","sequence_id":3,"code":"INTERNAL","description":"d"}"#;
    assert_eq!(h.receive(error), [Output::Failed(Fault::Broken, error.into())]);
    assert_eq!(h.receive(r#"{"type":"ConfigureSuccess"}"#), []);
    assert_eq!((h.receive(r#"{"type":"Zap"}"#), h.counts().unknown), (vec![], 1));
    h.speak(2_000);
    h.expect_garbage_to_be_ignored(RECORDED);
    h.end();
    let sparse = r#"{"type":"TurnInfo","event":"EndOfTurn","transcript":"Hi.","trigger":null}"#;
    assert_eq!(h.receive(sparse), last("Hi."));
}

#[test]
fn each_utterance_gets_one_final_transcript_whatever_the_server_sends() {
    let mut messages = vec![
        RECORDED.to_owned(),
        r#"{"type":"Warning","code":"X","description":"d"}"#.into(),
        r#"{"type":"Error","code":"X","description":"d"}"#.into(),
    ];
    for n in 0..40 {
        let event = ["Update", "StartOfTurn", "TurnResumed", "EndOfTurn"][n % 4];
        let (trigger, start) = (["manual", "model"][n % 2], n as f64);
        messages.push(
            json!({"type": "TurnInfo", "event": event, "trigger": trigger, "turn_index": n / 3,
                   "transcript": format!("word {n}"),
                   "words": [{"word": "word", "start": start, "end": start + 0.4}]})
            .to_string(),
        );
    }
    expect_one_final_per_utterance(200, || FluxCodec::new(true), &messages);
}
