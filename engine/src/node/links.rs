//! A call's connections: the one that carries it, and offers that try to take over.

use super::Node;
use crate::link::Link;

impl Node {
    /// Takes a connection that may become the call's; returns its number.
    pub(crate) fn link(&mut self, make: impl FnOnce(u32) -> Link) -> u32 {
        let number = self.next_link;
        self.next_link += 1;
        self.links.push(make(number));
        number
    }

    /// Drops a connection that does not carry the call, for a newer offer: the oldest one that is still pending, else the oldest that closes.
    pub(crate) fn make_room(&mut self) {
        let others = self.links.iter().filter(|l| Some(l.number) != self.current);
        let Some(oldest) = others.min_by_key(|l| (l.connected.is_some(), l.number)).map(|l| l.number) else {
            return;
        };
        self.links.retain(|l| l.number != oldest);
        self.dropped.push(oldest);
    }

    /// Drops the connection of an offer that makes room for a newer one.
    pub(crate) fn evict(&mut self, offer: u64) {
        let Some(number) = self.links.iter().find(|l| l.is_offer(offer)).map(|l| l.number) else { return };
        self.links.retain(|l| l.number != number);
        self.dropped.push(number);
    }

    /// The connection of this name.
    pub(crate) fn link_named(&mut self, id: &str) -> Option<&mut Link> {
        self.links.iter_mut().find(|l| l.id() == id)
    }

    /// Numbers of its connections.
    pub(crate) fn links(&self) -> impl Iterator<Item = u32> + '_ {
        self.links.iter().map(|l| l.number)
    }

    /// Numbers of the connections that are gone since last asked.
    pub(crate) fn dropped_links(&mut self) -> impl Iterator<Item = u32> + '_ {
        self.dropped.drain(..)
    }
}
