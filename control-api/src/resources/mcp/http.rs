//! MCP over streamable HTTP, with the server's own HTTP client: its policy for private addresses
//! and its limits apply, and redirects are not followed.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use axum::http::{HeaderName, HeaderValue};
use egress::{Method, Request, Response};
use futures_util::future;
use futures_util::stream::{self, BoxStream, StreamExt as _};
use rmcp::model::{ClientJsonRpcMessage, JsonRpcMessage, ServerJsonRpcMessage};
use rmcp::transport::streamable_http_client::{
    SseError, StreamableHttpClient, StreamableHttpError, StreamableHttpPostResponse,
};
use sse_stream::{Sse, SseStream};

use super::budget::Budget;

/// Timeout of the request that deletes a session. A server also discards sessions by itself.
const DELETE_TIMEOUT: Duration = Duration::from_millis(500);
const SESSION_HEADER: &str = "mcp-session-id";
const LAST_EVENT_HEADER: &str = "last-event-id";
pub(super) const EVENT_STREAM: &str = "text/event-stream";

type Error = StreamableHttpError<egress::Error>;

/// Sends the requests of `rmcp`, while the session's budget permits it.
#[derive(Clone)]
pub(super) struct BudgetedHttpClient {
    client: egress::Client,
    budget: Budget,
    /// A message was refused with a status that a server of this transport does not use.
    legacy_server: Arc<AtomicBool>,
}

impl BudgetedHttpClient {
    pub(super) fn new(client: egress::Client, budget: Budget) -> Self {
        Self { client, budget, legacy_server: Arc::default() }
    }

    /// Whether the server seems to use the legacy transport: it refuses messages with 400, 404 or
    /// 405, the test that the protocol's page on transports specifies.
    pub(super) fn is_legacy_server(&self) -> bool {
        self.legacy_server.load(Ordering::Relaxed)
    }

    fn request(
        method: Method,
        uri: &str,
        session: Option<&str>,
        token: Option<&str>,
        headers: &HashMap<HeaderName, HeaderValue>,
    ) -> Result<Request, Error> {
        let client_error = StreamableHttpError::Client;
        // Streams last as long as their session. The caller of a request has a timeout, and the
        // budget counts the data.
        let mut request =
            Request::new(method, uri).map_err(client_error)?.timeout(None).limit(usize::MAX);
        for (name, value) in headers {
            let value = value.to_str().unwrap_or_default();
            request = request.header(name.as_str(), value).map_err(client_error)?;
        }
        if let Some(token) = token {
            request = request.bearer(token).map_err(client_error)?;
        }
        if let Some(session) = session {
            request = request.header(SESSION_HEADER, session).map_err(client_error)?;
        }
        request.header("accept", "application/json, text/event-stream").map_err(client_error)
    }
}

/// The server-sent events of a response, until it or the session ends.
pub(super) fn sse_events(
    response: Response,
    budget: Budget,
) -> BoxStream<'static, Result<Sse, SseError>> {
    let counted = budget.clone();
    let chunks = stream::unfold(Some(response), move |response| {
        let budget = budget.clone();
        async move {
            let mut response = response?;
            let chunk = budget.chunk(&mut response).await.transpose()?;
            let rest = chunk.is_ok().then_some(response);
            Some((chunk, rest))
        }
    });
    let within_budget = move |event: &Result<Sse, SseError>| {
        future::ready(event.is_err() || counted.count_message().is_ok())
    };
    SseStream::from_bytes_stream(chunks.boxed()).take_while(within_budget).boxed()
}

pub(super) fn is_event_stream(response: &Response) -> bool {
    response.header("content-type").is_some_and(|kind| kind.starts_with(EVENT_STREAM))
}

fn unexpected_status(status: u16) -> Error {
    StreamableHttpError::UnexpectedServerResponse(
        format!("the MCP server responded with status {status}").into(),
    )
}

impl StreamableHttpClient for BudgetedHttpClient {
    type Error = egress::Error;

