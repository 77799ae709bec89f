//! Extractors for all handlers, in the order in which errors are reported: key 401, its scope 403,
//! size 413, media type 415, body 400.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{FromRequest, FromRequestParts, Request};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderName, HeaderValue, header};
use axum::response::{IntoResponse, Response};
use bytes::{Bytes, BytesMut};
use futures_util::StreamExt as _;
use serde_json::Value;

use crate::clock;
use crate::error::{ApiError, FieldError};
use crate::state::AppState;
use crate::store::Page;

/// Maximum size of a JSON body, in bytes.
pub(crate) const MAX_JSON_BYTES: usize = 2 << 20;

/// The whole body, at most `limit` bytes.
pub(crate) async fn read_body(
    body: Body,
    headers: &HeaderMap,
    limit: usize,
) -> Result<Bytes, ApiError> {
    let content_length = headers
        .get(header::CONTENT_LENGTH)
        .and_then(|v| v.to_str().ok()?.parse::<usize>().ok())
        .unwrap_or(0);
    let mut stream = body.into_data_stream();
    let mut bytes = BytesMut::with_capacity(content_length.min(limit));
    if content_length > limit {
        return Err(ApiError::PayloadTooLarge);
    }
    while let Some(chunk) = stream.next().await {
        let chunk = chunk.map_err(|_| ApiError::Invalid(Vec::new()))?;
        if bytes.len() + chunk.len() > limit {
            return Err(ApiError::PayloadTooLarge);
        }
        bytes.extend_from_slice(&chunk);
    }
    Ok(bytes.freeze())
}

/// Media type without its parameters, in lower case; `None` if there is none.
pub(crate) fn media_type(headers: &HeaderMap) -> Option<String> {
    let value = headers.get(header::CONTENT_TYPE)?.to_str().unwrap_or("?");
    Some(value.split(';').next().unwrap_or_default().trim().to_ascii_lowercase())
}

/// A JSON body of at most `LIMIT` bytes. Without a media type it counts as JSON.
pub(crate) struct Json<const LIMIT: usize = MAX_JSON_BYTES>(pub(crate) Value);

impl<S: Sync, const LIMIT: usize> FromRequest<S> for Json<LIMIT> {
    type Rejection = ApiError;

    async fn from_request(request: Request, _: &S) -> Result<Self, ApiError> {
        let (parts, body) = request.into_parts();
        let bytes = read_body(body, &parts.headers, LIMIT).await?;
        match media_type(&parts.headers) {
            Some(kind) if kind != "application/json" && !kind.ends_with("+json") => {
                return Err(ApiError::UnsupportedMediaType("application/json"));
            }
            _ => {}
        }
        serde_json::from_slice(&bytes).map(Self).map_err(|_| ApiError::Invalid(Vec::new()))
    }
}

/// The parameters of a path. If their bytes are not valid text, the value is empty, which matches
/// no id.
pub(crate) struct Path<T>(pub(crate) T);

impl<S: Send + Sync, T: serde::de::DeserializeOwned + Default + Send> FromRequestParts<S>
    for Path<T>
{
    type Rejection = std::convert::Infallible;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Self::Rejection> {
        let found = axum::extract::Path::<T>::from_request_parts(parts, state).await;
        Ok(Self(found.map(|path| path.0).unwrap_or_default()))
    }
}

/// The page of a list that the query requests.
pub(crate) struct PageQuery<const ALL: bool>(pub(crate) Page);

impl<S: Sync, const ALL: bool> FromRequestParts<S> for PageQuery<ALL> {
    type Rejection = ApiError;

    /// `ALL_BY_DEFAULT`: all items unless `perpage` is given.
    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, ApiError> {
        parse_page(parts.uri.query().unwrap_or_default(), ALL).map(Self)
    }
}

const DEFAULT_PERPAGE: i64 = 10;
const MAX_PERPAGE: i128 = 100;
/// Maximum number of characters of a search. SQLite rejects patterns of 50,000 bytes and more.
const MAX_SEARCH_CHARS: usize = 200;

fn parse_page(query: &str, all: bool) -> Result<Page, ApiError> {
    let mut page = Page { perpage: (!all).then_some(DEFAULT_PERPAGE), ..Page::default() };
    let mut errors = Vec::new();
    let mut add_error = |field: &str, reason: &str| {
        errors.push(FieldError { field: field.into(), reason: reason.into() })
    };
    for (name, value) in url::form_urlencoded::parse(query.as_bytes()) {
        match &*name {
            "offset" => match value.parse::<i128>() {
                Ok(n) if n >= 0 => page.offset = i64::try_from(n).unwrap_or(i64::MAX),
                _ => add_error("offset", "must be a whole number of at least 0"),
            },
            "perpage" => match value.parse::<i128>() {
                Ok(n) if n >= 1 => page.perpage = Some(n.min(MAX_PERPAGE) as i64),
                _ => add_error("perpage", "must be a whole number of at least 1"),
            },
            // No stored text contains it, and PostgreSQL rejects it.
            "search" | "type" if value.contains('\0') => {
                add_error(&name, "must not contain a NUL character");
            }
            "search" if value.chars().count() > MAX_SEARCH_CHARS => {
                add_error("search", "must be at most 200 characters");
            }
            "search" if !value.is_empty() => page.search = Some(value.to_lowercase()),
            "fromDate" | "toDate" => match (clock::parse_date(&value), &*name) {
                (None, field) => add_error(field, "must be a date, YYYY-MM-DD"),
                (day, "fromDate") => page.from = day,
                (day, _) => page.to = day,
            },
            "type" if !value.is_empty() => page.kind = Some(value.into_owned()),
            _ => {}
        }
    }
    if errors.is_empty() { Ok(page) } else { Err(ApiError::Invalid(errors)) }
}

