//! The background tasks: builds each one from the parts of the app state that it uses, and runs
//! them until the server stops. Tasks do not import `AppState`: the fields of a task are all that
//! it depends on.

use std::ffi::OsString;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use futures_util::future::BoxFuture;
use tokio::sync::{mpsc, watch};

use crate::cluster::failure_detector::FailureDetector;
use crate::cluster::failure_log::FailureLog;
use crate::cluster::lease::{self, LeaseTask, Renewals};
use crate::cluster::recovery::RecoveryTask;
use crate::cluster::relay_task::{Execute, RelayTask};
use crate::events::Writer;
use crate::http::key_usage_writer::KeyUsageTask;
use crate::resources::characters::PreviewTask;
use crate::resources::custom_avatars::bake::BakeTask;
use crate::resources::custom_avatars::erase::EraseTask;
use crate::resources::knowledge::embeddings::EmbeddingTask;
use crate::resources::knowledge::ingestion::IngestionTask;
use crate::resources::meetings::{Accounts, BotWatch, Lifecycle, MeetingTask};
use crate::resources::recordings::conversion::ConversionTask;
use crate::resources::recordings::delivery::DeliveryTask;
use crate::resources::recordings::files::RecordingFolder;
use crate::resources::recordings::storing::StoringTask;
use crate::resources::recordings::worker::Worker;
use crate::resources::videos::files::VideoFolder;
use crate::resources::videos::storing::VideoStoringTask;
use crate::resources::videos::webhook::VideoWebhooks;
use crate::resources::videos::worker::VideoTask;
use crate::state::AppState;
use crate::state::event_queue::EventReceiver;
use crate::state::guardrail_callback::GuardrailCallback;
use crate::state::supervise::{EVENT_WRITER, spawn_supervised};
use crate::state::webhook_queue::OutboxMessage;
use crate::webhooks::guardrail_callback::GuardrailCallbackTask;
use crate::webhooks::{WebhookSender, WebhookTask};

/// What only background tasks use: the receivers of their queues, and the commands of their child
/// processes.
pub(crate) struct BackgroundInputs {
    pub(crate) events: EventReceiver,
    pub(crate) outbox: mpsc::UnboundedReceiver<OutboxMessage>,
    pub(crate) guardrail_callbacks: mpsc::UnboundedReceiver<GuardrailCallback>,
    /// Program and arguments that bake and draw avatars.
    pub(crate) bake_command: Vec<OsString>,
    /// Program and arguments that write recordings.
    pub(crate) deliver_command: Vec<OsString>,
    /// Program and arguments that render videos.
    pub(crate) video_command: Vec<OsString>,
    /// Program and arguments that extract a document's text.
    pub(crate) extract_command: Vec<OsString>,
}

/// Runs all background tasks until `shutdown`. Then it waits for them, releases the lease and
/// closes the store.
/// `execute` executes the requests of other servers.
pub(crate) async fn run(
    state: &AppState,
    inputs: BackgroundInputs,
    execute: Execute,
    shutdown: BoxFuture<'_, ()>,
) {
    let (stop, stopped) = watch::channel(false);
    let (tasks, stopped) = (&state.tasks, &stopped);
    let writer = event_writer(state, inputs.events, stopped.clone());
    let writer = spawn_supervised(tasks, stopped, EVENT_WRITER, writer);
    let sender = Arc::new(webhook_sender(state));
    let webhooks = webhook_task(state, Arc::clone(&sender), inputs.outbox);
    let dropped = Arc::clone(&state.guardrail_callbacks_dropped);
    let callbacks = GuardrailCallbackTask { sender, queue: inputs.guardrail_callbacks, dropped };
    let previews = preview_task(state, inputs.bake_command.clone());
    let bakes = bake_task(state, inputs.bake_command);
    let videos = video_task(state, inputs.video_command, inputs.deliver_command.clone());
    let worker = recording_worker(state, inputs.deliver_command);
    let ingestion = ingestion_task(state, inputs.extract_command);
    let erasure = EraseTask { store: state.store.clone() };
    let others = [
        spawn_supervised(tasks, stopped, "webhooks", webhooks),
        spawn_supervised(tasks, stopped, "guardrail_callbacks", callbacks),
        spawn_supervised(tasks, stopped, "lease", lease_task(state)),
        spawn_supervised(tasks, stopped, "relay", relay_task(state, execute)),
        spawn_supervised(tasks, stopped, "conversations", recovery_task(state)),
        spawn_supervised(tasks, stopped, "drawings", bakes),
        spawn_supervised(tasks, stopped, "erasure", erasure),
        spawn_supervised(tasks, stopped, "previews", previews),
        spawn_supervised(tasks, stopped, "documents", ingestion),
        spawn_supervised(tasks, stopped, "recordings", DeliveryTask(worker.clone())),
        spawn_supervised(tasks, stopped, "recording_conversions", ConversionTask(worker)),
        spawn_supervised(tasks, stopped, "recording_storage", storing_task(state)),
        spawn_supervised(tasks, stopped, "videos", videos),
        spawn_supervised(tasks, stopped, "video_storage", video_storing_task(state)),
        spawn_supervised(tasks, stopped, "meetings", meeting_task(state)),
        spawn_supervised(tasks, stopped, "key_uses", key_usage_task(state)),
        spawn_supervised(tasks, stopped, "meaning", embedding_task(state)),
    ];
    shutdown.await;
    // The receivers are in the tasks; without any receiver there is no task to stop.
    let _ = stop.send(true);
    for task in others.into_iter().chain([writer]) {
        if let Err(error) = task.await {
            tracing::error!(%error, "a background task failed");
        }
    }
    lease::release(&state.store, &state.server_id).await;
    state.store.close().await;
}

