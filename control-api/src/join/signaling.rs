//! Signaling: the two endpoints through which a client offers its connection.
//! `/rtc/{conversation_id}` follows WHIP (RFC 9725), but with media in both directions;
//! `/api/offer` follows the format of the public RTVI client libraries. Both accept only the
//! session token.
//!
//! The conversation's status as signaling sees it:
//!
//! ```text
//!              offer accepted                   Joined                     Ended
//!   started ------------------> offer pending --------> in_progress ---------------> ended
//!    |   ^                           |                   |        ^                    ^
//!    |   +------ offer_timeout ------+                   +- offer-+ replaces the       |
//!    |                                                              connection         |
//!    +------- ended by the API, or no join within `timeouts.join`, --------------------+
//!             or DELETE of the last offer
//!
//!   started and expired: 401      ended, or the call panicked: 409
//! ```
//!
//! An offer for a call that another server holds is relayed to it: the answer has that server's
//! candidates.

use std::sync::Arc;

use axum::Router;
use axum::body::Bytes;
use axum::extract::{Request, State};
use axum::http::request::Parts;
use axum::http::{HeaderName, HeaderValue, Method, StatusCode, header};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::{any, patch, post};
use conversation::event::MeetingStatus;
use conversation::id::ConversationId;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use tracing::Instrument as _;

use crate::error::ApiError;
use crate::http::auth::bearer_token;
use crate::http::body;
use crate::http::extract::{self, Path};
use crate::http::outage;
use crate::http::peer::Peer;
use crate::http::security_headers::call_span;
use crate::join::hang_up::hang_up;
use crate::join::offers::{find_joinable, submit_offer};
use crate::state::AppState;
use crate::state::join_token::Claims;
use crate::store::conversation::{Row, STARTED};

/// Maximum size of a session description, bytes. The largest one observed has 10 kB.
const MAX_SDP_BYTES: usize = 64 << 10;

pub(crate) fn routes(state: &Arc<AppState>) -> Router<Arc<AppState>> {
    // `any` admits OPTIONS. The fallback refuses a wrong method with the CORS headers that every
    // response carries.
    Router::new()
        .route(
            "/rtc/{conversation_id}",
            post(whip_offer).options(preflight).fallback(whip_method_not_allowed),
        )
        .route(
            "/rtc/{conversation_id}/{resource}",
            patch(whip_trickle)
                .delete(whip_hang_up)
                .options(preflight)
                .fallback(resource_method_not_allowed),
        )
        .route("/api/offer", any(rtvi_offer))
        .layer(from_fn_with_state(Arc::clone(state), outage::limit_time_of_signaling_in_outage))
        .layer(from_fn_with_state(Arc::clone(state), add_cors_headers))
}

