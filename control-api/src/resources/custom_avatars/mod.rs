//! Custom avatars: `/v2/custom-avatar`. A job creates an avatar, either from a character, which is
//! drawn ([`bake`]), or from a picture. No renderer of pictures is installed, so every job of that
//! kind fails with that reason.
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
mod picture;

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::routing::{get, post};
use serde_json::{Value, json};
use tokio::sync::watch;

use crate::clock;
use crate::error::{ApiError, Missing};
use crate::http::auth::Caller;
use crate::http::extract::{Json, Listed, Paged, Path};
use crate::http::quota;
use crate::http::validate::{Faults, Fields};
use crate::resources::characters;
use crate::state::AppState;
use crate::store::custom_avatar::{self as table, Draft, Row};
use crate::store::{self, fresh_id};

type Answer = Result<axum::Json<Value>, ApiError>;

const MISSING: ApiError = ApiError::Missing(Missing::CustomAvatar);
/// Maximum body size: a picture of 9 MiB in base64, with some margin.
const BODY_LIMIT: usize = 14 << 20;
/// Maximum length of a drawn avatar's name, and of its voice's name, in characters.
const NAME: usize = 200;
/// The fields of a request with a character.
const OF_DRAWN: [&str; 8] =
    ["avatar_name", "gender", "is_private", "character", "rest", "voice", "input_image", "landmarks"];
/// Maximum number of unfinished drawing jobs of one workspace, including those in progress: one
/// takes a minute.
const WAITING: i64 = 8;
/// Delay after a failure of the store.
const AGAIN: Duration = Duration::from_secs(5);
/// Reason of failed picture jobs: this server has no renderer of uploaded pictures.
const NO_RENDERER: &str = "no renderer is installed";

pub(crate) fn routes() -> Router<Arc<AppState>> {
    Router::new()
        .route("/v2/custom-avatar", post(create))
        .route("/v2/custom-avatars", get(list))
        .route("/v2/custom-avatar/{id}", get(one).delete(remove))
}

fn shown(row: &Row) -> Value {
    let parsed = |text: &Option<String>| text.as_deref().and_then(|t| serde_json::from_str::<Value>(t).ok());
    let person = parsed(&row.person).unwrap_or_default();
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
        "created_at": clock::iso(row.created_at),
        "updated_at": clock::iso(row.updated_at),
    })
}

/// The input of a new custom avatar.
struct Wish {
    name: String,
    gender: String,
    is_private: bool,
    /// JSON, for a picture.
    source: Option<String>,
    /// JSON, for a character.
    person: Option<String>,
}

fn wish(body: Value) -> Result<Wish, ApiError> {
    let faults = Faults::default();
    let fields = Fields::body(body, &faults)?;
    let drawn = fields.raw("character").is_some_and(|c| !c.is_null());
    let name = if drawn { fields.at_most("avatar_name", NAME) } else { fields.required("avatar_name") };
    if name.chars().any(char::is_control) {
        fields.fault("avatar_name", "must not have control characters");
    }
    if drawn {
        fields.only(&OF_DRAWN);
    }
    let gender = fields.required("gender");
    if !gender.is_empty() && !["male", "female"].contains(&gender.as_str()) {
        fields.fault("gender", "must be one of male, female");
    }
    if fields.raw("landmarks").is_some_and(|l| !l.is_null() && !l.is_array() && !l.is_object()) {
        fields.fault("landmarks", "must be an array or an object");
    }
    let is_private = fields.boolean("is_private").unwrap_or(false);
    let (mut source, mut person) = (None, None);
    if drawn {
        if fields.text("input_image").is_some_and(|image| !image.is_empty()) {
            fields.fault("input_image", "must not come with a character");
        }
        person = Some(drawn_person(&fields, &gender).to_string());
    } else {
        let image = fields.required("input_image");
        if !image.is_empty()
            && let Err(reason) = picture::check(&image)?
        {
            fields.fault("input_image", reason);
        }
        let landmarks = fields.raw("landmarks");
        source = Some(json!({"input_image": image, "landmarks": landmarks}).to_string());
    }
    faults.unless(Wish { name, gender, is_private, source, person })
}

