//! Converts the events of a conversation to spans: one for the conversation, below it one for each
//! turn, and below that one for each stage.
//!
//! The trace id is the conversation id, so each can be found by the other. A span is created once
//! its end is known.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use conversation::event::{Event, EventEnvelope, TurnTimes};
use conversation::id::ConversationId;
use serde_json::{Value, json};

/// Spans of one running conversation.
#[derive(Default)]
pub(super) struct ConversationSpans {
    /// Start on the wall clock, in µs since the Unix epoch; 0 = not known yet.
    started_at: u64,
    /// Turns that have been reported and whose reply may still play.
    open_turns: Vec<TurnTimes>,
    turn_count: usize,
}

/// Whether an event appears in a trace.
pub(super) fn is_traced(event: &Event) -> bool {
    matches!(
        event,
        Event::Joined { .. }
            | Event::Turn(_)
            | Event::TurnReplyHeard { .. }
            | Event::Error { .. }
            | Event::Ended { .. }
    )
}

impl ConversationSpans {
    /// Processes the next event and returns the spans that it completes. There are none after
    /// [`Event::Ended`].
    pub(super) fn apply(&mut self, id: ConversationId, event: &EventEnvelope) -> Vec<Value> {
        let mut finished = Vec::new();
        match &event.event {
            Event::Joined { unix_micros } => self.started_at = *unix_micros,
            // When a guardrail replaces a reply, the times of its turn are reported again.
            Event::Turn(times) => {
                self.open_turns.retain(|known| known.turn != times.turn);
                self.open_turns.push(times.clone());
            }
            Event::TurnReplyHeard { turn, heard_end, interrupted, barge_in, .. } => {
                if let Some(at) = self.open_turns.iter().position(|known| known.turn == *turn) {
                    let mut times = self.open_turns.remove(at);
                    times.timeline.heard_end = Some(*heard_end);
                    times.timeline.interrupted = *interrupted;
                    times.barge_in = *barge_in;
                    self.finish_turn(id, &times, &mut finished);
                }
            }
            Event::Error { stage, reason } => {
                let at = event.at.as_seconds();
                let mut span = self.build_span(
                    id,
                    0,
                    "error",
                    Some(root_span_id(id)),
                    at,
                    at,
                    &[("stage", json!(stage)), ("reason", json!(reason))],
                );
                span["spanId"] = json!(format_span_id(span_id((id.0, event.seq, "error"))));
                span["status"] = json!({"code": 2, "message": reason});
                finished.push(span);
            }
            Event::Ended { reason } => {
                for times in std::mem::take(&mut self.open_turns) {
                    self.finish_turn(id, &times, &mut finished);
                }
                let about = [("end_reason", json!(reason)), ("turns", json!(self.turn_count))];
                let mut span = self.build_span(
                    id,
                    0,
                    "conversation",
                    None,
                    0.0,
                    event.at.as_seconds(),
                    &about,
                );
                span["spanId"] = json!(format_span_id(root_span_id(id)));
                finished.push(span);
            }
            _ => {}
        }
        // Without the start, no span has a time.
        if self.started_at == 0 { Vec::new() } else { finished }
    }

    fn finish_turn(&mut self, id: ConversationId, times: &TurnTimes, done: &mut Vec<Value>) {
        self.turn_count += 1;
        let line = &times.timeline;
        let known = [line.speech_end, line.committed, line.first_sample, line.heard_end];
        let Some(from) = known.into_iter().flatten().next() else { return };
        let to = known.into_iter().flatten().fold(from, f64::max);
        let number = u64::from(times.turn) + 1;
        let mut about = vec![("turn", json!(times.turn))];
        let seconds = [
            ("voice_to_voice", times.voice_to_voice),
            ("stt", times.stt),
            ("barge_in", times.barge_in),
        ];
        about.extend(seconds.into_iter().filter_map(|(name, value)| Some((name, json!(value?)))));
        about.push(("interrupted", json!(line.interrupted.is_some())));
        let mut span =
            self.build_span(id, number, "turn", Some(root_span_id(id)), from, to, &about);
        if let Some(at) = line.interrupted {
            span["events"] = json!([{"timeUnixNano": self.unix_nanos(at), "name": "interrupted"}]);
        }
        done.push(span);
        let parent = span_id((id.0, number, "turn"));
        let before = |end: Option<f64>, took: Option<f64>| Some((end? - took?, end?));
        let between = |from: Option<f64>, to: Option<f64>| Some((from?, to?));
        for (name, stage) in [
            ("endpointing", between(line.speech_end, line.committed)),
            ("llm", before(line.llm_first_token, times.llm_ttft)),
            ("tts", before(line.tts_first_byte, times.tts_ttfb)),
            ("playout", between(line.tts_first_byte, line.first_sample)),
            ("speaking", between(line.first_sample, line.heard_end)),
        ] {
            if let Some((from, to)) = stage {
                done.push(self.build_span(id, number, name, Some(parent), from, to, &[]));
            }
        }
    }