fn event_writer(state: &AppState, queue: EventReceiver, stop: watch::Receiver<bool>) -> Writer {
    Writer::new(
        state.event_storage.clone(),
        Arc::clone(&state.pending_offers),
        Arc::clone(&state.engine),
        state.config.crash_hook,
        queue,
        stop,
    )
}

fn webhook_sender(state: &AppState) -> WebhookSender {
    WebhookSender {
        store: state.store.clone(),
        vault: Arc::clone(&state.vault),
        http_client: state.http_client.clone(),
        timeout: state.config.webhooks.timeout,
        crash_hook: state.config.crash_hook,
    }
}

fn webhook_task(
    state: &AppState,
    sender: Arc<WebhookSender>,
    outbox: mpsc::UnboundedReceiver<OutboxMessage>,
) -> WebhookTask {
    WebhookTask {
        store: state.store.clone(),
        server_id: Arc::clone(&state.server_id),
        config: state.config.webhooks.clone(),
        sender,
        outbox,
    }
}

fn lease_task(state: &AppState) -> LeaseTask {
    LeaseTask {
        store: state.store.clone(),
        server_id: Arc::clone(&state.server_id),
        duration: state.config.timeouts.lease,
        database_url: state.config.database_url.clone(),
        data: state.config.data.clone(),
        event_storage: state.event_storage.clone(),
        engine: Arc::clone(&state.engine),
        reporter: state.reporter(),
        failure_detector: FailureDetector::new(
            state.config.timeouts.lease,
            state.config.timeouts.silence,
        ),
        renewals: Renewals::default(),
        presence: None,
        unresponsive_presence: None,
        failure_log: FailureLog::default(),
        fenced_until: 0,
        outbox: state.outbox.clone(),
        bake_queued: Arc::clone(&state.bake_queued),
        document_queued: Arc::clone(&state.document_queued),
        videos: Arc::clone(&state.videos),
    }
}

fn relay_task(state: &AppState, execute: Execute) -> RelayTask {
    RelayTask {
        store: state.store.clone(),
        server_id: Arc::clone(&state.server_id),
        database_url: state.config.database_url.clone(),
        relay: Arc::clone(&state.relay),
        execute,
    }
}

fn recovery_task(state: &AppState) -> RecoveryTask {
    RecoveryTask {
        store: state.store.clone(),
        server_id: Arc::clone(&state.server_id),
        data: state.config.data.clone(),
        join_timeout: state.config.timeouts.join,
        retention_days: state.config.retention_days,
        pending_offers: Arc::clone(&state.pending_offers),
        event_storage: state.event_storage.clone(),
        videos: Arc::clone(&state.videos),
    }
}

fn bake_task(state: &AppState, command: Vec<OsString>) -> BakeTask {
    BakeTask {
        store: state.store.clone(),
        server_id: Arc::clone(&state.server_id),
        data: state.config.data.clone(),
        command,
        vault: Arc::clone(&state.vault),
        queued: Arc::clone(&state.bake_queued),
        live_pose_sets: Arc::clone(&state.live_pose_sets),
        engine: Arc::clone(&state.engine),
    }
}

