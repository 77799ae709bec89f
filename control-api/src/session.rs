//! The console's session: an API key, given once, becomes a cookie that no script can read (`docs/decisions/0013`).
//!
//! The cookie is sealed with the data folder's key file and holds the key's hash, not the key. It opens an operation only together with the
//! token that [`SHOWN_TOKEN`] carries: a page elsewhere can make a browser send a cookie, but cannot read that token. The store holds only which
//! sessions were logged out, so a session holds on every server of a shared database, and ends with its key, with its time, or by a log-out,
//! whoever else has its cookie.

use std::sync::Arc;

use aws_lc_rs::constant_time::verify_slices_are_equal;
use axum::Router;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use axum::routing::post;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::app::Shared;
use crate::auth::{self, Hash};
use crate::clock::{self, Micros};
use crate::error::ApiError;
use crate::fields::{Faults, Fields};
use crate::request::Json;
use crate::scope::Scope;
use crate::{store, vault};

const COOKIE: &str = "visavis_console";
/// The header with the token that must come with the cookie.
const SHOWN_TOKEN: &str = "x-csrf-token";
/// What the sealing is bound to: nothing else that is sealed can pass as a session.
const OWNER: &str = "console session";
/// How long a session lasts after its page was last opened.
const LASTS: Micros = 24 * 3600 * 1_000_000;

/// What the cookie holds.
#[derive(Serialize, Deserialize)]
struct Session {
    /// The same in each cookie of one log-in.
    id: String,
    /// Of the API key.
    hash: Hash,
    prefix: String,
    csrf_token: String,
    until: Micros,
}

pub(crate) fn routes() -> Router<Arc<Shared>> {
    Router::new().route("/console/session", post(begin).get(read).delete(end))
}

impl Session {
    /// The session of a request's cookie; `None` if there is none, or it is over.
    async fn of(shared: &Shared, headers: &HeaderMap) -> Result<Option<Self>, ApiError> {
        let Some(session) = Self::sealed(shared, headers) else { return Ok(None) };
        let ended = shared.store.session_has_ended(&session.id).await?;
        Ok((!ended).then_some(session))
    }

    /// What the cookie holds, if it is ours and not too old.
    fn sealed(shared: &Shared, headers: &HeaderMap) -> Option<Self> {
        let cookies = headers.get_all(header::COOKIE).iter().filter_map(|value| value.to_str().ok());
        let sealed = cookies
            .flat_map(|value| value.split(';'))
            .find_map(|pair| pair.trim().strip_prefix(COOKIE)?.strip_prefix('='))?;
        let plain = shared.vault.open(OWNER, &URL_SAFE_NO_PAD.decode(sealed).ok()?).ok()?;
        let session: Self = serde_json::from_slice(&plain).ok()?;
        (session.until > clock::now()).then_some(session)
    }

    /// Tells the session to its page, with a cookie that lasts anew.
    fn told(mut self, shared: &Shared, scope: Scope) -> Response {
        self.until = clock::now() + LASTS;
        let plain = serde_json::to_vec(&self).expect("a session is plain data");
        let sealed = URL_SAFE_NO_PAD.encode(shared.vault.seal(OWNER, &plain));
        let body =
            axum::Json(json!({"prefix": self.prefix, "scope": scope.name(), "csrf_token": self.csrf_token}));
        (cookie(shared, &sealed, ""), body).into_response()
    }
}

/// Without `Max-Age` it is gone with the browser.
fn cookie(shared: &Shared, value: &str, more: &str) -> [(header::HeaderName, HeaderValue); 1] {
    let secure = shared.config.public_url.as_deref().is_some_and(|url| url.starts_with("https:"));
    let secure = if secure { "; Secure" } else { "" };
    let text = format!("{COOKIE}={value}; Path=/; HttpOnly; SameSite=Strict{secure}{more}");
    [(header::SET_COOKIE, HeaderValue::try_from(text).expect("base64 and our own words"))]
}

/// Hash of the key whose session asks; `None` without a session, or without its token.
pub(crate) async fn caller(shared: &Shared, headers: &HeaderMap) -> Result<Option<Hash>, ApiError> {
    let Some(token) = headers.get(SHOWN_TOKEN) else { return Ok(None) };
    let session = Session::of(shared, headers).await?;
    let own =
        |session: &Session| verify_slices_are_equal(token.as_bytes(), session.csrf_token.as_bytes()).is_ok();
    Ok(session.filter(own).map(|session| session.hash))
}

async fn begin(State(shared): State<Arc<Shared>>, Json(body): Json) -> Result<Response, ApiError> {
    let key = {
        let faults = Faults::default();
        let key = Fields::body(body, &faults)?.required("key");
        faults.unless(key)?
    };
    let key = key.trim();
    let hash = auth::hash(key);
    let (_, scope) = auth::opened(&shared, &hash).await?;
    let mut random = [0; 32];
    vault::random(&mut random);
    let csrf_token = URL_SAFE_NO_PAD.encode(random);
    let prefix = auth::prefix(key).into();
    Ok(Session { id: store::fresh_id(), hash, prefix, csrf_token, until: 0 }.told(&shared, scope))
}

/// Whose session this is; 204 where there is none (not a refusal: the page asks in order to know).
async fn read(State(shared): State<Arc<Shared>>, headers: HeaderMap) -> Result<Response, ApiError> {
    let Some(session) = Session::of(&shared, &headers).await? else {
        return Ok(StatusCode::NO_CONTENT.into_response());
    };
    match auth::opened(&shared, &session.hash).await {
        Ok((_, scope)) => Ok(session.told(&shared, scope)),
        // The key was revoked, or has expired.
        Err(ApiError::Unauthorized) => Ok(StatusCode::NO_CONTENT.into_response()),
        Err(other) => Err(other),
    }
}

/// Logs out: every cookie of this log-in opens nothing any more.
async fn end(State(shared): State<Arc<Shared>>, headers: HeaderMap) -> Result<Response, ApiError> {
    if let Some(session) = Session::sealed(&shared, &headers) {
        let mut tx = shared.store.write().await?;
        // A later cookie of the same log-in lasts longer than this one, at most by as much as a cookie lasts.
        store::session::end(&mut tx, &session.id, clock::now() + LASTS).await?;
        tx.commit().await?;
    }
    Ok((StatusCode::NO_CONTENT, cookie(&shared, "", "; Max-Age=0")).into_response())
}
