//! Attendee (`attendee-labs/attendee`), self-hosted or its cloud.

use std::collections::BTreeMap;

use axum::http::HeaderMap;
use conversation::event::MeetingStatus;
use conversation::visible_text::person_name;
use futures_util::future::BoxFuture;
use serde::Deserialize;
use serde_json::{Value, json};

use super::http::Api;
use super::{
    BotOrder, Detail, Fields, MediaMode, MeetingService, Report, ServiceAccount, ServiceError,
    ServiceResult, Webhook, WebhookError, metadata, signatures,
};
use crate::clock;

/// Its cloud.
const DEFAULT_URL: &str = "https://app.attendee.dev";
/// Sample rate of the socket in which voices arrive separately, in Hz.
pub(crate) const SOCKET_RATE: u32 = 16_000;
/// Time that the bot may stay beyond its maximum time in the meeting, in seconds: its end by this
/// server comes first.
const UPTIME_MARGIN_SECONDS: u64 = 120;

/// The adapter.
pub(crate) struct Attendee {
    api: Api,
    webhook_secret: Option<String>,
}

impl Attendee {
    pub(super) fn new(account: &ServiceAccount, http_client: egress::Client) -> Self {
        let base = account.url.as_deref().unwrap_or(DEFAULT_URL);
        let key = format!("Token {}", account.key);
        Self {
            api: Api::new(http_client, base, "authorization", key),
            webhook_secret: account.webhook_secret.clone(),
        }
    }
}

/// The body of the request that creates a bot. Nothing is recorded or transcribed at the service.
fn create_body(order: &BotOrder) -> Value {
    let stay = order.max_duration.as_secs().max(1);
    let mut body = json!({
        "meeting_url": order.link,
        "bot_name": order.name,
        "metadata": metadata(order),
        // The bots of one conversation.
        "deduplication_key": order.conversation,
        "recording_settings": {
            "format": "none",
            "record_participant_speech_start_stop_events": true,
        },
        "automatic_leave_settings": {
            "waiting_room_timeout_seconds": order.lobby_timeout.as_secs(),
            "only_participant_in_meeting_timeout_seconds": order.alone_timeout.as_secs(),
            // Silence is no reason to leave.
            "silence_timeout_seconds": stay,
            "max_uptime_seconds": order.lobby_timeout.as_secs() + stay + UPTIME_MARGIN_SECONDS,
        },
    });
    match order.mode {
        MediaMode::Page => {
            body["voice_agent_settings"] = json!({ "url": order.media_url });
            if order.is_zoom {
                body["zoom_settings"] = json!({ "sdk": "web" });
            }
        }
        MediaMode::Socket => {
            // Equal URLs share one connection, and the first one carries the bot's voice.
            let audio = json!({ "url": order.media_url, "sample_rate": SOCKET_RATE });
            body["websocket_settings"] = json!({ "per_participant_audio": audio });
        }
    }
    if let Some(group) = &order.login_group {
        body["google_meet_settings"] = json!({ "use_login": true, "login_group_name": group });
    }
    if let Some(message) = &order.message {
        body["bot_chat_message"] = json!({ "to": "everyone", "message": message });
    }
    if let Some(url) = &order.webhook_url {
        body["webhooks"] = json!([{
            "url": url,
            "triggers": [
                "bot.state_change",
                "participant_events.join_leave",
                "participant_events.speech_start_stop",
            ],
        }]);
    }
    body
}

/// What a state means. `event`, `sub_type`: the event that led to it.
fn read_state(state: &str, event: &str, sub_type: &str) -> Option<Report> {
    let status = match state {
        "ready" | "scheduled" | "staged" | "joining" => MeetingStatus::Joining,
        "waiting_room" => MeetingStatus::WaitingRoom,
        "leaving" | "post_processing" => MeetingStatus::Left,
        "ended" | "data_deleted" => MeetingStatus::Done,
        "fatal_error" => MeetingStatus::Error,
        _ if state.starts_with("joined_") || state.ends_with("_breakout_room") => {
            MeetingStatus::InCall
        }
        _ => return None,
    };
    let detail = status.is_over().then(|| read_detail(status, event, sub_type));
    Some(Report::Status { status, detail })
}

fn read_detail(status: MeetingStatus, event: &str, sub_type: &str) -> Detail {
    match sub_type {
        "request_to_join_denied" => Detail::Denied,
        "waiting_room_timeout_exceeded" => Detail::LobbyTimeout,
        "meeting_not_found" => Detail::NotFound,
        "meeting_not_started_waiting_for_host" => Detail::HostMissing,
        "login_required" => Detail::LoginRequired,
        _ if sub_type.starts_with("auto_leave_only_participant") => Detail::Alone,
        _ if event == "meeting_ended" && sub_type.contains("removed") => Detail::Removed,
        _ if status == MeetingStatus::Error => Detail::ServiceError,
        _ => Detail::Ended,
    }
}

