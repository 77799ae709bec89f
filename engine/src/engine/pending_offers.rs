//! Offers that were answered and have not connected. Each costs only memory, but any client can
//! create them. They are therefore limited by network, by agent and in total; the newest evicts the
//! oldest.

use std::collections::VecDeque;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use conversation::id::ConversationId;

use crate::context::PendingOffer;

/// Maximum number of pending offers per network ([`engine_api::Caller::network`]).
const MAX_OFFERS_PER_NETWORK: usize = 16;
/// Maximum number of pending offers per agent.
const MAX_OFFERS_PER_AGENT: usize = 32;
/// Maximum number of pending offers.
const MAX_PENDING_OFFERS: usize = 256;

struct OfferEntry {
    offer: EvictedOffer,
    network: Option<IpAddr>,
    agent: String,
    is_pending: Arc<AtomicBool>,
}

/// An offer that was removed in favor of a newer one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct EvictedOffer {
    pub(super) thread: usize,
    pub(super) conversation: ConversationId,
    pub(super) number: u64,
}

/// The list of pending offers.
#[derive(Default)]
pub(super) struct PendingOffers {
    entries: VecDeque<OfferEntry>,
    last_number: u64,
    evicted_count: u64,
}

impl PendingOffers {
    /// Adds an offer and returns the offers that it evicts. `network` is `None` if the limits do
    /// not apply.
    pub(super) fn insert(
        &mut self,
        thread: usize,
        conversation: ConversationId,
        network: Option<IpAddr>,
        agent: &str,
    ) -> (PendingOffer, Vec<EvictedOffer>) {
        self.remove_connected();
        let mut evicted = Vec::new();
        if network.is_some() {
            self.evict_oldest(
                MAX_OFFERS_PER_NETWORK,
                |entry| entry.network == network,
                &mut evicted,
            );
            // Offers that are exempt from the limits neither count nor are evicted.
            self.evict_oldest(
                MAX_OFFERS_PER_AGENT,
                |entry| entry.network.is_some() && entry.agent == agent,
                &mut evicted,
            );
            self.evict_oldest(MAX_PENDING_OFFERS, |entry| entry.network.is_some(), &mut evicted);
        }
        self.last_number += 1;
        let pending_offer = PendingOffer::new(self.last_number);
        self.entries.push_back(OfferEntry {
            offer: EvictedOffer { thread, conversation, number: self.last_number },
            network,
            agent: agent.to_owned(),
            is_pending: Arc::clone(&pending_offer.is_pending),
        });
        (pending_offer, evicted)
    }

    /// Removes the oldest matching entries until fewer than `limit` are left.
    fn evict_oldest(
        &mut self,
        limit: usize,
        matches: impl Fn(&OfferEntry) -> bool,
        evicted: &mut Vec<EvictedOffer>,
    ) {
        while self.entries.iter().filter(|entry| matches(entry)).count() >= limit {
            let Some(oldest) = self.entries.iter().position(&matches) else { return };
            evicted.extend(self.entries.remove(oldest).map(|entry| entry.offer));
            self.evicted_count += 1;
        }
    }

    fn remove_connected(&mut self) {
        self.entries.retain(|entry| entry.is_pending.load(Relaxed));
    }

    /// Number of pending offers of a thread.
    pub(super) fn count_on_thread(&self, thread: usize) -> usize {
        self.entries
            .iter()
            .filter(|e| e.offer.thread == thread && e.is_pending.load(Relaxed))
            .count()
    }

    /// Number of pending offers.
    pub(super) fn count(&self) -> usize {
        self.entries.iter().filter(|entry| entry.is_pending.load(Relaxed)).count()
    }

    /// Number of evicted offers since the start.
    pub(super) fn evicted_count(&self) -> u64 {
        self.evicted_count
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
        let mut waiting = PendingOffers::default();
        let mut held = Vec::new();
        let mut enter = |waiting: &mut PendingOffers, id: u128, network, agent: &str| {
            let (entry, evicted) = waiting.insert(0, ConversationId(id), network, agent);
            held.push(entry);
            evicted.iter().map(|e| e.conversation).collect::<Vec<_>>()
        };
        let id = ConversationId;
        for n in 0..16 {
            assert_eq!(enter(&mut waiting, n, network(1), "a"), []);
        }
        assert_eq!(
            enter(&mut waiting, 16, network(1), "b"),
            [id(0)],
            "the seventeenth of one network"
        );
        for n in 17..34 {
            assert_eq!(enter(&mut waiting, n, network(n as u8), "a"), []);
        }
        assert_eq!(
            enter(&mut waiting, 34, network(34), "a"),
            [id(1)],
            "the thirty-third for one agent"
        );
        for n in 35..258 {
            let evicted = enter(&mut waiting, n, network(n as u8), &format!("of its own {n}"));
            assert!(evicted.is_empty() || waiting.count() == 256, "{n}: {evicted:?}");
        }
        assert_eq!(waiting.count(), 256);
        assert_eq!(waiting.evicted_count(), 2);
        assert_eq!(enter(&mut waiting, 258, network(200), "last"), [id(2)], "the oldest of all");
        assert_eq!(waiting.count(), 256);
    }

    #[test]
    fn connected_offers_do_not_count_and_exempt_clients_evict_no_offer() {
        let mut waiting = PendingOffers::default();
        for n in 0..100 {
            let (_connected, evicted) = waiting.insert(1, ConversationId(n), network(1), "a");
            assert_eq!(evicted, []);
        }
        assert_eq!((waiting.count(), waiting.count_on_thread(1)), (0, 0));
        let of_here: Vec<_> =
            (0..300).map(|n| waiting.insert(1, ConversationId(n), None, "a")).collect();
        assert!(of_here.iter().all(|(_, evicted)| evicted.is_empty()));
        assert_eq!(
            (waiting.count(), waiting.count_on_thread(1), waiting.count_on_thread(0)),
            (300, 300, 0)
        );
        let (_entry, evicted) = waiting.insert(0, ConversationId(999), network(1), "a");
        assert_eq!(evicted, [], "offers from this machine do not count and are not evicted");
    }
}
