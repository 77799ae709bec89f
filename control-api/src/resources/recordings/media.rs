//! `GET /media/{key}`: a file of the local storage, by a signed link and without an API key: of a
//! recording, or of a video. Object storage is read by links of its own.

use std::ops::Range;
use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::{RawQuery, State};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use axum::routing::get;
use conversation::id::ConversationId;

use super::files::{MP4, WEBM};
use super::{content_type, file_name, storage_key};
use crate::clock;
use crate::error::{ApiError, Resource};
use crate::http::extract::Path;
use crate::resources::videos::files::StoredFile;
use crate::state::AppState;
use crate::storage::{self, FileKind};
use crate::store::recording::STORED;
use crate::store::video::COMPLETED;

pub(crate) fn routes() -> Router<Arc<AppState>> {
    Router::new().route("/media/{folder}/{file}", get(read))
}

/// The recording that a key names, if it has exactly that form.
fn parse_key(key: &str) -> Option<(ConversationId, &'static str)> {
    let (id, format) = key.strip_prefix("recordings/")?.split_once('.')?;
    let format = [WEBM, MP4].into_iter().find(|known| *known == format)?;
    let id = id.parse().ok()?;
    (storage_key(id, format) == key).then_some((id, format))
}

/// The bytes that a request asks for, of a file of this size: `None` = all. A header with several
/// ranges, or that is not valid, counts as absent (RFC 9110, 14.2).
///
/// # Errors
/// The file has none of the bytes.
fn parse_range(header: Option<&str>, size: u64) -> Result<Option<Range<u64>>, ()> {
    let Some((first, last)) =
        header.and_then(|text| text.trim().strip_prefix("bytes=")?.trim().split_once('-'))
    else {
        return Ok(None);
    };
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if !digits(first) || !digits(last) {
        return Ok(None);
    }
    let range = match (first.parse::<u64>(), last.parse::<u64>()) {
        (Ok(first), Ok(last)) if first > last => return Ok(None),
        (Ok(first), Ok(last)) => first..last.saturating_add(1).min(size),
        (Ok(first), Err(_)) => first..size,
        (Err(_), Ok(length)) if first.is_empty() => size.saturating_sub(length)..size,
        _ => return Ok(None),
    };
    if range.is_empty() { Err(()) } else { Ok(Some(range)) }
}

/// Whether the link permits to read the file now.
fn check_link(state: &AppState, key: &str, query: &str) -> Result<(), ApiError> {
    let value = |name: &str| {
        let found = url::form_urlencoded::parse(query.as_bytes()).find(|(known, _)| known == name);
        found.map(|(_, value)| value.into_owned()).unwrap_or_default()
    };
    let invalid = || ApiError::Forbidden("Forbidden: the link is not valid");
    let expires: u64 = value("expires").parse().map_err(|_| invalid())?;
    if !state.media_links.verify(key, expires, &value("signature")) {
        return Err(invalid());
    }
    if u64::try_from(clock::now() / 1_000_000).unwrap_or(0) >= expires {
        return Err(ApiError::Forbidden("Forbidden: the link has expired"));
    }
    Ok(())
}

