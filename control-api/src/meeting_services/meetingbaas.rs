//! MeetingBaaS v2. It has no page: media go through the socket, and there is no video.

use aws_lc_rs::constant_time::verify_slices_are_equal;
use axum::http::HeaderMap;
use conversation::event::MeetingStatus;
use futures_util::future::BoxFuture;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio_tungstenite::tungstenite::Message;

use super::audio::{AudioCodec, AudioEvent, bytes_of, samples_of};
use super::http::Api;
use super::{
    BotOrder, Detail, Fields, MeetingService, Report, ServiceAccount, ServiceError, ServiceResult,
    Webhook, WebhookError, metadata, signatures,
};

const DEFAULT_URL: &str = "https://api.meetingbaas.com";
/// Sample rate of both directions, in Hz. Its documents disagree about 16,000.
const SAMPLE_RATE: u32 = 24_000;
/// Limits of two of its time-outs, in seconds.
const WAITING_ROOM_LIMITS: (u64, u64) = (120, 1_800);
const MAX_SILENCE_SECONDS: u64 = 1_800;

/// The adapter.
pub(super) struct MeetingBaas {
    api: Api,
    webhook_secret: Option<String>,
    callback_secret: String,
}

impl MeetingBaas {
    pub(super) fn new(account: &ServiceAccount, http_client: egress::Client) -> Self {
        let base = account.url.as_deref().unwrap_or(DEFAULT_URL);
        let key = account.key.clone();
        Self {
            api: Api::new(http_client, base, "x-meeting-baas-api-key", key),
            webhook_secret: account.webhook_secret.clone(),
            callback_secret: account.callback_secret.clone(),
        }
    }
}

/// The body of the request that creates a bot. Only the socket's audio is used; no video is
/// recorded, and the data are deleted after the meeting.
fn create_body(order: &BotOrder, callback_secret: &str) -> Value {
    let (min, max) = WAITING_ROOM_LIMITS;
    let mut body = json!({
        "meeting_url": order.link,
        "bot_name": order.name,
        "recording_mode": "audio_only",
        "streaming_enabled": true,
        "streaming_config": {
            // Equal URLs share one connection.
            "output_url": order.media_url,
            "input_url": order.media_url,
            "audio_frequency": SAMPLE_RATE,
        },
        // Other agents may be there. The same one is refused before.
        "allow_multiple_bots": true,
        "extra": metadata(order),
        // The cause of a failure, which the status does not contain.
        "callback_enabled": true,
        "callback_config": {
            "url": order.callback_url,
            "method": "POST",
            "secret": callback_secret,
        },
        "timeout_config": {
            "waiting_room_timeout": order.lobby_timeout.as_secs().clamp(min, max),
            "silence_timeout": MAX_SILENCE_SECONDS,
        },
    });
    if let Some(message) = &order.message {
        body["entry_message"] = json!(message);
    }
    body
}

/// What a status code means.
fn read_code(code: &str) -> Option<Report> {
    let (status, detail) = match code {
        "queued" | "pickup_delayed" | "joining_call" => (MeetingStatus::Joining, None),
        "in_waiting_room" | "in_waiting_for_host" => (MeetingStatus::WaitingRoom, None),
        "in_call_not_recording"
        | "in_call_recording"
        | "recording_paused"
        | "recording_resumed" => (MeetingStatus::InCall, None),
        "call_ended" | "recording_succeeded" | "recording_failed" | "transcribing" => {
            (MeetingStatus::Left, Some(Detail::Ended))
        }
        "completed" => (MeetingStatus::Done, Some(Detail::Ended)),
        "failed" => (MeetingStatus::Error, Some(Detail::ServiceError)),
        // Causes, which some bots report as states.
        "api_request_stop" => (MeetingStatus::Left, Some(Detail::Ended)),
        "bot_removed" | "bot_removed_too_early" => (MeetingStatus::Left, Some(Detail::Removed)),
        "bot_rejected" => (MeetingStatus::Error, Some(Detail::Denied)),
        "waiting_room_timeout" => (MeetingStatus::Error, Some(Detail::LobbyTimeout)),
        "invalid_meeting_url" => (MeetingStatus::Error, Some(Detail::NotFound)),
        "meeting_error" => (MeetingStatus::Error, Some(Detail::ServiceError)),
        _ => return None,
    };
    Some(Report::Status { status, detail })
}

