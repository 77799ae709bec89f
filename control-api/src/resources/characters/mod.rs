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

pub(crate) use self::preview_renderer::run;
pub(crate) use self::settings::{OF_CHARACTER, OF_POSE, OF_REST, settings};
use crate::config::Viseme;
use crate::error::ApiError;
use crate::http::auth::Caller;
use crate::http::extract::Json;
use crate::http::validate::{Faults, Fields};
use crate::state::AppState;

/// Permitted sizes of a preview, pixels per side.
const SIDES: std::ops::RangeInclusive<f64> = 64.0..=512.0;
/// Default size of a preview, pixels per side.
const SIDE: u64 = 256;

pub(crate) fn routes() -> Router<Arc<AppState>> {
    Router::new().route("/v2/character", get(sheet)).route("/v2/character/preview", post(preview))
}

/// The data that a character editor needs.
#[derive(Serialize)]
struct Sheet<'a> {
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

async fn sheet(State(shared): State<Arc<AppState>>, _: Caller) -> Response {
    let sheet = Sheet {
        character: character_schema::character_settings(),
        pose: character_schema::pose_settings(),
        default: Character::default(),
        default_pose: Pose::default(),
        people: avatar_spec::ids().filter_map(avatar_spec::find).collect(),
        visemes: &shared.config.visemes,
    };
    axum::Json(sheet).into_response()
}

/// A request for the preview renderer: one line of JSON.
fn order(body: Value) -> Result<Bytes, ApiError> {
    let faults = Faults::default();
    let fields = Fields::body(body, &faults)?;
    if fields.raw("character").is_none_or(Value::is_null) {
        fields.fault("character", "is required");
    }
    fields.only(&["character", "pose", "size"]);
    let side = fields.number("size", SIDES).map_or(Some(SIDE), |side| side.as_u64());
    if side.is_none_or(|side| side % 2 != 0) {
        fields.fault("size", "must be an even whole number");
    }
    let order = json!({
        "character": settings(&fields, "character", &OF_CHARACTER),
        "pose": settings(&fields, "pose", &OF_POSE),
        "size": side,
    });
    faults.unless(Bytes::from(order.to_string() + "\n"))
}

async fn preview(
    State(shared): State<Arc<AppState>>,
    caller: Caller,
    Json(body): Json,
) -> Result<Response, ApiError> {
    let picture = shared.painter.draw(caller.key, order(body)?).await?;
    let head = [(header::CONTENT_TYPE, "image/webp"), (header::CACHE_CONTROL, "no-store")];
    Ok((head, picture).into_response())
}
