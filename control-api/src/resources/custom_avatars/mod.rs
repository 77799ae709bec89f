//! Custom avatars: `/v2/custom-avatar`. A job creates an avatar, either from a character, which is
//! drawn ([`bake`]), or from a picture ([`photo_jobs`]). No renderer of pictures is installed, so
//! every job of that kind fails with that reason.
//!
//! ```text
//!            claim_job                finish_job
//!   QUEUED ------------> PROCESSING --------------> COMPLETED
//!     |                   |      |
//!     | picture           |      +-- claimed again after a stop, or by
//!     |                   |          another server after a crash
//!     +-----> FAILED <----+ drawing failed
//! ```

pub(crate) mod bake;
pub(crate) mod photo_jobs;
mod picture;

use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::routing::{get, post};
use serde_json::{Value, json};

use crate::clock;
use crate::error::{ApiError, Resource};
use crate::http::auth::ApiCaller;
use crate::http::extract::{Json, ListResponse, PageQuery, Path};
use crate::http::quota;
use crate::http::validate::{FieldErrors, Fields};
use crate::resources::characters;
use crate::state::AppState;
use crate::store::custom_avatar::{self as table, Draft, Row};
use crate::store::{self, new_id};

type JsonResult = Result<axum::Json<Value>, ApiError>;

const NOT_FOUND: ApiError = ApiError::NotFound(Resource::CustomAvatar);
/// Maximum body size: a picture of 9 MiB in base64, with some margin.
const MAX_BODY_BYTES: usize = 14 << 20;
/// Maximum length of a drawn avatar's name, and of its voice's name, in characters.
const MAX_NAME_CHARS: usize = 200;
/// The fields of a request with a character.
const DRAWN_AVATAR_FIELDS: [&str; 8] =
    ["avatar_name", "gender", "is_private", "character", "rest", "voice", "input_image", "landmarks"];
/// Maximum number of unfinished drawing jobs of one workspace, including those in progress: one
/// takes a minute.
const MAX_QUEUED_DRAWINGS: i64 = 8;

pub(crate) fn routes() -> Router<Arc<AppState>> {
    Router::new()
        .route("/v2/custom-avatar", post(create))
        .route("/v2/custom-avatars", get(list))
        .route("/v2/custom-avatar/{id}", get(read).delete(remove))
}

fn to_json(row: &Row) -> Value {
    let parsed = |text: &Option<String>| text.as_deref().and_then(|t| serde_json::from_str::<Value>(t).ok());
    let person = parsed(&row.character).unwrap_or_default();
    json!({
        "id": row.id,
        "job_id": row.job_id,
        // Known from the start, so that a client may store it; agents may reference it once there
        // is an output.
        "avatar_key_id": row.id,
        "avatar_id": row.id,
        "avatar_name": row.name,
        "gender": row.gender,
        "category": "custom",
        "status": row.status,
        "progress": row.progress,
        "is_private": row.is_private != 0,
        "character": person["character"],
        "rest": person["rest"],
        "voice": person["voice"],
        "output": parsed(&row.output),
        "error": row.error,
        "created_at": clock::to_iso8601(row.created_at),
        "updated_at": clock::to_iso8601(row.updated_at),
    })
}

/// The input of a new custom avatar.
#[derive(Debug)]
pub(crate) struct NewCustomAvatar {
    name: String,
    gender: String,
    is_private: bool,
    /// JSON, for a picture.
    picture_source: Option<String>,
    /// JSON, for a character.
    character: Option<String>,
}

pub(crate) fn parse_new_avatar(body: Value) -> Result<NewCustomAvatar, ApiError> {
    let errors = FieldErrors::default();
    let fields = Fields::body(body, &errors)?;
    let is_drawn = fields.raw("character").is_some_and(|c| !c.is_null());
    let name = if is_drawn {
        fields.required_with_max("avatar_name", MAX_NAME_CHARS)
    } else {
        fields.required("avatar_name")
    };
    if name.chars().any(char::is_control) {
        fields.add_error("avatar_name", "must not contain control characters");
    }
    if is_drawn {
        fields.reject_unknown(&DRAWN_AVATAR_FIELDS);
    }
    let gender = fields.required("gender");
    if !gender.is_empty() && !["male", "female"].contains(&gender.as_str()) {
        fields.add_error("gender", "must be one of male, female");
    }
    if fields.raw("landmarks").is_some_and(|l| !l.is_null() && !l.is_array() && !l.is_object()) {
        fields.add_error("landmarks", "must be an array or an object");
    }
    let is_private = fields.boolean("is_private").unwrap_or(false);
    let (mut picture_source, mut character) = (None, None);
    if is_drawn {
        if fields.text("input_image").is_some_and(|image| !image.is_empty()) {
            fields.add_error("input_image", "must not come with a character");
        }
        character = Some(parse_character(&fields, &gender).to_string());
    } else {
        let image = fields.required("input_image");
        if !image.is_empty()
            && let Err(reason) = picture::check_data_uri(&image)?
        {
            fields.add_error("input_image", reason);
        }
        let landmarks = fields.raw("landmarks");
        picture_source = Some(json!({"input_image": image, "landmarks": landmarks}).to_string());
    }
    errors.into_result(NewCustomAvatar { name, gender, is_private, picture_source, character })
}

