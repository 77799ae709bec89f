//! Meeting-bot services, which send the agent into external meetings: one adapter for each service
//! behind one trait. An adapter translates; what follows from a report is decided in
//! `resources::meetings`.

mod attendee;
pub(crate) mod audio;
mod http;
mod meetingbaas;
mod recall;
mod signatures;

use std::collections::BTreeMap;
use std::time::Duration;

use axum::http::HeaderMap;
use conversation::event::MeetingStatus;
use futures_util::future::BoxFuture;

use crate::clock::Micros;

use attendee::Attendee;
use meetingbaas::MeetingBaas;
use recall::Recall;
pub(crate) use signatures::is_secret;

/// Names and display names of the services, as `[meetings] provider` and credentials use them. Also
/// the order in which a workspace's credentials are considered.
pub(crate) const SERVICES: [(&str, &str); 3] =
    [("attendee", "Attendee"), ("recall", "Recall.ai"), ("meetingbaas", "MeetingBaaS")];

/// How the agent's media reach the meeting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MediaMode {
    /// The service opens a page of this server as the bot's camera and voice.
    Page,
    /// The service opens a WebSocket to this server and exchanges PCM; there is no video.
    Socket,
}

/// An account at a service.
#[derive(Clone)]
pub(crate) struct ServiceAccount {
    /// Name of the service.
    pub(crate) provider: &'static str,
    /// Base URL; `None` = the service's own.
    pub(crate) url: Option<String>,
    /// Secret.
    pub(crate) key: String,
    /// Verifies webhooks. Secret. `None` = no webhook is accepted.
    pub(crate) webhook_secret: Option<String>,
    /// Repeated by the service in callbacks about single bots. Secret.
    pub(crate) callback_secret: String,
}

/// A bot to create.
#[derive(Clone, Debug)]
pub(crate) struct BotOrder {
    /// Id of the conversation, which the service returns with webhooks.
    pub(crate) conversation: String,
    /// The link, with its password.
    pub(crate) link: String,
    pub(crate) is_zoom: bool,
    /// Display name.
    pub(crate) name: String,
    pub(crate) mode: MediaMode,
    /// Where the service opens the page or the socket, with the token.
    pub(crate) media_url: String,
    /// Where the service sends webhooks about this bot, if they can be verified.
    pub(crate) webhook_url: Option<String>,
    /// The same for callbacks, which repeat [`ServiceAccount::callback_secret`].
    pub(crate) callback_url: String,
    pub(crate) lobby_timeout: Duration,
    pub(crate) alone_timeout: Duration,
    /// Maximum time in the meeting.
    pub(crate) max_duration: Duration,
    /// Posted to the meeting's chat when the bot enters.
    pub(crate) message: Option<String>,
    /// Group of accounts with which the bot signs in.
    pub(crate) login_group: Option<String>,
    /// Identity of the agent, passed as metadata.
    pub(crate) email: Option<String>,
}

/// Why the agent is not in the meeting any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Detail {
    Denied,
    LobbyTimeout,
    Removed,
    Alone,
    Ended,
    ServiceError,
    NotFound,
    LoginRequired,
    HostMissing,
}

impl Detail {
    const ALL: [Self; 9] = [
        Self::Denied,
        Self::LobbyTimeout,
        Self::Removed,
        Self::Alone,
        Self::Ended,
        Self::ServiceError,
        Self::NotFound,
        Self::LoginRequired,
        Self::HostMissing,
    ];

