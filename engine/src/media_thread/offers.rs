//! Starts calls on their media thread and adds connections to them.

use std::sync::Arc;
use std::time::Instant;

use engine_api::{AcceptedOffer, OfferError};
use models::panic_isolation::catch_panic;

use super::{ConnectionRef, MAX_CONNECTIONS_PER_CALL, MediaThread};
use crate::call::Call;
use crate::call::pending_call::{CallHandover, PendingCall};
use crate::connection::Connection;
use crate::hear::decode::Decoder;
use crate::messages::{
    CallId, CallSetup, ConnectedCall, LineRequest, LoopbackCall, OfferReply, OfferRequest,
};
use crate::speak::encode;
use crate::thread;
use crate::transport::ConnectionReply;
use crate::transport::webrtc::{AcceptError, LocalCandidate, PeerConnection};

impl MediaThread {
    pub(super) fn handle_offer(&mut self, now: Instant, mut offer: OfferRequest) {
        let conversation = offer.conversation;
        let reply = catch_panic(|| self.answer_offer(now, &mut offer)).unwrap_or_else(|| {
            // An existing call may be left inconsistent by the panic.
            if let Some(key) = self.by_conversation.get(&conversation).copied() {
                self.fail_call(now, key);
            }
            OfferReply::Rejected(OfferError::BadSdp("the offer could not be read".into()))
        });
        // Resources of a rejected offer are released before the client gets the answer.
        drop(offer.new_call.take());
        // The client may have aborted the request. The connection is then dropped by its timeout.
        let _ = offer.reply.send(reply);
    }

    /// The candidates to announce: those of ICE-TCP, which come last, only while its thread serves.
    fn announced_candidates(&self) -> &[LocalCandidate] {
        let hidden = match &self.tcp {
            Some((sender, candidates)) if !sender.is_serving() => candidates.len(),
            _ => 0,
        };
        &self.candidates[..self.candidates.len() - hidden]
    }

    fn answer_offer(&mut self, now: Instant, offer: &mut OfferRequest) -> OfferReply {
        let Some(certificate) = self.resources.as_ref().map(|r| Arc::clone(&r.certificate)) else {
            return OfferReply::Rejected(OfferError::NoCapacity("still loading".into()));
        };
        let rejected = |error: AcceptError| {
            OfferReply::Rejected(match error {
                AcceptError::BadSdp(why) => OfferError::BadSdp(why),
                AcceptError::NoOpus => OfferError::NotAcceptable(error.to_string()),
            })
        };
        let existing = self.by_conversation.get(&offer.conversation).copied();
        let key = match (existing, &offer.new_call) {
            (Some(key), _) => key,
            (None, Some(new_call)) => new_call.id,
            (None, None) => return OfferReply::NotRunning,
        };
        if self.calls.get(&key).is_some_and(|call| call.has_ended()) {
            return OfferReply::Rejected(OfferError::Ended);
        }
        if let (Some(id), false) = (&offer.replaces, offer.restart)
            && let Some(peer) = self.connection_by_id(key, id).filter(|peer| peer.is_up())
        {
            let number = peer.number;
            if let Some(peer) = peer.peer() {
                let answer = match peer.renegotiate(&offer.sdp, now) {
                    Ok(answer) => answer,
                    Err(error) => return rejected(error),
                };
                let (ufrag, peer) = (peer.ufrag().to_owned(), peer.id().to_owned());
                self.demux.insert(&ufrag, ConnectionRef { call: key, connection: number });
                self.touch(key);
                return OfferReply::Accepted(AcceptedOffer { answer, connection: peer }, ufrag);
            }
        }
        let made =
            PeerConnection::accept(&offer.sdp, self.announced_candidates(), &certificate, now);
        let (peer, answer) = match made {
            Ok(made) => made,
            Err(error) => return rejected(error),
        };
        let Ok(decoder) = Decoder::new() else {
            return OfferReply::Rejected(OfferError::NoCapacity("no audio decoder".into()));
        };
        if existing.is_none() {
            let Some(new_call) = offer.new_call.take() else { return OfferReply::NotRunning };
            let pending =
                PendingCall::new(offer.conversation, new_call, self.context.timeouts.offer);
            self.by_conversation.insert(offer.conversation, key);
            self.pending_calls.insert(key, Box::new(pending));
        }
        let (ufrag, id) = (peer.ufrag().to_owned(), peer.id().to_owned());
        let pending_offer = offer.pending_offer.take();
        let make = |number| Connection::webrtc(number, peer, decoder, pending_offer, now);
        let peer = if let Some(call) = self.calls.get_mut(&key) {
            if call.connection_numbers().count() >= MAX_CONNECTIONS_PER_CALL {
                call.drop_oldest_connection();
            }
            call.add_connection(make)
        } else if let Some(pending) = self.pending_calls.get_mut(&key) {
            pending.add_connection(MAX_CONNECTIONS_PER_CALL, make)
        } else {
            return OfferReply::NotRunning;
        };
        self.demux.insert(&ufrag, ConnectionRef { call: key, connection: peer });
        self.touch(key);
        OfferReply::Accepted(AcceptedOffer { answer, connection: id }, ufrag)
    }