    async fn post_message(
        &self,
        uri: Arc<str>,
        message: ClientJsonRpcMessage,
        session_id: Option<Arc<str>>,
        auth_header: Option<String>,
        custom_headers: HashMap<HeaderName, HeaderValue>,
    ) -> Result<StreamableHttpPostResponse, Error> {
        let session = session_id.as_deref();
        let request =
            Self::request(Method::POST, &uri, session, auth_header.as_deref(), &custom_headers)?;
        let request = request.json(serde_json::to_vec(&message)?);
        let response =
            self.budget.send(&self.client, request).await.map_err(StreamableHttpError::Client)?;
        let status = response.status();
        match status {
            202 | 204 => return Ok(StreamableHttpPostResponse::Accepted),
            404 if session.is_some() => return Err(StreamableHttpError::SessionExpired),
            400 | 404 | 405 if session.is_none() => {
                self.legacy_server.store(true, Ordering::Relaxed)
            }
            _ => {}
        }
        let new_session_id = response.header(SESSION_HEADER).map(str::to_owned);
        if response.is_success() && is_event_stream(&response) {
            return Ok(StreamableHttpPostResponse::Sse(
                sse_events(response, self.budget.clone()),
                new_session_id,
            ));
        }
        let body = self.budget.body(response).await.map_err(StreamableHttpError::Client)?;
        let read = serde_json::from_slice::<ServerJsonRpcMessage>(&body);
        match (read, status) {
            (Ok(answer), 200..=299) => Ok(StreamableHttpPostResponse::Json(answer, new_session_id)),
            // An error in the protocol's own format.
            (Ok(rejection @ JsonRpcMessage::Error(_)), _) => {
                Ok(StreamableHttpPostResponse::Json(rejection, new_session_id))
            }
            (Err(_), 200..=299) if body.is_empty() => Ok(StreamableHttpPostResponse::Accepted),
            (Err(error), 200..=299) => Err(error.into()),
            _ => Err(unexpected_status(status)),
        }
    }

    async fn delete_session(
        &self,
        uri: Arc<str>,
        session_id: Arc<str>,
        auth_header: Option<String>,
        custom_headers: HashMap<HeaderName, HeaderValue>,
    ) -> Result<(), Error> {
        let session = Some(&*session_id);
        // A session that exceeded a limit gets no further request.
        if self.budget.exceeded_limit().is_some() {
            return Ok(());
        }
        let request =
            Self::request(Method::DELETE, &uri, session, auth_header.as_deref(), &custom_headers)?;
        let request = request.timeout(Some(DELETE_TIMEOUT));
        let response = self.client.send(request).await.map_err(StreamableHttpError::Client)?;
        match response.status() {
            200..=299 | 404 => Ok(()),
            405 => Err(StreamableHttpError::ServerDoesNotSupportDeleteSession),
            status => Err(unexpected_status(status)),
        }
    }

    async fn get_stream(
        &self,
        uri: Arc<str>,
        session_id: Option<Arc<str>>,
        last_event_id: Option<String>,
        auth_header: Option<String>,
        custom_headers: HashMap<HeaderName, HeaderValue>,
    ) -> Result<BoxStream<'static, Result<Sse, SseError>>, Error> {
        let session = session_id.as_deref();
        let mut request =
            Self::request(Method::GET, &uri, session, auth_header.as_deref(), &custom_headers)?;
        if let Some(last) = last_event_id {
            request =
                request.header(LAST_EVENT_HEADER, &last).map_err(StreamableHttpError::Client)?;
        }
        let response =
            self.budget.send(&self.client, request).await.map_err(StreamableHttpError::Client)?;
        match response.status() {
            200..=299 if is_event_stream(&response) => {
                Ok(sse_events(response, self.budget.clone()))
            }
            405 => Err(StreamableHttpError::ServerDoesNotSupportSse),
            status => Err(unexpected_status(status)),
        }
    }
}
