//! Messages to and from the client over its data channel.

use std::collections::VecDeque;
use std::time::Instant;

use conversation::event::{Event, EventEnvelope};
use conversation::input::{Command, Input, ToolCallId};
use conversation::output::CommandOutcome;
use engine_api::{CallConfig, ToolBackend};

use super::{Call, ReplyTarget};
use crate::transport::client_messages::{self, ClientMessage};
use crate::transport::server_messages::{self, RtviSession};

/// The client request that a command came from, and the commands that follow once it is accepted.
pub(super) struct ClientRequest {
    connection: u32,
    id: String,
    kind: Option<String>,
    remaining: VecDeque<Command>,
}

/// A tool that runs in the user's browser.
pub(super) struct ClientTool {
    /// The tool call.
    pub(super) call: ToolCallId,
    /// The id that the client's result carries.
    pub(super) id: String,
    /// When the tool call fails without a result.
    pub(super) deadline: Instant,
}

/// The RTVI session of a call: the call's side of the data channel.
pub(super) fn rtvi_session(call: &CallConfig) -> RtviSession {
    let in_client = call.tools.iter().filter(|t| t.backend == ToolBackend::Client);
    RtviSession::new(server_messages::SessionInfo {
        conversation_id: call.id,
        user_id: call.spec.user_id.clone(),
        expose_tools: call.expose_tools,
        client_tools: in_client.map(|t| t.name.clone()).collect(),
        recording: call.recording.clone(),
    })
}

impl Call {
    /// Handles a text message from a client.
    pub(super) fn handle_client_text(&mut self, now: Instant, number: u32, text: &str) {
        let Some(connection) = self.connections.iter_mut().find(|c| c.number == number) else {
            return;
        };
        let message = match connection.message_reader.read(now, text) {
            Ok(Some(message)) => message,
            Ok(None) => return,
            Err(answer) => return connection.send_text(now, answer),
        };
        match message {
            ClientMessage::Ready { id } => {
                let answer = self
                    .rtvi_session
                    .bot_ready(&id, connection.has_video() && self.avatar.is_some());
                connection.send_text(now, answer);
            }
            // Only the connection that carries the call may send commands: not one that was
            // replaced or has not yet taken over.
            _ if self.current_connection != Some(number) => {}
            ClientMessage::Commands { id, commands, .. }
                if commands.iter().any(|command| matches!(command, Command::Respond { .. }))
                    && self
                        .question_bucket
                        .as_mut()
                        .is_some_and(|questions| !questions.try_take(now)) =>
            {
                connection
                    .send_text(now, client_messages::error_response(&id, "too many questions"));
            }
            ClientMessage::Commands { id, commands, .. }
                if commands
                    .iter()
                    .any(|command| matches!(command, Command::VisitorContext { .. }))
                    && !self.context_bucket.try_take(now) =>
            {
                connection.send_text(
                    now,
                    client_messages::error_response(&id, "too many context messages"),
                );
            }
            ClientMessage::Commands { id, kind, commands } => {
                self.queue_next_command(ClientRequest {
                    connection: number,
                    id,
                    kind,
                    remaining: commands.into(),
                });
                self.drain_inputs(now);
            }
            ClientMessage::Recording { id, enabled } => {
                let answer = match self.choose_recording(now, enabled) {
                    Ok(()) => client_messages::success_response(&id, "recording"),
                    Err(reason) => client_messages::error_response(&id, reason),
                };
                self.send_text_to(now, number, answer);
            }
            ClientMessage::ToolResult { id, tool_call_id: call, result } => {
                let position = self.client_tools.iter().position(|t| t.id == call);
                match position.map(|at| self.client_tools.swap_remove(at)) {
                    Some(position) => self.handle_input(
                        now,
                        Input::ToolResult { call: position.call, result: Ok(result) },
                    ),
                    None => connection.send_text(
                        now,
                        client_messages::error_response(&id, "The tool call is not pending"),
                    ),
                }
            }
        }
    }

    /// Queues the next command of a client's request.
    fn queue_next_command(&mut self, mut request: ClientRequest) {
        if let Some(command) = request.remaining.pop_front() {
            self.is_leaving |= command == Command::Leave;
            let command = match command {
                Command::VisitorContext { text, overwrite } if self.config.trust_client_context => {
                    Command::Context { text, overwrite }
                }
                command => command,
            };
            self.queue_command(command, Some(ReplyTarget::Client(request)));
        }
    }

    pub(super) fn reply_to_client(
        &mut self,
        now: Instant,
        origin: ClientRequest,
        answer: CommandOutcome,
    ) {
        // Text typed over speech that cannot be interrupted still makes a turn, as spoken words do.
        // So only the rejection of the last command counts.
        if let CommandOutcome::Rejected(why) = answer
            && origin.remaining.is_empty()
        {
            return self.send_text_to(
                now,
                origin.connection,
                client_messages::error_response(&origin.id, &why.to_string()),
            );
        }
        if origin.remaining.is_empty() {
            if let Some(kind) = &origin.kind {
                self.send_text_to(
                    now,
                    origin.connection,
                    client_messages::success_response(&origin.id, kind),
                );
            }
        } else {
            self.queue_next_command(origin);
        }
    }

    fn send_text_to(&mut self, now: Instant, number: u32, text: String) {
        if let Some(connection) = self.connections.iter_mut().find(|c| c.number == number) {
            connection.send_text(now, text);
        }
    }

    /// Sends an event to the client.
    pub(super) fn send_event_to_client(&mut self, now: Instant, event: &EventEnvelope) {
        let mut connection =
            self.connections.iter_mut().find(|c| Some(c.number) == self.current_connection);
        self.rtvi_session.on_event(event, |text| {
            if let Some(connection) = &mut connection {
                connection.send_text(now, text);
            }
        });
        if let Some(connection) = connection {
            connection.send_event(now, event, self.rtvi_session.unix_micros(event.at));
        }
        if matches!(event.event, Event::AgentState { .. }) {
            self.show_state_in_room();
        }
    }

    /// Sends the level of the user's audio, in dBFS, to the client.
    pub(super) fn send_level_to_client(&mut self, now: Instant, level: f32) {
        if let Some(connection) = self
            .connections
            .iter_mut()
            .find(|c| Some(c.number) == self.current_connection && c.channel_opened_at.is_some())
            .filter(|connection| connection.wants_levels())
        {
            connection.send_text(now, server_messages::level_message(level));
        }
    }

    /// The client's data channel is open. The client may have joined in mid-call, so it gets the
    /// agent's current state.
    pub(super) fn on_channel_open(&mut self, now: Instant, number: u32) {
        let state = self.rtvi_session.state_message();
        if let Some(connection) = self.connections.iter_mut().find(|c| c.number == number) {
            connection.channel_opened_at = Some(now);
            self.silence_reported = false;
            connection.send_text(now, state);
        }
    }
}