    /// A span of turn `turn_number` (0: of the conversation). Times are in seconds since the
    /// conversation's start.
    #[allow(clippy::too_many_arguments)] // the fields of a span
    fn build_span(
        &self,
        id: ConversationId,
        turn_number: u64,
        name: &'static str,
        parent: Option<u64>,
        from: f64,
        to: f64,
        attributes: &[(&str, Value)],
    ) -> Value {
        // Every span has it, so a search for it finds all spans of a call.
        let conversation = key_value("conversation.id", &json!(id.to_string()));
        let attributes = attributes.iter().map(|(key, value)| key_value(key, value));
        let mut span = json!({
            "traceId": format!("{:032x}", id.0),
            "spanId": format_span_id(span_id((id.0, turn_number, name))),
            "name": name,
            "kind": 1,
            "startTimeUnixNano": self.unix_nanos(from),
            "endTimeUnixNano": self.unix_nanos(to.max(from)),
            "attributes": std::iter::once(conversation).chain(attributes).collect::<Vec<_>>(),
        });
        if let Some(parent) = parent {
            span["parentSpanId"] = json!(format_span_id(parent));
        }
        span
    }

    /// Wall clock in ns since the Unix epoch, as a string: OTLP's JSON encoding of 64-bit integers.
    fn unix_nanos(&self, seconds: f64) -> String {
        (u128::from(self.started_at) * 1_000 + (seconds.max(0.0) * 1e9).round() as u128).to_string()
    }
}

/// Id of the conversation's own span.
fn root_span_id(id: ConversationId) -> u64 {
    span_id((id.0, 0, "conversation"))
}

/// A span id: the same for the same span, never zero.
fn span_id(span: (u128, u64, &str)) -> u64 {
    let mut hasher = DefaultHasher::new();
    span.hash(&mut hasher);
    hasher.finish().max(1)
}

fn format_span_id(id: u64) -> String {
    format!("{id:016x}")
}

/// An attribute in OTLP's JSON encoding.
pub(super) fn key_value(key: &str, value: &Value) -> Value {
    let value = match value {
        Value::Bool(b) => json!({"boolValue": b}),
        Value::Number(n) if n.is_f64() => json!({"doubleValue": n}),
        Value::Number(n) => json!({"intValue": n.to_string()}),
        Value::String(text) => json!({"stringValue": text}),
        other => json!({"stringValue": other.to_string()}),
    };
    json!({"key": key, "value": value})
}

#[cfg(test)]
mod tests {
    use conversation::event::{EndReason, Stage, Timeline};
    use conversation::providers::TurnProviders;
    use conversation::time::Time;

    use super::*;

    const ID: ConversationId = ConversationId(0x0102_0304_0506_0708_090a_0b0c_0d0e_0f10);
    const STARTED_AT: u64 = 1_700_000_000_000_000;

    fn spans(events: impl IntoIterator<Item = (f64, Event)>) -> Vec<Value> {
        let mut trace = ConversationSpans::default();
        let events = (0..).zip(events).map(|(seq, (at, event))| EventEnvelope {
            seq,
            at: Time::from_seconds(at),
            event,
        });
        events.flat_map(|event| trace.apply(ID, &event)).collect()
    }

    fn sample_turn() -> TurnTimes {
        TurnTimes {
            turn: 0,
            stt: Some(0.1),
            playout: Some(0.01),
            endpointing: Some(0.4),
            llm_ttft: Some(0.2),
            tts_ttfb: Some(0.05),
            voice_to_voice: Some(0.66),
            barge_in: None,
            timeline: Timeline {
                speech_end: Some(2.0),
                committed: Some(2.4),
                llm_first_token: Some(2.6),
                tts_first_byte: Some(2.65),
                first_sample: Some(2.66),
                ..Timeline::default()
            },
            providers: TurnProviders::default(),
        }
    }