    /// The detail with this name.
    pub(crate) fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|detail| detail.as_str() == name)
    }

    /// The name in JSON.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Denied => "denied",
            Self::LobbyTimeout => "lobby_timeout",
            Self::Removed => "removed",
            Self::Alone => "alone",
            Self::Ended => "ended",
            Self::ServiceError => "service_error",
            Self::NotFound => "not_found",
            Self::LoginRequired => "login_required",
            Self::HostMissing => "host_missing",
        }
    }

    /// Whether it says more than the known detail about the same end.
    pub(crate) fn refines(self, known: Option<&str>) -> bool {
        match known.and_then(Self::from_name) {
            Some(Self::Ended) => matches!(self, Self::Removed | Self::Alone),
            Some(Self::ServiceError) => !self.is_regular() && self != Self::ServiceError,
            _ => false,
        }
    }

    /// Whether the agent was in the meeting and the meeting is over for it; otherwise it failed.
    pub(crate) const fn is_regular(self) -> bool {
        matches!(self, Self::Removed | Self::Alone | Self::Ended)
    }

    /// One sentence for the warnings of the conversation; `None` for a regular end.
    pub(crate) const fn warning(self) -> Option<&'static str> {
        Some(match self {
            Self::Removed | Self::Alone | Self::Ended => return None,
            Self::Denied => "The meeting's host refused the agent.",
            Self::LobbyTimeout => "Nobody admitted the agent to the meeting in time.",
            Self::ServiceError => "The meeting service failed.",
            Self::NotFound => "The meeting does not exist.",
            Self::LoginRequired => "The meeting admits only people who have signed in.",
            Self::HostMissing => "The meeting did not begin: its host was missing.",
        })
    }
}

/// What a service reports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Report {
    Status {
        status: MeetingStatus,
        /// Only if the agent is not in the meeting any more.
        detail: Option<Detail>,
    },
    Speaker {
        name: String,
        is_speaking: bool,
        /// Wall clock time of the change.
        at: Micros,
    },
    Joined {
        id: String,
        name: String,
        /// Wall clock time.
        at: Micros,
    },
    Left {
        id: String,
        at: Micros,
    },
}

/// A verified webhook.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Webhook {
    /// The service's id of the bot.
    pub(crate) bot: String,
    /// The conversation, from the bot's metadata.
    pub(crate) conversation: Option<String>,
    pub(crate) reports: Vec<Report>,
}

/// Maximum characters of a service's id of a bot.
const MAX_BOT_ID_CHARS: usize = 100;

/// Whether a service's id of a bot has the form of one. It becomes a part of the paths of requests.
pub(crate) fn is_bot_id(id: &str) -> bool {
    (1..=MAX_BOT_ID_CHARS).contains(&id.len())
        && id.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-'))
}

/// Why a webhook is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WebhookError {
    /// The signature is missing, wrong or too old.
    Unsigned,
    /// The body is not what the service sends.
    Malformed,
}

/// Why a request to a service failed. The reason contains no secret.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ServiceError {
    /// The service has no such bot (any more).
    #[error("the bot does not exist")]
    NotFound,
    /// Nothing that creates bots is at the address of the account.
    #[error("the service knows no such address: check the URL of the account")]
    UnknownAddress,
    /// The service answered with an error.
    #[error("the service answered {status}: {reason}")]
    Refused { status: u16, reason: String },
    /// The service has not answered in time.
    #[error("the service did not answer in time")]
    Timeout,
    /// No connection to the service could be opened, or it failed.
    #[error("the service cannot be reached: {0}")]
    Unreachable(String),
    /// The answer is not what the service documents.
    #[error("the answer of the service is malformed: {0}")]
    Malformed(&'static str),
}

impl ServiceError {
    /// The cause in a few words: the label `status` of the metric of failed requests.
    pub(crate) const fn label(&self) -> &'static str {
        match self {
            Self::NotFound | Self::UnknownAddress => "404",
            Self::Refused { status: 401, .. } => "401",
            Self::Refused { status: 402, .. } => "402",
            Self::Refused { status: 429, .. } => "429",
            Self::Refused { status: 500..=599, .. } => "5xx",
            Self::Refused { .. } => "other",
            Self::Timeout => "timeout",
            Self::Unreachable(_) => "unreachable",
            Self::Malformed(_) => "malformed",
        }
    }
}

/// Result of a request to a service.
pub(crate) type ServiceResult<T> = Result<T, ServiceError>;

/// A meeting-bot service with an account. Each request ends within seconds.
pub(crate) trait MeetingService: Send + Sync {
    /// Creates a bot, which joins at once. Returns the service's id.
    fn create<'a>(&'a self, order: &'a BotOrder) -> BoxFuture<'a, ServiceResult<String>>;

