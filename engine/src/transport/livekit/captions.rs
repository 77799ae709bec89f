//! Captions of both sides for the clients of a room, in the two forms that they read: text streams
//! of the topic `lk.transcription`, and the older transcription packet. They follow the audio: the
//! agent's words appear as they are heard, and stop at the last one.

use std::collections::HashMap;

use conversation::event::{AgentState, Event, EventEnvelope, UtteranceId};
use livekit_protocol as proto;
use proto::data_packet::Value;

use super::data_channels::OutgoingPacket;
use super::text_streams::{stream_chunks, stream_header, stream_trailer};
use super::{CAPTION_TOPIC, CHAT_TOPIC};
use crate::transport::Priority;

/// Attributes of a stream of captions.
const SEGMENT_ATTRIBUTE: &str = "lk.segment_id";
const TRACK_ATTRIBUTE: &str = "lk.transcribed_track_id";
const FINAL_ATTRIBUTE: &str = "lk.transcription_final";
/// Maximum number of messages of the chat that wait for their answers. A newer one replaces the
/// question of an older one, so only uninterruptible speech lets some wait.
const MAX_CHAT_TURNS: usize = 16;

/// Whose words a caption has.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Author {
    /// Identity in the room.
    pub(super) identity: String,
    /// The track with the words.
    pub(super) track: String,
}

/// What captions need to know about the room.
pub(super) struct CaptionContext<'a> {
    /// The agent.
    pub(super) agent: &'a Author,
    /// The person who speaks, if it is known.
    pub(super) speaker: Option<Author>,
    /// The wall clock in ms since the Unix epoch.
    pub(super) unix_ms: i64,
}

/// The utterance of the agent that is being captioned.
struct AgentCaption {
    utterance: UtteranceId,
    stream: String,
    /// What was sent.
    sent: String,
    next_chunk: u64,
}

/// Makes captions out of the events of a call.
#[derive(Default)]
pub(crate) struct Captions {
    agent: Option<AgentCaption>,
    /// Number of the segment of the user's words, and whose they are.
    user_segment: u64,
    user: Option<Author>,
    /// Number of interim captions so far, for the ids of their streams.
    streams: u64,
    /// Turns that are messages of the chat and wait for their answers.
    chat_turns: Vec<u32>,
    /// The turn that is being answered, if it is such a message.
    answered_chat_turn: Option<u32>,
}

impl Captions {
    /// A person wrote a message, which became this turn: its answer goes to the chat too.
    pub(super) fn expect_chat_answer(&mut self, turn: u32) {
        if self.chat_turns.len() == MAX_CHAT_TURNS {
            self.chat_turns.remove(0);
        }
        self.chat_turns.push(turn);
    }

    /// The captions for readers who have lost the open streams: the text of the agent's utterance
    /// so far is sent again.
    pub(super) fn for_new_readers(mut self) -> Self {
        if let Some(AgentCaption { stream, sent, next_chunk, .. }) = &mut self.agent {
            stream.clear();
            sent.clear();
            *next_chunk = 0;
        }
        self
    }

    /// Calls `send` for each packet that results from an event.
    pub(super) fn on_event(
        &mut self,
        envelope: &EventEnvelope,
        context: &CaptionContext<'_>,
        mut send: impl FnMut(OutgoingPacket),
    ) {
        match &envelope.event {
            Event::UserTranscript { text, is_final } => {
                self.caption_user(text, *is_final, context, &mut send);
            }
            Event::AgentStartedSpeaking { utterance, .. } => {
                self.end_agent_caption(None, context, &mut send);
                self.agent = Some(AgentCaption {
                    utterance: *utterance,
                    stream: String::new(),
                    sent: String::new(),
                    next_chunk: 0,
                });
            }
            Event::AgentSpeechHeard { utterance, text } => {
                self.extend_agent_caption(*utterance, text, context, &mut send);
            }
            Event::AgentStoppedSpeaking { utterance, text } => {
                self.extend_agent_caption(*utterance, text, context, &mut send);
                self.end_agent_caption(Some(text), context, &mut send);
            }
            // Follows the start of the answer's first utterance.
            Event::Turn(times) if times.timeline.first_sample.is_some() => {
                let turn = Some(times.turn).filter(|turn| self.chat_turns.contains(turn));
                self.answered_chat_turn = turn;
                self.chat_turns.retain(|waiting| *waiting > times.turn);
            }
            Event::TurnReplyHeard { turn, .. } => {
                self.answered_chat_turn.take_if(|answered| answered == turn);
            }
            _ => {}
        }
    }

    /// The agent's words so far, between two events.
    pub(super) fn on_words(
        &mut self,
        utterance: UtteranceId,
        text: &str,
        context: &CaptionContext<'_>,
        mut send: impl FnMut(OutgoingPacket),
    ) {
        self.extend_agent_caption(utterance, text, context, &mut send);
    }

    /// Ends what is open: a stream that the end of the room cuts is an error for its reader.
    pub(super) fn close(
        &mut self,
        context: &CaptionContext<'_>,
        mut send: impl FnMut(OutgoingPacket),
    ) {
        self.end_agent_caption(None, context, &mut send);
    }

    fn next_stream(&mut self, kind: &str) -> String {
        self.streams += 1;
        format!("visavis-{kind}-{}", self.streams)
    }

