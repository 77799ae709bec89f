//! Custom avatars: `/v2/custom-avatar`. A job draws an avatar ([`bake`]) from a character, or from a
//! photo, which is checked first ([`photo`]).
//!
//! ```text
//!            claim_job                finish_job
//!   QUEUED ------------> PROCESSING --------------> COMPLETED
//!                         |      |
//!                         |      +-- claimed again after a stop, or by
//!                         |          another server after a crash
//!                         +--> FAILED
//! ```

pub(crate) mod bake;
mod bake_files;
pub(crate) mod erase;
mod landmarks;
mod photo;
pub(crate) mod picture;
mod renewal;
mod subject;

use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::routing::{get, post};
use models::face::photo_upload;
use models::tts;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

pub(crate) use self::photo::{PhotoAvatarBody, PhotoPreviewBody, PhotoPreviewResponse};
use crate::clock::{self, Iso8601};
use crate::error::{ApiError, Resource};
use crate::http::auth::ApiCaller;
use crate::http::body;
use crate::http::extract::{Json, ListResponse, PageQuery, Path};
use crate::http::quota;
use crate::http::responses::{Done, JsonResult};
use crate::http::validate::FieldErrors;
use crate::resources::characters::{CharacterSettings, RestSettings};
use crate::state::AppState;
use crate::state::api_key::to_hex;
use crate::store::custom_avatar::{self as table, Draft, Output, Row};
use crate::store::framing::VideoSize;
use crate::store::json_record::parse_document;
use crate::store::{self, Lock, Transaction, new_id, secrets, variant};

const NOT_FOUND: ApiError = ApiError::NotFound(Resource::CustomAvatar);
/// Maximum body size: a picture of 9 MiB in base64, with some margin.
pub(crate) const MAX_BODY_BYTES: usize = 14 << 20;
/// Maximum length of a drawn avatar's name, and of its voice's name, in characters.
const MAX_NAME_CHARS: usize = 200;
const CONSENT_REQUIRED: &str = "must be true: this server requires the consent of the person";
/// Maximum number of unfinished drawing jobs of one workspace, including those in progress: one
/// takes a minute.
const MAX_QUEUED_DRAWINGS: i64 = 8;

pub(crate) fn routes() -> Router<Arc<AppState>> {
    Router::new()
        .route("/v2/custom-avatar", post(create))
        .route("/v2/custom-avatar/photo", post(photo::preview))
        .route("/v2/custom-avatars", get(list))
        .route("/v2/custom-avatar/{id}", get(read).delete(remove))
}

/// A custom avatar.
#[derive(Serialize, JsonSchema)]
pub(crate) struct CustomAvatar<'a> {
    #[schemars(extend("format" = "uuid"))]
    id: &'a str,
    job_id: &'a str,
    /// Known from the start, so that a client may store it. Agents may use it once there is an
    /// output.
    avatar_key_id: &'a str,
    avatar_id: &'a str,
    avatar_name: &'a str,
    gender: &'a str,
    category: &'static str,
    #[schemars(extend("enum" = ["QUEUED", "PROCESSING", "COMPLETED", "FAILED"]))]
    status: &'a str,
    /// Percent.
    #[schemars(range(min = 0, max = 100))]
    progress: i64,
    is_private: bool,
    character: Option<CharacterSettings>,
    rest: Option<RestSettings>,
    voice: Option<String>,
    output: Option<Output>,
    /// When the person of a photo gave consent; null if that was not said.
    consent_at: Option<Iso8601>,
    /// Whether the crop of a photo is stored, from which the avatar can be drawn again.
    has_source: bool,
    error: Option<&'a str>,
    created_at: Iso8601,
    updated_at: Iso8601,
}

fn to_response(row: &Row) -> CustomAvatar<'_> {
    let definition = row.character.as_deref().and_then(|text| serde_json::from_str(text).ok());
    let (character, rest, voice) = definition
        .map_or((None, None, None), |AvatarDefinition { character, rest, voice }| {
            (Some(character), Some(rest), Some(voice))
        });
    CustomAvatar {
        id: &row.id,
        job_id: &row.job_id,
        avatar_key_id: &row.id,
        avatar_id: &row.id,
        avatar_name: &row.name,
        gender: &row.gender,
        category: "custom",
        status: &row.status,
        progress: row.progress,
        is_private: row.is_private != 0,
        character,
        rest,
        voice,
        output: row.output.as_deref().and_then(|text| serde_json::from_str(text).ok()),
        consent_at: row.consent_at.map(Iso8601),
        has_source: row.has_source != 0,
        error: row.error.as_deref(),
        created_at: Iso8601(row.created_at),
        updated_at: Iso8601(row.updated_at),
    }
}

