//! Authentication: API keys, in the header or behind the console's [`console_session`].

use std::sync::Arc;
use std::time::Instant;

use axum::extract::{FromRequestParts, MatchedPath};
use axum::http::HeaderMap;
use axum::http::request::Parts;

use crate::clock;
use crate::error::{ApiError, ErrorText};
use crate::http::console_session;
use crate::operations;
use crate::scope::Scope;
use crate::state::AppState;
use crate::state::api_key::{KeyHash, hash_key, to_hex};

/// The authenticated caller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ApiCaller {
    /// The workspace that the request may access.
    pub(crate) workspace: Arc<str>,
    /// The hash of the key.
    pub(crate) key_hash: KeyHash,
    /// The scope of the key: at least what the operation needs.
    pub(crate) scope: Scope,
}

/// The workspace and the scope of a key. 401 if the key is unknown or has expired.
pub(crate) async fn authenticate(
    state: &AppState,
    hash: &KeyHash,
) -> Result<(Arc<str>, Scope), ApiError> {
    if let Some(workspace) = state.environment_key.workspace_for(hash) {
        return Ok((workspace, Scope::Administer));
    }
    let row = state.store.api_key_by_hash(&to_hex(hash)).await?.ok_or(ApiError::Unauthorized)?;
    if row.expires_at.is_some_and(|at| at <= clock::now()) {
        return Err(ApiError::Unauthorized);
    }
    let scope = row.scope()?;
    state.key_usage.record(*hash, row.last_used_at);
    Ok((row.workspace.into(), scope))
}

/// The scope that a request needs. A route that the table does not contain needs the highest one.
fn required_scope(parts: &Parts) -> Scope {
    let route = parts.extensions.get::<MatchedPath>();
    route
        .and_then(|route| operations::required_scope(&parts.method, route.as_str()))
        .unwrap_or(Scope::Administer)
}

impl FromRequestParts<Arc<AppState>> for ApiCaller {
    type Rejection = ApiError;

    async fn from_request_parts(
        parts: &mut Parts,
        state: &Arc<AppState>,
    ) -> Result<Self, ApiError> {
        let hash = match parts.headers.get("x-api-key") {
            Some(key) => key.to_str().ok().map(|key| hash_key(key.trim())),
            None => console_session::session_key_hash(state, &parts.headers).await?,
        };
        let hash = hash.ok_or(ApiError::Unauthorized)?;
        let (workspace, scope) = authenticate(state, &hash).await.map_err(|error| {
            match parts.extensions.get::<ErrorText>() {
                Some(own) => own.apply(&parts.method, error),
                None => error,
            }
        })?;
        state.rate_limits.keys.check(hash, Instant::now()).map_err(ApiError::RateLimited)?;
        if scope < required_scope(parts) {
            return Err(ApiError::Forbidden(scope.forbidden_message()));
        }
        Ok(Self { workspace, key_hash: hash, scope })
    }
}

/// The token after `Bearer ` in `Authorization`, otherwise the one in `?token=`.
pub(crate) fn bearer_token(headers: &HeaderMap, query: Option<&str>) -> Option<String> {
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
    fn a_token_comes_in_the_header_or_in_the_query() {
        let mut headers = HeaderMap::new();
        assert_eq!(bearer_token(&headers, Some("a=b&token=x.y")).as_deref(), Some("x.y"));
        headers.insert("authorization", "bearer q.r".parse().unwrap());
        assert_eq!(bearer_token(&headers, Some("token=x")).as_deref(), Some("q.r"));
        assert_eq!(bearer_token(&HeaderMap::new(), None), None);
    }
}
