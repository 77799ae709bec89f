//! How a call comes to its thread and how its connections come to it.

use std::sync::Arc;
use std::time::Instant;

use conversation::engine::{AcceptedOffer, OfferError};
use models::contain::contained;

use super::pending::{Pending, Waited};
use super::{LINKS, Shard, Slot};
use crate::graph::{CallKey, Loopback, Offer, Opening, Reply};
use crate::hear::decode::Decoder;
use crate::link::Link;
use crate::node::Node;
use crate::speak::encode;
use crate::thread;
use crate::transport::webrtc::{AcceptError, Connection};

impl Shard {
    pub(super) fn offer(&mut self, now: Instant, mut offer: Offer) {
        let conversation = offer.conversation;
        let reply = contained(|| self.take_offer(now, &mut offer)).unwrap_or_else(|| {
            // A call that was here may be half changed.
            if let Some(key) = self.by_conversation.get(&conversation).copied() {
                self.broke(now, key);
            }
            Reply::Refused(OfferError::BadSdp("the offer could not be read".into()))
        });
        // What a refused offer held is free before the client knows.
        drop(offer.arrival.take());
        // The client may have hung up the request; then the connection is dropped with its time-out.
        let _ = offer.reply.send(reply);
    }

    fn take_offer(&mut self, now: Instant, offer: &mut Offer) -> Reply {
        let Some(certificate) = self.kit.as_ref().map(|kit| Arc::clone(&kit.certificate)) else {
            return Reply::Refused(OfferError::NoCapacity("still loading".into()));
        };
        let refused = |error: AcceptError| {
            Reply::Refused(match error {
                AcceptError::BadSdp(why) => OfferError::BadSdp(why),
                AcceptError::NoOpus => OfferError::NotAcceptable(error.to_string()),
            })
        };
        let live = self.by_conversation.get(&offer.conversation).copied();
        let key = match (live, &offer.arrival) {
            (Some(key), _) => key,
            (None, Some(arrival)) => arrival.key,
            (None, None) => return Reply::NotHere,
        };
        if self.nodes.get(&key).is_some_and(|node| node.has_ended()) {
            return Reply::Refused(OfferError::Ended);
        }
        if let (Some(id), false) = (&offer.replaces, offer.restart)
            && let Some(link) = self.link_named(key, id).filter(|link| link.is_up())
        {
            let number = link.number;
            if let Some(connection) = link.connection() {
                let answer = match connection.renegotiate(&offer.sdp, now) {
                    Ok(answer) => answer,
                    Err(error) => return refused(error),
                };
                let (ufrag, connection) = (connection.ufrag().to_owned(), connection.id().to_owned());
                self.demux.insert(&ufrag, Slot { call: key, link: number });
                self.touch(key);
                return Reply::Accepted(AcceptedOffer { answer, connection }, ufrag);
            }
        }
        let made = Connection::accept(&offer.sdp, &self.candidates, &certificate, now);
        let (connection, answer) = match made {
            Ok(made) => made,
            Err(error) => return refused(error),
        };
        let Ok(decoder) = Decoder::new() else {
            return Reply::Refused(OfferError::NoCapacity("no audio decoder".into()));
        };
        if live.is_none() {
            let Some(arrival) = offer.arrival.take() else { return Reply::NotHere };
            let pending = Pending::new(offer.conversation, arrival, self.shared.timeouts.offer);
            self.by_conversation.insert(offer.conversation, key);
            self.pending.insert(key, Box::new(pending));
        }
        let (ufrag, id) = (connection.ufrag().to_owned(), connection.id().to_owned());
        let unconnected = offer.unconnected.take();
        let make = |number| Link::rtc(number, connection, decoder, unconnected, now);
        let link = if let Some(node) = self.nodes.get_mut(&key) {
            if node.links().count() >= LINKS {
                node.make_room();
            }
            node.link(make)
        } else if let Some(pending) = self.pending.get_mut(&key) {
            pending.link(LINKS, make)
        } else {
            return Reply::NotHere;
        };
        self.demux.insert(&ufrag, Slot { call: key, link });
        self.touch(key);
        Reply::Accepted(AcceptedOffer { answer, connection: id }, ufrag)
    }

    fn link_named(&mut self, key: CallKey, id: &str) -> Option<&mut Link> {
        if let Some(node) = self.nodes.get_mut(&key) {
            return node.link_named(id);
        }
        self.pending.get_mut(&key)?.link_named(id)
    }

    /// A call whose client has connected gets its place and models, or the client is told that there is no room.
    pub(super) fn opened(&mut self, now: Instant, key: CallKey, opening: Result<Box<Opening>, String>) {
        // It may be over meanwhile; then place and models are free with the message.
        let Some(mut pending) = self.pending.remove(&key) else { return };
        thread::serves(Some(pending.conversation));
        let opening = match opening {
            Ok(opening) => opening,
            Err(why) => {
                tracing::warn!(%why, "a client has connected and there is no room for its call");
                pending.refuse(now);
                self.pending.insert(key, pending);
                return self.touch(key);
            }
        };
        let (id, links) = (pending.conversation, pending.links().collect::<Vec<_>>());
        let (waited, events) = pending.begin();
        let begun = contained(|| self.add(now, *opening, waited));
        if let Some(Ok(())) = begun {
            self.within(now, key, |node| {
                for (number, event) in events {
                    node.event(now, number, event);
                }
            });
            return;
        }
        tracing::error!(failed = ?begun.and_then(Result::err).map(|e| e.to_string()), "a call did not begin");
        self.by_conversation.remove(&id);
        for link in links {
            self.demux.remove(&Slot { call: key, link });
        }
    }

    fn add(&mut self, now: Instant, opening: Opening, waited: Waited) -> Result<(), encode::Error> {
        let key = opening.key;
        let node = Node::new(opening, waited, Arc::clone(&self.shared), self.inbox.sink(key), now)?;
        if self.nodes.is_empty() {
            self.next_tick = now; // the thread slept
        }
        self.by_conversation.insert(node.call.id, key);
        self.nodes.insert(key, Box::new(node));
        self.touch(key);
        Ok(())
    }

    /// An offer makes room for a newer one.
    pub(super) fn evict(&mut self, now: Instant, key: CallKey, offer: u64) {
        if self.nodes.contains_key(&key) {
            self.within(now, key, |node| node.evict(offer));
        } else if let Some(pending) = self.pending.get_mut(&key) {
            pending.evict(offer);
        }
        self.touch(key);
    }

    pub(super) fn begin_loopback(&mut self, now: Instant, call: Loopback) {
        let Loopback { opening, commands, near, presence } = call;
        let id = opening.call.id;
        let key = match self.by_conversation.get(&id) {
            Some(key) => *key,
            None => {
                let key = opening.key;
                let waited = Waited { commands, presence, ..Waited::default() };
                if let Err(why) = self.add(now, *opening, waited) {
                    tracing::warn!(conversation = %id, %why, "a call did not begin");
                    return;
                }
                key
            }
        };
        if let Some(node) = self.nodes.get_mut(&key) {
            node.link(|number| Link::looped(number, near, now));
            self.touch(key);
        }
    }
}