    fn connection_by_id(&mut self, key: CallId, id: &str) -> Option<&mut Connection> {
        if let Some(call) = self.calls.get_mut(&key) {
            return call.connection_by_id(id);
        }
        self.pending_calls.get_mut(&key)?.connection_by_id(id)
    }

    /// Starts a call whose client has connected, with its slot and models. Without them, the client
    /// gets a capacity error.
    pub(super) fn start_call(
        &mut self,
        now: Instant,
        key: CallId,
        setup: Result<Box<CallSetup>, String>,
    ) {
        // The call may be gone by now, or its clients rejected because the setup is too late. Its
        // slot and models are then released with the message.
        if !self.pending_calls.get(&key).is_some_and(|pending| pending.awaits_setup()) {
            return;
        }
        let Some(mut pending) = self.pending_calls.remove(&key) else { return };
        thread::set_current_call(Some(pending.conversation));
        let setup = match setup {
            Ok(setup) => setup,
            Err(why) => {
                tracing::warn!(reason = %why, "a client connected, but its call was rejected");
                pending.reject(now);
                self.pending_calls.insert(key, pending);
                return self.touch(key);
            }
        };
        let (id, connections) =
            (pending.conversation, pending.connection_numbers().collect::<Vec<_>>());
        let (handover, events, stage_events) = pending.into_handover();
        let started = catch_panic(|| self.insert_call(now, *setup, handover));
        if let Some(Ok(())) = started {
            self.with_call(now, key, |call| {
                for (number, event) in events {
                    call.handle_event(now, number, event);
                }
                for event in stage_events {
                    call.handle_stage_event(now, event);
                }
            });
            return;
        }
        tracing::error!(
            error = ?started.and_then(Result::err).map(|e| e.to_string()),
            "cannot start a call"
        );
        self.by_conversation.remove(&id);
        for connection in connections {
            self.demux.remove(&ConnectionRef { call: key, connection });
        }
    }

    pub(super) fn insert_call(
        &mut self,
        now: Instant,
        setup: CallSetup,
        handover: CallHandover,
    ) -> Result<(), encode::Error> {
        let key = setup.id;
        let call = Call::new(
            setup,
            handover,
            Arc::clone(&self.context),
            self.inbox.stage_event_sink(key),
            now,
        )?;
        if self.calls.is_empty() {
            self.next_tick = now; // no ticks ran without calls
        }
        self.by_conversation.insert(call.config.id, key);
        self.calls.insert(key, Box::new(call));
        self.touch(key);
        Ok(())
    }

    /// Drops an offer that was evicted for a newer one.
    pub(super) fn evict_offer(&mut self, now: Instant, key: CallId, offer: u64) {
        if self.calls.contains_key(&key) {
            self.with_call(now, key, |call| call.evict_offer(offer));
        } else if let Some(pending) = self.pending_calls.get_mut(&key) {
            pending.evict_offer(offer);
        }
        self.touch(key);
    }

    /// Adds a connection that carries samples to its call, and starts the call if it does not run.
    /// The connection answers when it carries the call, or when the call is rejected.
    pub(super) fn open_line(&mut self, now: Instant, request: LineRequest) {
        let LineRequest { conversation, mut server, new_call } = request;
        let existing = self.by_conversation.get(&conversation).copied();
        let key = match (existing, new_call) {
            (Some(key), _) => key,
            (None, Some(new_call)) => {
                let ConnectedCall { setup, early_commands, presence } = *new_call;
                let key = setup.id;
                let handover = CallHandover { early_commands, presence, ..CallHandover::default() };
                let started = catch_panic(|| self.insert_call(now, *setup, handover));
                if !matches!(started, Some(Ok(()))) {
                    tracing::error!("cannot start a call");
                    let error = OfferError::NoCapacity("the call cannot start".into());
                    return server.reply(ConnectionReply::Rejected(error));
                }
                key
            }
            (None, None) => return server.reply(ConnectionReply::NotRunning),
        };
        let make = |number| Connection::line(number, server, now);
        if let Some(call) = self.calls.get_mut(&key) {
            if call.has_ended() {
                return make(0).hang_up(now);
            }
            if call.connection_numbers().count() >= MAX_CONNECTIONS_PER_CALL {
                call.drop_oldest_connection();
            }
            call.add_connection(make);
        } else if let Some(pending) = self.pending_calls.get_mut(&key) {
            pending.add_connection(MAX_CONNECTIONS_PER_CALL, make);
        }
        self.touch(key);
    }

    pub(super) fn start_loopback_call(&mut self, now: Instant, loopback_call: LoopbackCall) {
        let LoopbackCall { setup, early_commands, server, presence } = loopback_call;
        let id = setup.config.id;
        let key = match self.by_conversation.get(&id) {
            Some(key) => *key,
            None => {
                let key = setup.id;
                let handover = CallHandover { early_commands, presence, ..CallHandover::default() };
                if let Err(why) = self.insert_call(now, *setup, handover) {
                    tracing::warn!(conversation = %id, error = %why, "cannot start a call");
                    return;
                }
                key
            }
        };
        if let Some(loopback_call) = self.calls.get_mut(&key) {
            loopback_call.add_connection(|number| Connection::loopback(number, server, now));
            self.touch(key);
        }
    }
}
