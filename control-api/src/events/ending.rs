//! Ends of conversations that the engine does not end: not joined, or their server has died.

use conversation::event::{EndReason, Event, HistoryItem, Role};
use conversation::view::ConversationView;

use super::{append, append_in};
use crate::clock::{self, Micros};
use crate::state::event_storage::EventStorage;
use crate::store::conversation::{IN_PROGRESS, STARTED};
use crate::store::{self, Lock, ownership};

/// Warning of a conversation in a meeting whose server or call has failed: the meeting itself goes
/// on, so its people ask why the agent has left.
const CALL_FAILED: &str = "The server that ran the call stopped or failed.";

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
    if row.meeting.is_some() {
        events.push(Event::Warning { text: CALL_FAILED.to_owned() });
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

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use tokio::sync::{broadcast, mpsc};

    use super::*;
    use crate::store::conversation::{self, Draft};
    use crate::store::ownership::Holder;
    use crate::store::{DatabaseLocation, Store};

    const CALL: &str = "0193a5b0-0000-7000-8000-000000000001";

    /// The events of a conversation whose server has died.
    async fn recovered_events(meeting: Option<&str>) -> Vec<Event> {
        let name = format!("visavis-ending-{}-{}.db", std::process::id(), meeting.is_some());
        let file = std::env::temp_dir().join(name);
        let store = Store::open(DatabaseLocation::File(&file)).await.unwrap();
        let server: Arc<str> = "here".into();
        let storage = EventStorage {
            store: store.clone(),
            server_id: Arc::clone(&server),
            holder: Holder { server, epoch: 1 },
            first_attempt_delay: Duration::ZERO,
            outbox: mpsc::unbounded_channel().0,
            guardrail_callbacks: mpsc::unbounded_channel().0,
            commits: broadcast::channel(8).0,
            connections: Arc::default(),
        };
        let mut tx = store.begin_write(Lock::Rows).await.unwrap();
        let agent_document = r#"{"agent_name": "n", "agent_system_prompt": "p"}"#;
        let draft = Draft { meeting, agent_document, ..Draft::of_test(CALL, "here") };
        conversation::insert(&mut tx, &draft).await.unwrap();
        sqlx::query("UPDATE conversation SET status = 'IN_PROGRESS'")
            .execute(&mut *tx)
            .await
            .unwrap();
        tx.commit().await.unwrap();
        recover_conversation(&storage, CALL).await.unwrap();
        let events = store.events(CALL, 0).await.unwrap();
        drop((store, storage));
        let _ = std::fs::remove_file(file);
        events.into_iter().map(|envelope| envelope.event).collect()
    }

    #[tokio::test]
    async fn the_end_of_a_failed_call_has_a_warning_if_it_was_in_a_meeting() {
        let end = [Event::CallEnded, Event::Ended { reason: EndReason::Error }];
        assert_eq!(recovered_events(None).await, end);
        let warning = Event::Warning { text: CALL_FAILED.to_owned() };
        let expected = [std::slice::from_ref(&warning), end.as_slice()].concat();
        assert_eq!(recovered_events(Some("{}")).await, expected);
    }
}
