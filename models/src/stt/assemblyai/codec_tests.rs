use serde_json::json;

use super::*;
use crate::stt::streaming::test_support::{
    CodecHarness, expect_one_final_per_utterance, interim, last, texts,
};

type Harness = CodecHarness<AssemblyAiCodec>;

impl Harness {
    /// Universal-3, or Universal-Streaming, which sends the ends of turns twice.
    fn assemblyai(formats_twice: bool) -> Self {
        Self::new(AssemblyAiCodec::new(formats_twice, false))
    }

    /// Receives a turn whose words are spoken between two times in milliseconds.
    fn turn(&mut self, order: u64, kind: Kind, range: (u64, u64), text: &str) -> Vec<Output> {
        let count = text.split_whitespace().count().max(1) as u64;
        let length = (range.1 - range.0) / count;
        let word = |(n, word): (usize, &str)| {
            let start = range.0 + n as u64 * length;
            json!({"text": word, "start": start, "end": start + length, "confidence": 0.9,
                   "word_is_final": true})
        };
        let words: Vec<_> = text.split_whitespace().enumerate().map(word).collect();
        let message = json!({
            "type": "Turn", "turn_order": order, "turn_is_formatted": kind == Kind::Formatted,
            "end_of_turn": kind != Kind::Partial, "transcript": text, "utterance": text,
            "end_of_turn_confidence": if kind == Kind::Partial { 0.1 } else { 0.87 },
            "words": words, "language_code": "en",
        });
        self.receive(&message.to_string())
    }

    /// Receives a turn whose last word may change, with the confidence that it has ended.
    fn eager(&mut self, order: u64, confidence: f64, text: &str) -> Vec<Output> {
        let words = json!([{"text": text, "start": 300, "end": 900, "word_is_final": false}]);
        let message = json!({
            "type": "Turn", "turn_order": order, "end_of_turn": false, "transcript": "",
            "end_of_turn_confidence": confidence, "words": words,
        });
        self.receive(&message.to_string())
    }
}

#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Partial,
    Unformatted,
    Formatted,
}
use Kind::{Formatted, Partial, Unformatted};

/// As the vendor's documentation shows it.
const RECORDED: &str = r#"{"type":"Turn","turn_order":0,"turn_is_formatted":true,"end_of_turn":true,"transcript":"I'd like to open an account.","utterance":"I'd like to open an account.","end_of_turn_confidence":0.87,"words":[{"text":"I'd","start":280,"end":440,"confidence":0.97,"word_is_final":true},{"text":"account.","start":1240,"end":1840,"confidence":0.97,"word_is_final":true}],"language_code":"en"}"#;

