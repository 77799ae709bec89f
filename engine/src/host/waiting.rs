//! Offers that were answered and have not connected. Each costs memory and no more, so anybody may make them: they are bounded by network,
//! by agent and in all, and the oldest makes room for the newest.

use std::collections::VecDeque;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use conversation::call_config::ConversationId;

/// Offers of one network ([`conversation::host::Caller::network`]) that wait at once.
const OF_NETWORK: usize = 16;
/// Offers for one agent that wait at once.
const OF_AGENT: usize = 32;
/// Offers that wait at once.
const IN_ALL: usize = 256;

/// An offer's entry; dropping it, when the offer connects or is given up, frees the entry.
#[derive(Debug)]
pub struct Unconnected {
    pub(crate) number: u64,
    waits: Arc<AtomicBool>,
}

impl Unconnected {
    /// An entry of no list, for a test's offer.
    #[must_use]
    pub fn free(number: u64) -> Self {
        Self { number, waits: Arc::new(AtomicBool::new(true)) }
    }
}

impl Drop for Unconnected {
    fn drop(&mut self) {
        self.waits.store(false, Relaxed);
    }
}

struct Entry {
    place: Evicted,
    network: Option<IpAddr>,
    agent: String,
    waits: Arc<AtomicBool>,
}

/// An offer that makes room for a newer one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Evicted {
    pub(super) thread: usize,
    pub(super) conversation: ConversationId,
    pub(super) number: u64,
}

/// The list.
#[derive(Default)]
pub(super) struct Waiting {
    entries: VecDeque<Entry>,
    next: u64,
    evicted: u64,
}

impl Waiting {
    /// Enters an offer, and names those that make room for it. `network` is `None` where the limits do not hold.
    pub(super) fn enter(
        &mut self,
        thread: usize,
        conversation: ConversationId,
        network: Option<IpAddr>,
        agent: &str,
    ) -> (Unconnected, Vec<Evicted>) {
        self.forget();
        let mut evicted = Vec::new();
        if network.is_some() {
            self.make_room(OF_NETWORK, |entry| entry.network == network, &mut evicted);
            // Offers that no limit holds for neither count nor make room.
            self.make_room(OF_AGENT, |entry| entry.network.is_some() && entry.agent == agent, &mut evicted);
            self.make_room(IN_ALL, |entry| entry.network.is_some(), &mut evicted);
        }
        self.next += 1;
        let unconnected = Unconnected::free(self.next);
        self.entries.push_back(Entry {
            place: Evicted { thread, conversation, number: self.next },
            network,
            agent: agent.to_owned(),
            waits: Arc::clone(&unconnected.waits),
        });
        (unconnected, evicted)
    }

    /// Drops the oldest of a kind until fewer than `limit` are left.
    fn make_room(&mut self, limit: usize, of: impl Fn(&Entry) -> bool, evicted: &mut Vec<Evicted>) {
        while self.entries.iter().filter(|entry| of(entry)).count() >= limit {
            let Some(oldest) = self.entries.iter().position(&of) else { return };
            evicted.extend(self.entries.remove(oldest).map(|entry| entry.place));
            self.evicted += 1;
        }
    }

    fn forget(&mut self) {
        self.entries.retain(|entry| entry.waits.load(Relaxed));
    }

    /// Offers that wait on a thread.
    pub(super) fn on(&self, thread: usize) -> usize {
        self.entries.iter().filter(|e| e.place.thread == thread && e.waits.load(Relaxed)).count()
    }

    /// Offers that wait.
    pub(super) fn count(&self) -> usize {
        self.entries.iter().filter(|entry| entry.waits.load(Relaxed)).count()
    }

    /// Offers that made room since the start.
    pub(super) fn evicted(&self) -> u64 {
        self.evicted
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn network(n: u8) -> Option<IpAddr> {
        Some(IpAddr::from([192, 0, 2, n]))
    }

    #[test]
    fn the_oldest_of_a_network_of_an_agent_and_of_all_makes_room() {
        let mut waiting = Waiting::default();
        let mut held = Vec::new();
        let mut enter = |waiting: &mut Waiting, id: u128, network, agent: &str| {
            let (entry, evicted) = waiting.enter(0, ConversationId(id), network, agent);
            held.push(entry);
            evicted.iter().map(|e| e.conversation).collect::<Vec<_>>()
        };
        let id = ConversationId;
        for n in 0..16 {
            assert_eq!(enter(&mut waiting, n, network(1), "a"), []);
        }
        assert_eq!(enter(&mut waiting, 16, network(1), "b"), [id(0)], "the seventeenth of one network");
        for n in 17..34 {
            assert_eq!(enter(&mut waiting, n, network(n as u8), "a"), []);
        }
        assert_eq!(enter(&mut waiting, 34, network(34), "a"), [id(1)], "the thirty-third for one agent");
        for n in 35..258 {
            let evicted = enter(&mut waiting, n, network(n as u8), &format!("of its own {n}"));
            assert!(evicted.is_empty() || waiting.count() == 256, "{n}: {evicted:?}");
        }
        assert_eq!(waiting.count(), 256);
        assert_eq!(waiting.evicted(), 2);
        assert_eq!(enter(&mut waiting, 258, network(200), "last"), [id(2)], "the oldest of all");
        assert_eq!(waiting.count(), 256);
    }

    #[test]
    fn what_connected_does_not_count_and_who_is_exempt_evicts_nobody() {
        let mut waiting = Waiting::default();
        for n in 0..100 {
            let (_connected, evicted) = waiting.enter(1, ConversationId(n), network(1), "a");
            assert_eq!(evicted, []);
        }
        assert_eq!((waiting.count(), waiting.on(1)), (0, 0));
        let of_here: Vec<_> = (0..300).map(|n| waiting.enter(1, ConversationId(n), None, "a")).collect();
        assert!(of_here.iter().all(|(_, evicted)| evicted.is_empty()));
        assert_eq!((waiting.count(), waiting.on(1), waiting.on(0)), (300, 300, 0));
        let (_entry, evicted) = waiting.enter(0, ConversationId(999), network(1), "a");
        assert_eq!(evicted, [], "those of this machine neither count nor make room");
    }
}
