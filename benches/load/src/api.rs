//! Client for the server's REST API, as far as callers need it.

use conversation::event::WEBHOOK_EVENTS;
use reqwest::{Method, RequestBuilder, Response, header};
use serde_json::{Map, Value, json};
use std::time::Duration;
use url::Url;

use crate::args::Target;
use crate::metrics::ServerMetrics;
use crate::recording::RecordedChannels;
use crate::workload::Workload;

/// Timeout of a request.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);
/// Maximum number of characters of an error message that are shown.
const MAX_REASON_LENGTH: usize = 300;

/// A client of one server.
pub(crate) struct Api {
    http: reqwest::Client,
    base: Url,
    key: String,
    metrics_token: Option<String>,
}

/// A conversation that can be joined.
#[derive(Clone, Debug)]
pub(crate) struct CreatedConversation {
    pub(crate) id: String,
    token: String,
}

/// An accepted offer.
pub(crate) struct AnsweredOffer {
    /// SDP answer.
    pub(crate) answer: String,
    /// URL of the call, for hanging up.
    resource: Url,
}

/// A newly created agent.
pub(crate) struct CreatedAgent {
    pub(crate) id: String,
    /// Signing secret of its webhooks.
    pub(crate) secret: String,
}

impl Api {
    pub(crate) fn new(target: &Target) -> Result<Self, String> {
        let http = reqwest::Client::builder()
            .timeout(REQUEST_TIMEOUT)
            .no_proxy()
            .build()
            .map_err(|e| e.to_string())?;
        let (base, key) = (target.url.clone(), target.key.clone());
        Ok(Self { http, base, key, metrics_token: target.metrics_token.clone() })
    }

    fn url(&self, path: &str) -> Result<Url, String> {
        self.base.join(path).map_err(|e| format!("{path}: {e}"))
    }

    fn request(&self, method: Method, path: &str) -> Result<RequestBuilder, String> {
        Ok(self.http.request(method, self.url(path)?).header("x-api-key", &self.key))
    }

    /// Checks that the server accepts calls.
    ///
    /// # Errors
    /// The reason why it does not.
    pub(crate) async fn check_ready(&self) -> Result<(), String> {
        let answer = self.http.get(self.url("/readyz")?).send().await;
        let answer = answer
            .map_err(|e| format!("cannot reach the server at {}: {}", self.base, root_cause(&e)))?;
        read_body(answer).await.map(drop)
    }

    /// Creates an agent whose models follow the workload. Its webhooks go to `callback`.
    pub(crate) async fn create_scripted_agent(
        &self,
        workload: &Workload,
        callback: &str,
        max_call_duration: Duration,
        record: Option<RecordedChannels>,
    ) -> Result<CreatedAgent, String> {
        let avatars: Value =
            read_json(self.request(Method::GET, "/v1/ext/avatars")?.send().await).await?;
        let avatar_id = avatars[0]["avatar_key_id"].as_str().ok_or("the server has no avatar")?;
        let script = &workload.json;
        let number = |key: &str| workload.settings.get(key).cloned().unwrap_or_default();
        let turn: Map<String, Value> = workload.settings.clone();
        let mut body = json!({
            "agent_name": "Load",
            "agent_system_prompt": "Follow the script.",
            "avatars": [{
                "avatar_key_id": avatar_id,
                "idle_timeout": {"timeout": 0},
                "config": {
                    "stt": {
                        "provider": "script",
                        "model": script,
                        "min_endpointing_delay": number("min_endpointing_delay"),
                        "max_endpointing_delay": number("max_endpointing_delay"),
                    },
                    "llm": {"provider": "script", "model": script},
                    "tts": {"provider": "script", "model_id": script},
                },
            }],
            "config": {"turn": turn, "maxCallDuration": max_call_duration.as_secs().min(86_400)},
            "callback_url": callback,
            "callback_events": WEBHOOK_EVENTS,
        });
        if let Some(channels) = record {
            body["record"] = true.into();
            body["config"]["recording"] = json!({"channels": channels.as_str()});
        }
        let created: Value =
            read_json(self.request(Method::POST, "/v1/ext/agent")?.json(&body).send().await)
                .await?;
        let field = |name: &str| {
            created[name].as_str().map(str::to_owned).ok_or(format!("the agent has no {name}"))
        };
        Ok(CreatedAgent { id: field("id")?, secret: field("webhook_secret")? })
    }

