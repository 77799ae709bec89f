//! What follows from the reports of a meeting service. Reports come late, twice and out of order, by
//! webhook and by poll: a status that is not later than the known one changes nothing.

use conversation::event::{EndReason, Event, MeetingStatus};
use conversation::id::ConversationId;
use conversation::input::Command;

use crate::clock::{self, Micros};
use crate::events::{self, ending, record};
use crate::meeting_services::{Detail, Report};
use crate::state::AppState;
use crate::state::call_commands::CallCommands;
use crate::state::event_queue::EventQueue;
use crate::state::event_storage::EventStorage;
use crate::store::conversation::{ENDED, IN_PROGRESS};
use crate::store::meeting::{self, Person};
use crate::store::{self, Lock};

/// Reports that are older are not passed to the call, which forgets who spoke after a minute.
const MAX_SPEAKER_AGE: Micros = 60_000_000;

/// Maximum number of people that are remembered. The largest meetings have a thousand.
const MAX_PEOPLE: usize = 5_000;
/// The end reason of a conversation that lost its page or socket.
const FAILED: &str = record::end_reason_name(EndReason::Error);

/// Applies reports. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Lifecycle {
    pub(super) event_storage: EventStorage,
    events: EventQueue,
    calls: CallCommands,
}

impl Lifecycle {
    pub(crate) fn of(state: &AppState) -> Self {
        Self {
            event_storage: state.event_storage.clone(),
            events: state.events.clone(),
            calls: state.call_commands(),
        }
    }

    /// Applies one report about the bot of a conversation.
    pub(super) async fn apply(&self, id: &str, report: Report) -> store::Result<()> {
        match report {
            Report::Status { status, detail } => self.set_status(id, status, detail, None).await,
            Report::Speaker { name, is_speaking, at } => {
                let age = (clock::now() - at).max(0);
                if age <= MAX_SPEAKER_AGE {
                    let age_ms = u64::try_from(age / 1_000).unwrap_or(0);
                    self.send(id, Command::Speaker { name, is_speaking, age_ms }).await;
                }
                Ok(())
            }
            Report::Joined { id: person, name, at } => {
                let known = Person { name, is_present: true, at };
                self.person_changed(id, person, known).await
            }
            Report::Left { id: person, at } => {
                let known = Person { name: String::new(), is_present: false, at };
                self.person_changed(id, person, known).await
            }
        }
    }

    /// Records where the bot is, and ends the conversation when it is not in the meeting any more.
    /// `warning`: why, if that is more exact than the warning of the detail.
    pub(super) async fn set_status(
        &self,
        id: &str,
        status: MeetingStatus,
        detail: Option<Detail>,
        warning: Option<&str>,
    ) -> store::Result<()> {
        let storage = &self.event_storage;
        // An end from outside, such as a DELETE, has no reason in the meeting.
        let conversation = storage.store.conversation_in_any_workspace(id).await?;
        let mut tx = storage.store.begin_write(Lock::Rows).await?;
        let Some(row) = meeting::lock(&mut tx, id).await? else { return Ok(()) };
        if !is_later(row.status(), status) {
            // Only some reports of an end have its cause, and they may come later.
            if let Some(detail) = detail.filter(|detail| detail.refines(row.detail.as_deref())) {
                meeting::refine_detail(&mut tx, id, detail.as_str()).await?;
                tx.commit().await?;
            }
            return Ok(());
        }
        let detail = match conversation.filter(|row| row.status == ENDED) {
            None => detail,
            Some(row) if row.end_reason.as_deref() == Some(FAILED) => Some(Detail::ServiceError),
            Some(_) => None,
        };
        let detail = detail.map(Detail::as_str).filter(|_| status.is_over());
        meeting::set_status(&mut tx, id, status, detail).await?;
        tx.commit().await?;
        tracing::info!(conversation = id, status = status.as_str(), detail, "meeting status");
        let event =
            Event::MeetingStatus { status, detail: row.detail.clone().or(detail.map(Into::into)) };
        self.emit(id, event).await?;
        // Streams of a conversation that has no events yet read the status itself.
        if let Ok(id) = id.parse() {
            let _ = storage.commits.send(id);
        }
        if status.is_over() {
            self.end(id, row.detail.as_deref().or(detail), warning).await?;
        }
        Ok(())
    }

    /// Ends the conversation of a bot that does not exist, with a warning of its own.
    pub(super) async fn fail(&self, id: &str, detail: Detail, warning: Event) -> store::Result<()> {
        let storage = &self.event_storage;
        let mut tx = storage.store.begin_write(Lock::Rows).await?;
        meeting::set_status(&mut tx, id, MeetingStatus::Error, Some(detail.as_str())).await?;
        tx.commit().await?;
        ending::end_unjoined(storage, id, EndReason::Error, Some(warning)).await?;
        Ok(())
    }