#[derive(Deserialize)]
struct Bot {
    state: String,
    #[serde(default)]
    events: Vec<BotEvent>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct BotEvent {
    r#type: Option<String>,
    sub_type: Option<String>,
}

/// A person, as the list of participants and the webhooks name them.
#[derive(Deserialize)]
struct Participant {
    #[serde(alias = "participant_uuid")]
    uuid: Option<String>,
    #[serde(alias = "participant_name", alias = "full_name")]
    name: Option<String>,
}

#[derive(Deserialize)]
struct WebhookBody {
    bot_id: String,
    #[serde(default)]
    bot_metadata: Option<Fields>,
    trigger: String,
    data: Value,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct StateChange {
    new_state: String,
    event_type: Option<String>,
    event_sub_type: Option<String>,
    event_metadata: Option<Fields>,
}

#[derive(Deserialize)]
struct ParticipantEvent {
    participant_name: Option<String>,
    participant_uuid: String,
    event_type: String,
    /// Milliseconds since the Unix epoch.
    timestamp_ms: Option<i64>,
}

/// The reports of a webhook. Triggers that were not ordered have none.
fn read_reports(trigger: &str, data: Value) -> Result<Vec<Report>, WebhookError> {
    let malformed = |_| WebhookError::Malformed;
    let report = match trigger {
        "bot.state_change" => {
            let change: StateChange = serde_json::from_value(data).map_err(malformed)?;
            let event = change.event_type.unwrap_or_default();
            // Teams alone tells who removed the bot.
            let is_removed =
                change.event_metadata.is_some_and(|fields| fields.contains_key("remover_name"));
            let sub_type = if is_removed {
                "removed".to_owned()
            } else {
                change.event_sub_type.unwrap_or_default()
            };
            read_state(&change.new_state, &event, &sub_type)
        }
        "participant_events.join_leave" | "participant_events.speech_start_stop" => {
            let event: ParticipantEvent = serde_json::from_value(data).map_err(malformed)?;
            let id = event.participant_uuid;
            let name = event.participant_name.as_deref().and_then(person_name);
            let at = event.timestamp_ms.map_or_else(clock::now, |ms| ms.saturating_mul(1_000));
            match event.event_type.as_str() {
                "join" => Some(Report::Joined { id, name: name.unwrap_or_default(), at }),
                "leave" => Some(Report::Left { id, at }),
                "speech_start" => name.map(|name| Report::Speaker { name, is_speaking: true, at }),
                "speech_stop" => name.map(|name| Report::Speaker { name, is_speaking: false, at }),
                _ => None,
            }
        }
        _ => None,
    };
    Ok(report.into_iter().collect())
}

impl MeetingService for Attendee {
    fn create<'a>(&'a self, order: &'a BotOrder) -> BoxFuture<'a, ServiceResult<String>> {
        Box::pin(async { self.api.create("/api/v1/bots", &create_body(order), "/id").await })
    }

    fn leave<'a>(&'a self, bot: &'a str) -> BoxFuture<'a, ServiceResult<()>> {
        Box::pin(async move {
            // 400: in a state that cannot leave. The caller asks for the state.
            self.api.end(&format!("/api/v1/bots/{bot}/leave"), &[400]).await
        })
    }

    fn status<'a>(&'a self, bot: &'a str) -> BoxFuture<'a, ServiceResult<Report>> {
        Box::pin(async move {
            let answer = self.api.get(&format!("/api/v1/bots/{bot}")).await?;
            let bot: Bot = serde_json::from_value(answer)
                .map_err(|_| ServiceError::Malformed("it has no state"))?;
            // The events after the cause only say that the bot has finished.
            let is_cause = |event: &BotEvent| {
                matches!(
                    event.r#type.as_deref(),
                    Some("could_not_join_meeting" | "meeting_ended" | "leave_requested")
                )
            };
            let event = bot.events.into_iter().rfind(is_cause).unwrap_or_default();
            let (kind, sub_type) =
                (event.r#type.unwrap_or_default(), event.sub_type.unwrap_or_default());
            read_state(&bot.state, &kind, &sub_type)
                .ok_or(ServiceError::Malformed("its state is unknown"))
        })
    }

    fn participants<'a>(
        &'a self,
        bot: &'a str,
    ) -> BoxFuture<'a, ServiceResult<BTreeMap<String, String>>> {
        Box::pin(async move {
            let answer = self.api.get(&format!("/api/v1/bots/{bot}/participants")).await?;
            let list = answer.get("results").cloned().unwrap_or(answer);
            let people: Vec<Participant> = serde_json::from_value(list)
                .map_err(|_| ServiceError::Malformed("it has no participants"))?;
            let named =
                people.into_iter().filter_map(|one| Some((one.uuid?, person_name(&one.name?)?)));
            Ok(named.collect())
        })
    }

