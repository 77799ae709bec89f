//! Editing of characters: `/v2/character`. The available settings, and previews while they are
//! edited ([`preview_renderer`]).

mod preview_renderer;
mod settings;

use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse as _, Response};
use axum::routing::{get, post};
use bytes::Bytes;
use models::face::avatar_spec::{self, AvatarSpec};
use models::face::character_schema::{self, Setting};
use models::face::{Character, Pose};
use serde::Serialize;
use serde_json::{Value, json};

pub(crate) use self::preview_renderer::PreviewTask;
pub(crate) use self::settings::{CHARACTER_SETTINGS, POSE_SETTINGS, REST_SETTINGS, read_settings};
use crate::config::Viseme;
use crate::error::ApiError;
use crate::http::auth::ApiCaller;
use crate::http::extract::Json;
use crate::http::validate::{FieldErrors, Fields};
use crate::state::AppState;

/// Permitted sizes of a preview, pixels per side.
const PREVIEW_SIZES: std::ops::RangeInclusive<f64> = 64.0..=512.0;
/// Default size of a preview, pixels per side.
const DEFAULT_PREVIEW_SIZE: u64 = 256;

pub(crate) fn routes() -> Router<Arc<AppState>> {
    Router::new()
        .route("/v2/character", get(read_character_sheet))
        .route("/v2/character/preview", post(preview))
}

/// The data that a character editor needs.
#[derive(Serialize)]
struct CharacterSheet<'a> {
    /// The settings of a character, in the order of a form.
    character: Vec<Setting>,
    /// The settings of a pose.
    pose: Vec<Setting>,
    /// A character with default settings.
    default: Character,
    /// A pose with default settings.
    default_pose: Pose,
    /// Built-in characters to start from.
    people: Vec<AvatarSpec>,
    /// The visemes.
    visemes: &'a [Viseme],
}

async fn read_character_sheet(State(state): State<Arc<AppState>>, _: ApiCaller) -> Response {
    let character_sheet = CharacterSheet {
        character: character_schema::character_settings(),
        pose: character_schema::pose_settings(),
        default: Character::default(),
        default_pose: Pose::default(),
        people: avatar_spec::ids().filter_map(avatar_spec::find).collect(),
        visemes: &state.config.visemes,
    };
    axum::Json(character_sheet).into_response()
}

/// A request for the preview renderer: one line of JSON.
pub(crate) fn parse_preview_request(body: Value) -> Result<Bytes, ApiError> {
    let errors = FieldErrors::default();
    let fields = Fields::body(body, &errors)?;
    if fields.raw("character").is_none_or(Value::is_null) {
        fields.add_error("character", "is required");
    }
    fields.reject_unknown(&["character", "pose", "size"]);
    let size = fields.number("size", PREVIEW_SIZES).map_or(Some(DEFAULT_PREVIEW_SIZE), |size| size.as_u64());
    if size.is_none_or(|size| size % 2 != 0) {
        fields.add_error("size", "must be an even whole number");
    }
    let request = json!({
        "character": read_settings(&fields, "character", &CHARACTER_SETTINGS),
        "pose": read_settings(&fields, "pose", &POSE_SETTINGS),
        "size": size,
    });
    errors.into_result(Bytes::from(request.to_string() + "\n"))
}

async fn preview(
    State(state): State<Arc<AppState>>,
    caller: ApiCaller,
    Json(body): Json,
) -> Result<Response, ApiError> {
    let line = parse_preview_request(body)?;
    let image = state.preview_renderer.render(&caller.workspace, caller.key_hash, line).await?;
    let head = [(header::CONTENT_TYPE, "image/webp"), (header::CACHE_CONTROL, "no-store")];
    Ok((head, image).into_response())
}