/// The character part of a request: the fields of an avatar file, as they were given.
fn drawn_person(fields: &Fields<'_>, gender: &str) -> Value {
    let voice = fields.text("voice").filter(|voice| !voice.trim().is_empty());
    if voice.as_ref().is_some_and(|voice| voice.chars().count() > NAME) {
        fields.fault("voice", format!("must be at most {NAME} characters"));
    } else if voice.as_ref().is_some_and(|voice| models::tts::resolve_voice(voice).1.is_some()) {
        let known: Vec<&str> = models::tts::Voice::ALL.iter().map(|voice| voice.name()).collect();
        fields.fault("voice", format!("must be one of {}", known.join(", ")));
    }
    json!({
        "character": characters::settings(fields, "character", &characters::OF_CHARACTER),
        "rest": characters::settings(fields, "rest", &characters::OF_REST),
        "voice": voice.unwrap_or_else(|| if gender == "male" { "rms" } else { "slt" }.into()),
    })
}

async fn create(State(shared): State<Arc<AppState>>, caller: Caller, Json(body): Json<BODY_LIMIT>) -> Answer {
    let wish = wish(body)?;
    let draft = Draft {
        id: &fresh_id(),
        workspace: &caller.workspace,
        job_id: &fresh_id(),
        name: &wish.name,
        gender: &wish.gender,
        is_private: wish.is_private,
        source: wish.source.as_deref(),
        person: wish.person.as_deref(),
        at: clock::now(),
    };
    let mut tx = shared.store.write().await?;
    if wish.person.is_some() && table::waiting(&mut tx, &caller.workspace).await? >= WAITING {
        return Err(ApiError::QueueFull(format!(
            "{WAITING} people of this workspace are waiting to be drawn"
        )));
    }
    let size = [draft.source, draft.person].into_iter().flatten().map(str::len).sum();
    quota::bytes(&shared, &mut tx, &caller.workspace, size).await?;
    let row = table::insert(&mut tx, &draft).await?;
    tx.commit().await?;
    let waits = if wish.person.is_some() { &shared.drawings } else { &shared.jobs };
    waits.notify_one();
    Ok(axum::Json(shown(&row)))
}

async fn list(
    State(shared): State<Arc<AppState>>,
    caller: Caller,
    Paged(page): Paged<false>,
) -> Result<Listed, ApiError> {
    let (rows, total) = shared.store.custom_avatar_page(&caller.workspace, &page).await?;
    Ok(Listed(rows.iter().map(shown).collect(), total))
}

async fn one(State(shared): State<Arc<AppState>>, caller: Caller, Path(id): Path<String>) -> Answer {
    let id = store::id(&id).ok_or(MISSING)?;
    let row = shared.store.custom_avatar(&caller.workspace, &id).await?.ok_or(MISSING)?;
    Ok(axum::Json(shown(&row)))
}

async fn remove(State(shared): State<Arc<AppState>>, caller: Caller, Path(id): Path<String>) -> Answer {
    let id = store::id(&id).ok_or(MISSING)?;
    let mut tx = shared.store.write().await?;
    let found = table::delete(&mut tx, &caller.workspace, &id).await?;
    tx.commit().await?;
    if !found {
        return Err(MISSING);
    }
    Ok(axum::Json(json!({"id": id, "message": "Custom avatar deleted successfully"})))
}

/// Processes the queued picture jobs, including those from before the start, until `stop`.
pub(crate) async fn run(shared: Arc<AppState>, mut stop: watch::Receiver<bool>) {
    loop {
        let work = async {
            if let Err(error) = fail_pictures(&shared).await {
                tracing::error!(%error, "cannot process the queue of photo avatar jobs");
                return tokio::time::sleep(AGAIN).await;
            }
            shared.jobs.notified().await;
        };
        tokio::select! {
            () = work => {}
            _ = stop.wait_for(|stop| *stop) => return,
        }
    }
}

async fn fail_pictures(shared: &AppState) -> store::Result<()> {
    let mut tx = shared.store.write().await?;
    table::fail_pictures(&mut tx, NO_RENDERER, clock::now()).await?;
    tx.commit().await
}
