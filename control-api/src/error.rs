//! Every error response of the API, with the exact bytes.
//!
//! The client's text and the operator's information are separate: the cause of a 500 is logged
//! here, once, and never sent.

use axum::http::{HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Value, json};

use crate::store;

/// The body of most errors.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Error")]
pub(crate) struct ErrorBody<'a> {
    error: &'a str,
}

/// The body of an error of the request itself.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Invalid")]
pub(crate) struct InvalidBody<'a> {
    error: &'a str,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    details: &'a [FieldError],
}

/// The body of an error that depends on the server's state.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "NoCapacity")]
pub(crate) struct NoCapacityBody<'a> {
    error: &'a str,
    reason: &'a str,
}

/// The body of an error of a photo from which no avatar can be made.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "UnusablePhoto")]
pub(crate) struct UnusablePhotoBody<'a> {
    /// One sentence that says what the person can do.
    error: &'a str,
    /// Two or three words, for programs, such as `no face`.
    reason: &'a str,
}

/// One invalid field of a request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub(crate) struct FieldError {
    /// Path of the field, such as `avatars[0].config.stt.min_endpointing_delay`.
    pub(crate) field: String,
    /// What is wrong, in a few words.
    pub(crate) reason: String,
}

/// Reason in the response while the store rejects writes.
pub(crate) const STORE_UNWRITABLE: &str = "the store accepts no writes";

/// `Retry-After` when a workspace's queue of drawings or videos is full, in seconds: a job may be finished by
/// then.
const QUEUE_RETRY_AFTER_SECONDS: u64 = 60;

/// A resource that was not found; each kind has its own text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Resource {
    Agent,
    Template,
    Conversation,
    Tool,
    Guardrail,
    Mcp,
    KnowledgeBase,
    Document,
    CustomAvatar,
    ApiKey,
    Credential,
    Provider,
    DeadLetter,
    Recording,
    Video,
    Route,
}

/// Extension of a response whose request found that the store rejects writes; the server updates
/// its health from it.
#[derive(Clone, Debug)]
pub(crate) struct StoreOutage(pub(crate) String);

