//! `POST /v1/ext/video`. A request with the header `Idempotency-Key` creates one video, however
//! often it is sent.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use serde_json::json;

use super::document::Document;
use super::files::{IncomingVideo, VideoFolder};
use super::picture::{self, Picture};
use super::record::{CreatedVideo, record};
use super::{form, request, voice};
use crate::clock;
use crate::error::ApiError;
use crate::http::auth::ApiCaller;
use crate::http::extract::BaseUrl;
use crate::http::quota;
use crate::http::validate::FieldErrors;
use crate::state::AppState;
use crate::store::background::sha256_hex;
use crate::store::idempotency::{self, Row as Remembered};
use crate::store::secrets::{self, AgentSecrets, new_webhook_secret};
use crate::store::video::{self as table, Draft};
use crate::store::{self, Lock, Transaction, new_id};

/// Maximum number of unfinished videos of one workspace.
const MAX_UNFINISHED: i64 = 100;
/// The header with the client's key of a request.
const KEY_HEADER: &str = "Idempotency-Key";
const MAX_KEY_BYTES: usize = 255;
const BAD_KEY: &str = "must be 1 to 255 visible ASCII characters";
const KEY_CONFLICT: &str = "Idempotency-Key was used for another request";

/// The key of a request, and the SHA-256 of the request.
struct RequestKey {
    key: String,
    request: String,
}

pub(super) async fn create(
    State(state): State<Arc<AppState>>,
    caller: ApiCaller,
    BaseUrl(base): BaseUrl,
    request: Request,
) -> Result<Response, ApiError> {
    let workspace = &caller.workspace;
    let key = parse_key(request.headers())?;
    let folder = VideoFolder::of(&state.config.data);
    let incoming = IncomingVideo::new(new_id(), folder, Arc::clone(&state.videos));
    let form = form::read(request, &incoming, state.config.recordings.min_free).await?;
    let has_audio = form.audio.is_some();
    let errors = FieldErrors::default();
    let document = request::parse(form, state.config.recordings.ffmpeg.is_some(), &errors)?;
    let mut document = errors.into_result(document)?;
    // Before anything is looked up: the same request has the same key later.
    let key = key.map(|key| {
        let request = sha256_hex(json!(document).to_string().as_bytes());
        RequestKey { key, request }
    });
    if let Some(key) = &key {
        let known = state.store.idempotent_response(workspace, &key.key, clock::now()).await?;
        if let Some(response) = replay(&state, key, known)? {
            return Ok(response);
        }
    }
    document.avatar_key_id =
        picture::find_avatar(&state, workspace, &document.avatar_key_id).await?;
    if let Some(tts) = document.tts.take() {
        document.tts = Some(voice::resolve(&state, workspace, tts).await?);
    }
    if has_audio {
        let files = incoming.files();
        let moved = tokio::fs::rename(files.incoming(), files.audio()).await;
        moved
            .map_err(|error| ApiError::Internal("Failed to store the audio", error.to_string()))?;
    }

    let secret = new_webhook_secret();
    let mut tx = state.store.begin_write(Lock::Workspace(workspace)).await?;
    if let Some(key) = &key {
        // The same request may have arrived at the same time.
        let known = idempotency::find(&mut *tx, workspace, &key.key, clock::now()).await?;
        if let Some(response) = replay(&state, key, known)? {
            return Ok(response);
        }
    }
    let picture = insert(&state, &mut tx, workspace, &incoming.id, &document, &secret).await?;
    let row = table::find(&mut *tx, &incoming.id).await?;
    let row = row.ok_or_else(|| store::Error::CorruptRow("video", "it is missing".into()))?;
    let created =
        CreatedVideo { video: record(&state, &row, &base).await?, webhook_secret: secret };
    let body = json!(created).to_string();
    if let Some(RequestKey { key, request }) = key {
        let response = secrets::seal(&state.vault, &row.id, &body);
        let remembered = Remembered { request, resource: row.id.clone(), response };
        idempotency::insert(&mut tx, workspace, &key, &remembered, clock::now()).await?;
    }
    tx.commit().await?;
    incoming.finish();
    if picture.is_pending {
        state.bake_queued.notify_one();
    }
    state.videos.queued.notify_one();
    Ok(created_response(body))
}