/// What the error code of a failed bot means. Some are regular ends.
fn read_failure(error_code: &str) -> Report {
    let (status, detail) = match error_code {
        "BOT_REMOVED" => (MeetingStatus::Done, Detail::Removed),
        "NO_ATTENDEES" | "NO_SPEAKER" => (MeetingStatus::Done, Detail::Alone),
        "API_REQUEST" => (MeetingStatus::Done, Detail::Ended),
        "BOT_NOT_ACCEPTED" => (MeetingStatus::Error, Detail::Denied),
        "TIMEOUT_WAITING_TO_START" => (MeetingStatus::Error, Detail::LobbyTimeout),
        "WAITING_FOR_HOST_TIMEOUT" => (MeetingStatus::Error, Detail::HostMissing),
        "LOGIN_REQUIRED" => (MeetingStatus::Error, Detail::LoginRequired),
        "CANNOT_JOIN_MEETING" | "INVALID_MEETING_URL" => (MeetingStatus::Error, Detail::NotFound),
        _ => (MeetingStatus::Error, Detail::ServiceError),
    };
    Report::Status { status, detail: Some(detail) }
}

#[derive(Deserialize)]
struct BotStatus {
    status: String,
    error_code: Option<String>,
}

#[derive(Deserialize)]
struct WebhookBody {
    event: String,
    data: WebhookData,
}

#[derive(Deserialize)]
struct WebhookData {
    bot_id: String,
    status: Option<StatusChange>,
    error_code: Option<String>,
    extra: Option<Fields>,
}

#[derive(Deserialize)]
struct StatusChange {
    code: String,
}

impl WebhookData {
    fn reports(&self, event: &str) -> Vec<Report> {
        let report = match event {
            "bot.status_change" => self.status.as_ref().and_then(|status| read_code(&status.code)),
            "bot.completed" => read_code("completed"),
            "bot.failed" => Some(read_failure(self.error_code.as_deref().unwrap_or_default())),
            _ => None,
        };
        report.into_iter().collect()
    }
}

impl MeetingService for MeetingBaas {
    fn create<'a>(&'a self, order: &'a BotOrder) -> BoxFuture<'a, ServiceResult<String>> {
        Box::pin(async {
            let body = create_body(order, &self.callback_secret);
            self.api.create("/v2/bots", &body, "/data/bot_id").await
        })
    }

    fn leave<'a>(&'a self, bot: &'a str) -> BoxFuture<'a, ServiceResult<()>> {
        Box::pin(async move {
            // 409: it has left already.
            self.api.end(&format!("/v2/bots/{bot}/leave"), &[409]).await
        })
    }

    fn status<'a>(&'a self, bot: &'a str) -> BoxFuture<'a, ServiceResult<Report>> {
        Box::pin(async move {
            let answer = self.api.get(&format!("/v2/bots/{bot}/status")).await?;
            let data = answer.get("data").cloned().unwrap_or_default();
            let bot: BotStatus = serde_json::from_value(data)
                .map_err(|_| ServiceError::Malformed("it has no status"))?;
            match bot.error_code.as_deref().filter(|_| bot.status == "failed") {
                Some(code) => Ok(read_failure(code)),
                None => {
                    read_code(&bot.status).ok_or(ServiceError::Malformed("its status is unknown"))
                }
            }
        })
    }

    fn delete_data<'a>(&'a self, bot: &'a str) -> BoxFuture<'a, ServiceResult<()>> {
        Box::pin(async move { self.api.end(&format!("/v2/bots/{bot}/delete-data"), &[]).await })
    }

    fn read_webhook(
        &self,
        headers: &HeaderMap,
        body: &[u8],
        now: i64,
    ) -> Result<Webhook, WebhookError> {
        if let Some(secret) = headers.get("x-mb-secret") {
            // Of a callback.
            verify_slices_are_equal(secret.as_bytes(), self.callback_secret.as_bytes())
                .map_err(|_| WebhookError::Unsigned)?;
        } else {
            let secret = self.webhook_secret.as_deref().ok_or(WebhookError::Unsigned)?;
            if !signatures::verify_standard(secret, headers, body, now) {
                return Err(WebhookError::Unsigned);
            }
        }
        let WebhookBody { event, data } =
            serde_json::from_slice(body).map_err(|_| WebhookError::Malformed)?;
        let reports = data.reports(&event);
        let conversation =
            data.extra.and_then(|fields| Some(fields.get("conversation")?.as_str()?.to_owned()));
        Ok(Webhook { bot: data.bot_id, conversation, reports })
    }
}

