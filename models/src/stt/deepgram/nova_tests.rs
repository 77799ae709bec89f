use serde_json::json;

use super::*;
use crate::stt::streaming::test_support::{
    CodecHarness, expect_one_final_per_utterance, interim, last, texts,
};
use crate::stt::streaming::{Counts, MAX_TEXT_BYTES};

type Harness = CodecHarness<NovaCodec>;

impl Harness {
    fn nova() -> Self {
        Self::new(NovaCodec::default())
    }

    /// Receives results for the audio between two times in seconds.
    fn results(&mut self, kind: Kind, range: (f64, f64), text: &str) -> Vec<Output> {
        let (is_final, from_finalize) = match kind {
            Kind::Interim => (false, false),
            Kind::Segment => (true, false),
            Kind::Answer => (true, true),
        };
        let message = json!({
            "type": "Results", "channel_index": [0, 1], "start": range.0,
            "duration": range.1 - range.0, "is_final": is_final, "speech_final": false,
            "from_finalize": from_finalize,
            "channel": {"alternatives": [{"transcript": text, "confidence": 0.9, "words": []}]},
            "metadata": {"request_id": "r-1", "model_uuid": "m"},
        });
        self.receive(&message.to_string())
    }
}

#[derive(Clone, Copy)]
enum Kind {
    Interim,
    Segment,
    Answer,
}
use Kind::{Answer, Interim, Segment};

#[test]
fn segments_are_appended_until_the_answer_to_finalize() {
    let mut h = Harness::nova();
    h.speak(3_000);
    assert_eq!(h.results(Interim, (0.0, 1.0), "i'd like"), interim("i'd like"));
    assert_eq!(h.results(Interim, (0.0, 1.0), "i'd like"), [], "nothing new");
    assert_eq!(h.results(Segment, (0.0, 1.5), "I'd like to"), interim("I'd like to"));
    assert_eq!(h.results(Interim, (1.5, 2.0), "open"), interim("I'd like to open"));
    h.end();
    assert_eq!(h.results(Interim, (1.5, 2.5), "open an"), interim("I'd like to open an"));
    assert_eq!(
        h.results(Answer, (1.5, 3.0), " open an account. "),
        last("I'd like to open an account.")
    );
    assert_eq!(h.codec.utterances.deadline(), None);
    assert_eq!(h.codec.utterances.counts, Counts::default());
    assert!(h.codec.stream_id() == "r-1" && h.codec.utterances.has_answered);
}

#[test]
fn an_empty_answer_ends_the_utterance_with_the_segments_before_it() {
    let mut h = Harness::nova();
    h.speak(1_000);
    assert_eq!(h.results(Segment, (0.0, 0.5), ""), []);
    assert_eq!(h.results(Segment, (0.5, 0.9), "Yes."), interim("Yes."));
    h.end();
    assert_eq!(h.results(Answer, (0.9, 1.0), ""), last("Yes."));
    h.speak(1_000);
    h.end();
    assert_eq!(h.results(Answer, (1.0, 2.0), ""), last(""), "noise");
}

#[test]
fn a_missing_answer_leaves_the_last_interim_transcript_after_700_ms() {
    let mut h = Harness::nova();
    h.speak(2_000);
    h.results(Segment, (0.0, 1.0), "One");
    h.results(Interim, (1.0, 1.8), "two");
    assert_eq!(h.codec.utterances.deadline(), None, "while the user speaks");
    h.end();
    assert_eq!(h.expire(), (2_700, last("One two")));
    assert_eq!(h.codec.utterances.counts.unanswered, 1);
    // The late answer and a repetition of it are dropped, before and during the next utterance.
    assert_eq!(h.results(Answer, (1.0, 2.0), "two three"), []);
    h.speak(500);
    assert_eq!(h.results(Answer, (1.0, 2.0), "two three"), []);
    assert_eq!(h.codec.utterances.counts.late, 2);
    assert_eq!(h.results(Interim, (2.0, 2.5), "four"), interim("four"));
    h.end();
    assert_eq!(h.results(Answer, (2.0, 2.5), "Four."), last("Four."));
}

#[test]
fn a_late_answer_does_not_end_the_next_utterance() {
    let mut h = Harness::nova();
    h.speak(1_000);
    h.results(Interim, (0.0, 1.0), "one");
    h.end();
    assert_eq!(h.expire().1, last("one"));
    h.speak(1_000);
    h.end();
    assert_eq!(h.results(Segment, (0.0, 1.0), "One,"), []);
    assert_eq!(h.results(Answer, (0.0, 1.0), "one and a half"), []);
    assert_eq!(h.results(Answer, (1.0, 2.0), "Two."), last("Two."));
    assert_eq!(h.codec.utterances.counts.late, 2);
}