/// Allows every origin: access depends on the token, which no browser attaches by itself.
async fn add_cors_headers(
    State(_): State<Arc<AppState>>,
    request: Request,
    next: Next,
) -> Response {
    let mut response = next.run(request).await;
    let headers = response.headers_mut();
    for (name, value) in [
        (header::ACCESS_CONTROL_ALLOW_ORIGIN, "*"),
        (header::ACCESS_CONTROL_ALLOW_METHODS, "POST, PATCH, DELETE, OPTIONS"),
        (header::ACCESS_CONTROL_ALLOW_HEADERS, "authorization, content-type"),
        (header::ACCESS_CONTROL_EXPOSE_HEADERS, "location, retry-after"),
        (header::ACCESS_CONTROL_MAX_AGE, "600"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    response
}

async fn preflight() -> Response {
    (StatusCode::NO_CONTENT, [(HeaderName::from_static("accept-post"), "application/sdp")])
        .into_response()
}

fn method_not_allowed(allow: &'static str) -> Response {
    let mut response = ApiError::MethodNotAllowed.into_response();
    response.headers_mut().insert(header::ALLOW, HeaderValue::from_static(allow));
    response
}

async fn whip_method_not_allowed() -> Response {
    method_not_allowed("POST, OPTIONS")
}

async fn resource_method_not_allowed() -> Response {
    method_not_allowed("PATCH, DELETE, OPTIONS")
}

/// Verifies the token of a request and returns its claims.
fn verify_token(state: &AppState, parts: &Parts) -> Result<Claims, ApiError> {
    let token = bearer_token(&parts.headers, parts.uri.query()).ok_or(ApiError::Unauthorized)?;
    state.token_signer.verify(&token).ok_or(ApiError::Unauthorized)
}

/// The token's claims, if they are for the conversation in the path.
pub(crate) fn verify_token_for(
    state: &AppState,
    parts: &Parts,
    id: &str,
) -> Result<Claims, ApiError> {
    let claims = verify_token(state, parts)?;
    if id.parse::<ConversationId>().is_ok_and(|id| id == claims.sub) {
        Ok(claims)
    } else {
        Err(ApiError::Unauthorized)
    }
}

/// Reads a body of one media type. A request without `Content-Type` is accepted.
async fn read_body(request: Request, media_type: &'static str) -> Result<Bytes, ApiError> {
    let (parts, body) = request.into_parts();
    let bytes = extract::read_body(body, &parts.headers, MAX_SDP_BYTES).await?;
    if extract::media_type(&parts.headers).is_some_and(|given| given != media_type) {
        return Err(ApiError::UnsupportedMediaType(media_type));
    }
    Ok(bytes)
}

fn split_request(request: Request) -> (Parts, Request) {
    let (parts, body) = request.into_parts();
    (parts.clone(), Request::from_parts(parts, body))
}

async fn whip_offer(
    State(state): State<Arc<AppState>>,
    Path(id): Path<String>,
    peer: Peer,
    request: Request,
) -> Result<Response, ApiError> {
    let (parts, request) = split_request(request);
    let claims = verify_token_for(&state, &parts, &id)?;
    state.check_rate_limit(&state.rate_limits.offers, peer)?;
    let sdp = read_body(request, "application/sdp").await?;
    let sdp = String::from_utf8(sdp.to_vec())
        .map_err(|_| ApiError::BadRequest("bad SDP: it is not text".into()))?;
    let call = find_joinable(&state, &claims).await?;
    ensure_in_meeting(&state, &call.row).await?;
    let accepted = submit_offer(&state, call, peer, (sdp, None, false)).await?;
    let headers = [
        (header::CONTENT_TYPE, "application/sdp".to_owned()),
        (header::LOCATION, format!("/rtc/{}/{}", claims.sub, accepted.connection)),
    ];
    Ok((StatusCode::CREATED, headers, accepted.answer).into_response())
}

/// Refuses the page of a meeting that the agent has not entered: nobody would hear its greeting.
async fn ensure_in_meeting(state: &AppState, row: &Row) -> Result<(), ApiError> {
    if row.meeting.is_none() || row.status != STARTED {
        return Ok(());
    }
    let meeting = state.store.meeting(&row.id).await?;
    match meeting.is_some_and(|meeting| meeting.status() == MeetingStatus::InCall) {
        true => Ok(()),
        false => Err(ApiError::NoCapacity("the agent is not in the meeting yet".into())),
    }
}

/// Candidates are not needed: the engine learns the client's address from its connectivity checks.
async fn whip_trickle(
    State(state): State<Arc<AppState>>,
    Path((id, resource)): Path<(String, String)>,
    request: Request,
) -> Result<StatusCode, ApiError> {
    let (parts, request) = split_request(request);
    let claims = verify_token_for(&state, &parts, &id)?;
    read_body(request, "application/trickle-ice-sdpfrag").await?;
    let call = find_joinable(&state, &claims).await?;
    // The other server knows the resource, and nothing would change there.
    if !state.connections.contains(claims.sub, &resource)
        && (call.is_from_memory() || state.relay.other_holder(claims.sub).await?.is_none())
    {
        return Err(ApiError::NotFound(crate::error::Resource::Route));
    }
    Ok(StatusCode::NO_CONTENT)
}

async fn whip_hang_up(
    State(state): State<Arc<AppState>>,
    Path((id, resource)): Path<(String, String)>,
    request: Request,
) -> Result<StatusCode, ApiError> {
    let (parts, _) = split_request(request);
    let claims = verify_token_for(&state, &parts, &id)?;
    if hang_up(&state, claims.sub, resource.clone()).await? {
        return Ok(StatusCode::OK);
    }
    // A call that ended by itself has no connection to hang up.
    state.events.flush(&state.store).await;
    match find_joinable(&state, &claims).await {
        Err(ApiError::Conflict(_)) => Ok(StatusCode::OK),
        Err(rejection) => Err(rejection),
        Ok(_) => match state.relay.other_holder(claims.sub).await? {
            Some(holder) if state.relay.hang_up(&holder, claims.sub, resource).await? => {
                Ok(StatusCode::OK)
            }
            _ => Err(ApiError::NotFound(crate::error::Resource::Route)),
        },
    }
}

/// Candidates are validated and not used: the engine learns the client's address from its
/// connectivity checks.
/// An offer, in the format of RTVI clients.
#[derive(Default, Deserialize, JsonSchema)]
#[schemars(rename = "Offer")]
pub(crate) struct OfferRequest {
    #[schemars(length(min = 1))]
    pub(crate) sdp: String,
    /// Always `offer`.
    #[serde(default, rename = "type")]
    #[expect(dead_code, reason = "there is one value")]
    kind: OfferType,
    /// The connection that this one replaces.
    pub(crate) pc_id: Option<String>,
    /// Whether a new connection starts instead of an ICE restart.
    pub(crate) restart_pc: Option<bool>,
}

/// The type of a session description.
#[derive(Clone, Copy, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum OfferType {
    #[default]
    Offer,
}

/// The answer to an offer, in the format of RTVI clients.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Answer {
    sdp: String,
    /// Always `answer`.
    #[serde(rename = "type")]
    kind: &'static str,
    pc_id: String,
}

