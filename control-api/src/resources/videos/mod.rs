//! Videos of a text or of a sound: `/v1/ext/video`.
//!
//! ```text
//! POST ---> QUEUED --- picture drawn ---> worker ---------------------> storing ---> COMPLETED
//!              |       (variant)            |  hosted voice: speech        |
//!              |                            |  child process: film         v
//!              |                            |  ffmpeg: MP4, captions    storage
//!              |                            +---> FAILED
//!              +---> audio: in the data folder of the server that received it
//! ```

mod child;
mod create;
mod document;
pub(crate) mod files;
mod form;
mod links;
mod picture;
mod record;
pub(crate) mod request;
mod speech;
pub(crate) mod storing;
mod voice;
pub(crate) mod webhook;
pub(crate) mod worker;

use std::sync::Arc;

use axum::Router;
use axum::extract::{DefaultBodyLimit, State};
use axum::routing::{get, post};
use serde_json::json;

pub(crate) use self::document::{Captions, VideoFormat};
pub(crate) use self::record::{CreatedVideo, ListedVideo, VideoRecord};
pub(crate) use self::request::VideoRequest;
use crate::clock;
use crate::error::{ApiError, Resource};
use crate::http::auth::ApiCaller;
use crate::http::extract::{BaseUrl, ListResponse, PageQuery, Path};
use crate::http::responses::{Done, JsonResult};
use crate::state::AppState;
use crate::store::video::{self as table, COMPLETED, FAILED, PROCESSING, QUEUED};
use crate::store::{self, Lock};

const NOT_FOUND: ApiError = ApiError::NotFound(Resource::Video);
const UNKNOWN_STATUS: &str = "must be one of queued, processing, completed, failed";

pub(crate) fn routes() -> Router<Arc<AppState>> {
    let create = post(create::create).layer(DefaultBodyLimit::max(form::MAX_FORM_BYTES));
    Router::new()
        .route("/v1/ext/video", create)
        .route("/v1/ext/videos", get(list))
        .route("/v1/ext/video/{id}", get(read).delete(remove))
}

async fn list(
    State(state): State<Arc<AppState>>,
    caller: ApiCaller,
    BaseUrl(base): BaseUrl,
    PageQuery(page): PageQuery<false>,
) -> Result<ListResponse, ApiError> {
    let is_status = |kind: &String| {
        [QUEUED, PROCESSING, COMPLETED, FAILED].iter().any(|known| known.to_lowercase() == *kind)
    };
    if page.kind.as_ref().is_some_and(|kind| !is_status(kind)) {
        return Err(ApiError::invalid_field("type", UNKNOWN_STATUS));
    }
    let (rows, total) = state.store.video_page(&caller.workspace, &page).await?;
    let mut items = Vec::with_capacity(rows.len());
    for row in &rows {
        items.push(json!(record::list_item(&state, row, &base).await?));
    }
    Ok(ListResponse(items, total))
}

async fn read(
    State(state): State<Arc<AppState>>,
    caller: ApiCaller,
    BaseUrl(base): BaseUrl,
    Path(id): Path<String>,
) -> JsonResult<VideoRecord> {
    let id = store::normalize_id(&id).ok_or(NOT_FOUND)?;
    let row = state.store.video(&caller.workspace, &id).await?.ok_or(NOT_FOUND)?;
    Ok(axum::Json(record::record(&state, &row, &base).await?))
}

/// Deletes a video in any status. Clients do not see it from now on; a copy that cannot be removed
/// at once is removed later.
async fn remove(
    State(state): State<Arc<AppState>>,
    caller: ApiCaller,
    Path(id): Path<String>,
) -> JsonResult<Done> {
    let id = store::normalize_id(&id).ok_or(NOT_FOUND)?;
    let mut tx = state.store.begin_write(Lock::Workspace(&caller.workspace)).await?;
    let found = table::begin_deletion(&mut tx, Some(&caller.workspace), &id, clock::now()).await?;
    tx.commit().await?;
    if !found {
        return Err(NOT_FOUND);
    }
    state.videos.begin_deletion();
    Ok(axum::Json(Done { id, message: "Video deleted successfully" }))
}