    fn extend_agent_caption(
        &mut self,
        utterance: UtteranceId,
        text: &str,
        context: &CaptionContext<'_>,
        send: &mut impl FnMut(OutgoingPacket),
    ) {
        let is_current = |caption: &&mut AgentCaption| caption.utterance == utterance;
        let Some(caption) = self.agent.as_mut().filter(is_current) else { return };
        // What is sent cannot be taken back.
        let Some(new) = text.strip_prefix(caption.sent.as_str()).filter(|new| !new.is_empty())
        else {
            return;
        };
        if caption.stream.is_empty() {
            self.streams += 1;
            caption.stream = format!("visavis-agent-{}", self.streams);
            let attributes = attributes(&agent_segment(utterance), &context.agent.track, false);
            let header = stream_header(&caption.stream, CAPTION_TOPIC, context.unix_ms, attributes);
            send(OutgoingPacket::to_all(header));
        }
        for chunk in stream_chunks(&caption.stream, &mut caption.next_chunk, new) {
            send(OutgoingPacket::to_all(chunk));
        }
        text.clone_into(&mut caption.sent);
        let packet = transcription(context.agent, &agent_segment(utterance), text, false);
        send(OutgoingPacket { priority: Priority::Progress, ..OutgoingPacket::to_all(packet) });
    }

    /// Ends the caption of the agent's utterance. `heard`: all of its text that was heard, if it is
    /// known.
    fn end_agent_caption(
        &mut self,
        heard: Option<&String>,
        context: &CaptionContext<'_>,
        send: &mut impl FnMut(OutgoingPacket),
    ) {
        let Some(caption) = self.agent.take() else { return };
        let segment = agent_segment(caption.utterance);
        if !caption.stream.is_empty() {
            let is_final = HashMap::from([(FINAL_ATTRIBUTE.to_owned(), "true".to_owned())]);
            send(OutgoingPacket::to_all(stream_trailer(&caption.stream, is_final)));
        }
        let text = heard.unwrap_or(&caption.sent);
        if text.is_empty() {
            return;
        }
        send(OutgoingPacket::to_all(transcription(context.agent, &segment, text, true)));
        if self.answered_chat_turn.is_some() {
            let stream = self.next_stream("chat");
            self.send_text(&stream, CHAT_TOPIC, HashMap::new(), text, context, |value| {
                send(OutgoingPacket::to_all(value));
            });
        }
    }

    /// Sends the user's words: a stream with the whole text for each interim transcript.
    fn caption_user(
        &mut self,
        text: &str,
        is_final: bool,
        context: &CaptionContext<'_>,
        send: &mut impl FnMut(OutgoingPacket),
    ) {
        if text.is_empty() {
            return;
        }
        // A segment keeps its author, also when somebody else starts to speak before its end.
        let speaker = self.user.take().or_else(|| context.speaker.clone());
        let Some(author) = speaker else { return };
        let segment = format!("visavis-user-{}", self.user_segment);
        let priority = if is_final { Priority::Essential } else { Priority::Progress };
        let packet = |value| OutgoingPacket {
            value,
            receivers: Vec::new(),
            sender: author.identity.clone(),
            priority: Priority::Essential,
        };
        let stream = self.next_stream("user");
        let attributes = attributes(&segment, &author.track, is_final);
        self.send_text(&stream, CAPTION_TOPIC, attributes, text, context, |value| {
            send(packet(value));
        });
        let value = transcription(&author, &segment, text, is_final);
        send(OutgoingPacket { priority, ..OutgoingPacket::to_all(value) });
        if is_final {
            self.user_segment += 1;
        } else {
            self.user = Some(author);
        }
    }

    fn send_text(
        &self,
        stream: &str,
        topic: &str,
        attributes: HashMap<String, String>,
        text: &str,
        context: &CaptionContext<'_>,
        mut send: impl FnMut(Value),
    ) {
        send(stream_header(stream, topic, context.unix_ms, attributes));
        let mut next = 0;
        stream_chunks(stream, &mut next, text).for_each(&mut send);
        send(stream_trailer(stream, HashMap::new()));
    }
}

/// The state in LiveKit's words.
pub(super) fn state_name(state: AgentState) -> &'static str {
    match state {
        AgentState::Listening => "listening",
        AgentState::Thinking => "thinking",
        AgentState::Speaking => "speaking",
    }
}

fn agent_segment(utterance: UtteranceId) -> String {
    format!("visavis-speech-{}", utterance.0)
}

fn attributes(segment: &str, track: &str, is_final: bool) -> HashMap<String, String> {
    HashMap::from([
        (SEGMENT_ATTRIBUTE.to_owned(), segment.to_owned()),
        (TRACK_ATTRIBUTE.to_owned(), track.to_owned()),
        (FINAL_ATTRIBUTE.to_owned(), is_final.to_string()),
    ])
}

fn transcription(author: &Author, segment: &str, text: &str, is_final: bool) -> Value {
    Value::Transcription(proto::Transcription {
        transcribed_participant_identity: author.identity.clone(),
        track_id: author.track.clone(),
        segments: vec![proto::TranscriptionSegment {
            id: segment.to_owned(),
            text: text.to_owned(),
            r#final: is_final,
            ..proto::TranscriptionSegment::default()
        }],
    })
}

#[cfg(test)]
#[path = "captions_tests.rs"]
mod tests;