/// What a drawn avatar is drawn from, as it is stored: a part of the fields of an avatar file.
#[derive(Default, Serialize, Deserialize)]
#[serde(default)]
struct AvatarDefinition {
    character: CharacterSettings,
    rest: RestSettings,
    voice: String,
}

/// The input of a new custom avatar.
#[derive(Debug)]
pub(crate) struct NewCustomAvatar {
    name: String,
    gender: &'static str,
    is_private: bool,
    origin: Origin,
}

/// What an avatar is drawn from.
#[derive(Debug)]
enum Origin {
    /// JSON.
    Character(String),
    Photo {
        request: Box<photo_upload::Request>,
        has_consent: bool,
        keep_source: bool,
    },
}

#[cfg(test)]
impl NewCustomAvatar {
    pub(crate) fn to_json(&self) -> Value {
        let (photo, character) = match &self.origin {
            Origin::Character(text) => (None, serde_json::from_str::<Value>(text).ok()),
            Origin::Photo { request, has_consent, keep_source } => {
                let consent_and_source = json!({"consent": has_consent, "kept": keep_source});
                (Some(json!({"request": request, "options": consent_and_source})), None)
            }
        };
        json!({
            "name": self.name,
            "gender": self.gender,
            "is_private": self.is_private,
            "photo": photo,
            "character": character,
        })
    }
}

/// The sex of an avatar.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Gender {
    #[default]
    Male,
    Female,
}

impl Gender {
    fn name(self) -> &'static str {
        match self {
            Self::Male => "male",
            Self::Female => "female",
        }
    }
}

/// A request for an avatar that is drawn from a character.
#[derive(Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct DrawnAvatarBody {
    #[schemars(length(min = 1, max = MAX_NAME_CHARS))]
    avatar_name: String,
    #[schemars(extend("minLength" = 1))]
    gender: Gender,
    is_private: Option<bool>,
    character: CharacterSettings,
    #[serde(default)]
    rest: RestSettings,
    /// Name of a built-in voice; null = one that suits `gender`.
    voice: Option<String>,
    /// Must be empty.
    input_image: Option<String>,
    /// Ignored.
    #[expect(dead_code, reason = "only its type is checked")]
    #[schemars(extend("type" = ["array", "object"]))]
    landmarks: Option<Value>,
}

pub(crate) fn parse_new_avatar(body: Value) -> Result<NewCustomAvatar, ApiError> {
    if body.get("character").is_some_and(|character| !character.is_null()) {
        parse_drawn_avatar(body)
    } else {
        photo::parse_photo_avatar(body)
    }
}

fn check_name(name: &str, errors: &FieldErrors) {
    if name.chars().any(char::is_control) {
        errors.add("avatar_name", "must not contain control characters");
    }
}

fn parse_drawn_avatar(body: Value) -> Result<NewCustomAvatar, ApiError> {
    let errors = FieldErrors::default();
    let avatar: DrawnAvatarBody = body::read(body, &errors)?;
    check_name(&avatar.avatar_name, &errors);
    if avatar.input_image.is_some_and(|image| !image.is_empty()) {
        errors.add("input_image", "must not come with a character");
    }
    let voice = avatar.voice.filter(|voice| !voice.trim().is_empty());
    if voice.as_ref().is_some_and(|voice| voice.chars().count() > MAX_NAME_CHARS) {
        errors.add("voice", format!("must be at most {MAX_NAME_CHARS} characters"));
    } else if let Some(Err(why)) = voice.as_deref().map(tts::check_builtin_voice) {
        errors.add("voice", why);
    }
    let default_voice = tts::default_voice(avatar.gender != Gender::Male);
    let definition = AvatarDefinition {
        character: avatar.character,
        rest: avatar.rest,
        voice: voice.unwrap_or_else(|| default_voice.to_owned()),
    };
    errors.into_result(NewCustomAvatar {
        name: avatar.avatar_name,
        gender: avatar.gender.name(),
        is_private: avatar.is_private.unwrap_or(false),
        origin: Origin::Character(json!(definition).to_string()),
    })
}

