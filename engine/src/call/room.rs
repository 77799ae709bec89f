//! A call in a LiveKit room: its people, what they ask for, and the end of the room.

use std::time::{Duration, Instant};

use conversation::event::{AgentState, Event};
use conversation::input::{Command, Input};
use conversation::output::CommandOutcome;
use conversation::time::Time;
use engine_api::RoomEnd;

use super::{Call, ReplyTarget};
use crate::transport::livekit::room_peer::{RoomPeer, RoomSignal};
use crate::transport::livekit::room_socket::ReceiveBuffers;
use crate::transport::livekit::{RequestOrigin, RoomCommand, RoomEvent};

/// How often words are captioned.
const CAPTION_INTERVAL: Duration = Duration::from_millis(100);

/// What a call knows about its LiveKit room.
pub(super) struct RoomState {
    /// Number of people in it; 0 without a room.
    pub(super) people: u32,
    /// When words are captioned next.
    next_caption: Instant,
}

impl RoomState {
    pub(super) fn new(now: Instant) -> Self {
        Self { people: 0, next_caption: now }
    }
}

/// The remote procedure call that a command came from.
pub(super) struct RpcRequest {
    connection: u32,
    caller: String,
    request_id: String,
}

impl Call {
    /// Reads the datagrams of a room's socket. Returns whether there may be more, and how many were
    /// dropped.
    pub(crate) fn read_room_socket(
        &mut self,
        now: Instant,
        number: u32,
        buffers: &mut ReceiveBuffers,
    ) -> (bool, u64) {
        let connection = self.connections.iter_mut().find(|c| c.number == number);
        connection.map_or((false, 0), |c| c.read_room_socket(now, buffers))
    }

    /// Handles a signal of the LiveKit server.
    pub(crate) fn handle_room_signal(&mut self, now: Instant, id: &str, signal: RoomSignal) {
        if let Some(connection) = self.connection_by_id(id) {
            connection.handle_room_signal(now, signal);
        }
    }

    pub(super) fn handle_room_event(&mut self, now: Instant, number: u32, event: RoomEvent) {
        // A connection that was replaced reports what the new one knows better.
        let is_obsolete = self.current_connection.is_some_and(|current| current > number);
        if is_obsolete {
            return;
        }
        match event {
            RoomEvent::CallersChanged { count } => self.set_people(now, count),
            RoomEvent::CallerLeft { identity } => {
                let left = Event::ParticipantLeft { id: identity };
                self.handle_room_input(now, Input::ExternalEvent(left));
            }
            RoomEvent::Speaker { name, is_speaking, at } => {
                let at = self.time_of(at);
                self.handle_room_input(
                    now,
                    match is_speaking {
                        true => Input::SpeakerStarted { name, at },
                        false => Input::SpeakerStopped { name, at },
                    },
                );
            }
            RoomEvent::Request(request) => self.handle_room_command(now, number, request),
            RoomEvent::Closed(end) => {
                tracing::info!(reason = ?end, "the agent has left its room");
                match end {
                    _ if self.started_at.is_none() => self.ended_at = Some(now),
                    // Another agent may serve the room again.
                    RoomEnd::Failed(why) => {
                        self.end_with_error(now, format!("The room was lost: {why}."));
                    }
                    _ => self.user_left(now),
                }
            }
        }
    }

    fn handle_room_input(&mut self, now: Instant, input: Input) {
        if self.is_running() {
            self.handle_input(now, input);
        }
    }

    /// Tells the conversation how many people are there. Calls outside of rooms have one.
    pub(super) fn set_people(&mut self, now: Instant, count: u32) {
        self.room.people = count;
        if count > 0 {
            self.audio_input.set_several_people(count > 1);
            self.handle_room_input(now, Input::PeoplePresent { count });
        }
    }