#[test]
fn an_answer_that_never_comes_does_not_shift_the_following_ones() {
    let mut h = Harness::nova();
    for (n, word) in ["one", "two", "three"].into_iter().enumerate() {
        let (from, to) = (n as f64, n as f64 + 1.0);
        h.speak(1_000);
        h.results(Interim, (from, to), word);
        h.end();
        if n == 0 {
            assert_eq!(h.expire().1, last("one"));
        } else {
            assert_eq!(h.results(Answer, (from, to), word), last(word));
        }
    }
    assert_eq!((h.codec.utterances.counts.unanswered, h.codec.utterances.counts.late), (1, 0));
}

#[test]
fn doubled_and_reordered_results_count_once() {
    let mut h = Harness::nova();
    h.speak(2_000);
    h.results(Segment, (0.0, 1.0), "One");
    assert_eq!(h.results(Segment, (0.0, 1.0), "One"), []);
    h.results(Segment, (1.0, 1.5), "two");
    assert_eq!(h.results(Interim, (0.0, 0.8), "won"), [], "older than a segment");
    assert_eq!(h.codec.utterances.counts.repeated, 2);
    h.end();
    assert_eq!(h.results(Answer, (1.5, 2.0), "three."), last("One two three."));
    assert_eq!(h.results(Answer, (1.5, 2.0), "three."), []);
    assert_eq!(h.results(Segment, (1.0, 1.5), "two"), []);
    h.speak(1_000);
    assert_eq!(h.results(Answer, (1.5, 2.0), "three."), [], "not asked for");
    h.end();
    assert_eq!(h.results(Answer, (2.0, 3.0), "Four."), last("Four."));
    assert_eq!(h.codec.utterances.counts.late, 3);
}

#[test]
fn utterances_that_overlap_are_answered_in_order() {
    let mut h = Harness::nova();
    h.speak(1_000);
    h.end();
    h.speak(300);
    assert_eq!(h.results(Interim, (0.0, 1.0), "one"), interim("one"));
    assert_eq!(h.results(Answer, (0.0, 1.0), "One."), last("One."));
    assert_eq!(h.results(Interim, (1.0, 1.3), "two"), interim("two"));
    h.end();
    assert_eq!(h.results(Answer, (1.0, 1.3), "Two."), last("Two."));
}

#[test]
fn a_server_that_accepts_audio_and_sends_nothing_has_stalled() {
    let mut h = Harness::nova();
    h.speak(5_000);
    assert_eq!(h.expire(), (950 + 2_500, vec![Output::Stalled]), "while the user speaks");
    let mut h = Harness::nova();
    h.speak(1_200);
    h.end();
    assert_eq!(h.expire(), (1_200 + 2_000, vec![Output::Stalled]), "after the end");
    assert!(!h.codec.utterances.has_answered);
    // Less audio may contain nothing.
    let mut h = Harness::nova();
    h.speak(600);
    h.end();
    assert_eq!(h.expire(), (600 + 700, last("")));
    // An answer within the time of a stall is used.
    h.speak(1_200);
    h.end();
    h.wait(1_500);
    assert_eq!(h.results(Answer, (0.6, 1.8), "Late."), last("Late."));
}

#[test]
fn audio_that_was_sent_at_once_gets_more_time() {
    let mut h = Harness::nova();
    h.codec.utterances.start(h.now);
    for _ in 0..10 * 20 {
        let chunk = Bytes::from_static(&[0; BYTES_PER_SECOND / 20]);
        h.codec.push_audio(h.now, chunk, &mut Vec::new());
    }
    h.end();
    h.results(Interim, (0.0, 2.0), "one");
    assert_eq!(h.expire(), (700 + 1_300, last("one")));
}

#[test]
fn a_new_connection_starts_from_nothing() {
    let mut h = Harness::nova();
    h.speak(1_000);
    h.results(Segment, (0.0, 1.0), "One");
    h.end();
    h.codec.reset(&mut Vec::new());
    assert_eq!((h.codec.utterances.deadline(), h.codec.utterances.has_answered), (None, false));
    h.speak(1_000);
    h.end();
    assert_eq!(h.results(Answer, (0.0, 1.0), "One."), last("One."));
}

