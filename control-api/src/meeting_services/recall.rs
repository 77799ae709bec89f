//! Recall.ai. It opens the page; who speaks arrives over a WebSocket of its own, or not at all.

use axum::http::HeaderMap;
use conversation::event::MeetingStatus;
use conversation::visible_text::person_name;
use futures_util::future::BoxFuture;
use serde::Deserialize;
use serde_json::{Value, json};

use super::http::Api;
use super::{
    BotOrder, Detail, Fields, MeetingService, Report, ServiceAccount, ServiceError, ServiceResult,
    Webhook, WebhookError, metadata, signatures,
};
use crate::clock;

const DEFAULT_URL: &str = "https://us-east-1.recall.ai";
/// Compute for the page. The smallest one has a quarter of a core.
const VARIANT: &str = "web_4_core";
/// The prefix of the name of a status webhook.
const STATUS_PREFIX: &str = "bot.";

/// The adapter.
pub(super) struct Recall {
    api: Api,
    webhook_secret: Option<String>,
}

impl Recall {
    pub(super) fn new(account: &ServiceAccount, http_client: egress::Client) -> Self {
        let base = account.url.as_deref().unwrap_or(DEFAULT_URL);
        // An address with the path of the interface is accepted, too.
        let base = base.trim_end_matches('/').trim_end_matches("/api/v1");
        let key = format!("Token {}", account.key);
        Self {
            api: Api::new(http_client, base, "authorization", key),
            webhook_secret: account.webhook_secret.clone(),
        }
    }
}

/// The body of the request that creates a bot.
fn create_body(order: &BotOrder) -> Value {
    let stay = order.max_duration.as_secs().max(1);
    let lobby = order.lobby_timeout.as_secs();
    let mut body = json!({
        "meeting_url": order.link,
        "bot_name": order.name,
        "metadata": metadata(order),
        "output_media": {
            "camera": { "kind": "webpage", "config": { "url": order.media_url } },
        },
        "variant": { "zoom": VARIANT, "google_meet": VARIANT, "microsoft_teams": VARIANT },
        "automatic_leave": {
            "waiting_room_timeout": lobby,
            "noone_joined_timeout": lobby,
            "everyone_left_timeout": {
                "timeout": order.alone_timeout.as_secs(),
                "activate_after": 0,
            },
            // Nothing is recorded, and silence is no reason to leave.
            "in_call_not_recording_timeout": stay,
            "recording_permission_denied_timeout": stay,
            "silence_detection": { "timeout": stay },
        },
        // No video, which is the default, and nothing is stored.
        "recording_config": { "video_mixed_mp4": null, "retention": null },
    });
    if let Some(url) = &order.webhook_url {
        body["recording_config"]["realtime_endpoints"] = json!([{
            "type": "webhook",
            "url": url,
            "events": [
                "participant_events.join",
                "participant_events.leave",
                "participant_events.speech_on",
                "participant_events.speech_off",
            ],
        }]);
    }
    body
}

/// What a status code means. `sub_code` is an open list.
fn read_code(code: &str, sub_code: &str) -> Option<Report> {
    let status = match code {
        "ready" | "joining_call" => MeetingStatus::Joining,
        "in_waiting_room" => MeetingStatus::WaitingRoom,
        "in_call_not_recording"
        | "in_call_recording"
        | "recording_permission_allowed"
        | "recording_permission_denied" => MeetingStatus::InCall,
        "call_ended" => MeetingStatus::Left,
        "done" => MeetingStatus::Done,
        "fatal" => MeetingStatus::Error,
        _ => return None,
    };
    let detail = status.is_over().then(|| read_detail(status, sub_code));
    Some(Report::Status { status, detail })
}

fn read_detail(status: MeetingStatus, sub_code: &str) -> Detail {
    let has = |word: &str| sub_code.contains(word);
    if has("kicked") && !has("waiting_room") {
        Detail::Removed
    } else if has("denied") || has("kicked_from_waiting_room") {
        Detail::Denied
    } else if has("timeout_exceeded_waiting_room") {
        Detail::LobbyTimeout
    } else if has("everyone_left") || has("only_bots") || has("noone_joined") {
        Detail::Alone
    } else if has("not_found") || has("link_expired") || has("link_invalid") {
        Detail::NotFound
    } else if has("login") || has("sign_in") || has("registration") {
        Detail::LoginRequired
    } else if has("not_started") || has("waiting_for_host") {
        Detail::HostMissing
    } else if status == MeetingStatus::Error || has("timeout_exceeded") && has("error") {
        Detail::ServiceError
    } else {
        Detail::Ended
    }
}

#[derive(Deserialize)]
struct Bot {
    #[serde(default)]
    status_changes: Vec<StatusChange>,
}

#[derive(Deserialize)]
struct StatusChange {
    code: String,
    sub_code: Option<String>,
}

