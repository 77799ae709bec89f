//! Recordings: delivery after the call, storage, links, and deletion.
//!
//! ```text
//! engine: ID.recorded --> delivery (child process) --> storing (upload) --> storage
//!                            |                            ^                    |
//!                            +--> conversion (for MP4) ---+                    |
//!                             media (local folder), or a link to the storage <-+
//! ```

pub(crate) mod child;
pub(crate) mod conversion;
pub(crate) mod delivery;
pub(crate) mod files;
pub(crate) mod media;
pub(crate) mod storing;
pub(crate) mod worker;

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::{delete, get};
use conversation::event::Event;
use conversation::id::ConversationId;
use schemars::JsonSchema;
use serde::Serialize;
use tokio::sync::Notify;

use self::files::MP4;
use crate::clock::{self, Micros};
use crate::error::{ApiError, Resource};
use crate::events::{self, record};
use crate::http::auth::ApiCaller;
use crate::http::extract::Path;
use crate::resources::conversations::find_conversation;
use crate::resources::videos::{Captions, VideoFormat};
use crate::state::AppState;
use crate::state::event_storage::EventStorage;
use crate::store::agent::RecordingFormat;
use crate::store::conversation::{ENDED, Row as Conversation};
use crate::store::recording::{self as table, DELETING};
use crate::store::{self, Lock};

/// Why no video can be made without models.
const NO_MODELS: &str = "This server has no models.";
/// Maximum delay between two attempts.
const MAX_RETRY_DELAY: Duration = Duration::from_secs(600);
/// Delay after a failure of the store.
const STORE_RETRY_DELAY: Duration = Duration::from_secs(10);
/// Maximum interval between two looks at recordings that are not due yet.
pub(crate) const POLL_INTERVAL: Duration = Duration::from_secs(5);
/// Interval between two looks without a notification: another server may have erased something.
const IDLE_INTERVAL: Duration = Duration::from_secs(30);

/// Waits until a task may have something to do again. `is_more`: whether something is waiting.
pub(crate) async fn pause(
    what: &str,
    is_more: store::Result<bool>,
    retry_delay: Duration,
    notification: &Notify,
) {
    let wait = match is_more {
        Ok(true) => retry_delay.min(POLL_INTERVAL),
        Ok(false) => IDLE_INTERVAL,
        Err(error) => {
            tracing::error!(what, %error, "cannot process a queue");
            STORE_RETRY_DELAY
        }
    };
    // A timeout is no failure.
    let _ = tokio::time::timeout(wait, notification.notified()).await;
}

pub(crate) fn routes() -> Router<Arc<AppState>> {
    Router::new()
        .route("/v1/ext/conversation/{id}/recording", delete(remove))
        .route("/v1/ext/capabilities", get(capabilities))
}

/// Name of a recording in the storage.
fn storage_key(id: ConversationId, format: &str) -> String {
    format!("recordings/{id}.{format}")
}

/// Name under which a browser stores a recording.
fn file_name(id: ConversationId, format: &str) -> String {
    format!("{id}.{format}")
}

fn content_type(format: &str) -> &'static str {
    if format == MP4 { "video/mp4" } else { "video/webm" }
}

/// Delay before the next attempt, after this many failed ones.
pub(crate) fn retry_delay(first: Duration, failed: i64) -> Duration {
    let doublings = u32::try_from(failed.clamp(0, 16)).unwrap_or(0);
    first.saturating_mul(1 << doublings).min(MAX_RETRY_DELAY.max(first))
}

/// What this server can do, and what depends on its machine.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Capabilities {
    recording: RecordingCapability,
    video: VideoCapability,
}

/// Whether videos can be made, and how.
#[derive(Serialize, JsonSchema)]
struct VideoCapability {
    available: bool,
    /// Why not.
    reason: Option<String>,
    /// `mp4` needs ffmpeg.
    formats: Vec<VideoFormat>,
    /// `burned` needs ffmpeg.
    captions: Vec<Captions>,
}

/// Whether calls can be recorded, and their recordings can be stored.
#[derive(Serialize, JsonSchema)]
struct RecordingCapability {
    available: bool,
    /// Why not.
    reason: Option<String>,
    /// The formats that an agent can ask for. Without `mp4`, its recordings are WebM.
    formats: Vec<RecordingFormat>,
}