    /// Deletes the agent of a run.
    pub(crate) async fn delete_agent(&self, id: &str) -> Result<(), String> {
        read_body(check_sent(
            self.request(Method::DELETE, &format!("/v1/ext/agent/{id}"))?.send().await,
        )?)
        .await
        .map(drop)
    }

    pub(crate) async fn create_conversation(
        &self,
        agent: &str,
    ) -> Result<CreatedConversation, String> {
        let body = json!({"agent_id": agent});
        let created: Value =
            read_json(self.request(Method::POST, "/v1/ext/conversation")?.json(&body).send().await)
                .await?;
        let field = |name: &str| {
            created[name]
                .as_str()
                .map(str::to_owned)
                .ok_or(format!("the conversation has no {name}"))
        };
        let id = field("conversation_id").or_else(|_| field("id"))?;
        Ok(CreatedConversation { id, token: field("token")? })
    }

    /// Sends an offer to the WHIP endpoint.
    pub(crate) async fn send_offer(
        &self,
        conversation: &CreatedConversation,
        sdp: String,
    ) -> Result<AnsweredOffer, String> {
        let url = self.url(&format!("/rtc/{}", conversation.id))?;
        let request = self.http.post(url).bearer_auth(&conversation.token);
        let answer = check_sent(
            request.header(header::CONTENT_TYPE, "application/sdp").body(sdp).send().await,
        )?;
        let location =
            answer.headers().get(header::LOCATION).and_then(|l| l.to_str().ok().map(str::to_owned));
        let text = read_body(answer).await?;
        let location = location.ok_or("the response has no Location header")?;
        Ok(AnsweredOffer { answer: text, resource: self.url(&location)? })
    }

    pub(crate) async fn hang_up(
        &self,
        conversation: &CreatedConversation,
        offer: &AnsweredOffer,
    ) -> Result<(), String> {
        let request = self.http.delete(offer.resource.clone()).bearer_auth(&conversation.token);
        read_body(check_sent(request.send().await)?).await.map(drop)
    }

    /// Ends a conversation, with or without a connected client.
    pub(crate) async fn end_conversation(&self, conversation: &str) -> Result<(), String> {
        let path = format!("/v1/conversation/{conversation}");
        read_body(check_sent(self.request(Method::DELETE, &path)?.send().await)?).await.map(drop)
    }

    /// Events of a conversation, in order.
    pub(crate) async fn conversation_events(
        &self,
        conversation: &str,
    ) -> Result<Vec<Value>, String> {
        let path = format!("/v1/ext/conversation/{conversation}/events");
        read_json(self.request(Method::GET, &path)?.send().await).await
    }

    /// The server's metrics. Nothing is known if the server does not expose them to us.
    pub(crate) async fn read_metrics(&self) -> ServerMetrics {
        self.fetch_metrics().await.map(|text| ServerMetrics::parse(&text)).unwrap_or_default()
    }

    /// The metrics in Prometheus text format.
    async fn fetch_metrics(&self) -> Option<String> {
        let mut request = self.http.get(self.url("/metrics").ok()?);
        if let Some(token) = &self.metrics_token {
            request = request.bearer_auth(token);
        }
        read_body(request.send().await.ok()?).await.ok()
    }
}

/// The innermost cause: the outer ones repeat the address.
fn root_cause(error: &reqwest::Error) -> String {
    let mut at: &dyn std::error::Error = error;
    while let Some(source) = at.source() {
        at = source;
    }
    at.to_string()
}

fn check_sent(answer: Result<Response, reqwest::Error>) -> Result<Response, String> {
    answer.map_err(|e| root_cause(&e))
}

/// The body of a successful response; otherwise status and error message.
async fn read_body(answer: Response) -> Result<String, String> {
    let (status, path) = (answer.status(), answer.url().path().to_owned());
    let text = answer.text().await.map_err(|e| root_cause(&e))?;
    if status.is_success() {
        Ok(text)
    } else {
        Err(format!("{path}: {status}: {}", first_line(&text)))
    }
}

/// The first line of an error message, truncated: some servers respond with whole pages.
fn first_line(text: &str) -> String {
    text.trim().lines().next().unwrap_or_default().chars().take(MAX_REASON_LENGTH).collect()
}

async fn read_json<T: serde::de::DeserializeOwned>(
    answer: Result<Response, reqwest::Error>,
) -> Result<T, String> {
    let text = read_body(check_sent(answer)?).await?;
    serde_json::from_str(&text).map_err(|e| format!("cannot parse the response: {e}"))
}