impl StatusChange {
    fn report(&self) -> Option<Report> {
        read_code(&self.code, self.sub_code.as_deref().unwrap_or_default())
    }
}

#[derive(Deserialize)]
struct WebhookBody {
    event: String,
    data: WebhookData,
}

#[derive(Deserialize)]
struct WebhookData {
    /// Of new workspaces, and of participants.
    bot: Option<BotReference>,
    /// Of older workspaces.
    bot_id: Option<String>,
    /// Of older workspaces.
    status: Option<StatusChange>,
    /// The status of new workspaces, or the event of a participant.
    data: Option<Value>,
}

#[derive(Deserialize)]
struct BotReference {
    id: String,
    metadata: Option<Fields>,
}

#[derive(Deserialize)]
struct ParticipantData {
    participant: Participant,
    timestamp: Option<Timestamp>,
}

#[derive(Deserialize)]
struct Participant {
    id: Value,
    name: Option<String>,
}

#[derive(Deserialize)]
struct Timestamp {
    absolute: Option<String>,
}

/// The report of a participant's event.
fn read_participant(event: &str, data: Value) -> Result<Option<Report>, WebhookError> {
    let ParticipantData { participant, timestamp } =
        serde_json::from_value(data).map_err(|_| WebhookError::Malformed)?;
    let id = participant.id.as_str().map_or_else(|| participant.id.to_string(), str::to_owned);
    let name = participant.name.as_deref().and_then(person_name);
    let at = timestamp.and_then(|time| clock::parse_timestamp(&time.absolute?));
    let at = at.unwrap_or_else(clock::now);
    let speaker = |is_speaking| name.clone().map(|name| Report::Speaker { name, is_speaking, at });
    Ok(match event {
        "join" => Some(Report::Joined { id, name: name.unwrap_or_default(), at }),
        "leave" => Some(Report::Left { id, at }),
        "speech_on" => speaker(true),
        "speech_off" => speaker(false),
        _ => None,
    })
}

fn read_webhook_body(body: &[u8]) -> Result<Webhook, WebhookError> {
    let WebhookBody { event, data } =
        serde_json::from_slice(body).map_err(|_| WebhookError::Malformed)?;
    let reference = data.bot;
    let conversation = reference
        .as_ref()
        .and_then(|bot| Some(bot.metadata.as_ref()?.get("conversation")?.as_str()?.to_owned()));
    let bot = reference.map(|bot| bot.id).or(data.bot_id).ok_or(WebhookError::Malformed)?;
    let report = if let Some(event) = event.strip_prefix("participant_events.") {
        read_participant(event, data.data.unwrap_or_default())?
    } else if let Some(status) = data.status {
        status.report()
    } else if let Some(code) = event.strip_prefix(STATUS_PREFIX) {
        let data = data.data.unwrap_or_default();
        read_code(code, data.get("sub_code").and_then(Value::as_str).unwrap_or_default())
    } else {
        None
    };
    Ok(Webhook { bot, conversation, reports: report.into_iter().collect() })
}

impl MeetingService for Recall {
    fn create<'a>(&'a self, order: &'a BotOrder) -> BoxFuture<'a, ServiceResult<String>> {
        Box::pin(async { self.api.create("/api/v1/bot/", &create_body(order), "/id").await })
    }

    fn leave<'a>(&'a self, bot: &'a str) -> BoxFuture<'a, ServiceResult<()>> {
        Box::pin(async move {
            // 400: it is not in a call. The caller asks for the status.
            self.api.end(&format!("/api/v1/bot/{bot}/leave_call/"), &[400]).await
        })
    }

    fn status<'a>(&'a self, bot: &'a str) -> BoxFuture<'a, ServiceResult<Report>> {
        Box::pin(async move {
            let answer = self.api.get(&format!("/api/v1/bot/{bot}/")).await?;
            let bot: Bot = serde_json::from_value(answer)
                .map_err(|_| ServiceError::Malformed("it has no status"))?;
            // The last known code; a bot without one has just been created.
            let last = bot.status_changes.iter().rev().find_map(StatusChange::report);
            // The cause is in the change that ended the call.
            let cause = bot.status_changes.iter().find_map(|change| match change.report() {
                Some(Report::Status { detail: Some(detail), .. }) => Some(detail),
                _ => None,
            });
            Ok(match last {
                Some(Report::Status { status, detail }) => {
                    Report::Status { status, detail: detail.and(cause) }
                }
                _ => Report::Status { status: MeetingStatus::Joining, detail: None },
            })
        })
    }

    fn delete_data<'a>(&'a self, bot: &'a str) -> BoxFuture<'a, ServiceResult<()>> {
        Box::pin(async move {
            // 400: there are none.
            self.api.end(&format!("/api/v1/bot/{bot}/delete_media/"), &[400]).await
        })
    }

