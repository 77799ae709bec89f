//! The legacy transport of MCP (HTTP with server-sent events, protocol revision 2024-11-05), which
//! `rmcp` no longer implements. One GET stays open and carries all messages of the server. Our
//! messages are POSTed to the URL in its first event.

use std::collections::HashMap;
use std::time::Duration;

use axum::http::{HeaderName, HeaderValue};
use egress::{Method, Request};
use futures_util::StreamExt as _;
use futures_util::stream::BoxStream;
use rmcp::model::ServerJsonRpcMessage;
use rmcp::service::{RoleClient, RxJsonRpcMessage, TxJsonRpcMessage};
use rmcp::transport::Transport;
use sse_stream::Sse;
use url::Url;

use super::budget::Budget;
use super::http::{EVENT_STREAM, is_event_stream, sse_events};

/// Timeout for POSTing a message. The answer arrives in the stream.
const POST_TIMEOUT: Duration = Duration::from_secs(20);

/// Why a message could not be sent, or a stream not be opened.
#[derive(Debug, thiserror::Error)]
pub(super) enum Error {
    /// The request failed.
    #[error(transparent)]
    Net(#[from] egress::Error),
    /// An HTTP status other than success.
    #[error("the MCP server responded with status {0}")]
    Status(u16),
    /// The server does not support this transport.
    #[error("the MCP server {0}")]
    UnsupportedTransport(&'static str),
    /// The message cannot be serialized.
    #[error(transparent)]
    Json(#[from] serde_json::Error),
}

/// An open stream, and the URL for our messages.
pub(super) struct LegacySseTransport {
    client: egress::Client,
    budget: Budget,
    headers: HashMap<HeaderName, HeaderValue>,
    /// URL for POSTing messages.
    endpoint: Url,
    events: BoxStream<'static, Result<Sse, sse_stream::Error>>,
}

fn with_headers(
    mut request: Request,
    headers: &HashMap<HeaderName, HeaderValue>,
) -> Result<Request, egress::Error> {
    for (name, value) in headers {
        request = request.header(name.as_str(), value.to_str().unwrap_or_default())?;
    }
    Ok(request)
}

impl LegacySseTransport {
    /// Opens the stream and waits for the server's first event. The caller sets the timeout.
    pub(super) async fn open(
        client: egress::Client,
        budget: Budget,
        url: &str,
        headers: HashMap<HeaderName, HeaderValue>,
    ) -> Result<Self, Error> {
        let request = with_headers(
            Request::new(Method::GET, url)?.timeout(None).limit(usize::MAX),
            &headers,
        )?;
        let base = request.url().clone();
        let response = budget.send(&client, request.header("accept", EVENT_STREAM)?).await?;
        if !response.is_success() {
            return Err(Error::Status(response.status()));
        }
        if !is_event_stream(&response) {
            return Err(Error::UnsupportedTransport("does not respond with server-sent events"));
        }
        let mut events = sse_events(response, budget.clone());
        let endpoint_path = loop {
            let event = match events.next().await {
                Some(Ok(event)) => event,
                Some(Err(_)) | None => {
                    return Err(Error::UnsupportedTransport(
                        "closed the stream before it named its endpoint",
                    ));
                }
            };
            if event.event.as_deref() == Some("endpoint") {
                break event.data.unwrap_or_default();
            }
        };
        // Messages and headers may be sent to this server only.
        let endpoint = base
            .join(endpoint_path.trim())
            .ok()
            .filter(|endpoint| endpoint.origin() == base.origin())
            .ok_or(Error::UnsupportedTransport("named an endpoint of another origin"))?;
        Ok(Self { client, budget, headers, endpoint, events })
    }

    fn post_request(&self, message: &TxJsonRpcMessage<RoleClient>) -> Result<Request, Error> {
        let request = Request::new(Method::POST, self.endpoint.as_str())?
            .timeout(Some(POST_TIMEOUT))
            .limit(usize::MAX);
        Ok(with_headers(request, &self.headers)?.json(serde_json::to_vec(message)?))
    }
}

impl Transport<RoleClient> for LegacySseTransport {
    type Error = Error;

    fn send(
        &mut self,
        item: TxJsonRpcMessage<RoleClient>,
    ) -> impl Future<Output = Result<(), Error>> + Send + 'static {
        let (client, budget, request) =
            (self.client.clone(), self.budget.clone(), self.post_request(&item));
        async move {
            let response = budget.send(&client, request?).await?;
            if response.is_success() { Ok(()) } else { Err(Error::Status(response.status())) }
        }
    }

    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleClient>> {
        loop {
            let event = match self.events.next().await? {
                Ok(event) => event,
                Err(why) => {
                    tracing::debug!(error = %why, "the event stream of an MCP server failed");
                    return None;
                }
            };
            if event.event.as_deref().is_some_and(|kind| kind != "message") {
                continue;
            }
            match serde_json::from_str::<ServerJsonRpcMessage>(
                event.data.as_deref().unwrap_or_default(),
            ) {
                Ok(message) => return Some(message),
                Err(why) => {
                    tracing::debug!(error = %why, "cannot parse a message of an MCP server")
                }
            }
        }
    }

    async fn close(&mut self) -> Result<(), Error> {
        self.events = futures_util::stream::empty().boxed();
        Ok(())
    }
}