#[test]
fn unknown_and_damaged_messages_are_counted_and_change_nothing() {
    let mut h = Harness::nova();
    h.speak(1_000);
    for ignored in [
        r#"{"type":"SpeechStarted","channel":[0,1],"timestamp":9.54}"#,
        r#"{"type":"UtteranceEnd","channel":[0,1],"last_word_end":2.395}"#,
        r#"{"type":"Metadata","request_id":"r","duration":12.3,"channels":1}"#,
    ] {
        assert_eq!(h.receive(ignored), []);
    }
    assert_eq!(h.codec.utterances.counts, Counts::default());
    h.receive(r#"{"type":"Error","variant":"SchemaError","description":"d","message":"m"}"#);
    h.receive(r#"{"type":"Zap","channel":7}"#);
    let deep = "[".repeat(100_000);
    let huge = format!(r#"{{"type":"Results","x":"{}"}}"#, "x".repeat(2 << 20));
    let damaged = [
        "",
        "{",
        "null",
        "[1]",
        "\u{0}\u{fffd}",
        "{}",
        r#"{"type":7}"#,
        r#"{"type":"Results"}"#,
        r#"{"type":"Results","channel":[0,1]}"#,
        r#"{"type":"Results","channel":{"alternatives":[{"transcript":7}]}}"#,
        r#"{"type":"Results","start":"x","channel":{"alternatives":[]}}"#,
        deep.as_str(),
        huge.as_str(),
    ];
    for text in damaged {
        assert_eq!(h.receive(text), []);
    }
    let counts = Counts {
        errors: 1,
        unknown: 1,
        malformed: u32::try_from(damaged.len()).unwrap(),
        ..Counts::default()
    };
    assert_eq!(h.codec.utterances.counts, counts);
    h.end();
    // Fields may be missing or null.
    let sparse = r#"{"type":"Results","is_final":true,"from_finalize":true,"metadata":null,
                     "channel":{"alternatives":[{"transcript":null}]},"new":{}}"#;
    assert_eq!(h.receive(sparse), last(""));
    h.speak(100);
    h.end();
    let none = r#"{"type":"Results","is_final":true,"from_finalize":true,
                   "channel":{"alternatives":[]}}"#;
    assert_eq!(h.receive(none), last(""));
}

#[test]
fn times_without_meaning_are_harmless() {
    for (start, duration) in [(0.0, 0.0), (-1e300, 1e300), (1e307, 1e307), (0.0, -5.0)] {
        let mut h = Harness::nova();
        for word in ["one", "two"] {
            h.speak(1_000);
            assert_eq!(h.results(Interim, (start, start + duration), word), interim(word));
            h.end();
            assert_eq!(h.results(Answer, (start, start + duration), word), last(word));
        }
    }
}

#[test]
fn the_text_of_an_utterance_is_bounded() {
    let mut h = Harness::nova();
    h.speak(1_000);
    let long = "word ".repeat(5_000);
    for n in 0..10 {
        h.results(Segment, (f64::from(n), f64::from(n) + 1.0), &long);
    }
    h.end();
    let outputs = h.results(Answer, (10.0, 10.5), "");
    let [Output::Cut, Output::Final(text)] = outputs.as_slice() else { panic!("{outputs:?}") };
    assert!(text.len() > 20_000 && text.len() <= MAX_TEXT_BYTES, "{}", text.len());
}

#[test]
fn everything_but_audio_is_a_text_message() {
    let mut h = Harness::nova();
    let mut messages = h.speak(50);
    assert_eq!(messages, [Outgoing::Binary(Bytes::from_static(&[1; BYTES_PER_SECOND / 20]))]);
    messages = h.end();
    h.codec.keep_alive(&mut messages);
    h.codec.close_stream(&mut messages);
    let expected = ["Finalize", "KeepAlive", "CloseStream"];
    assert_eq!(texts(&messages), expected.map(|kind| format!("{{\"type\":\"{kind}\"}}")));
}

#[test]
fn each_utterance_gets_one_final_transcript_whatever_the_server_sends() {
    let mut messages = vec![String::from("garbage")];
    for n in 0..60 {
        let (is_final, from_finalize, start) = (n % 3 > 0, n % 3 > 1, f64::from(n / 2));
        messages.push(
            json!({"type": "Results", "is_final": is_final, "from_finalize": from_finalize,
                   "start": start, "duration": f64::from(n % 5) / 2.0,
                   "channel": {"alternatives": [{"transcript": format!("word {n}")}]}})
            .to_string(),
        );
    }
    expect_one_final_per_utterance(200, NovaCodec::default, &messages);
}