fn preview_task(state: &AppState, command: Vec<OsString>) -> PreviewTask {
    PreviewTask { renderer: Arc::clone(&state.preview_renderer), command }
}

fn ingestion_task(state: &AppState, command: Vec<OsString>) -> IngestionTask {
    IngestionTask {
        store: state.store.clone(),
        server_id: Arc::clone(&state.server_id),
        command,
        queued: Arc::clone(&state.document_queued),
        document_read: Arc::clone(&state.document_read),
    }
}

fn recording_worker(state: &AppState, command: Vec<OsString>) -> Worker {
    Worker {
        event_storage: state.event_storage.clone(),
        events: state.events.clone(),
        folder: RecordingFolder::of(&state.config.data),
        command,
        ffmpeg: state.config.recordings.ffmpeg.clone(),
        min_free: state.config.recordings.min_free,
        retry_delay: state.config.recordings.retry_delay,
        queue: Arc::clone(&state.recordings),
    }
}

fn storing_task(state: &AppState) -> StoringTask {
    StoringTask {
        event_storage: state.event_storage.clone(),
        events: state.events.clone(),
        folder: RecordingFolder::of(&state.config.data),
        storage: Arc::clone(&state.storage),
        retry_delay: state.config.recordings.retry_delay,
        queue: Arc::clone(&state.recordings),
    }
}

fn video_webhooks(state: &AppState) -> VideoWebhooks {
    VideoWebhooks {
        server_id: Arc::clone(&state.server_id),
        first_attempt_delay: state.config.webhooks.schedule.first().copied().unwrap_or_default(),
        outbox: state.outbox.clone(),
    }
}

fn video_task(
    state: &AppState,
    command: Vec<OsString>,
    convert_command: Vec<OsString>,
) -> VideoTask {
    let (engine, queue) = (Arc::clone(&state.engine), Arc::clone(&state.videos));
    let is_local = state.storage.is_local();
    // The engine is set when the process has decided what it serves.
    let can_serve_files = move || {
        engine.get().is_some() && !(is_local && queue.serves_no_files.load(Ordering::Relaxed))
    };
    VideoTask {
        store: state.store.clone(),
        server_id: Arc::clone(&state.server_id),
        vault: Arc::clone(&state.vault),
        registry: state.config.registry.clone(),
        folder: VideoFolder::of(&state.config.data),
        command,
        convert_command,
        ffmpeg: state.config.recordings.ffmpeg.clone(),
        min_free: state.config.recordings.min_free,
        models: state.config.videos.models.clone(),
        avatars: state.config.videos.avatars.clone(),
        retry_delay: state.config.recordings.retry_delay,
        workspace_bytes: state.config.limits.workspace_bytes,
        can_serve_files: Box::new(can_serve_files),
        queue: Arc::clone(&state.videos),
        webhooks: video_webhooks(state),
    }
}

fn video_storing_task(state: &AppState) -> VideoStoringTask {
    VideoStoringTask {
        store: state.store.clone(),
        server_id: Arc::clone(&state.server_id),
        folder: VideoFolder::of(&state.config.data),
        storage: Arc::clone(&state.storage),
        retry_delay: state.config.recordings.retry_delay,
        queue: Arc::clone(&state.videos),
        webhooks: video_webhooks(state),
    }
}

fn meeting_task(state: &AppState) -> MeetingTask {
    MeetingTask {
        server_id: Arc::clone(&state.server_id),
        meetings: Arc::clone(&state.meetings),
        watch: BotWatch {
            lifecycle: Lifecycle::of(state),
            accounts: Accounts::of(state),
            config: state.config.meetings.clone(),
            meetings: Arc::clone(&state.meetings),
        },
    }
}

fn key_usage_task(state: &AppState) -> KeyUsageTask {
    KeyUsageTask { store: state.store.clone(), key_usage: Arc::clone(&state.key_usage) }
}

fn embedding_task(state: &AppState) -> EmbeddingTask {
    EmbeddingTask {
        store: state.store.clone(),
        embedder: state.query_embedder.clone(),
        document_read: Arc::clone(&state.document_read),
    }
}