    /// Lets a bot leave. A bot that has left already is no error.
    fn leave<'a>(&'a self, bot: &'a str) -> BoxFuture<'a, ServiceResult<()>>;

    /// Where a bot is. [`ServiceError::NotFound`] if the service does not know it.
    fn status<'a>(&'a self, bot: &'a str) -> BoxFuture<'a, ServiceResult<Report>>;

    /// Ids and names of the other people in the meeting, as the socket names them.
    fn participants<'a>(
        &'a self,
        bot: &'a str,
    ) -> BoxFuture<'a, ServiceResult<BTreeMap<String, String>>> {
        let _ = bot;
        Box::pin(async { Ok(BTreeMap::new()) })
    }

    /// Deletes what the service has stored of a bot that has left.
    fn delete_data<'a>(&'a self, bot: &'a str) -> BoxFuture<'a, ServiceResult<()>>;

    /// Posts a message to the meeting's chat; only if the service cannot do so by
    /// [`BotOrder::message`].
    fn post_message<'a>(
        &'a self,
        bot: &'a str,
        message: &'a str,
    ) -> BoxFuture<'a, ServiceResult<()>> {
        let _ = (bot, message);
        Box::pin(async { Ok(()) })
    }

    /// Verifies and reads a webhook. `now`: wall clock, in seconds.
    fn read_webhook(
        &self,
        headers: &HeaderMap,
        body: &[u8],
        now: i64,
    ) -> Result<Webhook, WebhookError>;
}

/// The adapter of an account. `http_client`: under the operator's policy, or trusted for an address
/// of the operator's own configuration.
pub(crate) fn connect(
    account: &ServiceAccount,
    http_client: egress::Client,
) -> Option<Box<dyn MeetingService>> {
    match account.provider {
        "attendee" => Some(Box::new(Attendee::new(account, http_client))),
        "recall" => Some(Box::new(Recall::new(account, http_client))),
        "meetingbaas" => Some(Box::new(MeetingBaas::new(account, http_client))),
        _ => None,
    }
}

/// How a service delivers media: `preferred` if it can choose.
pub(crate) fn media_mode(provider: &str, preferred: MediaMode) -> MediaMode {
    match provider {
        "recall" => MediaMode::Page,
        "meetingbaas" => MediaMode::Socket,
        _ => preferred,
    }
}

/// A sentence that ends with a reason of somebody else, which may be a sentence itself.
pub(crate) fn end_sentence(text: &str) -> String {
    let text = text.trim_end();
    let is_ended = text.ends_with(['.', '!', '?', '…']);
    format!("{text}{}", if is_ended { "" } else { "." })
}

/// An order of a page in a Zoom meeting.
#[cfg(test)]
fn test_order() -> BotOrder {
    BotOrder {
        conversation: "c".into(),
        link: "https://zoom.us/j/1234567890?pwd=secret".into(),
        is_zoom: true,
        name: "Clara".into(),
        mode: MediaMode::Page,
        media_url: "https://here.example/meet/c#token=t".into(),
        webhook_url: Some("https://here.example/v1/meetings/webhook/w".into()),
        callback_url: "https://here.example/v1/meetings/webhook/w".into(),
        lobby_timeout: Duration::from_secs(600),
        alone_timeout: Duration::from_secs(60),
        max_duration: Duration::from_secs(14_400),
        message: Some("Hello.".into()),
        login_group: None,
        email: Some("clara@example.com".into()),
    }
}

/// Fields of a JSON object, for bodies whose further fields do not matter.
type Fields = serde_json::Map<String, serde_json::Value>;

/// Metadata of a bot: the conversation, and the agent's identity.
fn metadata(order: &BotOrder) -> BTreeMap<&'static str, &str> {
    let mut metadata = BTreeMap::from([("conversation", order.conversation.as_str())]);
    if let Some(email) = &order.email {
        metadata.insert("email", email);
    }
    metadata
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sentence_has_one_full_stop() {
        for (text, expected) in [
            ("No credits", "No credits."),
            ("No credits.", "No credits."),
            ("No credits. \n", "No credits."),
            ("Really?", "Really?"),
        ] {
            assert_eq!(end_sentence(text), expected);
        }
    }
}
