//! `/metrics`: metrics of the control plane, the engine, the process and its runtime in
//! OpenMetrics, the format that Prometheus reads.
//!
//! No metric has a label for the conversation: each label value would stay in a collector's memory
//! indefinitely. The record of a conversation holds the data of its call.

mod openmetrics;
mod previous_names;
mod process;
mod runtime;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use axum::Router;
use axum::extract::{Request, State};
use axum::http::header;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use engine_api::metrics::{MetricFamily, MetricPoint};

use crate::error::ApiError;
use crate::http::auth::bearer_token;
use crate::http::peer;
use crate::state::AppState;
use crate::state::livekit::LiveKit;
use crate::state::livekit::rooms::Rooms;
use crate::store::{self, Store};

/// Maximum time of the store's counts. A collector waits 10 s by default, and other requests are
/// answered within 2 s while the store fails.
const MAX_STORE_TIME: Duration = Duration::from_secs(1);

pub(crate) fn routes() -> Router<Arc<AppState>> {
    Router::new().route("/metrics", get(metrics))
}

/// Whether a request may read the metrics: with the token, or from this machine while the server is
/// not public.
fn may_read(state: &AppState, request: &Request) -> bool {
    let presented_token = bearer_token(request.headers(), request.uri().query());
    if let (Some(token), Some(presented_token)) = (&state.config.metrics_token, presented_token)
        && aws_lc_rs::constant_time::verify_slices_are_equal(
            token.as_bytes(),
            presented_token.as_bytes(),
        )
        .is_ok()
    {
        return true;
    }
    let peer =
        peer::resolve_peer(request.extensions(), request.headers(), &state.config.trusted_proxies);
    state.config.public_url.is_none() && peer.0.is_loopback()
}

async fn metrics(
    State(state): State<Arc<AppState>>,
    request: Request,
) -> Result<Response, ApiError> {
    if !may_read(&state, &request) {
        return Err(ApiError::Unauthorized);
    }
    let mut families = control_plane_metrics(&state);
    match tokio::time::timeout(MAX_STORE_TIME, store_metrics(&state.store)).await {
        Ok(Ok(counts)) => families.extend(counts),
        // The other metrics describe the outage, so a collector needs them then.
        Ok(Err(error)) => tracing::debug!(%error, "metrics without the store's counts"),
        Err(_) => tracing::debug!("metrics without the store's counts: no answer"),
    }
    families.extend(state.engine().metrics());
    families.extend(livekit_metrics(state.livekit.as_deref()));
    families.extend(runtime::collect());
    let failed = |cause: String| ApiError::Internal("Internal server error", cause);
    // `collect` reads files, so it runs in a blocking thread.
    let process = tokio::task::spawn_blocking(process::collect).await;
    families.extend(process.map_err(|e| failed(e.to_string()))?);
    previous_names::add_previous_names(&mut families);
    let text = openmetrics::encode_families(families).map_err(|e| failed(e.to_string()))?;
    Ok(([(header::CONTENT_TYPE, openmetrics::CONTENT_TYPE)], text).into_response())
}

/// Metrics of the control plane.
fn control_plane_metrics(state: &AppState) -> Vec<MetricFamily> {
    let (written, rendered) = (&state.recordings.deliveries, &state.videos.rendered);
    let host = state.engine();
    let failing = state.store.health.failure_reason().is_some();
    let stores_events = state.persistence_failure().is_none();
    let ready = stores_events
        && !state.is_draining()
        && host.not_ready_reason().is_none()
        && host.capacity_error().is_none();
    vec![
        MetricFamily::gauge("visavis_build_info", "Version of the program.").with_label(
            "version",
            env!("CARGO_PKG_VERSION"),
            1u64,
        ),
        MetricFamily::gauge("visavis_ready", "1 if the server accepts calls, else 0.")
            .with_value(u64::from(ready)),
        MetricFamily::gauge(
            "visavis_calls",
            "Running calls, without offers that have not connected.",
        )
        .with_value(host.active_calls()),
        MetricFamily::gauge(
            "visavis_events_queued",
            "Events that wait to be written to the store.",
        )
        .with_value(state.events.waiting()),
        MetricFamily::gauge("visavis_store_failing", "1 if the store accepts no writes, else 0.")
            .with_value(u64::from(failing)),
        MetricFamily::counter(
            "visavis_events_dropped",
            "Events dropped because the queue was full while the store accepted no writes, \
             or because the store rejected their text.",
        )
        .with_value(state.events.dropped()),
        MetricFamily::counter(
            "visavis_events_fenced",
            "Events rejected because this process no longer holds their call: other servers took \
             it for lost and ended the call.",
        )
        .with_value(state.events.fenced()),
        MetricFamily::counter(
            "visavis_task_panics",
            "Panics of background tasks, which were restarted.",
        )
        .with_each("task", state.tasks.panic_counts()),
        MetricFamily::counter(
            "visavis_guardrail_callbacks_dropped",
            "Guardrail callbacks dropped because the agent's queue was full.",
        )
        .with_value(state.guardrail_callbacks_dropped.load(Ordering::Relaxed)),
        failed_meeting_requests(state),
        MetricFamily::counter(
            "visavis_meeting_webhooks_rejected",
            "Webhooks of meeting services that were unsigned, wrongly signed, malformed or too \
             large.",
        )
        .with_value(state.meetings.rejected_webhooks()),
        MetricFamily::counter(
            "visavis_recording_uploads_failed",
            "Failed attempts to upload a recording into the storage.",
        )
        .with_value(state.recordings.failed_uploads.load(Ordering::Relaxed)),
        MetricFamily::counter(
            "visavis_recording_deletions_failed",
            "Failed attempts to delete a recording.",
        )
        .with_value(state.recordings.failed_deletions.load(Ordering::Relaxed)),
        MetricFamily::counter(
            "visavis_recordings_delivered",
            "Recordings written by child processes after their calls.",
        )
        .with_value(written.count.load(Ordering::Relaxed)),
        MetricFamily::counter(
            "visavis_recordings_delivered_seconds",
            "Duration of the recordings that child processes have written.",
        )
        .with_value(written.duration_ms.load(Ordering::Relaxed) as f64 / 1e3),
        MetricFamily::counter(
            "visavis_recording_delivery_cpu_seconds",
            "CPU time of the child processes that have written recordings, without conversions to \
             MP4.",
        )
        .with_value(written.cpu_us.load(Ordering::Relaxed) as f64 / 1e6),
        MetricFamily::counter(
            "visavis_videos_rendered",
            "Videos of text or sound that child processes have rendered.",
        )
        .with_value(rendered.count.load(Ordering::Relaxed)),
        MetricFamily::counter(
            "visavis_video_seconds",
            "Duration of the videos that child processes have rendered.",
        )
        .with_value(rendered.duration_ms.load(Ordering::Relaxed) as f64 / 1e3),
        MetricFamily::counter(
            "visavis_video_cpu_seconds",
            "CPU time of the child processes that have rendered videos, without conversions.",
        )
        .with_value(rendered.cpu_us.load(Ordering::Relaxed) as f64 / 1e6),
        MetricFamily::counter(
            "visavis_video_upload_failures",
            "Failed attempts to upload a video into the storage.",
        )
        .with_value(state.videos.failed_uploads.load(Ordering::Relaxed)),
    ]
}

