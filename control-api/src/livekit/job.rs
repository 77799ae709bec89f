//! One job: its metadata, its conversation, and the call in its room.

use std::sync::Arc;

use conversation::id::ConversationId;
use engine_api::{CallReservation, RoomAccess, RoomEnd};
use serde::Deserialize;
use serde_json::{Map, Value};

use super::rescue;
use crate::error::ApiError;
use crate::join::offers;
use crate::resources::conversations::{self, ContextValue, NewConversation};
use crate::state::AppState;
use crate::state::livekit::LiveKit;
use crate::state::livekit::rooms::{self, JobStep, RoomGuard};
use crate::store::conversation::{ENDED, Row};
use crate::store::{self, Lock, livekit_room};

/// Maximum size of a job's metadata, in bytes.
const MAX_METADATA_BYTES: usize = 64 * 1024;

/// Why a job failed, in one sentence.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{sentence}")]
pub(crate) struct JobError {
    sentence: String,
    /// What became of the job.
    step: JobStep,
}

impl From<ApiError> for JobError {
    fn from(error: ApiError) -> Self {
        let is_temporary = matches!(
            error,
            ApiError::NoCapacity(_)
                | ApiError::Unavailable(_)
                | ApiError::StoreOutage(_)
                | ApiError::StoreUnwritable(_)
                | ApiError::Internal(..)
        );
        let step = if is_temporary { JobStep::Refused } else { JobStep::Invalid };
        Self { sentence: error.sentence(), step }
    }
}

impl From<store::Error> for JobError {
    fn from(error: store::Error) -> Self {
        ApiError::from(error).into()
    }
}

fn fail(why: &str) -> JobError {
    JobError { sentence: why.to_owned(), step: JobStep::Invalid }
}

/// A job's metadata: who is called, and by whom. Only holders of the project's secret can write it.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Metadata {
    agent_id: Option<String>,
    user_id: Option<String>,
    user_name: Option<String>,
    context: Option<ContextValue>,
    meta_data: Option<Map<String, Value>>,
    /// A conversation that was created with its room.
    conversation_id: Option<String>,
    /// Session token of that conversation.
    token: Option<String>,
}

impl Metadata {
    fn parse(text: &str) -> Result<Self, JobError> {
        if text.len() > MAX_METADATA_BYTES {
            return Err(fail("The job's metadata are longer than 64 KiB"));
        }
        if text.trim().is_empty() {
            return Ok(Self::default());
        }
        // An array could be read as the fields in their order.
        let object: Result<Map<String, Value>, _> = serde_json::from_str(text);
        object.and_then(|object| serde_json::from_value(Value::Object(object))).map_err(|error| {
            fail(&format!("The job's metadata are not the expected JSON object: {error}"))
        })
    }
}

/// A room that an agent is asked to serve.
#[derive(Clone, Debug)]
pub(crate) struct RoomJob {
    /// Name of the room, and LiveKit's id of it.
    pub(crate) room: String,
    pub(crate) room_sid: String,
    /// Identity of the agent in the room.
    pub(crate) identity: String,
    pub(crate) metadata: String,
    /// Id of LiveKit's job; `None` if the agent joins without one.
    pub(crate) job: Option<String>,
    /// URL of the server, if the job names another one than the configuration.
    pub(crate) server_url: Option<String>,
}

/// Serves a room until its call has ended. `None` if it has an agent already. `reservation`:
/// the place of the call if one is reserved.
pub(crate) async fn serve(
    state: &Arc<AppState>,
    livekit: &Arc<LiveKit>,
    job: &RoomJob,
    reservation: Option<CallReservation>,
) -> Result<Option<RoomEnd>, JobError> {
    match RoomGuard::take(livekit, &job.room, job.job.as_deref()) {
        Some(guard) => serve_guarded(state, livekit, job, reservation, guard).await,
        None => Ok(None),
    }
}

/// Like [`serve`], for a room that this server has already marked as its own.
pub(super) async fn serve_guarded(
    state: &Arc<AppState>,
    livekit: &Arc<LiveKit>,
    job: &RoomJob,
    reservation: Option<CallReservation>,
    guard: RoomGuard,
) -> Result<Option<RoomEnd>, JobError> {
    livekit.rooms.note_step(&job.room, JobStep::Assigned);
    let served = serve_once(state, livekit, job, reservation, &guard).await;
    if let Err(error) = &served {
        livekit.rooms.note_step(&job.room, error.step);
    }
    drop(guard);
    served
}