async fn read(
    State(state): State<Arc<AppState>>,
    Path((folder, file)): Path<(String, String)>,
    RawQuery(query): RawQuery,
    method: Method,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    let key = format!("{folder}/{file}");
    check_link(&state, &key, query.as_deref().unwrap_or_default())?;
    let video = StoredFile::parse_key(&key);
    let what = if video.is_some() { Resource::Video } else { Resource::Recording };
    let not_found = || ApiError::NotFound(what);
    let (content_type, name) = match video {
        Some((id, file)) => find_video(&state, &id, file).await?,
        None => find_recording(&state, &key).await?,
    };
    if !state.storage.is_local() {
        return Err(not_found());
    }
    let failed = |error: storage::Error| {
        if error.is_not_found() {
            // It may be on another server.
            not_found()
        } else {
            ApiError::Internal("Failed to read the file", error.to_string())
        }
    };
    let size = state.storage.size(&key).await.map_err(failed)?;
    let wanted = headers.get(header::RANGE).and_then(|value| value.to_str().ok());
    let kind = FileKind { content_type, name: &name };
    let mut response = match parse_range(wanted, size) {
        Err(()) => {
            let mut response = StatusCode::RANGE_NOT_SATISFIABLE.into_response();
            set_text(&mut response, header::CONTENT_RANGE, &format!("bytes */{size}"));
            return Ok(response);
        }
        Ok(part) => {
            let range = part.clone().unwrap_or(0..size);
            let length = range.end - range.start;
            let body = if method == Method::HEAD || length == 0 {
                Body::empty()
            } else {
                Body::from_stream(state.storage.read(&key, range.clone()).await.map_err(failed)?)
            };
            let mut response = Response::new(body);
            if part.is_some() {
                *response.status_mut() = StatusCode::PARTIAL_CONTENT;
                let text = format!("bytes {}-{}/{size}", range.start, range.end - 1);
                set_text(&mut response, header::CONTENT_RANGE, &text);
            }
            response.headers_mut().insert(header::CONTENT_LENGTH, HeaderValue::from(length));
            response
        }
    };
    set_text(&mut response, header::CONTENT_TYPE, kind.content_type);
    set_text(&mut response, header::CONTENT_DISPOSITION, &kind.disposition("inline"));
    set_text(&mut response, header::ACCEPT_RANGES, "bytes");
    Ok(response)
}

/// Type and name of the recording with a key, if it is in the storage.
async fn find_recording(state: &AppState, key: &str) -> Result<(&'static str, String), ApiError> {
    let not_found = || ApiError::NotFound(Resource::Recording);
    let (id, format) = parse_key(key).ok_or_else(not_found)?;
    let row = state.store.recording(&id.to_string()).await?.ok_or_else(not_found)?;
    if row.status != STORED || row.storage_key != key {
        return Err(not_found());
    }
    Ok((content_type(format), file_name(id, format)))
}

/// Type and name of a file of a video, if it is in the storage.
async fn find_video(
    state: &AppState,
    id: &str,
    file: StoredFile,
) -> Result<(&'static str, String), ApiError> {
    let not_found = || ApiError::NotFound(Resource::Video);
    let row = state.store.video_in_any_workspace(id).await?.ok_or_else(not_found)?;
    if row.status != COMPLETED || !StoredFile::all_of(&row).contains(&file) {
        return Err(not_found());
    }
    Ok((file.content_type(), file.name(id)))
}

/// Sets a header to a text of this server.
fn set_text(response: &mut Response, name: header::HeaderName, text: &str) {
    // Only ASCII, so it is always valid.
    if let Ok(value) = HeaderValue::from_str(text) {
        response.headers_mut().insert(name, value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_the_name_of_a_recording_and_nothing_else() {
        let id = "0193a5b0-0000-7000-8000-000000000001";
        assert_eq!(parse_key(&format!("recordings/{id}.webm")), Some((id.parse().unwrap(), WEBM)));
        for key in [
            format!("recordings/{id}.txt"),
            format!("recordings/../{id}.webm"),
            format!("recordings//{id}.webm"),
            format!("{id}.webm"),
            format!("recordings/{}.webm", id.to_uppercase()),
            "recordings/../../secrets.key".into(),
            "../secrets.key".into(),
            String::new(),
        ] {
            assert_eq!(parse_key(&key), None, "{key}");
        }
    }

    #[test]
    fn a_range_is_inside_the_file_or_is_refused() {
        for (text, expected) in [
            ("bytes=0-0", Ok(Some(0..1))),
            ("bytes=2-", Ok(Some(2..10))),
            ("bytes=2-99", Ok(Some(2..10))),
            ("bytes=-3", Ok(Some(7..10))),
            ("bytes=-99", Ok(Some(0..10))),
            ("bytes=10-", Err(())),
            ("bytes=-0", Err(())),
            ("bytes=5-4", Ok(None)),
            ("bytes=0-1,3-4", Ok(None)),
            ("bytes=x-", Ok(None)),
            ("bytes=-", Ok(None)),
            ("lines=1-2", Ok(None)),
            ("bytes=+1-2", Ok(None)),
        ] {
            assert_eq!(parse_range(Some(text), 10), expected, "{text}");
        }
        assert_eq!(parse_range(None, 10), Ok(None));
        assert_eq!(parse_range(Some("bytes=0-"), 0), Err(()));
    }
}
