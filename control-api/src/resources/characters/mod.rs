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
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

pub(crate) use self::preview_renderer::PreviewTask;
pub(crate) use self::settings::{CharacterSettings, PoseSettings, RestSettings};
use crate::config::Viseme;
use crate::error::ApiError;
use crate::http::auth::ApiCaller;
use crate::http::body;
use crate::http::extract::Json;
use crate::state::AppState;

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

/// A request for a preview. The renderer gets it as one line of JSON.
#[derive(Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Preview")]
pub(crate) struct PreviewRequest {
    character: CharacterSettings,
    #[serde(default)]
    pose: PoseSettings,
    /// Pixels per side, an even whole number.
    #[serde(default = "default_preview_size")]
    #[schemars(range(min = 64, max = 512), extend("multipleOf" = 2))]
    size: f64,
}

fn default_preview_size() -> f64 {
    256.0
}

/// A request for the preview renderer: one line of JSON.
pub(crate) fn parse_preview_request(mut body: Value) -> Result<Bytes, ApiError> {
    // Null counts as absent, and a character must be given, even if it is empty.
    if let Value::Object(map) = &mut body
        && map.get("character").is_some_and(Value::is_null)
    {
        map.shift_remove("character");
    }
    let PreviewRequest { character, pose, size } = body::parse(body)?;
    let request = json!({"character": character, "pose": pose, "size": size as u32});
    Ok(Bytes::from(request.to_string() + "\n"))
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
