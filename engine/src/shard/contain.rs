//! A panic in a call's code ends that call, and one in the thread's own code ends its calls and no more.

use std::time::Instant;

use models::contain::contained;
use smallvec::SmallVec;

use super::{Shard, transmit};
use crate::clock;
use crate::graph::CallKey;
use crate::meter::Meter;
use crate::node::Node;
use crate::thread;

impl Shard {
    /// Lets a call do something; `None` if it is not here, or broke by that.
    pub(super) fn within<T>(
        &mut self,
        now: Instant,
        key: CallKey,
        work: impl FnOnce(&mut Node) -> T,
    ) -> Option<T> {
        let node = self.nodes.get_mut(&key)?;
        thread::serves(Some(node.call.id));
        let done = contained(|| work(node));
        if done.is_none() {
            self.broke(now, key);
        }
        done
    }

    /// Lets every call do something.
    pub(super) fn each(&mut self, now: Instant, mut work: impl FnMut(&mut Node, &mut Meter)) {
        let mut broken: SmallVec<[CallKey; 4]> = SmallVec::new();
        for (key, node) in &mut self.nodes {
            thread::serves(Some(node.call.id));
            if contained(|| work(node, &mut self.meter)).is_none() {
                broken.push(*key);
            }
        }
        thread::serves(None);
        for key in broken {
            self.broke(now, key);
        }
    }

    /// A call's code panicked: what it may have left half done is not used again but to tell its client.
    pub(super) fn broke(&mut self, now: Instant, key: CallKey) {
        let Some(mut node) = self.forget(key) else { return };
        tracing::error!(conversation = %node.call.id, "the call's code panicked: the call ends");
        if node.has_begun() {
            self.shared.ledger.broke(node.call.id);
        }
        let mut last = Vec::new();
        // If that panics, too, the client learns it from the silence.
        contained(|| node.break_off(now, &mut |datagram| last.push(datagram)));
        contained(|| drop(node));
        if self.socket.is_some() {
            last.into_iter().for_each(|datagram| transmit(&mut self.socket, &self.tcp, datagram));
        } else {
            // It is being read.
            self.last_words.append(&mut last);
        }
        thread::serves(None);
    }

    /// The thread's own code panicked. Its calls cannot be trusted to be whole, so they end; socket, inbox and models go on.
    pub(super) fn restart(&mut self) {
        let now = clock::now();
        tracing::error!(
            calls = self.nodes.len(),
            "a media thread panicked: its calls end, and it begins anew"
        );
        for key in self.nodes.keys().copied().collect::<Vec<_>>() {
            self.broke(now, key);
        }
        for key in self.pending.keys().copied().collect::<Vec<_>>() {
            self.give_up(key);
        }
        self.touched.clear();
        self.due = None;
        self.settled = false;
        self.unread = true;
        if let Some(socket) = &mut self.socket {
            socket.flush();
        }
    }
}