/// The key of a request; 400 if it has none that is valid.
fn parse_key(headers: &HeaderMap) -> Result<Option<String>, ApiError> {
    let Some(value) = headers.get(KEY_HEADER) else { return Ok(None) };
    let bytes = value.as_bytes();
    let is_valid = (1..=MAX_KEY_BYTES).contains(&bytes.len())
        && bytes.iter().all(u8::is_ascii_graphic)
        && headers.get_all(KEY_HEADER).iter().count() == 1;
    match value.to_str() {
        Ok(key) if is_valid => Ok(Some(key.to_owned())),
        _ => Err(ApiError::invalid_field(KEY_HEADER, BAD_KEY)),
    }
}

/// The response to an earlier request with the same key; 409 if it was another request.
fn replay(
    state: &AppState,
    key: &RequestKey,
    known: Option<Remembered>,
) -> Result<Option<Response>, ApiError> {
    let Some(known) = known else { return Ok(None) };
    if known.request != key.request {
        return Err(ApiError::Conflict(KEY_CONFLICT.into()));
    }
    let body: String = secrets::open(&state.vault, &known.resource, &known.response)?;
    Ok(Some(created_response(body)))
}

fn created_response(body: String) -> Response {
    (StatusCode::CREATED, [(header::CONTENT_TYPE, "application/json")], body).into_response()
}

/// Adds the video and its picture, within the limits of the workspace.
async fn insert(
    state: &AppState,
    tx: &mut Transaction,
    workspace: &str,
    id: &str,
    document: &Document,
    secret: &str,
) -> Result<Picture, ApiError> {
    if table::count_unfinished(tx, workspace).await? >= MAX_UNFINISHED {
        let reason = format!("{MAX_UNFINISHED} videos of this workspace are waiting to be made");
        return Err(ApiError::QueueFull(reason));
    }
    let (avatar, colour) = (&document.avatar_key_id, document.background.as_deref());
    let picture =
        picture::find_or_queue(state, tx, workspace, avatar, document.size, colour).await?;
    let secrets = AgentSecrets { webhook: secret.to_owned(), ..AgentSecrets::default() };
    let secrets = secrets::seal(&state.vault, id, &secrets);
    let text = json!(document).to_string();
    quota::check_bytes(state, tx, workspace, text.len() + secrets.len()).await?;
    let draft = Draft {
        id,
        workspace,
        title: document.title.as_deref().unwrap_or_default(),
        avatar,
        document: &text,
        secrets: &secrets,
        audio_server: document.audio.is_some().then_some(&*state.server_id),
        picture: picture.id.as_deref(),
        draws: picture.is_pending,
        format: document.format.name(),
        size: document.size.pixels(),
        at: clock::now(),
    };
    table::insert(tx, &draft).await?;
    Ok(picture)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_visible_ascii() {
        let key = |value: &[u8]| {
            let mut headers = HeaderMap::new();
            headers.insert(KEY_HEADER, axum::http::HeaderValue::from_bytes(value).unwrap());
            parse_key(&headers).ok()
        };
        assert_eq!(key(b"0193a5b0"), Some(Some("0193a5b0".into())));
        assert_eq!(key(&[b'a'; 255]).flatten().unwrap().len(), 255);
        for wrong in [&b""[..], b"a b", "\u{e4}".as_bytes(), &[b'a'; 256]] {
            assert_eq!(key(wrong), None, "{wrong:?}");
        }
        assert_eq!(parse_key(&HeaderMap::new()).ok(), Some(None));
    }
}