/// The built-in voice of an avatar.
pub(crate) fn voice_of(avatar: &Row) -> store::Result<String> {
    Ok(match &avatar.character {
        Some(character) => parse_document::<AvatarDefinition>(character)?.voice,
        None => tts::default_voice(avatar.gender != "male").to_owned(),
    })
}

/// 429 if the workspace has the maximum number of unfinished drawing jobs.
pub(crate) async fn check_queue(tx: &mut Transaction, workspace: &str) -> Result<(), ApiError> {
    if table::count_unfinished_jobs(tx, workspace).await? < MAX_QUEUED_DRAWINGS {
        return Ok(());
    }
    Err(ApiError::QueueFull(format!(
        "{MAX_QUEUED_DRAWINGS} avatars of this workspace are waiting to be drawn"
    )))
}

async fn create(
    State(state): State<Arc<AppState>>,
    caller: ApiCaller,
    Json(body): Json<MAX_BODY_BYTES>,
) -> JsonResult<Value> {
    let new_avatar = parse_new_avatar(body)?;
    let (id, at) = (new_id(), clock::now());
    let mut consent = None;
    let mut size = VideoSize::default();
    let (source, character, keep_source) = match new_avatar.origin {
        Origin::Character(character) => (None, Some(character), false),
        Origin::Photo { request, has_consent, keep_source } => {
            if has_consent {
                consent = Some((at, to_hex(&caller.key_hash)));
            } else if state.config.require_consent {
                return Err(ApiError::invalid_field("consent", CONSENT_REQUIRED));
            }
            size = VideoSize::of_pixels(request.size);
            let source = state.photo_checks.check(*request).await?.source;
            (Some(secrets::seal(&state.vault, &id, &source)), None, keep_source)
        }
    };
    let draft = Draft {
        id: &id,
        workspace: &caller.workspace,
        job_id: &new_id(),
        name: &new_avatar.name,
        gender: new_avatar.gender,
        is_private: new_avatar.is_private,
        source: source.as_deref(),
        character: character.as_deref(),
        keep_source,
        size,
        consent: consent.as_ref().map(|(at, key)| (*at, key.as_str())),
        at,
    };
    let mut tx = state.store.begin_write(Lock::Workspace(&caller.workspace)).await?;
    check_queue(&mut tx, &caller.workspace).await?;
    let size = [draft.source, draft.character].into_iter().flatten().map(str::len).sum();
    quota::check_bytes(&state, &mut tx, &caller.workspace, size).await?;
    let row = table::insert(&mut tx, &draft).await?;
    tx.commit().await?;
    state.bake_queued.notify_one();
    Ok(axum::Json(json!(to_response(&row))))
}

async fn list(
    State(state): State<Arc<AppState>>,
    caller: ApiCaller,
    PageQuery(page): PageQuery<false>,
) -> Result<ListResponse, ApiError> {
    let (rows, total) = state.store.custom_avatar_page(&caller.workspace, &page).await?;
    Ok(ListResponse(rows.iter().map(|row| json!(to_response(row))).collect(), total))
}

async fn read(
    State(state): State<Arc<AppState>>,
    caller: ApiCaller,
    Path(id): Path<String>,
) -> JsonResult<Value> {
    let id = store::normalize_id(&id).ok_or(NOT_FOUND)?;
    let row = state.store.custom_avatar(&caller.workspace, &id).await?.ok_or(NOT_FOUND)?;
    Ok(axum::Json(json!(to_response(&row))))
}

async fn remove(
    State(state): State<Arc<AppState>>,
    caller: ApiCaller,
    Path(id): Path<String>,
) -> JsonResult<Done> {
    let id = store::normalize_id(&id).ok_or(NOT_FOUND)?;
    let mut tx = state.store.begin_write(Lock::Workspace(&caller.workspace)).await?;
    let found = table::delete(&mut tx, &caller.workspace, &id).await?;
    variant::delete_of_avatar(&mut tx, &caller.workspace, &id).await?;
    tx.commit().await?;
    if !found {
        return Err(NOT_FOUND);
    }
    Ok(axum::Json(Done { id, message: "Custom avatar deleted successfully" }))
}
