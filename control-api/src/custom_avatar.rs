//! Custom avatars: `/v2/custom-avatar`. A job makes a face of a picture; without an installed renderer every job fails and says so.

use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::routing::{get, post};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use tokio::sync::watch;

use crate::app::Shared;
use crate::auth::Caller;
use crate::clock;
use crate::error::{ApiError, Missing};
use crate::fields::{Faults, Fields};
use crate::request::{Json, Listed, Paged, Path};
use crate::store::custom_avatar::{self as table, Draft, Row};
use crate::store::{self, fresh_id};

type Answer = Result<axum::Json<Value>, ApiError>;

const MISSING: ApiError = ApiError::Missing(Missing::CustomAvatar);
/// Largest body: a picture of [`IMAGE_LIMIT`] in base64 and some room.
const BODY_LIMIT: usize = 14 << 20;
/// Largest picture.
const IMAGE_LIMIT: usize = 9 << 20;
/// Pixels of a picture at most: a small file may unfold to many.
const PIXELS: usize = 64_000_000;
const TOO_MANY: &str = "must hold at most 64 megapixels";
/// Why every job fails: this server has no renderer of uploaded pictures.
const NO_RENDERER: &str = "no renderer is installed";

pub(crate) fn routes() -> Router<Arc<Shared>> {
    Router::new()
        .route("/v2/custom-avatar", post(create))
        .route("/v2/custom-avatars", get(list))
        .route("/v2/custom-avatar/{id}", get(one).delete(remove))
}

fn shown(row: &Row) -> Value {
    json!({
        "id": row.id,
        "job_id": row.job_id,
        // Known from the start, so that a client may keep it; agents may name it once the job is COMPLETED.
        "avatar_key_id": row.id,
        "avatar_id": row.id,
        "avatar_name": row.name,
        "gender": row.gender,
        "category": "custom",
        "status": row.status,
        "is_private": row.is_private != 0,
        "output": row.output.as_deref().and_then(|o| serde_json::from_str::<Value>(o).ok()),
        "error": row.error,
        "created_at": clock::iso(row.created_at),
        "updated_at": clock::iso(row.updated_at),
    })
}

/// Whether the bytes begin as a PNG, JPEG or WebP file does. What is inside is the renderer's to judge.
fn is_picture(bytes: &[u8]) -> bool {
    bytes.starts_with(b"\x89PNG\r\n\x1a\n")
        || bytes.starts_with(b"\xff\xd8\xff")
        || (bytes.starts_with(b"RIFF") && bytes.get(8..12) == Some(b"WEBP"))
}

/// Checks a data URI with a picture. 413 where the picture is too large.
fn check_image(uri: &str) -> Result<Result<(), &'static str>, ApiError> {
    let Some((head, data)) = uri.strip_prefix("data:").and_then(|rest| rest.split_once(',')) else {
        return Ok(Err("must be a base64 data URI"));
    };
    let Some(kind) = head.strip_suffix(";base64") else { return Ok(Err("must be a base64 data URI")) };
    if !matches!(kind, "image/png" | "image/jpeg" | "image/jpg" | "image/webp") {
        return Ok(Err("must be PNG, JPEG or WebP"));
    }
    let Ok(bytes) = STANDARD.decode(data) else { return Ok(Err("must be a base64 data URI")) };
    if bytes.len() > IMAGE_LIMIT {
        return Err(ApiError::TooLarge);
    }
    if !is_picture(&bytes) {
        return Ok(Err("must be PNG, JPEG or WebP"));
    }
    // Only what its head says is read. A picture whose head says nothing is the renderer's to refuse.
    let pixels = imagesize::blob_size(&bytes).ok().map(|size| size.width.saturating_mul(size.height));
    Ok(if pixels.is_none_or(|pixels| pixels <= PIXELS) { Ok(()) } else { Err(TOO_MANY) })
}

async fn create(State(shared): State<Arc<Shared>>, caller: Caller, Json(body): Json<BODY_LIMIT>) -> Answer {
    let (name, gender, is_private, source) = {
        let faults = Faults::default();
        let fields = Fields::body(body, &faults)?;
        let name = fields.required("avatar_name");
        let gender = fields.required("gender");
        if !gender.is_empty() && !["male", "female"].contains(&gender.as_str()) {
            fields.fault("gender", "must be one of male, female");
        }
        let drawn = fields.raw("character").is_some_and(|c| !c.is_null());
        if drawn {
            fields.object("character");
            fields.text("input_image");
        } else {
            let image = fields.required("input_image");
            if !image.is_empty()
                && let Err(reason) = check_image(&image)?
            {
                fields.fault("input_image", reason);
            }
        }
        if fields.raw("landmarks").is_some_and(|l| !l.is_null() && !l.is_array() && !l.is_object()) {
            fields.fault("landmarks", "must be an array or an object");
        }
        let is_private = fields.boolean("is_private").unwrap_or(false);
        let all = fields.all();
        let source = json!({
            "input_image": all.get("input_image").filter(|_| !drawn),
            "landmarks": all.get("landmarks"),
            "character": all.get("character"),
        });
        faults.unless((name, gender, is_private, source.to_string()))?
    };
    let draft = Draft {
        id: &fresh_id(),
        workspace: &caller.workspace,
        job_id: &fresh_id(),
        name: &name,
        gender: &gender,
        is_private,
        source: &source,
        at: clock::now(),
    };
    let mut tx = shared.store.write().await?;
    let row = table::insert(&mut tx, &draft).await?;
    tx.commit().await?;
    shared.jobs.notify_one();
    Ok(axum::Json(shown(&row)))
}

