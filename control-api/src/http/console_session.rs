//! The session of the console: an API key, entered once, becomes a cookie that no script can read
//! (`docs/decisions/0013`).
//!
//! The cookie is encrypted with the data folder's key file and holds the key's hash, not the key.
//! It authorizes a request only together with the token in [`CSRF_HEADER`]: a page elsewhere can
//! make a browser send a cookie, but cannot read that token. The store holds only which sessions
//! were logged out, so a session is valid on every server of a shared database. It ends with its
//! key, with its lifetime, or at log-out, even for other holders of its cookie.
//!
//! ```text
//! (log_in, valid key) ---> active
//! active --- page opened: new cookie for 24 h ---> active
//! active --- 24 h after the last cookie ---------> expired
//! active --- log_out ----------------------------> logged out
//! active --- key revoked or expired -------------> ended
//! ```

use std::sync::Arc;

use aws_lc_rs::constant_time::verify_slices_are_equal;
use axum::Router;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use axum::routing::post;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::clock::{self, Micros};
use crate::error::ApiError;
use crate::http::extract::Json;
use crate::http::{auth, body};
use crate::scope::Scope;
use crate::state::AppState;
use crate::state::api_key::{self, KeyHash};
use crate::store::{self, Lock, vault};

const COOKIE_NAME: &str = "visavis_console";
/// The header with the token that must accompany the cookie.
const CSRF_HEADER: &str = "x-csrf-token";
/// The additional data of the encryption: nothing else that is encrypted passes as a session.
const SEAL_CONTEXT: &str = "console session";
/// Lifetime of a session after its page was last opened.
const SESSION_LIFETIME: Micros = 24 * 3600 * 1_000_000;

/// Content of the cookie.
#[derive(Serialize, Deserialize)]
struct Session {
    /// The same in each cookie of one log-in.
    id: String,
    /// Hash of the API key.
    hash: KeyHash,
    prefix: String,
    csrf_token: String,
    until: Micros,
}

pub(crate) fn routes() -> Router<Arc<AppState>> {
    Router::new().route("/console/session", post(log_in).get(show).delete(log_out))
}

impl Session {
    /// The session in a request's cookie; `None` if there is none, or if it has ended.
    async fn from_request(state: &AppState, headers: &HeaderMap) -> Result<Option<Self>, ApiError> {
        let Some(session) = Self::from_cookie(state, headers) else { return Ok(None) };
        let ended = state.store.session_has_ended(&session.id).await?;
        Ok((!ended).then_some(session))
    }

    /// The content of the cookie, if it is authentic and has not expired.
    fn from_cookie(state: &AppState, headers: &HeaderMap) -> Option<Self> {
        let cookies =
            headers.get_all(header::COOKIE).iter().filter_map(|value| value.to_str().ok());
        let sealed = cookies
            .flat_map(|value| value.split(';'))
            .find_map(|pair| pair.trim().strip_prefix(COOKIE_NAME)?.strip_prefix('='))?;
        let plain = state.vault.open(SEAL_CONTEXT, &URL_SAFE_NO_PAD.decode(sealed).ok()?).ok()?;
        let session: Self = serde_json::from_slice(&plain).ok()?;
        (session.until > clock::now()).then_some(session)
    }

    /// Responds with the session for its page, and with a cookie of full lifetime.
    #[expect(clippy::expect_used, reason = "plain data serializes")]
    fn renew_and_respond(mut self, state: &AppState, scope: Scope) -> Response {
        self.until = clock::now() + SESSION_LIFETIME;
        let plain = serde_json::to_vec(&self).expect("a session serializes to JSON");
        let sealed = URL_SAFE_NO_PAD.encode(state.vault.seal(SEAL_CONTEXT, &plain));
        let body = axum::Json(SessionResponse {
            prefix: &self.prefix,
            scope,
            csrf_token: &self.csrf_token,
        });
        (set_cookie(state, &sealed, ""), body).into_response()
    }
}

/// A cookie without `Max-Age` ends with the browser session.
#[expect(clippy::expect_used, reason = "base64 and ASCII text are valid in a header")]
fn set_cookie(
    state: &AppState,
    value: &str,
    attributes: &str,
) -> [(header::HeaderName, HeaderValue); 1] {
    let secure = state.config.public_url.as_deref().is_some_and(|url| url.starts_with("https:"));
    let secure = if secure { "; Secure" } else { "" };
    let text =
        format!("{COOKIE_NAME}={value}; Path=/; HttpOnly; SameSite=Strict{secure}{attributes}");
    [(
        header::SET_COOKIE,
        HeaderValue::try_from(text).expect("base64 and ASCII text are valid in a header"),
    )]
}

/// Hash of the key of the requesting session; `None` without a session or without its token.
pub(crate) async fn session_key_hash(
    state: &AppState,
    headers: &HeaderMap,
) -> Result<Option<KeyHash>, ApiError> {
    let Some(token) = headers.get(CSRF_HEADER) else { return Ok(None) };
    let session = Session::from_request(state, headers).await?;
    let csrf_matches = |session: &Session| {
        verify_slices_are_equal(token.as_bytes(), session.csrf_token.as_bytes()).is_ok()
    };
    Ok(session.filter(csrf_matches).map(|session| session.hash))
}

/// The session, for its page.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Session")]
pub(crate) struct SessionResponse<'a> {
    /// The beginning of the key.
    prefix: &'a str,
    scope: Scope,
    /// For the header `x-csrf-token`.
    csrf_token: &'a str,
}

/// A log-in.
#[derive(Default, Deserialize, JsonSchema)]
#[schemars(rename = "SessionBody")]
pub(crate) struct LogInRequest {
    #[schemars(length(min = 1))]
    pub(crate) key: String,
}

async fn log_in(
    State(state): State<Arc<AppState>>,
    Json(body): Json,
) -> Result<Response, ApiError> {
    let LogInRequest { key } = body::parse(body)?;
    let key = key.trim();
    let hash = api_key::hash_key(key);
    let (_, scope) = auth::authenticate(&state, &hash).await?;
    let mut random = [0; 32];
    vault::fill_random(&mut random);
    let csrf_token = URL_SAFE_NO_PAD.encode(random);
    let prefix = api_key::key_prefix(key).into();
    Ok(Session { id: store::new_id(), hash, prefix, csrf_token, until: 0 }
        .renew_and_respond(&state, scope))
}

/// The current session; 204 if there is none. This is not an error: the page only checks whether
/// there is one.
async fn show(
    State(state): State<Arc<AppState>>,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    let Some(session) = Session::from_request(&state, &headers).await? else {
        return Ok(StatusCode::NO_CONTENT.into_response());
    };
    match auth::authenticate(&state, &session.hash).await {
        Ok((_, scope)) => Ok(session.renew_and_respond(&state, scope)),
        // The key was revoked or has expired.
        Err(ApiError::Unauthorized) => Ok(StatusCode::NO_CONTENT.into_response()),
        Err(other) => Err(other),
    }
}

/// Logs out: all cookies of this log-in become invalid.
async fn log_out(
    State(state): State<Arc<AppState>>,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    if let Some(session) = Session::from_cookie(&state, &headers) {
        let mut tx = state.store.begin_write(Lock::Rows).await?;
        // A later cookie of the same log-in expires after this one, but at most one cookie lifetime
        // from now.
        store::session::mark_ended(&mut tx, &session.id, clock::now() + SESSION_LIFETIME).await?;
        tx.commit().await?;
    }
    Ok((StatusCode::NO_CONTENT, set_cookie(&state, "", "; Max-Age=0")).into_response())
}
