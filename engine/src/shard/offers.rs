//! How a call comes to its thread and how its connections come to it.

use std::sync::Arc;
use std::time::Instant;

use conversation::host::{Accepted, OfferError};
use models::contain::contained;

use super::{LINKS, Shard, Slot};
use crate::graph::{Loopback, Offer, Opening, Reply};
use crate::hear::decode::Decoder;
use crate::link::Link;
use crate::node::Node;
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
        // What a refused offer held, a seat and a decoder, is free before the client knows.
        drop(offer.opening.take());
        // The client may have hung up the request; then the connection is dropped with its time-out.
        let _ = offer.reply.send(reply);
    }

    fn take_offer(&mut self, now: Instant, offer: &mut Offer) -> Reply {
        let Some(kit) = &self.kit else {
            return Reply::Refused(OfferError::NoCapacity("still loading".into()));
        };
        let refused = |error: AcceptError| {
            Reply::Refused(match error {
                AcceptError::BadSdp(why) => OfferError::BadSdp(why),
                AcceptError::NoOpus => OfferError::NotAcceptable(error.to_string()),
            })
        };
        let live = self.by_conversation.get(&offer.conversation).copied();
        let key = match (live, &offer.opening) {
            (Some(key), _) => key,
            (None, Some(opening)) => opening.key,
            (None, None) => return Reply::NotHere,
        };
        let mut node = live.and_then(|key| self.nodes.get_mut(&key));
        if node.as_ref().is_some_and(|n| n.has_ended()) {
            return Reply::Refused(OfferError::Ended);
        }
        if let (Some(node), Some(id), false) = (&mut node, &offer.replaces, offer.restart)
            && let Some(link) = node.link_named(id).filter(|l| l.is_up())
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
                return Reply::Accepted(Accepted { answer, connection }, ufrag);
            }
        }
        let made = Connection::accept(&offer.sdp, &self.candidates, &kit.certificate, now);
        let (connection, answer) = match made {
            Ok(made) => made,
            Err(error) => return refused(error),
        };
        let Ok(decoder) = Decoder::new() else {
            return Reply::Refused(OfferError::NoCapacity("no audio decoder".into()));
        };
        if live.is_none() {
            let Some(opening) = offer.opening.take() else { return Reply::NotHere };
            if let Err(why) = self.add(now, opening) {
                return Reply::Refused(OfferError::NoCapacity(why));
            }
        }
        let Some(node) = self.nodes.get_mut(&key) else { return Reply::NotHere };
        if node.links().count() >= LINKS {
            node.make_room();
        }
        let (ufrag, id) = (connection.ufrag().to_owned(), connection.id().to_owned());
        let link = node.link(|number| Link::rtc(number, connection, decoder, now));
        self.demux.insert(&ufrag, Slot { call: key, link });
        self.touch(key);
        Reply::Accepted(Accepted { answer, connection: id }, ufrag)
    }

    fn add(&mut self, now: Instant, opening: Opening) -> Result<(), String> {
        let key = opening.key;
        let node = Node::new(opening, Arc::clone(&self.shared), self.inbox.sink(key), now)
            .map_err(|e| e.to_string())?;
        if self.nodes.is_empty() {
            self.next_tick = now; // the thread slept
        }
        self.by_conversation.insert(node.call.id, key);
        self.nodes.insert(key, Box::new(node));
        self.touch(key);
        Ok(())
    }

    pub(super) fn begin_loopback(&mut self, now: Instant, call: Loopback) {
        let Loopback { opening, near } = call;
        let id = opening.call.id;
        let key = match self.by_conversation.get(&id) {
            Some(key) => *key,
            None => {
                let key = opening.key;
                if let Err(why) = self.add(now, opening) {
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