/// Binary PCM of the mix, and texts that say who speaks.
pub(super) struct Codec;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct SpeakerChange {
    name: String,
    is_speaking: bool,
}

impl AudioCodec for Codec {
    fn input_rate(&self) -> u32 {
        SAMPLE_RATE
    }

    fn output_rate(&self) -> u32 {
        SAMPLE_RATE
    }

    fn decode(&mut self, message: &Message) -> Vec<AudioEvent> {
        match message {
            Message::Binary(bytes) => {
                vec![AudioEvent::Samples { voice: String::new(), samples: samples_of(bytes) }]
            }
            // The handshake is an object, and needs no answer.
            Message::Text(text) => serde_json::from_str::<Vec<SpeakerChange>>(text)
                .unwrap_or_default()
                .into_iter()
                .map(|SpeakerChange { name, is_speaking }| AudioEvent::Speaker {
                    name,
                    is_speaking,
                })
                .collect(),
            _ => Vec::new(),
        }
    }

    fn encode(&self, samples: &[i16]) -> Message {
        Message::binary(bytes_of(samples))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::meeting_services::test_order;

    #[test]
    fn a_bot_is_created_with_one_socket_and_our_time_limits() {
        let order = BotOrder {
            media_url: "wss://here.example/meet/c/audio?token=t".into(),
            lobby_timeout: std::time::Duration::from_secs(60),
            ..test_order()
        };
        let body = create_body(&order, "s");
        assert_eq!(body["recording_mode"], "audio_only");
        assert_eq!(body["callback_config"]["secret"], "s");
        let streaming = &body["streaming_config"];
        assert_eq!(streaming["input_url"], streaming["output_url"]);
        assert_eq!(streaming["audio_frequency"], 24_000);
        assert_eq!(body["timeout_config"]["waiting_room_timeout"], 120);
        assert_eq!(body["allow_multiple_bots"], true);
        assert_eq!(body["entry_message"], "Hello.");
    }

    #[test]
    fn codes_and_failures_are_translated() {
        let read = |report: Report| match report {
            Report::Status { status, detail } => (status.as_str(), detail.map(Detail::as_str)),
            other => panic!("{other:?}"),
        };
        assert_eq!(read(read_code("in_waiting_for_host").unwrap()), ("waiting_room", None));
        assert_eq!(read(read_code("recording_paused").unwrap()), ("in_call", None));
        assert_eq!(read(read_code("bot_rejected").unwrap()), ("error", Some("denied")));
        assert_eq!(read(read_code("call_ended").unwrap()), ("left", Some("ended")));
        assert_eq!(read_code("new_code"), None);
        assert_eq!(read(read_failure("BOT_REMOVED")), ("done", Some("removed")));
        assert_eq!(read(read_failure("NO_ATTENDEES")), ("done", Some("alone")));
        assert_eq!(read(read_failure("LOGIN_REQUIRED")), ("error", Some("login_required")));
        assert_eq!(read(read_failure("X")), ("error", Some("service_error")));
    }

    #[test]
    fn messages_of_the_socket_are_read_and_written() {
        let mut codec = Codec;
        let handshake = r#"{"protocol_version":2,"bot_id":"b","offset":0.0,"sample_rate":24000}"#;
        assert_eq!(codec.decode(&Message::text(handshake)), []);
        let speakers = r#"[{"name":"Maria","id":1,"timestamp":1.5,"isSpeaking":true},
            {"name":"Tom","id":null,"timestamp":1.5,"isSpeaking":false}]"#;
        let speaker =
            |name: &str, is_speaking| AudioEvent::Speaker { name: name.into(), is_speaking };
        assert_eq!(
            codec.decode(&Message::text(speakers)),
            [speaker("Maria", true), speaker("Tom", false)]
        );
        let sound = AudioEvent::Samples { voice: String::new(), samples: vec![1, -1] };
        assert_eq!(codec.decode(&Message::binary(vec![1, 0, 255, 255])), [sound]);
        assert_eq!(codec.encode(&[1, -1]), Message::binary(vec![1, 0, 255, 255]));
    }
}
