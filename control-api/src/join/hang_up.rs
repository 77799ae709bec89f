//! The end of a connection by its client (WHIP DELETE).

use conversation::event::EndReason;
use conversation::id::ConversationId;
use conversation::input::Command;
use engine_api::HangUp;
use tracing::Instrument as _;

use crate::error::ApiError;
use crate::events::ending;
use crate::state::AppState;
use crate::store;

/// Closes a connection of this server; false if there is none with this name.
///
/// The last offer of a conversation that nobody has joined ends the conversation, because its user
/// has left: `call_ended` is sent, `participant_left` is not. The page of a meeting may come back.
pub(super) async fn hang_up(
    state: &AppState,
    conversation: ConversationId,
    connection: String,
) -> Result<bool, ApiError> {
    match state.engine().hang_up(conversation, connection).await {
        HangUp::NotFound => return Ok(false),
        HangUp::Closed => return Ok(true),
        HangUp::LastOffer => {}
    }
    let id = conversation.to_string();
    state.pending_offers.remove(conversation);
    state.connecting_calls.release(&id);
    let row = state.store.conversation_in_any_workspace(&id).await?;
    if row.is_none_or(|row| row.meeting.is_some()) {
        return Ok(true);
    }
    // A client that disconnects cancels its request, but a stored end must be announced.
    let storage = state.event_storage.clone();
    let ending =
        async move { ending::end_unjoined(&storage, &id, EndReason::UserLeft, None).await };
    let ended = tokio::spawn(ending.in_current_span()).await;
    if ended.unwrap_or(Err(store::Error::Panicked))? {
        // Another offer may have arrived meanwhile.
        state.send_command(conversation, Command::End).await;
    }
    Ok(true)
}
