//! How an offer reaches its media thread, and how a call whose client has connected gets its slot
//! and models.

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Weak};

use conversation::input::Command;
use engine_api::{AcceptedOffer, CallConfig, Caller, OfferError};
use models::Error;
use models::panic_isolation::catch_panic;
use tokio::sync::oneshot;

use super::admission::RejectReason;
use super::pending_offers::EvictedOffer;
use super::vendor_connections::{CallPreparation, VendorConnections};
use super::{CallEngine, CallLocation, resolve_models};
use crate::context::{PendingOffer, PresenceGuard, Slot};
use crate::messages::{self, CallId, CallSetup, Message, NewCall, OfferReply};
use crate::recorder::unavailable_reason;
use crate::think::llm::prepare_knowledge;

/// An offer on its way to its thread.
struct AdmittedOffer {
    thread: usize,
    /// Present if the call does not run yet.
    presence: Option<PresenceGuard>,
    /// Whether the call is on its thread.
    alive: Arc<AtomicBool>,
    pending_offer: PendingOffer,
}

impl CallEngine {
    /// Resolves a call's models and its avatar. `opened`: what has been opened for it.
    pub(super) fn prepare_call(
        &self,
        thread: usize,
        key: CallId,
        call: Arc<CallConfig>,
        slot: Slot,
        opened: VendorConnections,
    ) -> Result<CallSetup, OfferError> {
        let stage_events = self.threads[thread].inbox.stage_event_sink(key);
        let models = resolve_models(&*self.models, &call, stage_events, opened);
        let mut models = models.map_err(|error| {
            self.rejections.reject(&RejectReason::CallModels(error.to_string()))
        })?;
        let (poses, warnings) = self.library.resolve_avatar(&call);
        models.warnings.extend(warnings);
        prepare_knowledge(
            &self.runtime,
            Arc::clone(&models.llm),
            call.knowledge.clone(),
            call.system_prompt.clone(),
        );
        let recording_error =
            call.recording.as_ref().and_then(|_| unavailable_reason(self.recorder.as_ref()));
        Ok(CallSetup { id: key, config: call, models, poses, recording_error, slot })
    }

    /// Gives a call whose client has connected its slot and models, or the reason of the rejection.
    /// A panic is a rejection too, because the client waits for an answer.
    pub(super) fn set_up_connected_call(
        &self,
        thread: usize,
        key: CallId,
        call: Arc<CallConfig>,
        opened: VendorConnections,
    ) {
        let setup = catch_panic(|| {
            let slot = self
                .take_slot_on(&self.lock_directory(), thread)
                .map_err(|why| self.rejections.reject(&why));
            self.prepare_call(thread, key, call, slot?, opened).map(Box::new)
        });
        let setup = setup.unwrap_or_else(|| {
            let reason = RejectReason::CallModels("the setup of the call panicked".into());
            Err(self.rejections.reject(&reason))
        });
        let message = Message::CallSetup(key, setup.map_err(|why| why.to_string()));
        // If the thread accepts no message for this long, the pending call rejects its clients when
        // its setup is overdue.
        drop(self.threads[thread].inbox.stage_events.send(message));
    }

    /// Finds the thread of a call and registers the offer there. An offer may start a call that
    /// does not run yet.
    fn admit_offer(
        &self,
        call: &Arc<CallConfig>,
        caller: &Caller,
    ) -> Result<AdmittedOffer, OfferError> {
        let mut directory = self.lock_directory();
        let (thread, presence, alive) = match directory.find_live(call.id) {
            Some(place) => (place.thread, None, Arc::clone(&place.alive)),
            None => {
                let thread =
                    self.select_thread(&directory).map_err(|why| self.rejections.reject(&why))?;
                self.check_models(call).map_err(|why| {
                    self.rejections.reject(&RejectReason::CallModels(why.to_string()))
                })?;
                let presence = directory.insert_call(call.id, thread);
                let alive = Arc::clone(&presence.0);
                (thread, Some(presence), alive)
            }
        };
        let (pending_offer, evicted) =
            directory.pending_offers.insert(thread, call.id, caller.network, &caller.agent);
        drop(directory);
        for EvictedOffer { thread, conversation, number } in evicted {
            let evict = Message::EvictOffer { conversation, number };
            // A thread whose inbox is full drops the offer when its timeout expires.
            drop(self.threads[thread].inbox.requests.send(evict));
        }
        Ok(AdmittedOffer { thread, presence, alive, pending_offer })
    }

    /// Checks whether a call would get STT and TTS if it started now; takes no resources.
    pub(super) fn check_models(&self, call: &CallConfig) -> Result<(), Error> {
        self.models.tts(&call.tts).0?.capacity_error().map_or(Ok(()), Err)?;
        self.models.stt(&call.stt).0?.capacity_error().map_or(Ok(()), Err)
    }

    fn new_call(
        &self,
        thread: usize,
        call: &Arc<CallConfig>,
        commands: &[Command],
        presence: PresenceGuard,
    ) -> NewCall {
        let id = self.next_call_id();
        let preparation = Box::new(CallPreparation {
            engine: Weak::clone(&self.weak_self),
            runtime: self.runtime.clone(),
            thread,
            key: id,
            call: Arc::clone(call),
            connections: None,
        });
        NewCall { id, early_commands: commands.to_vec(), presence, preparation }
    }

    pub(super) async fn take_offer(
        &self,
        offer: engine_api::Offer,
    ) -> Result<AcceptedOffer, OfferError> {
        self.wait_until_ready().await?;
        let engine_api::Offer { config: call, sdp, replaces, restart, commands, caller } = offer;
        // A call may end between the directory lookup and the arrival at its thread. The offer is
        // then retried as a new call.
        for _ in 0..3 {
            let AdmittedOffer { thread, presence, alive, pending_offer } =
                self.admit_offer(&call, &caller)?;
            let (reply, answer) = oneshot::channel();
            let offer = messages::OfferRequest {
                conversation: call.id,
                sdp: sdp.clone(),
                replaces: replaces.clone(),
                restart,
                new_call: presence
                    .map(|presence| self.new_call(thread, &call, &commands, presence)),
                pending_offer: Some(pending_offer),
                reply,
            };
            let sent = self.threads[thread].inbox.requests.send(Message::Offer(Box::new(offer)));
            sent.map_err(|_| OfferError::NoCapacity("the server is too busy".into()))?;
            match answer.await {
                Ok(OfferReply::Accepted(accepted, ufrag)) => {
                    if self.tcp.is_some() {
                        self.lock_directory().ufrags.insert(ufrag, CallLocation { thread, alive });
                    }
                    return Ok(accepted);
                }
                Ok(OfferReply::Rejected(why)) => return Err(why),
                Ok(OfferReply::NotRunning) => {}
                Err(_) => return Err(OfferError::NoCapacity("a media thread has stopped".into())),
            }
        }
        Err(OfferError::NoCapacity("the call ends and restarts too fast".into()))
    }
}
