//! How a media thread serves pending calls.

use std::time::Instant;

use conversation::id::ConversationId;
use conversation::input::Command;
use conversation::output::CommandOutcome;
use engine_api::{CommandError, HangUp};
use models::panic_isolation::catch_panic;
use tokio::sync::oneshot;

use super::{ConnectionRef, MediaThread, transmit};
use crate::call::pending_call::PendingState;
use crate::messages::CallId;
use crate::thread;

impl MediaThread {
    pub(super) fn handle_command(
        &mut self,
        now: Instant,
        conversation: ConversationId,
        command: Command,
        reply: Option<oneshot::Sender<Result<CommandOutcome, CommandError>>>,
    ) {
        let key = self.by_conversation.get(&conversation).copied();
        if let Some(key) = key.filter(|key| self.calls.contains_key(key)) {
            self.with_call(now, key, |call| call.handle_command(now, command, reply));
            return self.touch(key);
        }
        let answer = key.and_then(|key| {
            let answer = self.pending_calls.get_mut(&key)?.handle_command(command);
            if answer.is_none() {
                self.drop_pending_call(key);
            }
            answer
        });
        if let Some(reply) = reply {
            // The requester may have stopped waiting.
            let _ = reply.send(answer.ok_or(CommandError::NotRunning));
        }
    }

    /// Closes one connection.
    pub(super) fn hang_up(&mut self, now: Instant, key: CallId, connection: &str) -> HangUp {
        self.touch(key);
        let Some(pending) = self.pending_calls.get_mut(&key) else {
            let closed = self.with_call(now, key, |call| call.hang_up(now, connection));
            return closed.unwrap_or(HangUp::NotFound);
        };
        let closed = pending.hang_up(now, connection);
        if closed == HangUp::LastOffer {
            // No later offer may find the call: its conversation ends.
            self.drop_pending_call(key);
        }
        closed
    }

    /// Does the work of a pending call that is due.
    pub(super) fn serve_pending_call(&mut self, now: Instant, key: CallId) {
        let Some(pending) = self.pending_calls.get_mut(&key) else { return };
        thread::set_current_call(Some(pending.conversation));
        let (socket, tcp) = (&mut self.socket, &self.tcp);
        let state = catch_panic(|| {
            pending.poll_connections(now, &mut |datagram| transmit(socket, tcp, datagram))
        });
        for connection in pending.take_dropped_connections() {
            self.demux.remove(&ConnectionRef { call: key, connection });
        }
        match state {
            Some(PendingState::Waiting) => {}
            Some(PendingState::Checked) => pending.open_connections(),
            Some(PendingState::Connected) => pending.request_setup(now),
            Some(PendingState::Finished) => self.drop_pending_call(key),
            None => {
                tracing::error!("the code of a pending call panicked: its offers are dropped");
                self.drop_pending_call(key);
            }
        }
    }

    /// Removes a pending call, with all routes that lead to it.
    pub(super) fn drop_pending_call(&mut self, key: CallId) {
        let Some(mut pending) = self.pending_calls.remove(&key) else { return };
        for connection in pending.connection_numbers().collect::<Vec<_>>() {
            self.demux.remove(&ConnectionRef { call: key, connection });
        }
        for connection in pending.take_dropped_connections() {
            self.demux.remove(&ConnectionRef { call: key, connection });
        }
        self.by_conversation.remove(&pending.conversation);
        catch_panic(|| drop(pending));
    }
}
