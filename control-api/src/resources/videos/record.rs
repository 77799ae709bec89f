//! The record of a video, as responses show it.

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Map, Value};

use super::document::{Captions, Document, VideoFormat, VideoTts};
use super::links::{self, Links};
use crate::clock::Iso8601;
use crate::state::AppState;
use crate::store::framing::VideoSize;
use crate::store::video::{COMPLETED, FAILED, QUEUED, Row, STORING, WHOLE};
use crate::store::{self, json_record};

/// Share of the progress that the drawing of the picture has, if it must be drawn first.
const DRAWING_SHARE: f64 = 0.6;
/// Progress when all files are complete and go into the storage.
pub(super) const RENDERED: i64 = 950;

/// A video as lists show it.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "ListedVideo")]
pub(crate) struct ListedVideo {
    #[schemars(extend("format" = "uuid"))]
    id: String,
    title: Option<String>,
    #[schemars(extend("enum" = ["QUEUED", "PROCESSING", "COMPLETED", "FAILED"]))]
    status: String,
    /// From 0 to 1.
    #[schemars(range(min = 0, max = 1))]
    progress: f64,
    avatar_key_id: String,
    /// Null for an uploaded sound.
    tts: Option<VideoTts>,
    size: VideoSize,
    /// Pictures per second.
    frame_rate: u32,
    /// Colour; null = the avatar's own background.
    background: Option<String>,
    captions: Captions,
    format: VideoFormat,
    callback_url: String,
    meta_data: Option<Map<String, Value>>,
    /// Link to the video; empty until it is COMPLETED. Links expire: each response has new ones.
    url: String,
    /// Link to a picture of the avatar at rest, WebP.
    poster_url: String,
    /// Link to the captions, WebVTT, if `captions` is `vtt`.
    captions_url: String,
    /// Seconds; null until the video is complete.
    duration: Option<f64>,
    /// Pixels.
    width: i64,
    /// Pixels.
    height: i64,
    /// Size of the video; null until it is complete.
    bytes: Option<i64>,
    /// Why it is FAILED, or why its file cannot be read, in one sentence.
    error: Option<String>,
    /// What it waits for after a failure, in one sentence.
    waiting: Option<String>,
    warnings: Vec<String>,
    created_at: Iso8601,
    updated_at: Iso8601,
    finished_at: Option<Iso8601>,
}

/// A video.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Video")]
pub(crate) struct VideoRecord {
    #[serde(flatten)]
    video: ListedVideo,
    /// Null for an uploaded sound.
    text: Option<String>,
}

/// A new video.
#[derive(Serialize, JsonSchema)]
pub(crate) struct CreatedVideo {
    #[serde(flatten)]
    pub(super) video: VideoRecord,
    /// Signs the webhooks of this video. It is not shown again.
    pub(super) webhook_secret: String,
}

/// A video with its text. `base`: `{base_url}`.
pub(super) async fn record(state: &AppState, row: &Row, base: &str) -> store::Result<VideoRecord> {
    let document: Document = json_record::parse_document(&row.document)?;
    let text = document.text.clone();
    Ok(VideoRecord { video: listed(state, row, document, base).await, text })
}

/// A video for a list.
pub(super) async fn list_item(
    state: &AppState,
    row: &Row,
    base: &str,
) -> store::Result<ListedVideo> {
    Ok(listed(state, row, json_record::parse_document(&row.document)?, base).await)
}

async fn listed(state: &AppState, row: &Row, document: Document, base: &str) -> ListedVideo {
    let links = match row.status.as_str() {
        COMPLETED => links::of_video(state, row, base).await,
        _ => Ok(Links::default()),
    };
    let mut error = row.error.clone().filter(|_| row.status == FAILED);
    let Links { url, poster_url, captions_url } = links.unwrap_or_else(|reason| {
        error = Some(reason.into());
        Links::default()
    });
    let is_complete = row.status == COMPLETED || row.status == STORING;
    ListedVideo {
        id: row.id.clone(),
        title: document.title,
        status: row.shown_status.clone(),
        progress: progress(row),
        avatar_key_id: document.avatar_key_id,
        tts: document.tts,
        size: document.size,
        frame_rate: document.frame_rate,
        background: document.background,
        captions: document.captions,
        format: document.format,
        callback_url: document.callback_url,
        meta_data: document.meta_data,
        url,
        poster_url,
        captions_url,
        duration: is_complete.then_some(row.duration_ms as f64 / 1e3),
        width: row.width,
        height: row.height,
        bytes: is_complete.then_some(row.bytes),
        error,
        waiting: waiting(row),
        warnings: serde_json::from_str(&row.warnings).unwrap_or_default(),
        created_at: Iso8601(row.created_at),
        updated_at: Iso8601(row.updated_at),
        finished_at: row.finished_at.map(Iso8601),
    }
}

/// Progress from 0 to 1: the drawing of the picture, if there is one, comes before all else.
fn progress(row: &Row) -> f64 {
    if row.status == COMPLETED {
        return 1.0;
    }
    let made = row.progress as f64 / WHOLE as f64;
    if row.draws == 0 {
        return made;
    }
    let drawn = match row.status.as_str() {
        QUEUED => row.drawn_percent.unwrap_or(0) as f64 / 100.0,
        _ => 1.0,
    };
    // In steps of the progress itself, so that sums have few digits.
    let sum = drawn * DRAWING_SHARE + made * (1.0 - DRAWING_SHARE);
    (sum * WHOLE as f64).round() / WHOLE as f64
}

fn waiting(row: &Row) -> Option<String> {
    if row.status == COMPLETED || row.status == FAILED {
        return None;
    }
    if row.has_audio == 1 && row.has_live_server == 0 {
        return Some("The audio is on a server that is not running.".into());
    }
    let reason = row.error.as_ref()?;
    Some(match row.status.as_str() {
        STORING => format!("The video waits for the storage: {reason}."),
        _ => format!("The video is made later: {reason}."),
    })
}
