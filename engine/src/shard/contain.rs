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
use crate::transport::socket::Demux;

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
        self.end(now, key);
        // The thread begins anew then, and tells it again.
        assert!(self.untold.is_empty(), "the ledger did not take that a call broke");
    }

    /// Ends a call that cannot go on. Nothing that panics on the way keeps it.
    fn end(&mut self, now: Instant, key: CallKey) {
        let Some(node) = self.nodes.get(&key) else { return };
        let id = node.call.id;
        tracing::error!(conversation = %id, "a fault of the server ends the call");
        if node.has_begun() {
            self.untold.push(id);
        }
        let Some(mut node) = self.forget(key) else { return };
        // While it still counts as present: a client that comes back must find that its call is over.
        self.tell_broken();
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

    /// Tells the ledger which calls broke, each apart. Whether it took all of them.
    fn tell_broken(&mut self) -> bool {
        let ledger = &self.shared.ledger;
        self.untold.retain(|id| contained(|| ledger.call_panicked(*id)).is_none());
        self.untold.is_empty()
    }

    /// The thread's own code failed. Its calls cannot be trusted to be whole, so they end; socket, inbox and models go on.
    ///
    /// # Panics
    /// Something is left to do, for the next restart.
    pub(super) fn restart(&mut self) {
        let now = clock::now();
        thread::serves(None);
        for key in self.nodes.keys().copied().collect::<Vec<_>>() {
            contained(|| self.end(now, key));
        }
        for key in self.pending.keys().copied().collect::<Vec<_>>() {
            contained(|| self.give_up(key));
        }
        // Nothing that the failure may have left half done is looked at again.
        self.demux = Demux::new();
        self.by_conversation.clear();
        self.touched.clear();
        self.due = None;
        self.settled = false;
        self.unread = true;
        assert!(self.tell_broken(), "the ledger did not take that calls broke");
    }
}
