//! Offers of clients: which conversations they may join, and which server accepts the offer.

use std::sync::Arc;

use conversation::input::Command;
use engine_api::{
    AcceptedOffer, AudioLine, AudioOffer, CallConfig, CallReservation, Caller, Offer, OfferError,
    RoomAccess, RoomOffer, RoomSession,
};

use crate::clock;
use crate::error::{ApiError, Resource};
use crate::events::record;
use crate::http::peer::Peer;
use crate::http::quota;
use crate::join::call_config::{self, Venue};
use crate::join::prompt;
use crate::state::AppState;
use crate::state::join_token::Claims;
use crate::state::live_calls::RunningCall;
use crate::state::relay::{self, ClientOffer};
use crate::store::conversation::{ENDED, IN_PROGRESS, Row, STARTED};

/// A conversation that may be joined.
pub(crate) struct Joinable {
    pub(crate) row: Row,
    /// Of a call of this server that is known from memory, because the store does not respond.
    config: Option<Arc<CallConfig>>,
}

impl Joinable {
    /// Whether the store does not respond.
    pub(super) fn is_from_memory(&self) -> bool {
        self.config.is_some()
    }
}

/// The conversation that a token may still join. 401 if it was never joined and has expired; 409 if
/// it has ended. While the store does not respond, calls of this server are known from memory.
pub(crate) async fn find_joinable(state: &AppState, claims: &Claims) -> Result<Joinable, ApiError> {
    let stored = state.store.conversation_in_any_workspace(&claims.sub.to_string()).await;
    let row = match stored {
        Ok(row) => row.ok_or(ApiError::Unauthorized)?,
        Err(error) if error.is_outage() => {
            let call = state.connections.running_call(claims.sub);
            // The first offer may still connect: there is no call yet.
            if state.pending_offers.contains(claims.sub) {
                return Err(error.into());
            }
            if state.events.has_panicked(claims.sub) {
                return Err(ApiError::Conflict("Conversation has ended".into()));
            }
            let RunningCall { row, config } = call.ok_or_else(|| ApiError::from(error))?;
            let row = Row { status: IN_PROGRESS.to_owned(), ..row };
            return Ok(Joinable { row, config: Some(config) });
        }
        Err(error) => return Err(error.into()),
    };
    // A call that started a moment ago may not be in the store yet.
    let pending = state.pending_offers.contains(claims.sub);
    if row.joined_at.is_none() && !pending && record::is_join_expired(state, &row) {
        return Err(ApiError::Unauthorized);
    }
    if row.status == ENDED || state.events.has_panicked(claims.sub) {
        return Err(ApiError::Conflict("Conversation has ended".into()));
    }
    Ok(Joinable { row, config: None })
}

fn to_api_error(error: OfferError) -> ApiError {
    match error {
        OfferError::BadSdp(_) => ApiError::BadRequest(error.to_string()),
        OfferError::NotAcceptable(text) => ApiError::NotAcceptable(text),
        OfferError::Ended => ApiError::Conflict(error.to_string()),
        OfferError::RoomUnavailable(reason) | OfferError::NoCapacity(reason) => {
            ApiError::NoCapacity(reason)
        }
    }
}

/// Submits an offer to the server that holds the call: this one, unless another one runs the call
/// or has accepted an offer that may still connect.
pub(super) async fn submit_offer(
    state: &AppState,
    Joinable { row, config }: Joinable,
    peer: Peer,
    (sdp, replaces, restart): (String, Option<String>, bool),
) -> Result<AcceptedOffer, ApiError> {
    let network = (!state.is_rate_limit_exempt(peer)).then(|| peer.subscriber_network());
    let offer = ClientOffer { sdp, replaces, restart, network };
    if let Some(config) = config {
        // The call moves to a new connection. It needs no command and no quota.
        return offer_to_engine(state, &row, offer, config, Vec::new()).await;
    }
    let Some(id) = row.id.parse().ok().filter(|_| state.store.is_shared()) else {
        return accept_offer(state, &row, offer).await;
    };
    let duration = clock::to_micros(state.config.timeouts.offer);
    // Twice, because another server may claim the conversation meanwhile.
    for _ in 0..2 {
        let is_claimed = if let Some(holder) = state.relay.other_holder(id).await? {
            if let Some(accepted) = state.relay.submit_offer(&holder, id, offer.clone()).await? {
                return Ok(accepted);
            }
            if row.status != STARTED {
                return Err(relay::no_reply());
            }
            // An offer that the other server has accepted earlier loses its call if it connects.
            ensure_accepting(state, &row)?;
            state.store.take_claim(&row.id, (&state.server_id, &holder), duration).await?
        } else if row.status != STARTED {
            return accept_offer(state, &row, offer).await;
        } else {
            ensure_accepting(state, &row)?;
            state.store.claim_conversation(&row.id, &state.server_id, duration).await?
        };
        if is_claimed {
            let accepted = accept_offer(state, &row, offer).await;
            if accepted.is_err() && !state.pending_offers.contains(id) {
                state.store.release_claim(&row.id, &state.server_id).await?;
            }
            return accepted;
        }
    }
    Err(ApiError::Conflict("Conversation has ended".into()))
}