/// Why a request is refused.
#[derive(Debug)]
pub(crate) enum ApiError {
    /// 401
    Unauthorized,
    /// 400 `Invalid request body`, with the invalid fields if they are known.
    Invalid(Vec<FieldError>),
    /// 400 with a text of its own.
    BadRequest(String),
    /// 400: a photo from which no avatar can be made.
    UnusablePhoto {
        /// One sentence that says what the person can do.
        error: String,
        /// Two or three words, for programs.
        reason: String,
    },
    /// 404
    NotFound(Resource),
    /// 502 in plain text: the meeting service rejects the agent.
    MeetingRefused,
    /// 502: a vendor's server failed; the response contains the reason.
    ProviderFailed(String),
    /// 403
    Forbidden(&'static str),
    /// 405; axum adds `Allow`.
    MethodNotAllowed,
    /// 406
    NotAcceptable(String),
    /// 408: the body did not arrive in time. The connection is closed.
    RequestTimeout,
    /// 409
    Conflict(String),
    /// 413
    PayloadTooLarge,
    /// 415
    UnsupportedMediaType(&'static str),
    /// 421
    UnknownHost,
    /// 429
    RateLimited(RateLimitExceeded),
    /// 429: too many jobs of one workspace wait; the response contains the reason.
    QueueFull(String),
    /// 429: the workspace has reached a limit (`limits.FIELD`).
    WorkspaceLimit {
        field: &'static str,
        reason: String,
        /// Seconds until there is room again, if it depends on time.
        retry_after: Option<u64>,
    },
    /// 503: no worker has capacity; the response contains the reason.
    NoCapacity(String),
    /// 503: something is not installed; one sentence says what to do.
    Unavailable(String),
    /// 503: the store is known to reject writes; the cause is only logged.
    StoreUnwritable(String),
    /// 503: this request found that the store rejects writes; the cause is only logged.
    StoreOutage(String),
    /// 500 with the resource's own text; the cause is only logged.
    Internal(&'static str, String),
    /// 500 with the resource's own text, as the interface defines it for a mistake of the client.
    MistakenId(&'static str),
}

/// State of a rate limit that was reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RateLimitExceeded {
    /// Requests per minute.
    pub(crate) limit: u32,
    /// Seconds until the next request is admitted.
    pub(crate) retry_after: u64,
    /// Seconds until the whole limit is available again.
    pub(crate) reset: u64,
}

impl ApiError {
    /// Converts a store error, with the text of a resource.
    fn from_store(error: &store::Error, text: &'static str) -> Self {
        match error {
            store::Error::Unwritable(reason) => Self::StoreUnwritable(reason.clone()),
            _ if error.is_outage() => Self::StoreOutage(error.to_string()),
            _ if error.is_contention() => {
                tracing::warn!(%error, "a request waited too long for another one");
                Self::NoCapacity("another request changes the same records".into())
            }
            _ => Self::Internal(text, error.to_string()),
        }
    }

    /// The error as one sentence, for callers that get no response: a job of LiveKit. Causes that
    /// responses hide are logged.
    pub(crate) fn sentence(&self) -> String {
        match self {
            Self::NotFound(what) => {
                let body = what.not_found_body();
                let text = body["message"].as_str().or(body["error"].as_str());
                text.unwrap_or("Not found").to_owned()
            }
            Self::Invalid(details) => {
                let first = details.first().map(|one| format!(": {} {}", one.field, one.reason));
                format!("Invalid request body{}", first.unwrap_or_default())
            }
            Self::NoCapacity(reason) => format!("No capacity: {reason}"),
            Self::WorkspaceLimit { reason, .. } => format!("Workspace limit reached: {reason}"),
            Self::MistakenId(text) => (*text).to_owned(),
            Self::BadRequest(text)
            | Self::Conflict(text)
            | Self::NotAcceptable(text)
            | Self::Unavailable(text) => text.clone(),
            Self::StoreUnwritable(cause) | Self::StoreOutage(cause) => {
                tracing::warn!(%cause, "the store fails");
                format!("Service unavailable: {STORE_UNWRITABLE}")
            }
            Self::Internal(text, cause) => {
                tracing::error!(%cause, "{text}");
                (*text).to_owned()
            }
            other => format!("{other:?}"),
        }
    }

    /// A single invalid field.
    pub(crate) fn invalid_field(field: impl Into<String>, reason: impl Into<String>) -> Self {
        Self::Invalid(vec![FieldError { field: field.into(), reason: reason.into() }])
    }
}

impl From<store::Error> for ApiError {
    fn from(error: store::Error) -> Self {
        Self::from_store(&error, "Internal server error")
    }
}

/// The texts of a resource's routes for store errors. Applied as a layer to its router, so that
/// reading the caller's key, which precedes the handler, fails with the same text.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ErrorText {
    pub(crate) read: &'static str,
    pub(crate) delete: &'static str,
}

impl ErrorText {
    /// One text for both.
    pub(crate) const fn uniform(text: &'static str) -> Self {
        Self { read: text, delete: text }
    }

    /// Applies the text of the resource to an error, if the method reads or deletes.
    pub(crate) fn apply(self, method: &axum::http::Method, error: ApiError) -> ApiError {
        let text = match method.as_str() {
            "GET" | "HEAD" => self.read,
            "DELETE" => self.delete,
            _ => return error,
        };
        if let ApiError::Internal(_, cause) = error {
            ApiError::Internal(text, cause)
        } else {
            error
        }
    }
}

/// Converts a store error, with the text of its resource.
pub(crate) trait OrInternalError<T> {
    /// 500 `{"error": text}`
    fn or_internal_error(self, text: &'static str) -> Result<T, ApiError>;
}

impl<T> OrInternalError<T> for Result<T, store::Error> {
    fn or_internal_error(self, text: &'static str) -> Result<T, ApiError> {
        self.map_err(|error| ApiError::from_store(&error, text))
    }
}

impl Resource {
    fn not_found_body(self) -> Value {
        match self {
            Self::Agent => json!({"message": "Agent details not found"}),
            Self::Template => json!({"message": "Template not found"}),
            Self::Conversation => json!(ErrorBody { error: "Conversation not found" }),
            Self::Tool => json!({"message": "Tool not found"}),
            Self::Guardrail => json!({"message": "Guardrail not found"}),
            Self::Mcp => json!(ErrorBody { error: "MCP not found" }),
            Self::KnowledgeBase => json!({"message": "Knowledge Base not found"}),
            Self::Document => json!({"message": "Document not found"}),
            Self::CustomAvatar => json!({"message": "Custom avatar not found"}),
            Self::DeadLetter => json!({"message": "Dead letter not found"}),
            Self::Credential => json!({"message": "Credential not found"}),
            Self::Provider => json!({"message": "Provider not found"}),
            Self::ApiKey => json!({"message": "API key not found"}),
            Self::Recording => json!(ErrorBody { error: "Recording not found" }),
            Self::Video => json!({"message": "Video not found"}),
            Self::Route => json!(ErrorBody { error: "Not found" }),
        }
    }
}

/// What an operator does whose proxy passes on the name of the site.
const UNKNOWN_HOST: &str = "the server is for this machine only; behind a proxy, set \
    server.public_url to the address that browsers open";

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let error = |error: &str| json!(ErrorBody { error });
        let with_reason = |error: &str, reason: &str| json!(NoCapacityBody { error, reason });
        let (status, body) = match &self {
            Self::Unauthorized => {
                (StatusCode::UNAUTHORIZED, error("Unauthorized: not a valid authorization api key"))
            }
            Self::Invalid(details) => (
                StatusCode::BAD_REQUEST,
                json!(InvalidBody { error: "Invalid request body", details }),
            ),
            Self::BadRequest(text) => (StatusCode::BAD_REQUEST, error(text)),
            Self::UnusablePhoto { error, reason } => {
                (StatusCode::BAD_REQUEST, json!(UnusablePhotoBody { error, reason }))
            }
            Self::NotFound(what) => (StatusCode::NOT_FOUND, what.not_found_body()),
            // Not JSON; see below.
            Self::MeetingRefused => (StatusCode::BAD_GATEWAY, Value::Null),
            Self::ProviderFailed(reason) => {
                (StatusCode::BAD_GATEWAY, with_reason("Provider failed", reason))
            }
            Self::Forbidden(text) => (StatusCode::FORBIDDEN, error(text)),
            Self::MethodNotAllowed => (StatusCode::METHOD_NOT_ALLOWED, error("Method not allowed")),
            Self::NotAcceptable(text) => (StatusCode::NOT_ACCEPTABLE, error(text)),
            Self::RequestTimeout => {
                (StatusCode::REQUEST_TIMEOUT, error("Request body was not sent in time"))
            }
            Self::Conflict(text) => (StatusCode::CONFLICT, error(text)),
            Self::PayloadTooLarge => {
                (StatusCode::PAYLOAD_TOO_LARGE, error("Request body is too large"))
            }
            Self::UnsupportedMediaType(wanted) => (
                StatusCode::UNSUPPORTED_MEDIA_TYPE,
                error(&format!("Content-Type must be {wanted}")),
            ),
            Self::UnknownHost => {
                (StatusCode::MISDIRECTED_REQUEST, with_reason("Unknown host", UNKNOWN_HOST))
            }
            Self::RateLimited(_) => (StatusCode::TOO_MANY_REQUESTS, error("Too many requests")),
            Self::QueueFull(reason) => {
                (StatusCode::TOO_MANY_REQUESTS, with_reason("Too many requests", reason))
            }
            Self::WorkspaceLimit { field, reason, .. } => (
                StatusCode::TOO_MANY_REQUESTS,
                json!(InvalidBody {
                    error: "Workspace limit reached",
                    details: &[FieldError { field: (*field).into(), reason: reason.clone() }],
                }),
            ),
            Self::NoCapacity(reason) => {
                (StatusCode::SERVICE_UNAVAILABLE, with_reason("No capacity", reason))
            }
            Self::Unavailable(reason) => {
                (StatusCode::SERVICE_UNAVAILABLE, with_reason("Service unavailable", reason))
            }
            Self::StoreUnwritable(cause) | Self::StoreOutage(cause) => {
                tracing::warn!(%cause, "the store fails: request rejected");
                (
                    StatusCode::SERVICE_UNAVAILABLE,
                    with_reason("Service unavailable", STORE_UNWRITABLE),
                )
            }
            Self::Internal(text, cause) => {
                tracing::error!(%cause, "{text}");
                (StatusCode::INTERNAL_SERVER_ERROR, error(text))
            }
            Self::MistakenId(text) => (StatusCode::INTERNAL_SERVER_ERROR, error(text)),
        };
        let outage = if let Self::StoreOutage(cause) = &self {
            Some(StoreOutage(cause.clone()))
        } else {
            None
        };
        if matches!(self, Self::MeetingRefused) {
            return (status, "Unable to create agent request.").into_response();
        }
        let mut response = (status, axum::Json(body)).into_response();
        if let Some(outage) = outage {
            response.extensions_mut().insert(outage);
        }
        let headers = response.headers_mut();
        match self {
            Self::RateLimited(quota) => {
                headers.insert(header::RETRY_AFTER, HeaderValue::from(quota.retry_after));
                headers.insert(
                    HeaderName::from_static("ratelimit-limit"),
                    HeaderValue::from(quota.limit),
                );
                headers
                    .insert(HeaderName::from_static("ratelimit-remaining"), HeaderValue::from(0));
                headers.insert(
                    HeaderName::from_static("ratelimit-reset"),
                    HeaderValue::from(quota.reset),
                );
            }
            Self::RequestTimeout => {
                headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
            }
            Self::WorkspaceLimit { retry_after: Some(seconds), .. } => {
                headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds));
            }
            Self::QueueFull(_) => {
                headers.insert(header::RETRY_AFTER, HeaderValue::from(QUEUE_RETRY_AFTER_SECONDS));
            }
            Self::NoCapacity(_) | Self::StoreUnwritable(_) | Self::StoreOutage(_) => {
                headers.insert(header::RETRY_AFTER, HeaderValue::from(2));
            }
            _ => {}
        }
        response
    }
}
