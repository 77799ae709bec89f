//! How a call comes to its thread and how its connections come to it.

use std::sync::Arc;
use std::time::Instant;

use conversation::engine::{AcceptedOffer, OfferError};
use models::contain::contained;

use super::pending_call::{CallHandover, PendingCall};
use super::{ConnectionRef, MAX_CONNECTIONS_PER_CALL, MediaThread};
use crate::call::Call;
use crate::connection::Connection;
use crate::hear::decode::Decoder;
use crate::messages::{CallId, CallSetup, LoopbackCall, OfferReply, OfferRequest};
use crate::speak::encode;
use crate::thread;
use crate::transport::webrtc::{AcceptError, PeerConnection};

impl MediaThread {
    pub(super) fn handle_offer(&mut self, now: Instant, mut offer: OfferRequest) {
        let conversation = offer.conversation;
        let reply = contained(|| self.answer_offer(now, &mut offer)).unwrap_or_else(|| {
            // A call that was here may be half changed.
            if let Some(key) = self.by_conversation.get(&conversation).copied() {
                self.fail_call(now, key);
            }
            OfferReply::Rejected(OfferError::BadSdp("the offer could not be read".into()))
        });
        // What a refused offer held is free before the client knows.
        drop(offer.new_call.take());
        // The client may have hung up the request; then the connection is dropped with its time-out.
        let _ = offer.reply.send(reply);
    }

    fn answer_offer(&mut self, now: Instant, offer: &mut OfferRequest) -> OfferReply {
        let Some(certificate) = self.resources.as_ref().map(|kit| Arc::clone(&kit.certificate)) else {
            return OfferReply::Rejected(OfferError::NoCapacity("still loading".into()));
        };
        let refused = |error: AcceptError| {
            OfferReply::Rejected(match error {
                AcceptError::BadSdp(why) => OfferError::BadSdp(why),
                AcceptError::NoOpus => OfferError::NotAcceptable(error.to_string()),
            })
        };
        let live = self.by_conversation.get(&offer.conversation).copied();
        let key = match (live, &offer.new_call) {
            (Some(key), _) => key,
            (None, Some(arrival)) => arrival.id,
            (None, None) => return OfferReply::NotRunning,
        };
        if self.calls.get(&key).is_some_and(|node| node.has_ended()) {
            return OfferReply::Rejected(OfferError::Ended);
        }
        if let (Some(id), false) = (&offer.replaces, offer.restart)
            && let Some(link) = self.connection_by_id(key, id).filter(|link| link.is_up())
        {
            let number = link.number;
            if let Some(connection) = link.peer() {
                let answer = match connection.renegotiate(&offer.sdp, now) {
                    Ok(answer) => answer,
                    Err(error) => return refused(error),
                };
                let (ufrag, connection) = (connection.ufrag().to_owned(), connection.id().to_owned());
                self.demux.insert(&ufrag, ConnectionRef { call: key, connection: number });
                self.touch(key);
                return OfferReply::Accepted(AcceptedOffer { answer, connection }, ufrag);
            }
        }
        let made = PeerConnection::accept(&offer.sdp, &self.candidates, &certificate, now);
        let (connection, answer) = match made {
            Ok(made) => made,
            Err(error) => return refused(error),
        };
        let Ok(decoder) = Decoder::new() else {
            return OfferReply::Rejected(OfferError::NoCapacity("no audio decoder".into()));
        };
        if live.is_none() {
            let Some(arrival) = offer.new_call.take() else { return OfferReply::NotRunning };
            let pending = PendingCall::new(offer.conversation, arrival, self.context.timeouts.offer);
            self.by_conversation.insert(offer.conversation, key);
            self.pending_calls.insert(key, Box::new(pending));
        }
        let (ufrag, id) = (connection.ufrag().to_owned(), connection.id().to_owned());
        let unconnected = offer.pending_offer.take();
        let make = |number| Connection::webrtc(number, connection, decoder, unconnected, now);
        let link = if let Some(node) = self.calls.get_mut(&key) {
            if node.connection_numbers().count() >= MAX_CONNECTIONS_PER_CALL {
                node.drop_oldest_connection();
            }
            node.add_connection(make)
        } else if let Some(pending) = self.pending_calls.get_mut(&key) {
            pending.add_connection(MAX_CONNECTIONS_PER_CALL, make)
        } else {
            return OfferReply::NotRunning;
        };
        self.demux.insert(&ufrag, ConnectionRef { call: key, connection: link });
        self.touch(key);
        OfferReply::Accepted(AcceptedOffer { answer, connection: id }, ufrag)
    }

