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

#[test]
fn the_answer_to_a_chat_message_goes_to_the_chat() {
    let mut captions = Captions::default();
    captions.on_chat_message();
    let agent = author("agent");
    let context = CaptionContext { agent: &agent, speaker: None, unix_ms: 0 };
    let mut chat = Vec::new();
    for event in [started(), heard("Hello"), stopped("Hello"), started(), stopped("Again")] {
        let envelope = EventEnvelope { seq: 1, at: Time::ZERO, event };
        captions.on_event(&envelope, &context, |packet| {
            let line = describe(packet);
            if line.contains("chat") {
                chat.push(line);
            }
        });
    }
    assert_eq!(
        chat,
        ["lk.chat visavis-chat-2:", "visavis-chat-2 0: \"Hello\"", "visavis-chat-2 end"]
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
