//! Drawn people in the making: `/v2/character`. What may be set of one, and how it looks while it is being set ([`painter`]).

mod painter;
mod settings;

use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse as _, Response};
use axum::routing::{get, post};
use bytes::Bytes;
use models::face::form::{self, Setting};
use models::face::people::{self, Person};
use models::face::{Character, Pose};
use serde::Serialize;
use serde_json::{Value, json};

pub(crate) use self::painter::{Painter, run};
pub(crate) use self::settings::{OF_CHARACTER, OF_POSE, OF_REST, settings};
use crate::app::Shared;
use crate::auth::Caller;
use crate::config::Viseme;
use crate::error::ApiError;
use crate::fields::{Faults, Fields};
use crate::request::Json;

/// Sides of a preview in pixels.
const SIDES: std::ops::RangeInclusive<f64> = 64.0..=512.0;
/// Side of a preview that states none.
const SIDE: u64 = 256;

pub(crate) fn routes() -> Router<Arc<Shared>> {
    Router::new().route("/v2/character", get(sheet)).route("/v2/character/preview", post(preview))
}

/// What an editor needs to know.
#[derive(Serialize)]
struct Sheet<'a> {
    /// What may be set of a character, in the order of a form.
    character: Vec<Setting>,
    /// What may be set of a pose.
    pose: Vec<Setting>,
    /// A character of whom nothing was set.
    default: Character,
    /// The same of a pose.
    default_pose: Pose,
    /// People to begin with.
    people: Vec<Person>,
    /// The mouths of speech.
    visemes: &'a [Viseme],
}

async fn sheet(State(shared): State<Arc<Shared>>, _: Caller) -> Response {
    let sheet = Sheet {
        character: form::of_character(),
        pose: form::of_pose(),
        default: Character::default(),
        default_pose: Pose::default(),
        people: people::names().filter_map(people::find).collect(),
        visemes: &shared.config.visemes,
    };
    axum::Json(sheet).into_response()
}

/// An order for the painter: one line of JSON.
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
    State(shared): State<Arc<Shared>>,
    caller: Caller,
    Json(body): Json,
) -> Result<Response, ApiError> {
    let picture = shared.painter.draw(caller.key, order(body)?).await?;
    let head = [(header::CONTENT_TYPE, "image/webp"), (header::CACHE_CONTROL, "no-store")];
    Ok((head, picture).into_response())
}
