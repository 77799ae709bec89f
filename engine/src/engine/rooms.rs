//! Calls in LiveKit rooms: they start when the agent has joined, or move to a new connection.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use engine_api::{CallReservation, OfferError, RoomOffer, RoomSession};
use models::panic_isolation::catch_panic;
use url::{Host, Url};

use super::CallEngine;
use super::admission::RejectReason;
use super::vendor_connections::VendorConnections;
use crate::context::Slot;
use crate::livekit::room_session::RoomContext;
use crate::livekit::signal_connection::ConnectError;
use crate::messages::{CallSetup, ConnectedCall};
use crate::transport::ConnectionReply;
use crate::transport::livekit::room_peer::Publication;

/// The slot of a call that was promised and has not started.
pub(super) struct ReservedSlot {
    pub(super) thread: usize,
    pub(super) slot: Slot,
}

impl CallEngine {
    pub(super) async fn take_room(&self, offer: RoomOffer) -> Result<RoomSession, OfferError> {
        self.wait_until_ready().await?;
        let RoomOffer { config, commands, access, reservation } = offer;
        let no_certificate = || OfferError::NoCapacity("still loading".into());
        let certificate = self.certificate.get().cloned().ok_or_else(no_certificate)?;
        // The slot and the models come first: an agent that cannot talk must not appear in the room.
        let running = self.lock_directory().find_live(config.id).map(|place| place.thread);
        let (thread, setup) = match running {
            Some(thread) => (thread, None),
            None => {
                let (thread, setup) = self.set_up_room_call(&config, reservation)?;
                (thread, Some(setup))
            }
        };
        let video = setup.as_ref().and_then(video_size);
        let context = RoomContext {
            client: self.client.trusted(),
            certificate,
            addresses: self.room_addresses(&access.server_url),
            conversation: config.id,
            publication: Publication { video, created_unix_ms: access.created_unix_ms },
            access,
            inbox: self.threads[thread].inbox.requests.clone(),
        };
        let (session, peer) = context.join().await.map_err(|error| match error {
            ConnectError::Unknown | ConnectError::Refused(_) | ConnectError::Unreachable(_) => {
                OfferError::RoomUnavailable(error.to_string())
            }
        })?;
        let new_call = setup.map(|setup| {
            let presence = self.lock_directory().insert_call(config.id, thread);
            Box::new(ConnectedCall { setup: Box::new(setup), early_commands: commands, presence })
        });
        match context.hand_over(peer, new_call).await {
            ConnectionReply::Accepted => {}
            ConnectionReply::Rejected(why) => return Err(why),
            ConnectionReply::NotRunning => return Err(OfferError::Ended),
        }
        let (sender, ended) = tokio::sync::oneshot::channel();
        self.runtime.spawn(async move {
            // The control plane may have stopped waiting.
            let _ = sender.send(session.run().await);
        });
        let lost = || engine_api::RoomEnd::Failed("the task of the room has failed".into());
        let ended = Box::pin(async move { ended.await.unwrap_or_else(|_| lost()) });
        Ok(RoomSession { ended })
    }

    fn set_up_room_call(
        &self,
        config: &Arc<engine_api::CallConfig>,
        reservation: Option<CallReservation>,
    ) -> Result<(usize, CallSetup), OfferError> {
        let reject = |why: &RejectReason| self.rejections.reject(why);
        let reserved = reservation.and_then(CallReservation::into_place::<ReservedSlot>);
        let (thread, slot) = match reserved {
            Some(ReservedSlot { thread, slot }) => (thread, slot),
            None => self.take_slot(&self.lock_directory()).map_err(|why| reject(&why))?,
        };
        let key = self.next_call_id();
        let setup = catch_panic(|| {
            self.check_models(config)
                .map_err(|why| reject(&RejectReason::CallModels(why.to_string())))?;
            let opened = VendorConnections::default();
            self.prepare_call(thread, key, Arc::clone(config), slot, opened)
        });
        let panicked =
            || Err(reject(&RejectReason::CallModels("the setup of the call panicked".into())));
        Ok((thread, setup.unwrap_or_else(panicked)?))
    }

    /// Addresses at which the LiveKit server may reach this host. Loopback is one if the server is on
    /// the same machine.
    fn room_addresses(&self, server_url: &str) -> Vec<Ipv4Addr> {
        let is_local = Url::parse(server_url).is_ok_and(|url| match url.host() {
            Some(Host::Ipv4(ip)) => ip.is_loopback(),
            Some(Host::Ipv6(ip)) => ip.is_loopback(),
            Some(Host::Domain(name)) => name == "localhost",
            None => false,
        });
        let own = self.host_addresses.iter().filter_map(|ip| match ip {
            IpAddr::V4(ip) if !ip.is_loopback() => Some(*ip),
            _ => None,
        });
        is_local.then_some(Ipv4Addr::LOCALHOST).into_iter().chain(own).collect()
    }
}

fn video_size(setup: &CallSetup) -> Option<(u32, u32)> {
    let manifest = setup.poses.as_ref()?.pose_set().manifest();
    Some((manifest.width, manifest.height))
}