async fn capabilities(
    State(state): State<Arc<AppState>>,
    _: ApiCaller,
) -> Result<axum::Json<Capabilities>, ApiError> {
    let reason = match state.engine().recording_error() {
        Some(reason) => Some(reason),
        None => storage_warning(&state).await?,
    };
    let mp4 = state.config.recordings.ffmpeg.is_some().then_some(RecordingFormat::Mp4);
    let recording = RecordingCapability {
        available: reason.is_none(),
        reason,
        formats: [RecordingFormat::Webm].into_iter().chain(mp4).collect(),
    };
    let has_ffmpeg = state.config.recordings.ffmpeg.is_some();
    let reason = state.config.registry.is_none().then(|| NO_MODELS.to_owned());
    let video = VideoCapability {
        available: reason.is_none(),
        reason,
        formats: [VideoFormat::Webm]
            .into_iter()
            .chain(has_ffmpeg.then_some(VideoFormat::Mp4))
            .collect(),
        captions: [Captions::None, Captions::Vtt]
            .into_iter()
            .chain(has_ffmpeg.then_some(Captions::Burned))
            .collect(),
    };
    Ok(axum::Json(Capabilities { recording, video }))
}

/// Why recordings of this server do not get into the storage now, in one sentence; `None` if they
/// do.
pub(crate) async fn storage_warning(state: &AppState) -> store::Result<Option<String>> {
    let error = state.store.upload_error(&state.server_id).await?;
    let sentence =
        |error| format!("Recordings cannot be stored now and wait on the server: {error}.");
    Ok(error.map(sentence))
}

/// Deletes every copy of a recording. Clients do not see it from now on; a copy that cannot be
/// removed at once is removed later.
async fn remove(
    State(state): State<Arc<AppState>>,
    caller: ApiCaller,
    Path(id): Path<String>,
) -> Result<StatusCode, ApiError> {
    let row = find_conversation(&state, &caller, &id).await?;
    if row.status != ENDED {
        return Err(ApiError::Conflict("Conversation has not ended".into()));
    }
    if !begin_deletion(&state, &row).await? {
        return Err(ApiError::NotFound(Resource::Recording));
    }
    state.recordings.begin_deletion();
    Ok(StatusCode::NO_CONTENT)
}

/// False if there is no recording.
async fn begin_deletion(state: &AppState, row: &Conversation) -> Result<bool, ApiError> {
    let now = clock::now();
    let mut tx = state.store.begin_write(Lock::Rows).await?;
    let mut exists = table::begin_deletion(&mut tx, &row.id, now).await?;
    if !exists && record::load_projection(state, row).await?.is_recorded {
        // The server that ran the call has not found the file yet.
        exists = table::insert(&mut tx, &row.id, &row.server, DELETING, now).await?;
    }
    tx.commit().await?;
    Ok(exists)
}

/// Appends a warning to the events of a conversation that has ended. `Appended` is to be published
/// after the transaction.
async fn append_warning(
    event_storage: &EventStorage,
    tx: &mut store::Transaction,
    conversation: &str,
    text: String,
    now: Micros,
) -> store::Result<Option<events::Appended>> {
    let warning = vec![(now, Event::Warning { text })];
    events::append_in(event_storage, tx, conversation, ENDED, warning).await
}

/// Gives a recording up, with a warning. The caller has flushed the events that precede it.
async fn give_up(
    event_storage: &EventStorage,
    conversation: &str,
    reason: &str,
    warning: String,
) -> store::Result<()> {
    let mut tx = event_storage.store.begin_write(Lock::Rows).await?;
    let now = clock::now();
    let warning = match table::mark_failed(&mut tx, conversation, reason, now).await? {
        true => append_warning(event_storage, &mut tx, conversation, warning, now).await?,
        false => None,
    };
    tx.commit().await?;
    if let Some(warning) = warning {
        warning.publish(event_storage);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attempts_are_repeated_ever_later_and_at_least_every_ten_minutes() {
        let delay = |failed| retry_delay(Duration::from_secs(10), failed).as_secs();
        assert_eq!([0, 1, 2, 5, 6, 1_000_000].map(delay), [10, 20, 40, 320, 600, 600]);
    }
}