/// The character part of a request: the fields of an avatar file, as they were given.
fn parse_character(fields: &Fields<'_>, gender: &str) -> Value {
    let voice = fields.text("voice").filter(|voice| !voice.trim().is_empty());
    if voice.as_ref().is_some_and(|voice| voice.chars().count() > MAX_NAME_CHARS) {
        fields.add_error("voice", format!("must be at most {MAX_NAME_CHARS} characters"));
    } else if voice.as_ref().is_some_and(|voice| models::tts::resolve_voice(voice).1.is_some()) {
        let known: Vec<&str> = models::tts::Voice::ALL.iter().map(|voice| voice.name()).collect();
        fields.add_error("voice", format!("must be one of {}", known.join(", ")));
    }
    json!({
        "character": characters::read_settings(fields, "character", &characters::CHARACTER_SETTINGS),
        "rest": characters::read_settings(fields, "rest", &characters::REST_SETTINGS),
        "voice": voice.unwrap_or_else(|| if gender == "male" { "rms" } else { "slt" }.into()),
    })
}

async fn create(
    State(state): State<Arc<AppState>>,
    caller: ApiCaller,
    Json(body): Json<MAX_BODY_BYTES>,
) -> JsonResult {
    let new_avatar = parse_new_avatar(body)?;
    let draft = Draft {
        id: &new_id(),
        workspace: &caller.workspace,
        job_id: &new_id(),
        name: &new_avatar.name,
        gender: &new_avatar.gender,
        is_private: new_avatar.is_private,
        source: new_avatar.picture_source.as_deref(),
        character: new_avatar.character.as_deref(),
        at: clock::now(),
    };
    let mut tx = state.store.begin_write().await?;
    if new_avatar.character.is_some()
        && table::count_unfinished_jobs(&mut tx, &caller.workspace).await? >= MAX_QUEUED_DRAWINGS
    {
        return Err(ApiError::QueueFull(format!(
            "{MAX_QUEUED_DRAWINGS} avatars of this workspace are waiting to be drawn"
        )));
    }
    let size = [draft.source, draft.character].into_iter().flatten().map(str::len).sum();
    quota::check_bytes(&state, &mut tx, &caller.workspace, size).await?;
    let row = table::insert(&mut tx, &draft).await?;
    tx.commit().await?;
    let queue_notify =
        if new_avatar.character.is_some() { &state.bake_queued } else { &state.photo_job_queued };
    queue_notify.notify_one();
    Ok(axum::Json(to_json(&row)))
}

async fn list(
    State(state): State<Arc<AppState>>,
    caller: ApiCaller,
    PageQuery(page): PageQuery<false>,
) -> Result<ListResponse, ApiError> {
    let (rows, total) = state.store.custom_avatar_page(&caller.workspace, &page).await?;
    Ok(ListResponse(rows.iter().map(to_json).collect(), total))
}

async fn read(State(state): State<Arc<AppState>>, caller: ApiCaller, Path(id): Path<String>) -> JsonResult {
    let id = store::normalize_id(&id).ok_or(NOT_FOUND)?;
    let row = state.store.custom_avatar(&caller.workspace, &id).await?.ok_or(NOT_FOUND)?;
    Ok(axum::Json(to_json(&row)))
}

async fn remove(State(state): State<Arc<AppState>>, caller: ApiCaller, Path(id): Path<String>) -> JsonResult {
    let id = store::normalize_id(&id).ok_or(NOT_FOUND)?;
    let mut tx = state.store.begin_write().await?;
    let found = table::delete(&mut tx, &caller.workspace, &id).await?;
    tx.commit().await?;
    if !found {
        return Err(NOT_FOUND);
    }
    Ok(axum::Json(json!({"id": id, "message": "Custom avatar deleted successfully"})))
}
