//! Authentication: API keys, in the header or behind the console's [`console_session`]. A key has
//! 256 random bits, is stored as SHA-256, and is shown once; afterwards only its prefix is known.

use std::sync::Arc;
use std::time::Instant;

use aws_lc_rs::digest;
use axum::extract::{FromRequestParts, MatchedPath};
use axum::http::HeaderMap;
use axum::http::request::Parts;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use crate::app::Shared;
use crate::clock;
use crate::error::{ApiError, OwnText};
use crate::scope::Scope;
use crate::{openapi, session, vault};

/// Number of characters of a key that stay visible.
const PREFIX: usize = 10;

/// SHA-256 of a key.
pub(crate) type Hash = [u8; 32];

/// A new key.
pub(crate) fn fresh_key() -> String {
    let mut bytes = [0; 32];
    vault::random(&mut bytes);
    format!("vv_{}", URL_SAFE_NO_PAD.encode(bytes))
}

/// The part of a key that may be shown.
pub(crate) fn prefix(key: &str) -> &str {
    key.get(..PREFIX).unwrap_or_default()
}

pub(crate) fn hash(key: &str) -> Hash {
    let mut hash = [0; 32];
    hash.copy_from_slice(digest::digest(&digest::SHA256, key.as_bytes()).as_ref());
    hash
}

pub(crate) fn hex(hash: &Hash) -> String {
    hash.iter().map(|b| format!("{b:02x}")).collect()
}

/// The stored form of a key.
pub(crate) fn stored(key: &str) -> String {
    hex(&hash(key))
}

/// The authenticated caller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Caller {
    /// The workspace that the request may access.
    pub(crate) workspace: Arc<str>,
    /// The hash of the key.
    pub(crate) key: Hash,
    /// The scope of the key: at least what the operation needs.
    pub(crate) scope: Scope,
}

/// The key of the environment (`VISAVIS_API_KEY`), which is never stored, and its workspace.
///
/// All other keys are read from the store for each request: a key that was revoked, here or by
/// `visavis keys revoke`, is refused at once.
pub(crate) struct Given(Option<(Hash, Arc<str>)>);

impl Given {
    pub(crate) fn new(given: Option<(&str, &str)>) -> Self {
        Self(given.map(|(key, workspace)| (hash(key), Arc::from(workspace))))
    }

    fn workspace(&self, hash: &Hash) -> Option<Arc<str>> {
        self.0.as_ref().filter(|(given, _)| given == hash).map(|(_, workspace)| Arc::clone(workspace))
    }
}

/// The workspace and the scope of a key. 401 if the key is unknown or has expired.
pub(crate) async fn opened(shared: &Shared, hash: &Hash) -> Result<(Arc<str>, Scope), ApiError> {
    if let Some(workspace) = shared.given.workspace(hash) {
        return Ok((workspace, Scope::Administer));
    }
    let row = shared.store.key(&hex(hash)).await?.ok_or(ApiError::Unauthorized)?;
    if row.expires_at.is_some_and(|at| at <= clock::now()) {
        return Err(ApiError::Unauthorized);
    }
    let scope = row.scope()?;
    shared.uses.note(*hash, row.last_used_at);
    Ok((row.workspace.into(), scope))
}

/// The scope that a request needs. A route that the table does not contain needs the highest one.
fn needed(parts: &Parts) -> Scope {
    let route = parts.extensions.get::<MatchedPath>();
    route.and_then(|route| openapi::needs(&parts.method, route.as_str())).unwrap_or(Scope::Administer)
}

impl FromRequestParts<Arc<Shared>> for Caller {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, shared: &Arc<Shared>) -> Result<Self, ApiError> {
        let hash = match parts.headers.get("x-api-key") {
            Some(key) => key.to_str().ok().map(|key| hash(key.trim())),
            None => session::caller(shared, &parts.headers).await?,
        };
        let hash = hash.ok_or(ApiError::Unauthorized)?;
        let (workspace, scope) =
            opened(shared, &hash).await.map_err(|error| match parts.extensions.get::<OwnText>() {
                Some(own) => own.tell(&parts.method, error),
                None => error,
            })?;
        shared.limits.keys.take(hash, Instant::now()).map_err(ApiError::TooMany)?;
        if scope < needed(parts) {
            return Err(ApiError::Forbidden(scope.refusal()));
        }
        Ok(Self { workspace, key: hash, scope })
    }
}

/// The token after `Bearer ` in `Authorization`, otherwise the one in `?token=`.
pub(crate) fn bearer(headers: &HeaderMap, query: Option<&str>) -> Option<String> {
    let header = headers.get("authorization").and_then(|v| v.to_str().ok());
    let header = header.and_then(|v| {
        let (scheme, token) = v.split_once(' ')?;
        scheme.eq_ignore_ascii_case("bearer").then(|| token.trim().to_owned())
    });
    header.or_else(|| {
        let query = query.unwrap_or_default();
        url::form_urlencoded::parse(query.as_bytes())
            .find(|(name, _)| name == "token")
            .map(|(_, token)| token.into_owned())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_long_and_never_the_same() {
        let (a, b) = (fresh_key(), fresh_key());
        assert_ne!(a, b);
        assert_eq!(a.len(), 3 + 43);
        assert_eq!(prefix(&a), &a[..10]);
        assert_eq!(stored("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    }

    #[test]
    fn a_token_comes_in_the_header_or_in_the_query() {
        let mut headers = HeaderMap::new();
        assert_eq!(bearer(&headers, Some("a=b&token=x.y")).as_deref(), Some("x.y"));
        headers.insert("authorization", "bearer q.r".parse().unwrap());
        assert_eq!(bearer(&headers, Some("token=x")).as_deref(), Some("q.r"));
        assert_eq!(bearer(&HeaderMap::new(), None), None);
    }
}