    /// Adds an event to a conversation that has started, or has ended.
    async fn emit(&self, id: &str, event: Event) -> store::Result<()> {
        if self.send(id, Command::Emit { event: Box::new(event.clone()) }).await {
            return Ok(());
        }
        self.events.flush(&self.event_storage.store).await;
        // A conversation that was never joined has ended without a start, and takes no event.
        events::append(&self.event_storage, id, ENDED, vec![(clock::now(), event)]).await?;
        Ok(())
    }

    /// Ends the conversation of a bot that is not in the meeting any more. Does nothing if it has
    /// ended. `warning` replaces that of the detail.
    pub(super) async fn end(
        &self,
        id: &str,
        detail: Option<&str>,
        warning: Option<&str>,
    ) -> store::Result<()> {
        let detail = detail.and_then(Detail::from_name).unwrap_or(Detail::ServiceError);
        let reason = if detail.is_regular() { EndReason::MeetingEnded } else { EndReason::Error };
        let warning = warning.or(detail.warning());
        let warning = warning.map(|text| Event::Warning { text: text.to_owned() });
        let ended = ending::end_unjoined(&self.event_storage, id, reason, warning.clone()).await?;
        if ended {
            return Ok(());
        }
        if let Some(event) = warning {
            self.send(id, Command::Emit { event: Box::new(event) }).await;
        }
        self.send(id, Command::Stop { reason, exit_message: false }).await;
        Ok(())
    }

    /// Sends a command to the call. Returns whether it runs.
    async fn send(&self, id: &str, command: Command) -> bool {
        let Ok(conversation) = id.parse::<ConversationId>() else { return false };
        match self.calls.send(conversation, command).await {
            Ok(outcome) => outcome.is_some(),
            Err(error) => {
                tracing::warn!(conversation = id, ?error, "cannot reach the call of a meeting");
                false
            }
        }
    }

    /// A person came or left. A report that is older than the known one changes nothing.
    async fn person_changed(&self, id: &str, person: String, change: Person) -> store::Result<()> {
        let mut tx = self.event_storage.store.begin_write(Lock::Rows).await?;
        let Some(row) = meeting::lock(&mut tx, id).await? else { return Ok(()) };
        let mut people = row.people();
        let known = people.get(&person);
        // Of two reports of one instant, that of the leave counts.
        let is_older =
            |known: &Person| known.at > change.at || known.at == change.at && !known.is_present;
        if known.is_some_and(is_older) || people.len() >= MAX_PEOPLE {
            return Ok(());
        }
        // The report that the person came may be late.
        let has_left = !change.is_present && known.is_none_or(|known| known.is_present);
        let name = known.map(|known| known.name.clone()).unwrap_or_default();
        let change =
            if change.is_present { change } else { Person { name: name.clone(), ..change } };
        people.insert(person.clone(), change);
        let is_alone = people.values().all(|person| !person.is_present);
        let alone_since = match row.alone_since {
            _ if !is_alone => None,
            known @ Some(_) => known,
            None => Some(clock::now()),
        };
        meeting::set_people(&mut tx, id, &people, alone_since).await?;
        tx.commit().await?;
        if !has_left {
            return Ok(());
        }
        if !name.is_empty() {
            // Who has left does not speak any more.
            self.send(id, Command::Speaker { name, is_speaking: false, age_ms: 0 }).await;
        }
        let conversation = self.event_storage.store.conversation_in_any_workspace(id).await?;
        if conversation.is_some_and(|row| row.status == IN_PROGRESS) {
            let event = Event::ParticipantLeft { id: person };
            self.send(id, Command::Emit { event: Box::new(event) }).await;
        }
        Ok(())
    }
}

/// Whether a status follows the known one. The first end counts, and only its completion follows.
fn is_later(known: MeetingStatus, status: MeetingStatus) -> bool {
    match known {
        MeetingStatus::Left => status == MeetingStatus::Done,
        MeetingStatus::Done | MeetingStatus::Error => false,
        _ => status > known,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_never_goes_back() {
        use MeetingStatus::{Done, Error, InCall, Joining, Left, WaitingRoom};
        for (known, status) in [
            (Joining, WaitingRoom),
            (Joining, InCall),
            (WaitingRoom, InCall),
            (InCall, Left),
            (InCall, Error),
            (Joining, Error),
            (InCall, Done),
            (Left, Done),
        ] {
            assert!(is_later(known, status), "{known:?} {status:?}");
        }
        for (known, status) in [
            (Joining, Joining),
            (InCall, WaitingRoom),
            (InCall, InCall),
            (Left, InCall),
            (Left, Error),
            (Done, Error),
            (Error, Done),
        ] {
            assert!(!is_later(known, status), "{known:?} {status:?}");
        }
    }
}
