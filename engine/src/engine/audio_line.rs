//! Connections that carry samples: they start a call, or take over one that runs here.

use std::sync::Arc;

use engine_api::{AudioLine, AudioOffer, OfferError};
use models::panic_isolation::catch_panic;

use super::CallEngine;
use super::admission::RejectReason;
use super::vendor_connections::VendorConnections;
use crate::messages::{ConnectedCall, LineRequest, Message};
use crate::transport::ConnectionReply;
use crate::transport::audio_line;

/// Sample rates of lines, in Hz.
const SAMPLE_RATES: std::ops::RangeInclusive<u32> = 8_000..=48_000;

impl CallEngine {
    pub(super) async fn take_line(
        &self,
        offer: AudioOffer,
    ) -> Result<Box<dyn AudioLine>, OfferError> {
        self.wait_until_ready().await?;
        let (heard, spoken) = (offer.input_rate, offer.output_rate);
        let no_rate =
            || OfferError::NotAcceptable(format!("{heard} and {spoken} Hz are not supported"));
        if !SAMPLE_RATES.contains(&heard) || !SAMPLE_RATES.contains(&spoken) {
            return Err(no_rate());
        }
        // As for an offer: the call may end before the line arrives at its thread.
        for _ in 0..3 {
            let (server, line, outcome) = audio_line::pair(heard, spoken).ok_or_else(no_rate)?;
            let request = LineRequest { conversation: offer.config.id, server, new_call: None };
            self.send_line(request, &offer)?;
            match outcome.await {
                Ok(ConnectionReply::Accepted) => return Ok(Box::new(line)),
                Ok(ConnectionReply::Rejected(why)) => return Err(why),
                Ok(ConnectionReply::NotRunning) => {}
                Err(_) => return Err(OfferError::NoCapacity("the call was dropped".into())),
            }
        }
        Err(OfferError::NoCapacity("the call ends and restarts too fast".into()))
    }

    /// Sends a line to the thread of its call. A call that does not run gets its slot and models
    /// first, because its connection is up at once.
    fn send_line(&self, mut request: LineRequest, offer: &AudioOffer) -> Result<(), OfferError> {
        let call = &offer.config;
        let running = self.lock_directory().find_live(call.id).map(|place| place.thread);
        if let Some(thread) = running {
            return self.send_to(thread, request);
        }
        let reject = |why: &RejectReason| self.rejections.reject(why);
        let (thread, slot) = self.take_slot(&self.lock_directory()).map_err(|why| reject(&why))?;
        let key = self.next_call_id();
        let setup = catch_panic(|| {
            self.check_models(call)
                .map_err(|why| reject(&RejectReason::CallModels(why.to_string())))?;
            let opened = VendorConnections::default();
            self.prepare_call(thread, key, Arc::clone(call), slot, opened)
        });
        let setup = setup.unwrap_or_else(|| {
            Err(reject(&RejectReason::CallModels("the setup of the call panicked".into())))
        })?;
        // An offer may have come first, because the setup takes a moment. The line then joins it.
        let mut directory = self.lock_directory();
        if let Some(place) = directory.find_live(call.id) {
            let thread = place.thread;
            drop(directory);
            return self.send_to(thread, request);
        }
        request.new_call = Some(Box::new(ConnectedCall {
            setup: Box::new(setup),
            early_commands: offer.commands.clone(),
            presence: directory.insert_call(call.id, thread),
        }));
        // Under the lock, so that no later offer is there first.
        self.send_to(thread, request)
    }

    fn send_to(&self, thread: usize, request: LineRequest) -> Result<(), OfferError> {
        let message = Message::Line(Box::new(request));
        let sent = self.threads[thread].inbox.requests.send(message);
        sent.map_err(|_| OfferError::NoCapacity("the server is too busy".into()))
    }
}