/// Refuses an offer that would start a call while this server starts none.
fn ensure_accepting(state: &AppState, row: &Row) -> Result<(), ApiError> {
    if state.is_draining() && row.status != IN_PROGRESS {
        // The engine counts the rejected calls.
        let capacity_error = state.engine().reject_new_call();
        return Err(ApiError::NoCapacity(
            capacity_error.unwrap_or_else(|| "the server is shutting down".into()),
        ));
    }
    // A call that starts now would leave no record.
    if let Some(reason) = state.persistence_failure().filter(|_| row.status == STARTED) {
        return Err(ApiError::StoreUnwritable(reason));
    }
    Ok(())
}

/// Refuses to start a call whose models are not installed. It is no lack of capacity: the same
/// request does not succeed later.
fn ensure_models(state: &AppState, row: &Row, config: &CallConfig) -> Result<(), ApiError> {
    if row.status != STARTED {
        return Ok(());
    }
    let obstacle = state.engine().call_obstacle(&config.stt, &config.tts);
    obstacle.map_or(Ok(()), |reason| Err(ApiError::Unavailable(reason)))
}

/// A call that this server may start.
struct ClaimedCall {
    row: Row,
    config: Arc<CallConfig>,
    commands: Vec<Command>,
    quota_taken: bool,
}

/// Claims a conversation whose call starts on this server without an offer, or continues there. No
/// other server holds it.
async fn claim_call(state: &AppState, row: &Row, venue: Venue) -> Result<ClaimedCall, ApiError> {
    let not_found = || ApiError::NotFound(Resource::Conversation);
    let row = state.store.conversation_in_any_workspace(&row.id).await?.ok_or_else(not_found)?;
    if row.status == ENDED {
        return Err(ApiError::Conflict("Conversation has ended".into()));
    }
    ensure_accepting(state, &row)?;
    let is_new = row.status == STARTED;
    let duration = clock::to_micros(state.config.timeouts.offer);
    if is_new
        && state.store.is_shared()
        && !state.store.claim_conversation(&row.id, &state.server_id, duration).await?
    {
        return Err(ApiError::NoCapacity("another server runs the call".into()));
    }
    let config = call_config::build_shared(state, &row, venue).await?;
    ensure_models(state, &row, &config)?;
    let quota_taken = quota::reserve_call(state, &row).await?;
    let mut commands = Vec::new();
    if is_new {
        if venue == Venue::Room {
            commands.extend(prompt::visitor_context_command(&row, config.trust_client_context));
        }
        commands.extend(state.store.queued_commands(&row.id).await?);
    }
    Ok(ClaimedCall { row, config, commands, quota_taken })
}

/// Opens a connection that carries samples: starts the call on this server, or moves it there.
/// `rates`: of what the call hears and says, in Hz.
pub(super) async fn open_audio(
    state: &AppState,
    row: &Row,
    rates: (u32, u32),
) -> Result<Box<dyn AudioLine>, ApiError> {
    let ClaimedCall { row, config, commands, quota_taken } =
        claim_call(state, row, Venue::Direct).await?;
    let (input_rate, output_rate) = rates;
    let offer = AudioOffer { config, commands, input_rate, output_rate };
    let opened = state.engine().open_audio(offer).await;
    if opened.is_err() && quota_taken {
        state.connecting_calls.release(&row.id);
    }
    opened.map_err(to_api_error)
}

/// Lets the agent of a conversation join a LiveKit room: starts the call on this server, or moves it
/// there.
pub(crate) async fn join_room(
    state: &AppState,
    row: &Row,
    access: RoomAccess,
    reservation: Option<CallReservation>,
) -> Result<RoomSession, ApiError> {
    let ClaimedCall { row, config, commands, quota_taken } =
        claim_call(state, row, Venue::Room).await?;
    let offer = RoomOffer { config, commands, access, reservation };
    let joined = state.engine().join_room(offer).await;
    if joined.is_err() {
        if quota_taken {
            state.connecting_calls.release(&row.id);
        }
        if row.status == STARTED && state.store.is_shared() {
            state.store.release_claim(&row.id, &state.server_id).await?;
        }
    }
    joined.map_err(to_api_error)
}

/// Submits an offer to the engine of this server.
pub(super) async fn accept_offer(
    state: &AppState,
    row: &Row,
    offer: ClientOffer,
) -> Result<AcceptedOffer, ApiError> {
    ensure_accepting(state, row)?;
    let config = call_config::build_shared(state, row, Venue::Direct).await?;
    ensure_models(state, row, &config)?;
    let quota_taken = quota::reserve_call(state, row).await?;
    let mut commands = Vec::new();
    if row.status == STARTED {
        commands.extend(prompt::visitor_context_command(row, config.trust_client_context));
        commands.extend(state.store.queued_commands(&row.id).await?);
    }
    let id = config.id;
    let accepted =
        offer_to_engine(state, row, offer, config, commands).await.inspect_err(|_| {
            if quota_taken {
                state.connecting_calls.release(&row.id);
            }
        })?;
    if row.status == STARTED {
        state.pending_offers.insert(id);
    }
    Ok(accepted)
}

async fn offer_to_engine(
    state: &AppState,
    row: &Row,
    offer: ClientOffer,
    config: Arc<CallConfig>,
    commands: Vec<Command>,
) -> Result<AcceptedOffer, ApiError> {
    let ClientOffer { sdp, replaces, restart, network } = offer;
    let caller = Caller { network, agent: row.agent.clone() };
    let call = RunningCall { row: row.clone(), config: Arc::clone(&config) };
    let id = config.id;
    let offer = Offer { config, sdp, replaces, restart, commands, caller };
    let accepted = state.engine().accept_offer(offer).await.map_err(to_api_error)?;
    state.connections.insert(id, &accepted.connection, call);
    Ok(accepted)
}
