//! What is said to the client over its data channel, and what it says.

use std::collections::VecDeque;
use std::time::Instant;

use conversation::call_config::{CallConfig, ToolBackend};
use conversation::event::EventEnvelope;
use conversation::input::{Command, Input, ToolCallId};
use conversation::output::CommandOutcome;

use super::{Node, Waiting};
use crate::transport::rtvi::{self, ClientMessage};
use crate::transport::tell::{self, Session};

/// Which request of the client a command came from, and what follows once it is accepted.
pub(super) struct Origin {
    link: u32,
    id: String,
    kind: Option<String>,
    rest: VecDeque<Command>,
}

/// A tool that runs in the user's browser.
pub(super) struct ClientTool {
    /// The call.
    pub(super) call: ToolCallId,
    /// The id by which the client answers.
    pub(super) id: String,
    /// When it has failed.
    pub(super) until: Instant,
}

/// The call's side of the data channel.
pub(super) fn session(call: &CallConfig) -> Session {
    let in_client = call.tools.iter().filter(|t| t.backend == ToolBackend::Client);
    Session::new(tell::About {
        conversation: call.id,
        user_id: call.spec.user_id.clone(),
        expose_tools: call.expose_tools,
        client_tools: in_client.map(|t| t.name.clone()).collect(),
    })
}

impl Node {
    /// A text frame of a client.
    pub(super) fn client_says(&mut self, now: Instant, number: u32, text: &str) {
        let Some(link) = self.links.iter_mut().find(|l| l.number == number) else { return };
        let message = match link.inbox.read(now, text) {
            Ok(Some(message)) => message,
            Ok(None) => return,
            Err(answer) => return link.text(now, answer),
        };
        match message {
            ClientMessage::Ready { id } => {
                let answer = self.session.ready(&id, link.has_video() && self.showing.is_some());
                link.text(now, answer);
            }
            // A connection that was taken over, or has not taken over yet, commands nothing.
            _ if self.current != Some(number) => {}
            ClientMessage::Commands { id, commands, .. }
                if commands.iter().any(|command| matches!(command, Command::Respond { .. }))
                    && self.questions.as_mut().is_some_and(|questions| !questions.take(now)) =>
            {
                link.text(now, rtvi::refused(&id, "too many questions"));
            }
            ClientMessage::Commands { id, kind, commands } => {
                self.next_of(Origin { link: number, id, kind, rest: commands.into() });
                self.settle(now);
            }
            ClientMessage::ToolResult { id, call, result } => {
                let open = self.client_tools.iter().position(|t| t.id == call);
                match open.map(|at| self.client_tools.swap_remove(at)) {
                    Some(open) => self.feed(now, Input::ToolResult { call: open.call, result: Ok(result) }),
                    None => link.text(now, rtvi::refused(&id, "No such tool call is open")),
                }
            }
        }
    }

    /// Gives the next command of a client's request.
    fn next_of(&mut self, mut origin: Origin) {
        if let Some(command) = origin.rest.pop_front() {
            self.leaving |= command == Command::Leave;
            let command = match command {
                Command::VisitorContext { text, overwrite } if self.call.trust_client_context => {
                    Command::Context { text, overwrite }
                }
                command => command,
            };
            self.queue_command(command, Some(Waiting::Client(origin)));
        }
    }

    pub(super) fn answer_client(&mut self, now: Instant, origin: Origin, answer: CommandOutcome) {
        // A text typed over what cannot be interrupted is a turn all the same, as words said over it are: only the last command's refusal counts.
        if let CommandOutcome::Rejected(why) = answer
            && origin.rest.is_empty()
        {
            return self.text_to(now, origin.link, rtvi::refused(&origin.id, &why.to_string()));
        }
        if origin.rest.is_empty() {
            if let Some(kind) = &origin.kind {
                self.text_to(now, origin.link, rtvi::done(&origin.id, kind));
            }
        } else {
            self.next_of(origin);
        }
    }

    fn text_to(&mut self, now: Instant, number: u32, text: String) {
        if let Some(link) = self.links.iter_mut().find(|l| l.number == number) {
            link.text(now, text);
        }
    }

    /// Tells the client a fact.
    pub(super) fn tell_client(&mut self, now: Instant, fact: &EventEnvelope) {
        let mut link = self.links.iter_mut().find(|l| Some(l.number) == self.current);
        self.session.tell(fact, |text| {
            if let Some(link) = &mut link {
                link.text(now, text);
            }
        });
    }

    /// Tells the client how loud it is here.
    pub(super) fn tell_level(&mut self, now: Instant, level: f32) {
        if let Some(link) =
            self.links.iter_mut().find(|l| Some(l.number) == self.current && l.talks.is_some())
        {
            link.text(now, tell::level(level));
        }
    }

    /// A client's channel is open: it may have come in mid-call.
    pub(super) fn greet(&mut self, now: Instant, number: u32) {
        let state = self.session.state();
        if let Some(link) = self.links.iter_mut().find(|l| l.number == number) {
            link.talks = Some(now);
            self.told_silence = false;
            link.text(now, state);
        }
    }
}