    fn post_message<'a>(
        &'a self,
        bot: &'a str,
        message: &'a str,
    ) -> BoxFuture<'a, ServiceResult<()>> {
        Box::pin(async move {
            let body = json!({ "to": "everyone", "message": message });
            self.api.post(&format!("/api/v1/bot/{bot}/send_chat_message/"), &body).await.map(drop)
        })
    }

    fn read_webhook(
        &self,
        headers: &HeaderMap,
        body: &[u8],
        now: i64,
    ) -> Result<Webhook, WebhookError> {
        let secret = self.webhook_secret.as_deref().ok_or(WebhookError::Unsigned)?;
        if !signatures::verify_standard(secret, headers, body, now) {
            return Err(WebhookError::Unsigned);
        }
        read_webhook_body(body)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::meeting_services::test_order;

    #[test]
    fn a_bot_is_created_with_the_page_and_our_time_limits() {
        let body = create_body(&test_order());
        assert_eq!(body["output_media"]["camera"]["config"]["url"], test_order().media_url);
        let leave = &body["automatic_leave"];
        assert_eq!(leave["waiting_room_timeout"], 600);
        assert_eq!(leave["everyone_left_timeout"], json!({"timeout": 60, "activate_after": 0}));
        assert_eq!(body["recording_config"]["video_mixed_mp4"], Value::Null);
        assert_eq!(body["recording_config"].get("retention"), Some(&Value::Null));
        assert_eq!(body["recording_config"]["realtime_endpoints"][0]["type"], "webhook");
        assert!(body.get("automatic_video_output").is_none());
    }

    #[test]
    fn codes_and_their_causes_are_translated() {
        let read = |code: &str, sub_code: &str| match read_code(code, sub_code) {
            Some(Report::Status { status, detail }) => {
                (status.as_str(), detail.map(Detail::as_str))
            }
            other => panic!("{other:?}"),
        };
        assert_eq!(read("call_ended", "bot_kicked_from_call"), ("left", Some("removed")));
        let lobby = read("call_ended", "timeout_exceeded_waiting_room");
        assert_eq!(lobby, ("left", Some("lobby_timeout")));
        let denied = read("call_ended", "bot_kicked_from_waiting_room");
        assert_eq!(denied, ("left", Some("denied")));
        let alone = read("call_ended", "timeout_exceeded_everyone_left");
        assert_eq!(alone, ("left", Some("alone")));
        assert_eq!(read("call_ended", "call_ended_by_host"), ("left", Some("ended")));
        assert_eq!(read("fatal", "meeting_not_found"), ("error", Some("not_found")));
        assert_eq!(read("fatal", "new_cause"), ("error", Some("service_error")));
        assert_eq!(read("recording_permission_denied", "x"), ("in_call", None));
        assert_eq!(read_code("analysis_done", ""), None);
    }

    #[test]
    fn both_forms_of_status_webhooks_are_read() {
        let new = json!({"event": "bot.call_ended", "data": {
            "data": {"code": "call_ended", "sub_code": "bot_kicked_from_call"},
            "bot": {"id": "b", "metadata": {"conversation": "c"}}}});
        let read = read_webhook_body(new.to_string().as_bytes()).unwrap();
        let removed = Report::Status { status: MeetingStatus::Left, detail: Some(Detail::Removed) };
        assert_eq!((read.bot, read.conversation), ("b".into(), Some("c".into())));
        assert_eq!(read.reports, vec![removed.clone()]);
        let old = json!({"event": "bot.status_change", "data": {"bot_id": "b",
            "status": {"code": "call_ended", "sub_code": "bot_kicked_from_call"}}});
        let read = read_webhook_body(old.to_string().as_bytes()).unwrap();
        assert_eq!((read.bot, read.conversation, read.reports), ("b".into(), None, vec![removed]));
        assert_eq!(read_webhook_body(b"{}"), Err(WebhookError::Malformed));
    }

    #[test]
    fn participants_and_speakers_are_reported() {
        let read = |event: &str| {
            let body = json!({"event": format!("participant_events.{event}"), "data": {
                "data": {"participant": {"id": 7, "name": "Maria"}, "data": null,
                         "timestamp": {"absolute": "1970-01-01T00:00:01.5Z", "relative": 1}},
                "bot": {"id": "b", "metadata": {}}}});
            read_webhook_body(body.to_string().as_bytes()).unwrap().reports
        };
        let name = || "Maria".to_owned();
        assert_eq!(read("join"), [Report::Joined { id: "7".into(), name: name(), at: 1_500_000 }]);
        assert_eq!(read("leave"), [Report::Left { id: "7".into(), at: 1_500_000 }]);
        let at = 1_500_000;
        assert_eq!(read("speech_on"), [Report::Speaker { name: name(), is_speaking: true, at }]);
        assert_eq!(read("speech_off"), [Report::Speaker { name: name(), is_speaking: false, at }]);
        assert_eq!(read("webcam_on"), []);
    }
}
