//! What a media thread does with calls that have not begun.

use std::time::Instant;

use conversation::call_config::ConversationId;
use conversation::engine::CommandError;
use conversation::input::Command;
use conversation::output::CommandOutcome;
use models::contain::contained;
use tokio::sync::oneshot;

use super::pending::Stand;
use super::{Shard, Slot, transmit};
use crate::graph::CallKey;
use crate::thread;

impl Shard {
    pub(super) fn command(
        &mut self,
        now: Instant,
        conversation: ConversationId,
        command: Command,
        reply: Option<oneshot::Sender<Result<CommandOutcome, CommandError>>>,
    ) {
        let key = self.by_conversation.get(&conversation).copied();
        if let Some(key) = key.filter(|key| self.nodes.contains_key(key)) {
            self.within(now, key, |node| node.command(now, command, reply));
            return self.touch(key);
        }
        let answer = key.and_then(|key| {
            let answer = self.pending.get_mut(&key)?.command(command);
            if answer.is_none() {
                self.give_up(key);
            }
            answer
        });
        if let Some(reply) = reply {
            // Whoever asked may have gone meanwhile.
            let _ = reply.send(answer.ok_or(CommandError::NotRunning));
        }
    }

    /// Whether there was such a connection.
    pub(super) fn hang_up(&mut self, now: Instant, key: CallKey, connection: &str) -> bool {
        self.touch(key);
        match self.pending.get_mut(&key) {
            Some(pending) => pending.hang_up(now, connection),
            None => self.within(now, key, |node| node.hang_up(now, connection)).unwrap_or(false),
        }
    }

    /// Lets a call that has not begun do what is due.
    pub(super) fn serve_pending(&mut self, now: Instant, key: CallKey) {
        let Some(pending) = self.pending.get_mut(&key) else { return };
        thread::serves(Some(pending.conversation));
        let (socket, tcp) = (&mut self.socket, &self.tcp);
        let stand = contained(|| pending.serve(now, &mut |datagram| transmit(socket, tcp, datagram)));
        for link in pending.dropped_links() {
            self.demux.remove(&Slot { call: key, link });
        }
        match stand {
            Some(Stand::Waits) => {}
            Some(Stand::Connected) => pending.ask(),
            Some(Stand::Over) => self.give_up(key),
            None => {
                tracing::error!("the code of a call that has not begun panicked: its offers are dropped");
                self.give_up(key);
            }
        }
    }

    /// A call that has not begun is over.
    pub(super) fn give_up(&mut self, key: CallKey) {
        let Some(mut pending) = self.pending.remove(&key) else { return };
        for link in pending.links().collect::<Vec<_>>() {
            self.demux.remove(&Slot { call: key, link });
        }
        for link in pending.dropped_links() {
            self.demux.remove(&Slot { call: key, link });
        }
        self.by_conversation.remove(&pending.conversation);
        contained(|| drop(pending));
    }
}
