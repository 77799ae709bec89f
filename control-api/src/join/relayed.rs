//! Executes the requests of other servers about calls of this one.

use std::sync::Arc;

use conversation::id::ConversationId;

use super::hang_up::hang_up;
use super::offers;
use crate::error::ApiError;
use crate::state::AppState;
use crate::state::relay::{ClientOffer, RelayedReply, RelayedRequest};
use crate::store::conversation::{ENDED, STARTED};

/// Executes a request.
pub(crate) async fn execute(state: Arc<AppState>, request: RelayedRequest) -> RelayedReply {
    // The router sets the engine, which may be later than the first request.
    if state.engine.get().is_none() {
        return RelayedReply::NotRunning;
    }
    match request {
        RelayedRequest::Command { conversation, command } => {
            let outcome = state.send_command(conversation, command).await;
            outcome.map_or(RelayedReply::NotRunning, RelayedReply::Command)
        }
        RelayedRequest::HangUp { conversation, connection } => {
            hang_up(&state, conversation, connection)
                .await
                .map_or_else(|error| RelayedReply::Refused(error.into()), RelayedReply::HungUp)
        }
        RelayedRequest::Offer { conversation, offer } => accept_offer(&state, conversation, offer)
            .await
            .unwrap_or_else(|error| RelayedReply::Refused(error.into())),
    }
}

async fn accept_offer(
    state: &AppState,
    conversation: ConversationId,
    offer: ClientOffer,
) -> Result<RelayedReply, ApiError> {
    let row = state.store.conversation_in_any_workspace(&conversation.to_string()).await?;
    let Some(row) = row.filter(|row| row.server == *state.server_id) else {
        return Ok(RelayedReply::NotRunning);
    };
    if row.status == ENDED || state.events.has_panicked(conversation) {
        return Err(ApiError::Conflict("Conversation has ended".into()));
    }
    if state.is_draining() && row.status == STARTED {
        // The other server may start the call.
        return Ok(RelayedReply::NotRunning);
    }
    let accepted = offers::accept_offer(state, &row, offer).await?;
    Ok(RelayedReply::Answer { sdp: accepted.answer, connection: accepted.connection })
}