/// Metrics of LiveKit; 0 if it is not configured.
fn livekit_metrics(livekit: Option<&LiveKit>) -> Vec<MetricFamily> {
    let no_rooms = Rooms::default();
    let rooms = livekit.map_or(&no_rooms, |livekit| &livekit.rooms);
    let is_registered = livekit.is_some_and(|livekit| livekit.dispatch.is_registered());
    let (accepted, failed) = rooms.job_counts();
    vec![
        MetricFamily::gauge(
            "visavis_livekit_registered",
            "Whether the server is registered as a worker of LiveKit: 1 or 0.",
        )
        .with_value(u64::from(is_registered)),
        MetricFamily::gauge("visavis_livekit_rooms", "LiveKit rooms that the server serves.")
            .with_value(rooms.count() as u64),
        MetricFamily::counter("visavis_livekit_jobs_accepted", "Jobs of LiveKit that were accepted.")
            .with_value(accepted),
        MetricFamily::counter("visavis_livekit_jobs_failed", "Jobs of LiveKit that have failed.")
            .with_value(failed),
        MetricFamily::counter(
            "visavis_livekit_jobs_lost",
            "Rooms with a caller and without an agent, because LiveKit has lost the job. They got an \
             agent directly.",
        )
        .with_each("cause", rooms.lost_counts()),
    ]
}

/// Failed requests to meeting services, by service and cause.
fn failed_meeting_requests(state: &AppState) -> MetricFamily {
    let mut family = MetricFamily::counter(
        "visavis_meeting_requests_failed",
        "Requests to meeting services that failed.",
    );
    for (provider, status, count) in state.meetings.failed_requests() {
        let labels = vec![("provider", provider.to_owned()), ("status", status.to_owned())];
        family.points.push(MetricPoint { labels, value: count.into() });
    }
    family
}

/// Metrics of what the store holds.
async fn store_metrics(store: &Store) -> store::Result<Vec<MetricFamily>> {
    // All states, including those with count 0: dashboards query these too.
    let states = |all: &'static [&'static str], counts: Vec<(String, i64)>| {
        all.iter().map(move |state| {
            let found = counts.iter().find(|(name, _)| name.eq_ignore_ascii_case(state));
            (state, found.map_or(0, |(_, n)| u64::try_from(*n).unwrap_or(0)))
        })
    };
    let deliveries = store.delivery_counts().await?;
    let recordings = store.recording_counts().await?;
    let waiting = store.waiting_recordings().await?;
    let videos = store.video_counts().await?;
    let waiting_videos = store.waiting_videos().await?;
    let conversations = store.conversation_counts().await?;
    Ok(vec![
        MetricFamily::gauge(
            "visavis_events_failed",
            "Events that could not be processed; their text is stored in failed_event.",
        )
        .with_value(u64::try_from(store.failed_event_count().await?).unwrap_or(0)),
        MetricFamily::gauge("visavis_webhooks", "Webhooks in the store, by state.").with_each(
            "state",
            states(&["pending", "done", "dead", "dropped", "unreadable"], deliveries),
        ),
        MetricFamily::gauge("visavis_recordings", "Recordings in the store, by state.").with_each(
            "state",
            states(
                &["captured", "converting", "finished", "stored", "failed", "deleting", "deleted"],
                recordings,
            ),
        ),
        MetricFamily::gauge(
            "visavis_recordings_waiting",
            "Recordings that wait after a failure: for space, for the storage, or for another attempt.",
        )
        .with_value(u64::try_from(waiting).unwrap_or(0)),
        MetricFamily::gauge("visavis_videos", "Videos in the store, by state.").with_each(
            "state",
            states(
                &["queued", "processing", "storing", "completed", "failed", "deleting"],
                videos,
            ),
        ),
        MetricFamily::gauge(
            "visavis_videos_waiting",
            "Videos that wait after a failure: for space, for the storage, or for another attempt.",
        )
        .with_value(u64::try_from(waiting_videos).unwrap_or(0)),
        MetricFamily::gauge("visavis_conversations", "Conversations in the store, by state.")
            .with_each("state", states(&["started", "in_progress", "ended"], conversations)),
    ])
}