/// The response to ICE candidates.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Taken {
    #[schemars(extend("enum" = ["success"]))]
    status: &'static str,
}

/// ICE candidates, in the format of RTVI clients.
#[derive(Default, Deserialize, JsonSchema)]
#[schemars(rename = "Candidates")]
#[expect(dead_code, reason = "candidates are only validated")]
pub(crate) struct CandidatesRequest {
    pc_id: Option<String>,
    /// Their content is not validated.
    candidates: Option<Vec<Map<String, Value>>>,
}

/// SDP, replaced connection and restart flag of an offer.
pub(crate) fn parse_offer(body: Value) -> Result<(String, Option<String>, bool), ApiError> {
    let OfferRequest { sdp, pc_id, restart_pc, .. } = body::parse(body)?;
    Ok((sdp, pc_id, restart_pc.unwrap_or(false)))
}

pub(crate) fn validate_candidates(body: &[u8]) -> Result<(), ApiError> {
    let body = serde_json::from_slice(body).map_err(|_| ApiError::Invalid(Vec::new()))?;
    body::parse::<CandidatesRequest>(body).map(|_| ())
}

/// Validates the body of a trickle request at `/api/offer`: JSON with `pc_id` and `candidates`,
/// both optional. For the fuzz targets.
///
/// # Errors
/// The status and the body of the error response.
pub fn validate_trickle(body: &[u8]) -> Result<(), (u16, Vec<u8>)> {
    use futures_util::FutureExt as _;
    validate_candidates(body).map_err(|rejection| {
        let answer = rejection.into_response();
        let status = answer.status().as_u16();
        // The body is complete, so it is available at once.
        let body = axum::body::to_bytes(answer.into_body(), usize::MAX).now_or_never();
        (status, body.and_then(Result::ok).unwrap_or_default().to_vec())
    })
}

async fn rtvi_offer(
    State(state): State<Arc<AppState>>,
    peer: Peer,
    request: Request,
) -> Result<Response, ApiError> {
    match *request.method() {
        Method::OPTIONS => return Ok(StatusCode::NO_CONTENT.into_response()),
        Method::POST | Method::PATCH => {}
        _ => return Ok(method_not_allowed("POST, PATCH, OPTIONS")),
    }
    let (parts, request) = split_request(request);
    let claims = verify_token(&state, &parts)?;
    let is_trickle = parts.method == Method::PATCH;
    if !is_trickle {
        state.check_rate_limit(&state.rate_limits.offers, peer)?;
    }
    let bytes = read_body(request, "application/json").await?;
    if is_trickle {
        validate_candidates(&bytes)?;
        // The client waits for this response before it reports "connected".
        find_joinable(&state, &claims).await?;
        return Ok(axum::Json(Taken { status: "success" }).into_response());
    }
    let value: Value = serde_json::from_slice(&bytes).map_err(|_| ApiError::Invalid(Vec::new()))?;
    let offer = parse_offer(value)?;
    let call = find_joinable(&state, &claims).await?;
    // The path does not contain the conversation's id.
    let accepted =
        submit_offer(&state, call, peer, offer).instrument(call_span(claims.sub)).await?;
    Ok(axum::Json(Answer { sdp: accepted.answer, kind: "answer", pc_id: accepted.connection })
        .into_response())
}