#[test]
fn a_forced_turn_is_the_final_transcript() {
    let mut h = Harness::assemblyai(false);
    h.receive(
        r#"{"type":"Begin","id":"s-1","expires_at":1763900000,"configuration":{"mode":null}}"#,
    );
    assert_eq!(h.codec.stream_id(), "s-1");
    h.speak(2_000);
    assert_eq!(h.turn(0, Partial, (280, 900), "I'd like"), interim("I'd like"));
    assert_eq!(texts(&h.end()), [r#"{"type":"ForceEndpoint"}"#]);
    assert_eq!(h.receive(RECORDED), last("I'd like to open an account."));
    assert_eq!((h.codec.utterances().deadline(), h.counts()), (None, Default::default()));
    // The next utterance does not begin with it.
    h.speak(1_000);
    assert_eq!(h.receive(RECORDED), []);
    h.end();
    assert_eq!(h.turn(1, Formatted, (2_300, 2_900), "Yes."), last("Yes."));
    assert_eq!(h.counts().repeated, 1);
}

#[test]
fn the_second_of_two_ends_of_a_turn_is_the_final_one() {
    let mut h = Harness::assemblyai(true);
    h.speak(2_000);
    assert_eq!(h.turn(0, Partial, (300, 900), "i'd like"), interim("i'd like"));
    h.end();
    let text = "i'd like an account";
    assert_eq!(h.turn(0, Unformatted, (300, 1_800), text), interim(text));
    let text = "I'd like an account.";
    assert_eq!(h.turn(0, Formatted, (300, 1_800), text), last(text));
    assert_eq!(h.turn(0, Formatted, (300, 1_800), text), [], "once more");
    // The formatted one does not come.
    h.speak(1_000);
    h.end();
    assert_eq!(h.turn(1, Unformatted, (2_300, 2_800), "yes"), interim("yes"));
    assert_eq!(h.expire().1, last("yes"));
    h.speak(1_000);
    assert_eq!(h.turn(1, Formatted, (2_300, 2_800), "Yes."), [], "late");
    h.end();
    assert_eq!(h.turn(2, Formatted, (3_300, 3_800), "No."), last("No."));
    assert_eq!((h.counts().late, h.counts().repeated, h.counts().unanswered), (1, 1, 1));
}

#[test]
fn turns_that_the_vendor_ends_are_joined() {
    let mut h = Harness::assemblyai(false);
    h.speak(1_500);
    assert_eq!(h.turn(0, Formatted, (300, 900), "Well,"), interim("Well,"));
    h.push(1_000);
    assert_eq!(h.turn(1, Partial, (1_600, 2_000), "I"), interim("Well, I"));
    h.end();
    assert_eq!(h.turn(1, Formatted, (1_600, 2_400), "I see."), last("Well, I see."));
}

#[test]
fn an_end_mark_after_the_last_turn_is_not_waited_for() {
    let mut h = Harness::assemblyai(false);
    h.speak(2_000);
    assert_eq!(h.turn(0, Formatted, (300, 1_500), "Hello there."), interim("Hello there."));
    h.end();
    assert_eq!(h.expire(), (2_300, last("Hello there.")), "300 ms later");
    // Words in between are waited for.
    h.speak(2_000);
    h.turn(1, Formatted, (2_300, 2_900), "One,");
    h.end();
    h.wait(200);
    assert_eq!(h.turn(2, Partial, (3_200, 3_900), "two"), interim("One, two"));
    h.wait(400);
    assert_eq!(h.turn(2, Formatted, (3_200, 3_900), "two."), last("One, two."));
    // The end of a turn that is far from the end of the audio.
    h.speak(2_000);
    h.end();
    assert_eq!(h.turn(3, Formatted, (4_300, 4_800), "Three,"), interim("Three,"));
    assert_eq!(h.turn(4, Formatted, (5_300, 5_900), "four."), last("Three, four."));
}

#[test]
fn words_of_an_utterance_that_was_given_up_do_not_reach_the_next_one() {
    let mut h = Harness::assemblyai(false);
    h.speak(1_000);
    assert_eq!(h.turn(0, Partial, (300, 800), "one"), interim("one"));
    h.end();
    assert_eq!(h.expire().1, last("one"));
    h.speak(1_000);
    // The vendor did not end the turn.
    assert_eq!(h.turn(0, Partial, (300, 800), "one two"), [], "words before the utterance");
    let text = "one and two";
    assert_eq!(h.turn(0, Partial, (300, 1_800), text), interim("and two"));
    h.end();
    assert_eq!(h.turn(0, Formatted, (300, 1_800), "One and two."), last("and two."));
}

#[test]
fn a_noise_gets_an_empty_transcript_and_the_next_utterance_its_words() {
    let mut h = Harness::assemblyai(false);
    h.speak(1_000);
    h.end();
    h.speak(500);
    // No answer to the first one; words of the second.
    assert_eq!(h.turn(0, Partial, (1_200, 1_400), "yes"), [last(""), interim("yes")].concat(),);
    h.end();
    assert_eq!(h.turn(0, Formatted, (1_200, 1_400), "Yes."), last("Yes."));
    h.speak(1_000);
    h.end();
    assert_eq!(h.expire().1, last(""));
}

#[test]
fn a_server_that_sends_nothing_for_long_speech_has_stalled() {
    let mut h = Harness::assemblyai(false);
    h.speak(3_000);
    assert_eq!(h.expire(), (1_450 + 2_500, vec![Output::Stalled]));
    let mut h = Harness::assemblyai(false);
    h.speak(2_500);
    assert_eq!(h.receive(r#"{"type":"SpeechStarted","timestamp":240}"#), []);
    assert_eq!(h.codec.utterances().deadline(), None);
}

#[test]
fn errors_end_the_connection_and_unknown_messages_do_not() {
    let mut h = Harness::assemblyai(false);
    let error = r#"{"type":"Error","error_code":3008,"error":"Session Expired: 3 h"}"#;
    let failed = Output::Failed(Fault::Code(3008), "Session Expired: 3 h".into());
    assert_eq!(h.receive(error), [failed]);
    let broken = [Output::Failed(Fault::Broken, "x".into())];
    assert_eq!(h.receive(r#"{"type":"Error","error":"x"}"#), broken);
    assert_eq!(h.receive(r#"{"type":"Error","error_code":70000,"error":"x"}"#), broken);
    for ignored in [
        r#"{"type":"Heartbeat","total_audio_received_ms":100}"#,
        r#"{"type":"Termination","audio_duration_seconds":12,"session_duration_seconds":14}"#,
        r#"{"type":"Warning","warning_code":1,"warning":"w"}"#,
        r#"{"type":"Zap"}"#,
    ] {
        assert_eq!(h.receive(ignored), []);
    }
    assert_eq!((h.counts().unknown, h.counts().errors), (1, 1));
}

#[test]
fn damaged_messages_change_nothing() {
    let mut h = Harness::assemblyai(false);
    h.speak(2_000);
    h.expect_garbage_to_be_ignored(RECORDED);
    h.end();
    assert_eq!(h.receive(r#"{"type":"Turn","end_of_turn":true,"transcript":"Hi."}"#), last("Hi."));
}

#[test]
fn ends_of_turns_are_hints_if_the_vendor_decides_about_them() {
    let mut h = Harness::new(AssemblyAiCodec::new(true, true));
    h.speak(2_000);
    let end = Output::Turn(TurnHint::End);
    assert_eq!(h.turn(0, Unformatted, (300, 900), "so"), [interim("so"), vec![end]].concat());
    assert_eq!(h.turn(0, Formatted, (300, 900), "So."), interim("So."));
    let resumed = Output::Turn(TurnHint::Resumed);
    assert_eq!(
        h.turn(1, Partial, (1_300, 1_600), "what"),
        [interim("So. what"), vec![resumed]].concat()
    );
    assert_eq!(h.turn(1, Partial, (1_300, 1_600), "what if"), interim("So. what if"));
    h.end();
    assert_eq!(h.turn(1, Unformatted, (1_300, 1_800), "what if"), [], "it was requested");
}

#[test]
fn a_rising_confidence_is_an_eager_end() {
    let mut h = Harness::new(AssemblyAiCodec::new(false, true));
    let hint = |hint| vec![Output::Turn(hint)];
    h.speak(2_000);
    assert_eq!(h.eager(0, 0.2, "yes"), interim("yes"));
    assert_eq!(h.eager(0, 0.6, "yes"), hint(TurnHint::EagerEnd));
    assert_eq!(h.eager(0, 0.8, "yes"), []);
    let resumed = [interim("yes but"), hint(TurnHint::Resumed)].concat();
    assert_eq!(h.eager(0, 0.1, "yes but"), resumed);
    h.end();
    assert_eq!(h.eager(0, 0.9, "yes but no"), interim("yes but no"), "the user has finished");
    // This server decides about the ends of turns.
    let mut h = Harness::assemblyai(false);
    h.speak(2_000);
    assert_eq!(h.eager(0, 0.9, "yes"), interim("yes"));
}

#[test]
fn the_last_chunk_is_padded_to_50_ms() {
    let mut h = Harness::assemblyai(false);
    h.speak(50);
    let mut messages = Vec::new();
    h.codec.push_audio(h.now, Bytes::from_static(&[1, 2]), &mut messages);
    let [Outgoing::Binary(bytes)] = messages.as_slice() else { panic!("{messages:?}") };
    assert_eq!((bytes.len(), &bytes[..4]), (CHUNK_BYTES, &[1, 2, 0, 0][..]));
    assert_eq!(h.codec.utterances().current_bytes(), 2 * CHUNK_BYTES);
    messages.clear();
    h.codec.keep_alive(&mut messages);
    h.codec.close_stream(&mut messages);
    assert_eq!(texts(&messages), [r#"{"type":"KeepAlive"}"#, r#"{"type":"Terminate"}"#]);
}

#[test]
fn each_utterance_gets_one_final_transcript_whatever_the_server_sends() {
    let mut messages = vec![
        RECORDED.to_owned(),
        r#"{"type":"SpeechStarted","timestamp":1}"#.into(),
        r#"{"type":"Error","error_code":3005,"error":"x"}"#.into(),
    ];
    for n in 0..60 {
        let (formatted, ended, start) = (n % 4 > 2, n % 4 > 1, n * 700);
        messages.push(
            json!({"type": "Turn", "turn_order": n / 4, "turn_is_formatted": formatted,
                   "end_of_turn": ended, "transcript": format!("word {n}"),
                   "words": [{"text": "word", "start": start, "end": start + 400}]})
            .to_string(),
        );
    }
    for formats_twice in [false, true] {
        let make_codec = || AssemblyAiCodec::new(formats_twice, true);
        expect_one_final_per_utterance(200, make_codec, &messages);
    }
}