    fn find_span<'a>(spans: &'a [Value], name: &str) -> &'a Value {
        spans
            .iter()
            .find(|span| span["name"] == name)
            .unwrap_or_else(|| panic!("no {name} in {spans:#?}"))
    }

    /// Start and end, in ms after the conversation's start.
    fn span_times(span: &Value) -> (u128, u128) {
        let ms = |name: &str| {
            (span[name].as_str().unwrap().parse::<u128>().unwrap() - u128::from(STARTED_AT) * 1_000)
                / 1_000_000
        };
        (ms("startTimeUnixNano"), ms("endTimeUnixNano"))
    }

    #[test]
    fn a_conversation_has_its_turns_below_it_and_their_stages_below_them() {
        let spans = spans([
            (0.0, Event::Joined { unix_micros: STARTED_AT }),
            (2.66, Event::Turn(sample_turn())),
            (
                4.0,
                Event::TurnReplyHeard {
                    turn: 0,
                    heard_end: 3.9,
                    interrupted: Some(3.7),
                    barge_in: Some(0.2),
                    providers: None,
                },
            ),
            (9.0, Event::Ended { reason: EndReason::UserLeft }),
        ]);
        let (whole, turn) = (find_span(&spans, "conversation"), find_span(&spans, "turn"));
        assert_eq!(spans.len(), 7, "{spans:#?}");
        assert!(spans.iter().all(|span| span["traceId"] == "0102030405060708090a0b0c0d0e0f10"));
        let conversation =
            json!({"key": "conversation.id", "value": {"stringValue": ID.to_string()}});
        assert!(
            spans.iter().all(|span| span["attributes"].as_array().unwrap().contains(&conversation)),
            "{spans:#?}"
        );
        assert_eq!(whole.get("parentSpanId"), None);
        assert_eq!((span_times(whole), span_times(turn)), ((0, 9_000), (2_000, 3_900)));
        assert_eq!(turn["parentSpanId"], whole["spanId"]);
        for (name, from, to) in [
            ("endpointing", 2_000, 2_400),
            ("llm", 2_400, 2_600),
            ("tts", 2_600, 2_650),
            ("playout", 2_650, 2_660),
            ("speaking", 2_660, 3_900),
        ] {
            let stage = find_span(&spans, name);
            assert_eq!(
                (span_times(stage), &stage["parentSpanId"]),
                ((from, to), &turn["spanId"]),
                "{name}"
            );
        }
        assert_eq!(turn["events"][0]["name"], "interrupted");
        let about = turn["attributes"].as_array().unwrap();
        assert!(
            about.contains(&json!({"key": "barge_in", "value": {"doubleValue": 0.2}})),
            "{about:#?}"
        );
        assert!(about.contains(&json!({"key": "turn", "value": {"intValue": "0"}})), "{about:#?}");
        let mut ids: Vec<&str> =
            spans.iter().map(|span| span["spanId"].as_str().unwrap()).collect();
        ids.sort_unstable();
        ids.dedup();
        assert_eq!(ids.len(), spans.len(), "each its own");
    }

    #[test]
    fn spans_include_unplayed_replies_and_failures() {
        let silent = TurnTimes {
            timeline: Timeline { committed: Some(1.0), ..Timeline::default() },
            ..TurnTimes::default()
        };
        let spans = spans([
            (0.0, Event::Joined { unix_micros: STARTED_AT }),
            (1.0, Event::Turn(silent)),
            (1.5, Event::Error { stage: Stage::Llm, reason: "timeout".into() }),
            (2.0, Event::Ended { reason: EndReason::Error }),
        ]);
        let names: Vec<&Value> = spans.iter().map(|span| &span["name"]).collect();
        assert_eq!(names, ["error", "turn", "conversation"]);
        assert_eq!(span_times(find_span(&spans, "turn")), (1_000, 1_000));
        assert_eq!(find_span(&spans, "error")["status"], json!({"code": 2, "message": "timeout"}));
    }

    #[test]
    fn a_conversation_that_nobody_joined_has_no_trace() {
        assert!(spans([(300.0, Event::Ended { reason: EndReason::NoJoin })]).is_empty());
    }
}
