//! The webhooks of a video. They go through the outbox of all webhooks, in which the video counts
//! as the agent and as the conversation.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::mpsc;

use super::document::Document;
use crate::clock::{self, Micros};
use crate::state::webhook_queue::OutboxMessage;
use crate::store::delivery::{self, Row as Delivery};
use crate::store::video::Row;
use crate::store::video_job::Rendered;
use crate::store::{self, Transaction};
use crate::webhooks::signing;

/// How a video ended.
pub(super) enum Outcome<'a> {
    Completed(&'a Rendered),
    /// With the error.
    Failed(&'a str),
}

/// Sends the webhooks of videos.
#[derive(Clone)]
pub(crate) struct VideoWebhooks {
    pub(crate) server_id: Arc<str>,
    pub(crate) first_attempt_delay: Duration,
    pub(crate) outbox: mpsc::UnboundedSender<OutboxMessage>,
}

impl VideoWebhooks {
    /// Adds the webhook of an outcome, if the request names a receiver. It is to be announced after
    /// the transaction.
    pub(super) async fn insert(
        &self,
        tx: &mut Transaction,
        row: &Row,
        document: &Document,
        outcome: &Outcome<'_>,
        now: Micros,
    ) -> store::Result<Option<Delivery>> {
        if document.callback_url.is_empty() {
            return Ok(None);
        }
        let (event, payload) = describe(row, document, outcome);
        let body = json!({
            "type": "video",
            "event": {"name": event, "payload": payload},
            "video_id": row.id,
            "timestamp": now as f64 / 1e6,
        });
        let delivery = Delivery {
            id: signing::new_message_id(),
            workspace: row.workspace.clone(),
            conversation: row.id.clone(),
            agent: row.id.clone(),
            sequence: 1,
            event: event.into(),
            url: document.callback_url.clone(),
            body: body.to_string(),
            attempts: 0,
            attempts_before_redelivery: 0,
            first_attempt_at: None,
            next_attempt_at: now + clock::to_micros(self.first_attempt_delay),
        };
        delivery::insert(tx, &delivery, &self.server_id).await?;
        Ok(Some(delivery))
    }

    /// Announces a webhook that was stored.
    pub(super) fn announce(&self, delivery: Option<Delivery>) {
        if let Some(delivery) = delivery {
            // Without a receiver the server stops; the next start finds it in the store.
            let _ = self.outbox.send(OutboxMessage::Written(delivery));
        }
    }
}

/// Name and payload of an event. It contains no links, which would expire before a late attempt.
fn describe(row: &Row, document: &Document, outcome: &Outcome<'_>) -> (&'static str, Value) {
    let (title, meta_data) = (&document.title, &document.meta_data);
    match outcome {
        Outcome::Completed(video) => {
            let payload = json!({
                "duration": video.duration_ms as f64 / 1e3,
                "width": row.width,
                "height": row.height,
                "bytes": video.bytes,
                "format": row.format,
                "title": title,
                "meta_data": meta_data,
            });
            ("video_completed", payload)
        }
        Outcome::Failed(error) => {
            ("video_failed", json!({"error": error, "title": title, "meta_data": meta_data}))
        }
    }
}
