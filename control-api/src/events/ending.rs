//! Ends of conversations that the engine does not end: not joined, or their server has died.

use conversation::event::{EndReason, Event, HistoryItem, Role};
use conversation::view::ConversationView;

use super::{append, append_in};
use crate::clock::{self, Micros};
use crate::state::event_storage::EventStorage;
use crate::store::conversation::{IN_PROGRESS, STARTED};
use crate::store::{self, Lock, ownership};

/// Ends a conversation that was not joined, after a warning if there is one, and emits `call_ended`
/// for it too. False if it was not in that state.
pub(crate) async fn end_unjoined(
    storage: &EventStorage,
    id: &str,
    reason: EndReason,
    warning: Option<Event>,
) -> store::Result<bool> {
    let now = clock::now();
    let events = warning.into_iter().chain([Event::CallEnded, Event::Ended { reason }]);
    append(storage, id, STARTED, events.map(|event| (now, event)).collect()).await
}

/// Ends a conversation whose server or call has failed, with the last utterance of the agent as far
/// as it was heard. Its process adds no events any more. Does nothing if the conversation is not
/// running, or runs on another server that is alive.
pub(crate) async fn recover_conversation(storage: &EventStorage, id: &str) -> store::Result<()> {
    let mut tx = storage.store.begin_write(Lock::Rows).await?;
    let locked = ownership::lock(&mut tx, &[id]).await?;
    let Some(locked) = locked.get(id).filter(|locked| locked.status == IN_PROGRESS) else {
        return Ok(());
    };
    // It may have come back since it was declared lost.
    if *locked.server != *storage.server_id && storage.store.is_server_alive(&locked.server).await?
    {
        return Ok(());
    }
    let Some(row) = storage.store.conversation_in_any_workspace(id).await? else { return Ok(()) };
    let mut view = ConversationView::default();
    for envelope in storage.store.events(id, 0).await? {
        view.apply(&envelope);
    }
    // Nothing is known of the time after the last event, so the call ends at that event.
    let at = row
        .joined_at
        .unwrap_or(row.created_at)
        .saturating_add(Micros::try_from(view.last_event_at.as_micros()).unwrap_or(0));
    let mut events = Vec::new();
    if let Some(item) = view.speaking_item.as_ref() {
        let utterance = item.utterance.unwrap_or_default();
        events.push(Event::AgentStoppedSpeaking { text: item.text.clone(), utterance });
        if !item.text.is_empty() {
            events.push(Event::History(HistoryItem {
                role: Role::Assistant,
                speaker: None,
                name: None,
                arguments: None,
                text: item.text.clone(),
                interrupted: true,
                utterance: Some(utterance),
                started_at: Some(item.started_at),
                ended_at: None,
                in_context: true,
            }));
        }
    }
    events.extend([Event::CallEnded, Event::Ended { reason: EndReason::Error }]);
    let events = events.into_iter().map(|event| (at, event)).collect();
    let appended = append_in(storage, &mut tx, id, IN_PROGRESS, events).await?;
    ownership::fence(&mut tx, id).await?;
    tx.commit().await?;
    tracing::warn!(conversation = %id, "conversation ended: its server or call failed");
    if let Some(appended) = appended {
        appended.publish(storage);
    }
    Ok(())
}
