use conversation::event::{Timeline, TurnTimes};
use conversation::time::Time;

use super::*;

fn author(identity: &str) -> Author {
    Author { identity: identity.into(), track: format!("TR_{identity}") }
}

/// The captions of a series of events, as lines.
fn captions(events: &[Event], speaker: Option<&str>) -> Vec<String> {
    let agent = author("agent");
    let mut captions = Captions::default();
    let mut lines = Vec::new();
    for event in events {
        let context = CaptionContext {
            agent: &agent,
            speaker: speaker.map(author),
            unix_ms: 1_795_266_606_000,
        };
        let envelope = EventEnvelope { seq: 1, at: Time::from_seconds(1.5), event: event.clone() };
        captions.on_event(&envelope, &context, |packet| lines.push(describe(packet)));
    }
    lines
}

fn describe(packet: OutgoingPacket) -> String {
    let OutgoingPacket { value, sender, .. } = packet;
    let text = match value {
        Value::StreamHeader(header) => {
            let is_final = header.attributes.get(FINAL_ATTRIBUTE).cloned().unwrap_or_default();
            let segment = header.attributes.get(SEGMENT_ATTRIBUTE).cloned().unwrap_or_default();
            format!("{} {}: {segment} {is_final}", header.topic, header.stream_id)
        }
        Value::StreamChunk(chunk) => {
            let text = String::from_utf8(chunk.content).unwrap();
            format!("{} {}: {text:?}", chunk.stream_id, chunk.chunk_index)
        }
        Value::StreamTrailer(trailer) => {
            let is_final = trailer.attributes.get(FINAL_ATTRIBUTE).cloned().unwrap_or_default();
            format!("{} end {is_final}", trailer.stream_id).trim_end().to_owned()
        }
        Value::Transcription(old) => {
            let segment = &old.segments[0];
            let who = &old.transcribed_participant_identity;
            format!("old {who} {} {:?} {}", segment.id, segment.text, segment.r#final)
        }
        other => format!("{other:?}"),
    };
    [text, sender].join(" ").trim_end().to_owned()
}

fn heard(text: &str) -> Event {
    Event::AgentSpeechHeard { utterance: UtteranceId(4), text: text.into() }
}

fn started() -> Event {
    let text = "Hello there, how are you?".into();
    Event::AgentStartedSpeaking { text, utterance: UtteranceId(4) }
}

fn stopped(text: &str) -> Event {
    Event::AgentStoppedSpeaking { text: text.into(), utterance: UtteranceId(4) }
}

#[test]
fn the_agent_s_words_appear_as_they_are_heard_and_stop_at_the_last_one() {
    let events = [started(), heard("Hello"), heard("Hello there,"), stopped("Hello there,")];
    assert_eq!(
        captions(&events, None),
        [
            "lk.transcription visavis-agent-1: visavis-speech-4 false",
            "visavis-agent-1 0: \"Hello\"",
            "old agent visavis-speech-4 \"Hello\" false",
            "visavis-agent-1 1: \" there,\"",
            "old agent visavis-speech-4 \"Hello there,\" false",
            "visavis-agent-1 end true",
            "old agent visavis-speech-4 \"Hello there,\" true",
        ]
    );
}

#[test]
fn an_utterance_that_nobody_heard_has_no_caption() {
    assert_eq!(captions(&[started(), stopped("")], None), [""; 0]);
}

#[test]
fn the_user_s_words_are_sent_whole_in_the_user_s_name() {
    let words = |text: &str, is_final| Event::UserTranscript { text: text.into(), is_final };
    let events = [words("Hel", false), words("Hello.", true), words("More", false)];
    assert_eq!(
        captions(&events, Some("maria")),
        [
            "lk.transcription visavis-user-1: visavis-user-0 false maria",
            "visavis-user-1 0: \"Hel\" maria",
            "visavis-user-1 end maria",
            "old maria visavis-user-0 \"Hel\" false",
            "lk.transcription visavis-user-2: visavis-user-0 true maria",
            "visavis-user-2 0: \"Hello.\" maria",
            "visavis-user-2 end maria",
            "old maria visavis-user-0 \"Hello.\" true",
            "lk.transcription visavis-user-3: visavis-user-1 false maria",
            "visavis-user-3 0: \"More\" maria",
            "visavis-user-3 end maria",
            "old maria visavis-user-1 \"More\" false",
        ]
    );
    assert_eq!(captions(&events, None), [""; 0], "nobody has a voice");
}

/// What a series of events sends to the chat.
fn chat(captions: &mut Captions, events: &[Event]) -> Vec<String> {
    let agent = author("agent");
    let context = CaptionContext { agent: &agent, speaker: None, unix_ms: 0 };
    let mut chat = Vec::new();
    for event in events {
        let envelope = EventEnvelope { seq: 1, at: Time::ZERO, event: event.clone() };
        captions.on_event(&envelope, &context, |packet| {
            if let Value::StreamChunk(chunk) = &packet.value
                && chunk.stream_id.starts_with("visavis-chat")
            {
                chat.push(String::from_utf8(chunk.content.clone()).unwrap());
            }
        });
    }
    chat
}

/// An utterance that is heard as a whole. With a turn, it is the first one of its answer.
fn utterance(id: u32, turn: Option<u32>, text: &str) -> Vec<Event> {
    let utterance = UtteranceId(id);
    let text = text.to_owned();
    let started = Event::AgentStartedSpeaking { text: text.clone(), utterance };
    let stopped = Event::AgentStoppedSpeaking { text, utterance };
    let timeline = Timeline { first_sample: Some(1.0), ..Timeline::default() };
    let times = |turn| Event::Turn(TurnTimes { turn, timeline, ..TurnTimes::default() });
    [Some(started), turn.map(times), Some(stopped)].into_iter().flatten().collect()
}

/// The answer to a turn has ended.
fn answered(turn: u32) -> Event {
    Event::TurnReplyHeard {
        turn,
        heard_end: 1.0,
        interrupted: None,
        barge_in: None,
        providers: None,
    }
}

#[test]
fn the_whole_answer_to_a_chat_message_goes_to_the_chat() {
    let mut captions = Captions::default();
    captions.expect_chat_answer(2);
    let events = [
        utterance(4, Some(2), "I look it up."),
        utterance(5, None, "It is five."),
        vec![answered(2)],
        utterance(6, None, "Are you there?"),
        utterance(7, Some(3), "An answer to spoken words."),
    ];
    assert_eq!(chat(&mut captions, &events.concat()), ["I look it up.", "It is five."]);
}

#[test]
fn speech_that_runs_when_the_message_comes_is_not_its_answer() {
    let mut captions = Captions::default();
    let running = utterance(4, Some(1), "A long story,");
    assert_eq!(chat(&mut captions, &running[..2]), [""; 0]);
    captions.expect_chat_answer(2);
    // It is interrupted, or ends later.
    let rest = [running[2..].to_vec(), vec![answered(1)], utterance(5, Some(2), "Yes.")];
    assert_eq!(chat(&mut captions, &rest.concat()), ["Yes."]);
}

#[test]
fn an_answer_that_nobody_heard_leaves_nothing_to_the_next_one() {
    let mut captions = Captions::default();
    captions.expect_chat_answer(2);
    let unheard = Event::Turn(TurnTimes { turn: 2, ..TurnTimes::default() });
    let events = [vec![unheard], utterance(5, Some(3), "An answer to spoken words.")];
    assert_eq!(chat(&mut captions, &events.concat()), [""; 0]);
    // A guardrail's response replaces an answer of which nothing was heard.
    captions.expect_chat_answer(4);
    let unheard = Event::Turn(TurnTimes { turn: 4, ..TurnTimes::default() });
    let events = [vec![unheard], utterance(6, Some(4), "I cannot talk about that.")];
    assert_eq!(chat(&mut captions, &events.concat()), ["I cannot talk about that."]);
}

#[test]
fn new_readers_get_the_open_segment_from_its_start() {
    let mut captions = Captions::default();
    let agent = author("agent");
    let context = CaptionContext { agent: &agent, speaker: Some(author("maria")), unix_ms: 0 };
    let mut lines = Vec::new();
    let words = |text: &str, is_final| Event::UserTranscript { text: text.into(), is_final };
    for events in [
        vec![words("Hel", false), started(), heard("Hello")],
        vec![heard("Hello there,"), stopped("Hello there,"), words("Hello.", true)],
    ] {
        captions = captions.for_new_readers();
        lines.clear();
        for event in events {
            let envelope = EventEnvelope { seq: 1, at: Time::ZERO, event };
            captions.on_event(&envelope, &context, |packet| lines.push(describe(packet)));
        }
    }
    assert_eq!(
        lines,
        [
            "lk.transcription visavis-agent-3: visavis-speech-4 false",
            "visavis-agent-3 0: \"Hello there,\"",
            "old agent visavis-speech-4 \"Hello there,\" false",
            "visavis-agent-3 end true",
            "old agent visavis-speech-4 \"Hello there,\" true",
            "lk.transcription visavis-user-4: visavis-user-0 true maria",
            "visavis-user-4 0: \"Hello.\" maria",
            "visavis-user-4 end maria",
            "old maria visavis-user-0 \"Hello.\" true",
        ]
    );
}

#[test]
fn what_is_open_ends_before_the_agent_leaves() {
    let mut captions = Captions::default();
    let agent = author("agent");
    let context = CaptionContext { agent: &agent, speaker: None, unix_ms: 0 };
    let mut lines = Vec::new();
    for event in [started(), heard("Hello")] {
        let envelope = EventEnvelope { seq: 1, at: Time::ZERO, event };
        captions.on_event(&envelope, &context, |_| {});
    }
    captions.close(&context, |packet| lines.push(describe(packet)));
    assert_eq!(lines[0], "visavis-agent-1 end true");
}