/// A list with the number of all matches.
pub(crate) struct ListResponse(pub(crate) Vec<Value>, pub(crate) i64);

impl ListResponse {
    /// One page of a list that is complete in memory.
    pub(crate) fn page_of(all: Vec<Value>, page: &Page) -> Self {
        let total = all.len() as i64;
        let offset = usize::try_from(page.offset).unwrap_or(usize::MAX);
        let perpage = page.perpage.and_then(|n| usize::try_from(n).ok()).unwrap_or(usize::MAX);
        Self(all.into_iter().skip(offset).take(perpage).collect(), total)
    }
}

impl IntoResponse for ListResponse {
    fn into_response(self) -> Response {
        (
            [(HeaderName::from_static("x-total-count"), HeaderValue::from(self.1))],
            axum::Json(self.0),
        )
            .into_response()
    }
}

/// `{base_url}`, without a slash at the end.
pub(crate) struct BaseUrl(pub(crate) String);

impl FromRequestParts<Arc<AppState>> for BaseUrl {
    type Rejection = std::convert::Infallible;

    async fn from_request_parts(
        parts: &mut Parts,
        state: &Arc<AppState>,
    ) -> Result<Self, Self::Rejection> {
        if let Some(url) = &state.config.public_url {
            return Ok(Self(url.trim_end_matches('/').to_owned()));
        }
        let host = parts
            .headers
            .get(header::HOST)
            .and_then(|v| v.to_str().ok())
            .filter(|h| is_authority(h));
        Ok(Self(format!(
            "http://{}",
            host.map_or_else(|| state.config.listen.to_string(), str::to_owned)
        )))
    }
}

/// Whether `host` can be used in a link unchanged.
fn is_authority(host: &str) -> bool {
    !host.is_empty()
        && host
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'-' | b':' | b'[' | b']'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn invalid_fields(query: &str) -> Vec<String> {
        match parse_page(query, false) {
            Err(ApiError::Invalid(errors)) => errors.into_iter().map(|f| f.field).collect(),
            other => panic!("{query}: {other:?}"),
        }
    }

    #[test]
    fn a_list_without_a_query_shows_its_first_ten() {
        assert_eq!(parse_page("", false).unwrap(), Page { perpage: Some(10), ..Page::default() });
        assert_eq!(parse_page("", true).unwrap(), Page::default());
    }

    #[test]
    fn a_larger_page_is_clamped_and_a_senseless_one_refused() {
        assert_eq!(
            parse_page("perpage=1000&offset=5", false).unwrap(),
            Page { offset: 5, perpage: Some(100), ..Page::default() }
        );
        assert_eq!(parse_page("perpage=99999999999999999999", true).unwrap().perpage, Some(100));
        assert_eq!(invalid_fields("perpage=0&offset=-1"), ["perpage", "offset"]);
        assert_eq!(invalid_fields("perpage=ten"), ["perpage"]);
        assert_eq!(invalid_fields(&format!("search={}", "a".repeat(201))), ["search"]);
        assert!(
            parse_page(&format!("search={}", "%C3%A4".repeat(200)), false).is_ok(),
            "characters, not bytes"
        );
        assert_eq!(invalid_fields("search=%00&type=a%00"), ["search", "type"]);
        assert_eq!(invalid_fields("fromDate=21.11.2026&toDate=2026-13-01"), ["fromDate", "toDate"]);
    }

    #[test]
    fn the_rest_of_a_query_narrows_the_list() {
        let page = parse_page(
            "search=%C3%84b_%25&fromDate=2026-11-01&toDate=2026-12-01&type=x&other=1",
            false,
        )
        .unwrap();
        assert_eq!(page.search.as_deref(), Some("äb_%"));
        assert!(page.from < page.to);
        assert_eq!(page.kind.as_deref(), Some("x"));
    }

    #[test]
    fn a_link_is_only_made_of_a_plain_host() {
        assert!(is_authority("127.0.0.1:8080") && is_authority("[::1]:80"));
        assert!(
            !is_authority("a/b")
                && !is_authority("")
                && !is_authority("x@y")
                && !is_authority("a\"b")
        );
    }
}