    fn connection_by_id(&mut self, key: CallId, id: &str) -> Option<&mut Connection> {
        if let Some(node) = self.calls.get_mut(&key) {
            return node.connection_by_id(id);
        }
        self.pending_calls.get_mut(&key)?.connection_by_id(id)
    }

    /// A call whose client has connected gets its place and models, or the client is told that there is no room.
    pub(super) fn start_call(&mut self, now: Instant, key: CallId, opening: Result<Box<CallSetup>, String>) {
        // It may be over meanwhile; then place and models are free with the message.
        let Some(mut pending) = self.pending_calls.remove(&key) else { return };
        thread::set_current_call(Some(pending.conversation));
        let opening = match opening {
            Ok(opening) => opening,
            Err(why) => {
                tracing::warn!(%why, "a client has connected and there is no room for its call");
                pending.reject(now);
                self.pending_calls.insert(key, pending);
                return self.touch(key);
            }
        };
        let (id, links) = (pending.conversation, pending.connection_numbers().collect::<Vec<_>>());
        let (waited, events) = pending.into_handover();
        let begun = contained(|| self.insert_call(now, *opening, waited));
        if let Some(Ok(())) = begun {
            self.with_call(now, key, |node| {
                for (number, event) in events {
                    node.handle_event(now, number, event);
                }
            });
            return;
        }
        tracing::error!(failed = ?begun.and_then(Result::err).map(|e| e.to_string()), "a call did not begin");
        self.by_conversation.remove(&id);
        for link in links {
            self.demux.remove(&ConnectionRef { call: key, connection: link });
        }
    }

    fn insert_call(
        &mut self,
        now: Instant,
        opening: CallSetup,
        waited: CallHandover,
    ) -> Result<(), encode::Error> {
        let key = opening.id;
        let node =
            Call::new(opening, waited, Arc::clone(&self.context), self.inbox.stage_event_sink(key), now)?;
        if self.calls.is_empty() {
            self.next_tick = now; // the thread slept
        }
        self.by_conversation.insert(node.config.id, key);
        self.calls.insert(key, Box::new(node));
        self.touch(key);
        Ok(())
    }

    /// An offer makes room for a newer one.
    pub(super) fn evict_offer(&mut self, now: Instant, key: CallId, offer: u64) {
        if self.calls.contains_key(&key) {
            self.with_call(now, key, |node| node.evict_offer(offer));
        } else if let Some(pending) = self.pending_calls.get_mut(&key) {
            pending.evict_offer(offer);
        }
        self.touch(key);
    }

    pub(super) fn start_loopback_call(&mut self, now: Instant, call: LoopbackCall) {
        let LoopbackCall { setup: opening, early_commands: commands, server: near, presence } = call;
        let id = opening.config.id;
        let key = match self.by_conversation.get(&id) {
            Some(key) => *key,
            None => {
                let key = opening.id;
                let waited = CallHandover { early_commands: commands, presence, ..CallHandover::default() };
                if let Err(why) = self.insert_call(now, *opening, waited) {
                    tracing::warn!(conversation = %id, %why, "a call did not begin");
                    return;
                }
                key
            }
        };
        if let Some(node) = self.calls.get_mut(&key) {
            node.add_connection(|number| Connection::loopback(number, near, now));
            self.touch(key);
        }
    }
}
