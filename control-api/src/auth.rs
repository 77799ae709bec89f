//! Who asks: API keys. 256 random bits, stored as SHA-256, shown once; afterwards only their prefix is known.

use std::collections::HashMap;
use std::sync::{Arc, RwLock};
use std::time::{Duration, Instant};

use aws_lc_rs::digest;
use axum::extract::FromRequestParts;
use axum::http::HeaderMap;
use axum::http::request::Parts;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use crate::app::Shared;
use crate::clock::{self, Micros};
use crate::error::ApiError;
use crate::vault;

/// A key that was found good is believed this long, so that one revoked by another process (`visavis keys revoke`) soon stops.
const BELIEVED: Duration = Duration::from_secs(1);
/// Keys remembered before all are forgotten.
const REMEMBERED: usize = 10_000;
/// Characters of a key that stay known.
const PREFIX: usize = 10;

type Hash = [u8; 32];

/// A fresh key.
pub(crate) fn fresh_key() -> String {
    let mut bytes = [0; 32];
    vault::random(&mut bytes);
    format!("vv_{}", URL_SAFE_NO_PAD.encode(bytes))
}

/// The part of a key that may be shown.
pub(crate) fn prefix(key: &str) -> &str {
    key.get(..PREFIX).unwrap_or_default()
}

fn hash(key: &str) -> Hash {
    let mut hash = [0; 32];
    hash.copy_from_slice(digest::digest(&digest::SHA256, key.as_bytes()).as_ref());
    hash
}

fn hex(hash: &Hash) -> String {
    hash.iter().map(|b| format!("{b:02x}")).collect()
}

/// The stored form of a key.
pub(crate) fn stored(key: &str) -> String {
    hex(&hash(key))
}

/// Who asks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Caller {
    /// Whose agents and conversations these are.
    pub(crate) workspace: Arc<str>,
}

struct Known {
    workspace: Arc<str>,
    expires_at: Option<Micros>,
    checked: Instant,
}

/// The keys that were found good lately.
pub(crate) struct Keys {
    /// The key of the environment, with its workspace; it is never stored.
    given: Option<(Hash, Arc<str>)>,
    known: RwLock<HashMap<Hash, Known>>,
}

impl Keys {
    /// `given`: `VISAVIS_API_KEY` and the workspace that it opens.
    pub(crate) fn new(given: Option<(&str, &str)>) -> Self {
        let given = given.map(|(key, workspace)| (hash(key), Arc::from(workspace)));
        Self { given, known: RwLock::new(HashMap::new()) }
    }

    /// Forgets what it knows, because a key was revoked.
    pub(crate) fn forget(&self) {
        self.known.write().unwrap_or_else(std::sync::PoisonError::into_inner).clear();
    }

    fn remembered(&self, hash: &Hash) -> Option<Arc<str>> {
        if let Some((given, workspace)) = &self.given
            && given == hash
        {
            return Some(Arc::clone(workspace));
        }
        let known = self.known.read().unwrap_or_else(std::sync::PoisonError::into_inner);
        let key = known.get(hash)?;
        let good = key.checked.elapsed() < BELIEVED && key.expires_at.is_none_or(|at| clock::now() < at);
        good.then(|| Arc::clone(&key.workspace))
    }

    fn remember(&self, hash: Hash, workspace: Arc<str>, expires_at: Option<Micros>) {
        let mut known = self.known.write().unwrap_or_else(std::sync::PoisonError::into_inner);
        if known.len() >= REMEMBERED {
            known.clear();
        }
        known.insert(hash, Known { workspace, expires_at, checked: Instant::now() });
    }
}

impl FromRequestParts<Arc<Shared>> for Caller {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, shared: &Arc<Shared>) -> Result<Self, ApiError> {
        let key =
            parts.headers.get("x-api-key").and_then(|v| v.to_str().ok()).ok_or(ApiError::Unauthorized)?;
        let hash = hash(key.trim());
        let workspace = match shared.keys.remembered(&hash) {
            Some(workspace) => workspace,
            None => {
                let row = shared.store.key(&hex(&hash)).await?.ok_or(ApiError::Unauthorized)?;
                if row.expires_at.is_some_and(|at| at <= clock::now()) {
                    return Err(ApiError::Unauthorized);
                }
                let workspace: Arc<str> = row.workspace.into();
                shared.keys.remember(hash, Arc::clone(&workspace), row.expires_at);
                workspace
            }
        };
        shared.limits.keys.take(hash, Instant::now()).map_err(ApiError::TooMany)?;
        Ok(Self { workspace })
    }
}

/// The token after `Bearer ` in `Authorization`, else that of `?token=`.
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