async fn serve_once(
    state: &Arc<AppState>,
    livekit: &Arc<LiveKit>,
    job: &RoomJob,
    reservation: Option<CallReservation>,
    guard: &RoomGuard,
) -> Result<Option<RoomEnd>, JobError> {
    // Another server may have been asked too, or has looked at the room at the same time.
    if state.store.is_shared() && state.store.has_agent(&job.room_sid).await? {
        return Ok(None);
    }
    let is_reserved = reservation.is_some();
    let row = find_or_create_conversation(state, livekit, job, is_reserved).await?;
    if !job.room_sid.is_empty() {
        let mut tx = state.store.begin_write(Lock::Rows).await?;
        let is_ours = livekit_room::insert(&mut tx, &job.room_sid, &row.id).await?;
        tx.commit().await?;
        if !is_ours {
            return Ok(None);
        }
    }
    if let Ok(id) = row.id.parse::<ConversationId>() {
        guard.set_conversation(id);
    }
    let is_own_room = rooms::conversation_of_name(&job.room) == Some(&row.id);
    tracing::info!(conversation = row.id, room = job.room, "an agent joins a LiveKit room");
    let session = offers::join_room(state, &row, access(livekit, job, &row), reservation).await?;
    let end = session.ended.await;
    tracing::info!(
        conversation = row.id,
        room = job.room,
        ?end,
        "an agent has left a LiveKit room"
    );
    // The room of a call ends with it, so that no client stays behind.
    if is_own_room
        && end == RoomEnd::CallEnded
        && let Err(error) = livekit.api.delete_room(&job.room).await
    {
        tracing::warn!(room = job.room, %error, "cannot close the room of an ended call");
    }
    match end {
        RoomEnd::Failed(sentence) => Err(JobError { sentence, step: JobStep::Failed }),
        end => Ok(Some(end)),
    }
}

async fn find_or_create_conversation(
    state: &AppState,
    livekit: &LiveKit,
    job: &RoomJob,
    is_reserved: bool,
) -> Result<Row, JobError> {
    let metadata = Metadata::parse(&job.metadata)?;
    if let Some(id) = &metadata.conversation_id {
        // The room's name or the token proves that the conversation was made for it.
        let token = metadata.token.as_deref().and_then(|token| state.token_signer.verify(token));
        let has_token = token.is_some_and(|claims| claims.sub.to_string() == *id);
        if rooms::conversation_of_name(&job.room) != Some(id) && !has_token {
            return Err(fail("The job's conversation_id does not belong to this room"));
        }
        let row = state.store.conversation_in_any_workspace(id).await?;
        let row = row.ok_or_else(|| fail("Conversation details not found"))?;
        if rescue::has_failed(&row) {
            // The caller is still there: the same agent begins anew.
            let workspace = row.workspace.clone();
            return create_record(state, &workspace, &again(row), is_reserved).await;
        }
        if row.status == ENDED {
            return Err(fail("Conversation has ended"));
        }
        return Ok(row);
    }
    let agent = metadata.agent_id.or_else(|| livekit.config.default_agent.clone());
    let agent = agent.ok_or_else(|| {
        fail("The job's metadata name no agent_id, and livekit.default_agent is not set")
    })?;
    let non_empty = |text: Option<String>| text.filter(|text| !text.is_empty());
    let new = NewConversation {
        agent,
        user_name: non_empty(metadata.user_name),
        user_id: non_empty(metadata.user_id),
        context: metadata.context.map(|context| context.to_json()),
        from_visitor: false,
        meta_data: metadata.meta_data.map(|data| Value::Object(data).to_string()),
        meeting: None,
    };
    create_record(state, &livekit.workspace, &new, is_reserved).await
}

async fn create_record(
    state: &AppState,
    workspace: &str,
    new: &NewConversation,
    is_reserved: bool,
) -> Result<Row, JobError> {
    Ok(match is_reserved {
        true => conversations::create_reserved_record(state, workspace, new).await?,
        false => conversations::create_record(state, workspace, new).await?,
    })
}

/// A conversation like one whose server has failed.
fn again(row: Row) -> NewConversation {
    NewConversation {
        agent: row.agent,
        user_name: row.user_name,
        user_id: row.user_id,
        context: row.context,
        from_visitor: row.from_visitor != 0,
        meta_data: row.meta_data,
        meeting: None,
    }
}

fn access(livekit: &Arc<LiveKit>, job: &RoomJob, row: &Row) -> RoomAccess {
    let (livekit, room, identity) = (Arc::clone(livekit), job.room.clone(), job.identity.clone());
    let server_url = job.server_url.clone().unwrap_or_else(|| livekit.config.url.clone());
    let name = row.agent_name.clone();
    let token = move || {
        livekit.tokens.agent(&room, &identity, &name).unwrap_or_else(|error| {
            tracing::error!(%error, "cannot make a token");
            String::new()
        })
    };
    RoomAccess {
        server_url,
        room: job.room.clone(),
        token: Arc::new(token),
        created_unix_ms: u64::try_from(row.created_at / 1_000).unwrap_or_default(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metadata_may_be_empty_but_not_malformed() {
        assert!(Metadata::parse("").unwrap().agent_id.is_none());
        assert!(Metadata::parse(" \n").unwrap().agent_id.is_none());
        let parsed = Metadata::parse(r#"{"agent_id": "a", "other": 1, "context": {"x": 1}}"#);
        assert_eq!(parsed.unwrap().agent_id.as_deref(), Some("a"));
        for malformed in ["{", "[]", "7", r#"{"agent_id": 7}"#, r#"{"meta_data": "x"}"#] {
            let error = Metadata::parse(malformed).err().unwrap();
            assert!(
                error.sentence.starts_with("The job's metadata are not"),
                "{malformed}: {error}"
            );
        }
        let long = format!(r#"{{"agent_id": "{}"}}"#, "x".repeat(MAX_METADATA_BYTES));
        assert!(Metadata::parse(&long).err().unwrap().sentence.contains("64 KiB"));
    }
}