    /// Queues who was the last one to leave the room, if nobody is there.
    pub(super) fn queue_last_departure(&mut self) {
        let last = self.room_peer(self.current_connection);
        if let Some(identity) = last.and_then(RoomPeer::take_last_to_leave) {
            let left = Event::ParticipantLeft { id: identity };
            self.inputs.push_back(Input::ExternalEvent(left));
            self.inputs.push_back(Input::PeoplePresent { count: 0 });
        }
    }

    fn time_of(&self, at: Instant) -> Time {
        let since = self.started_at.map(|start| at.saturating_duration_since(start));
        Time::from_micros(since.unwrap_or_default().as_micros() as u64)
    }

    fn handle_room_command(&mut self, now: Instant, number: u32, request: RoomCommand) {
        let RoomCommand { command, origin } = request;
        if !self.is_running() {
            return;
        }
        let is_question = matches!(command, Command::Respond { .. });
        if is_question && self.question_bucket.as_mut().is_some_and(|q| !q.try_take(now)) {
            tracing::debug!("a message of the chat was dropped: too many questions");
            return;
        }
        match origin {
            RequestOrigin::Chat => {
                let before = self.last_waiting_turn();
                self.submit_command(now, command, None);
                let turn = self.last_waiting_turn().filter(|turn| Some(*turn) > before);
                let peer = self.room_peer(self.current_connection);
                if let (Some(peer), Some(turn)) = (peer, turn) {
                    peer.expect_chat_answer(turn);
                }
            }
            RequestOrigin::Rpc { caller, request_id } => {
                let request = RpcRequest { connection: number, caller, request_id };
                self.submit_command(now, command, Some(ReplyTarget::Rpc(request)));
            }
        }
    }

    /// The latest turn whose answer has not begun.
    fn last_waiting_turn(&self) -> Option<u32> {
        self.conversation.unreported_turn_times().map(|times| times.turn).max()
    }

    pub(super) fn answer_rpc(&mut self, now: Instant, request: RpcRequest, answer: CommandOutcome) {
        let RpcRequest { connection, caller, request_id } = request;
        let outcome = match answer {
            CommandOutcome::Rejected(why) => Err(why.to_string()),
            _ => Ok(()),
        };
        if let Some(peer) = self.room_peer(Some(connection)) {
            peer.answer_rpc(now, &caller, &request_id, outcome);
        }
    }

    /// Captions the agent's words in a room as they are heard. Called on each tick.
    pub(super) fn caption_words(&mut self, now: Instant) {
        if now < self.room.next_caption || self.rtvi_session.state() != AgentState::Speaking {
            return;
        }
        self.room.next_caption = now + CAPTION_INTERVAL;
        let time = self.conversation_time(now);
        let unix_micros = self.rtvi_session.unix_micros(time);
        let current =
            self.connections.iter_mut().find(|c| Some(c.number) == self.current_connection);
        // Calls outside of rooms do not compute the words.
        let Some(peer) = current.and_then(|connection| connection.room_peer()) else { return };
        if let Some((utterance, text)) = self.conversation.heard_words(time) {
            peer.caption_words(now, utterance, text, unix_micros);
        }
    }

    /// The agent has joined its room again: what is being captioned goes on there.
    pub(super) fn move_captions(&mut self, previous: Option<u32>, current: u32) {
        let captions = self.room_peer(previous).map(RoomPeer::take_captions);
        if let (Some(captions), Some(peer)) = (captions, self.room_peer(Some(current))) {
            peer.continue_captions(captions);
        }
    }

    /// Shows clients of a room what the agent does.
    pub(super) fn show_state_in_room(&mut self) {
        let state = self.rtvi_session.state();
        if let Some(peer) = self.room_peer(self.current_connection) {
            peer.set_state(state);
        }
    }

    /// The participant of a connection with this number, if it leads to a room.
    fn room_peer(&mut self, number: Option<u32>) -> Option<&mut RoomPeer> {
        let connection = self.connections.iter_mut().find(|c| Some(c.number) == number)?;
        connection.room_peer()
    }
}