    fn delete_data<'a>(&'a self, bot: &'a str) -> BoxFuture<'a, ServiceResult<()>> {
        Box::pin(async move { self.api.end(&format!("/api/v1/bots/{bot}/delete_data"), &[]).await })
    }

    fn read_webhook(
        &self,
        headers: &HeaderMap,
        body: &[u8],
        _now: i64,
    ) -> Result<Webhook, WebhookError> {
        let body: Value = serde_json::from_slice(body).map_err(|_| WebhookError::Unsigned)?;
        let secret = self.webhook_secret.as_deref().ok_or(WebhookError::Unsigned)?;
        if !signatures::verify_attendee(secret, headers, &body) {
            return Err(WebhookError::Unsigned);
        }
        let body: WebhookBody =
            serde_json::from_value(body).map_err(|_| WebhookError::Malformed)?;
        let conversation =
            body.bot_metadata.and_then(|fields| Some(fields.get("conversation")?.as_str()?.into()));
        Ok(Webhook {
            bot: body.bot_id,
            conversation,
            reports: read_reports(&body.trigger, body.data)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::meeting_services::test_order;

    fn order(mode: MediaMode) -> BotOrder {
        BotOrder { mode, ..test_order() }
    }

    #[test]
    fn a_bot_is_created_without_recording_and_with_our_time_limits() {
        let body = create_body(&order(MediaMode::Page));
        assert_eq!(body["recording_settings"]["format"], "none");
        let leave = &body["automatic_leave_settings"];
        assert_eq!(leave["waiting_room_timeout_seconds"], 600);
        assert_eq!(leave["only_participant_in_meeting_timeout_seconds"], 60);
        assert_eq!(leave["silence_timeout_seconds"], 14_400);
        assert_eq!(leave["max_uptime_seconds"], 15_120);
        assert_eq!(body["zoom_settings"]["sdk"], "web");
        assert_eq!(body["metadata"], json!({"conversation": "c", "email": "clara@example.com"}));
        assert_eq!(body["webhooks"][0]["triggers"].as_array().unwrap().len(), 3);
        assert!(body.get("websocket_settings").is_none());
        let body = create_body(&order(MediaMode::Socket));
        assert_eq!(body["websocket_settings"]["per_participant_audio"]["sample_rate"], 16_000);
        assert!(body.get("voice_agent_settings").is_none());
    }

    #[test]
    fn states_and_their_causes_are_translated() {
        let read =
            |state: &str, event: &str, sub_type: &str| match read_state(state, event, sub_type) {
                Some(Report::Status { status, detail }) => {
                    (status.as_str(), detail.map(Detail::as_str))
                }
                other => panic!("{state}: {other:?}"),
            };
        let denied = read("fatal_error", "could_not_join_meeting", "request_to_join_denied");
        assert_eq!(denied, ("error", Some("denied")));
        let lobby = read("fatal_error", "could_not_join_meeting", "waiting_room_timeout_exceeded");
        assert_eq!(lobby, ("error", Some("lobby_timeout")));
        assert_eq!(read("fatal_error", "x", "zoom_sdk"), ("error", Some("service_error")));
        assert_eq!(read("leaving_breakout_room", "", ""), ("in_call", None));
        assert_eq!(read("joined_recording_permission_denied", "", ""), ("in_call", None));
        assert_eq!(read("leaving", "meeting_ended", "removed"), ("left", Some("removed")));
        assert_eq!(read("post_processing", "meeting_ended", ""), ("left", Some("ended")));
        let alone = "auto_leave_only_participant_in_meeting";
        assert_eq!(read("leaving", "leave_requested", alone), ("left", Some("alone")));
        assert_eq!(read_state("new_state", "", ""), None);
    }

    #[test]
    fn participants_and_speakers_are_reported() {
        let event = |event_type: &str| {
            let data = json!({"id": "e", "participant_name": "Maria", "participant_uuid": "u",
                "event_type": event_type, "event_data": {}, "timestamp_ms": 1_700});
            read_reports("participant_events.speech_start_stop", data).unwrap()
        };
        let name = || "Maria".to_owned();
        assert_eq!(event("join"), [Report::Joined { id: "u".into(), name: name(), at: 1_700_000 }]);
        assert_eq!(event("leave"), [Report::Left { id: "u".into(), at: 1_700_000 }]);
        let speaks = |is_speaking| [Report::Speaker { name: name(), is_speaking, at: 1_700_000 }];
        assert_eq!(event("speech_start"), speaks(true));
        assert_eq!(event("speech_stop"), speaks(false));
        assert_eq!(event("another"), []);
        assert_eq!(read_reports("chat_messages.update", Value::Null), Ok(vec![]));
        assert_eq!(read_reports("bot.state_change", json!(3)), Err(WebhookError::Malformed));
    }
}