async fn list(
    State(shared): State<Arc<Shared>>,
    caller: Caller,
    Paged(page): Paged<false>,
) -> Result<Listed, ApiError> {
    let (rows, total) = shared.store.custom_avatar_page(&caller.workspace, &page).await?;
    Ok(Listed(rows.iter().map(shown).collect(), total))
}

async fn one(State(shared): State<Arc<Shared>>, caller: Caller, Path(id): Path<String>) -> Answer {
    let id = store::id(&id).ok_or(MISSING)?;
    let row = shared.store.custom_avatar(&caller.workspace, &id).await?.ok_or(MISSING)?;
    Ok(axum::Json(shown(&row)))
}

async fn remove(State(shared): State<Arc<Shared>>, caller: Caller, Path(id): Path<String>) -> Answer {
    let id = store::id(&id).ok_or(MISSING)?;
    let mut tx = shared.store.write().await?;
    let found = table::delete(&mut tx, &caller.workspace, &id).await?;
    tx.commit().await?;
    if !found {
        return Err(MISSING);
    }
    Ok(axum::Json(json!({"id": id, "message": "Custom avatar deleted successfully"})))
}

/// Takes the jobs that wait, those from before the start too, until `stop`.
pub(crate) async fn run(shared: Arc<Shared>, mut stop: watch::Receiver<bool>) {
    loop {
        if let Err(error) = fail_queued(&shared).await {
            tracing::error!(%error, "the jobs of custom avatars cannot be taken");
        }
        tokio::select! {
            () = shared.jobs.notified() => {}
            _ = stop.wait_for(|stop| *stop) => return,
        }
    }
}

async fn fail_queued(shared: &Shared) -> store::Result<()> {
    let mut tx = shared.store.write().await?;
    table::fail_queued(&mut tx, NO_RENDERER, clock::now()).await?;
    tx.commit().await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_picture_is_a_data_uri_of_a_known_kind() {
        let uri = |kind: &str, bytes: &[u8]| format!("data:{kind};base64,{}", STANDARD.encode(bytes));
        let told = |uri: &str| check_image(uri).unwrap().err();
        for (kind, bytes) in [
            ("image/png", &b"\x89PNG\r\n\x1a\n...."[..]),
            ("image/jpeg", b"\xff\xd8\xff\xe0...."),
            ("image/webp", b"RIFF....WEBPVP8 "),
        ] {
            assert_eq!(told(&uri(kind, bytes)), None, "{kind}");
        }
        assert_eq!(told("https://example.com/a.png"), Some("must be a base64 data URI"));
        assert_eq!(told("data:image/png;base64,***"), Some("must be a base64 data URI"));
        assert_eq!(told(&uri("image/gif", b"GIF89a")), Some("must be PNG, JPEG or WebP"));
        assert_eq!(told(&uri("image/png", b"GIF89a")), Some("must be PNG, JPEG or WebP"));
        let png = |width: u32, height: u32| {
            let size = [width.to_be_bytes(), height.to_be_bytes()].concat();
            [b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR", &size[..], b"\x08\x02\0\0\0"].concat()
        };
        let jpeg = |width: u16, height: u16| {
            let size = [height.to_be_bytes(), width.to_be_bytes()].concat();
            [b"\xff\xd8\xff\xc0\0\x11\x08", &size[..], b"\x03\x01\x22\0\x02\x11\x01\x03\x11\x01"].concat()
        };
        let webp = |width: u32, height: u32| {
            let size = [&(width - 1).to_le_bytes()[..3], &(height - 1).to_le_bytes()[..3]].concat();
            [b"RIFF\x1e\0\0\0WEBPVP8X\x0a\0\0\0\0\0\0\0", &size[..]].concat()
        };
        for (kind, fits, bomb) in [
            ("image/png", png(8000, 8000), png(100_000, 100_000)),
            ("image/jpeg", jpeg(8000, 8000), jpeg(60_000, 60_000)),
            ("image/webp", webp(8000, 8000), webp(16_000, 16_000)),
        ] {
            assert_eq!((told(&uri(kind, &fits)), told(&uri(kind, &bomb))), (None, Some(TOO_MANY)), "{kind}");
        }
        let large = uri("image/png", &vec![0; IMAGE_LIMIT + 1]);
        assert!(matches!(check_image(&large), Err(ApiError::TooLarge)));
    }
}
