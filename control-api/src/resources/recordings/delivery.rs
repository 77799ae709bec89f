//! Writes the delivered files of recordings, one after the other, each in a child process.
//! Workspaces take turns.
//!
//! ```text
//! ID.recorded --> child: ID.webm.part --> ID.webm --> FINISHED, or CONVERTING for MP4
//!                   ^   |  killed, or failed
//!                   |   +------------------------> repeated, with increasing delays --> FAILED
//!                   |   |  no space
//!                   |   +------------------------> repeated without an end
//!                   |   |  the capture cannot be read
//!                   |   +------------------------> FAILED
//!                   +-- after a restart
//! ```

use std::time::Duration;

use conversation::id::ConversationId;
use tokio::sync::watch;

use super::child::{self, Failure};
use super::conversion::{NO_FFMPEG, not_mp4};
use super::files::{self, WEBM};
use super::pause;
use super::worker::{Finished, Worker, remove_part};
use crate::clock;
use crate::state::supervise::BackgroundTask;
use crate::store::agent::{Recording, RecordingFormat};
use crate::store::conversation::Row as Conversation;
use crate::store::fairness::RECORDING_JOBS;
use crate::store::recording::{self as table, CONVERTING, FINISHED, Row};
use crate::store::{self, Lock};

/// Delivery begins this long after the end of the call. The last events of a call follow its end by
/// up to 1.5 s.
const SETTLING_TIME: Duration = Duration::from_secs(3);
/// A file that the recorder has not completed this long after the end of the call, because its disk
/// stalled or its rename failed, is taken as it is.
const COMPLETION_TIME: Duration = Duration::from_secs(60);
/// The warning of a recording whose capture is damaged.
const DAMAGED: &str =
    "A part of the recording is missing: the file that was written during the call is damaged.";

/// The task that delivers recordings.
pub(crate) struct DeliveryTask(pub(crate) Worker);

impl BackgroundTask for DeliveryTask {
    async fn run(&mut self, mut stop: watch::Receiver<bool>) {
        let queue = std::sync::Arc::clone(&self.0.queue);
        loop {
            let work = async {
                let delivered = self.deliver_due().await;
                pause("recordings", delivered, self.0.retry_delay, &queue.captured).await;
            };
            tokio::select! {
                // A delivery that the stop interrupts begins anew after the next start; the child is
                // killed when its handle is dropped.
                () = work => {}
                _ = stop.wait_for(|stop| *stop) => return,
            }
        }
    }
}

impl DeliveryTask {
    /// Delivers what is due. Returns whether more recordings wait.
    async fn deliver_due(&self) -> store::Result<bool> {
        let Self(worker) = self;
        let (store, server) = (worker.store(), &*worker.event_storage.server_id);
        worker.folder.collect(store, server).await?;
        loop {
            let now = clock::now();
            let ended_before = now - clock::to_micros(SETTLING_TIME);
            let Some(row) = store.due_capture(server, ended_before, now).await? else {
                return store.has_recordings_to_deliver(server).await;
            };
            self.deliver(&row).await?;
        }
    }

    async fn deliver(&self, row: &Row) -> store::Result<()> {
        let Self(worker) = self;
        let store = worker.store();
        if store.is_recording_refused(&row.conversation).await? {
            let mut tx = store.begin_write(Lock::Rows).await?;
            table::begin_deletion(&mut tx, &row.conversation, clock::now()).await?;
            tx.commit().await?;
            worker.queue.begin_deletion();
            return Ok(());
        }
        // Without a conversation, it was erased meanwhile.
        let Some((conversation, settings)) = worker.settings(&row.conversation).await? else {
            return Ok(());
        };
        worker.run(RECORDING_JOBS, row, self.write_file(&conversation, &settings)).await
    }

    async fn write_file(
        &self,
        conversation: &Conversation,
        settings: &Recording,
    ) -> Result<(ConversationId, Finished), Failure> {
        let Self(worker) = self;
        let failed = |error| child::io_failure(&error);
        let id: ConversationId = conversation
            .id
            .parse()
            .map_err(|_| Failure::Permanent("its id is not valid".into()))?;
        let size = self.find_capture(id, conversation).await?;
        worker.check_space(size)?;
        let capture = worker.folder.recorded(id);
        let part = worker.folder.partial(id, WEBM);
        // A child of an earlier process may still have it open.
        files::remove(&part).await.map_err(failed)?;
        let written = child::deliver(&worker.command, &capture, &part, settings.channels).await;
        let summary = match written {
            Ok(summary) => summary,
            Err(failure) => {
                remove_part(&part).await;
                return Err(failure);
            }
        };
        let duration_ms = u64::try_from(summary.duration_ms).unwrap_or(0);
        worker.queue.deliveries.add(duration_ms, summary.cpu_us);
        let file = worker.folder.delivered(id, WEBM);
        tokio::fs::rename(&part, &file).await.map_err(failed)?;
        let mut warnings: Vec<String> = Vec::new();
        if summary.is_damaged {
            warnings.push(DAMAGED.into());
        }
        let status = match settings.format {
            RecordingFormat::Mp4 if worker.ffmpeg.is_some() => CONVERTING,
            RecordingFormat::Mp4 => {
                warnings.push(not_mp4(NO_FFMPEG));
                FINISHED
            }
            RecordingFormat::Webm => FINISHED,
        };
        let (duration_ms, bytes) = (summary.duration_ms, summary.bytes);
        Ok((id, Finished { status, format: WEBM, file, duration_ms, bytes, warnings }))
    }

    /// Size of the file of a call.
    async fn find_capture(
        &self,
        id: ConversationId,
        conversation: &Conversation,
    ) -> Result<u64, Failure> {
        let folder = &self.0.folder;
        let (capture, recorded) = (folder.capture(id), folder.recorded(id));
        let size = async |file| match tokio::fs::metadata(file).await {
            Ok(metadata) => Ok(Some(metadata.len())),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(child::io_failure(&error)),
        };
        if let Some(size) = size(&recorded).await? {
            return Ok(size);
        }
        if size(&capture).await?.is_some() {
            let ended_at = conversation.ended_at.unwrap_or(conversation.updated_at);
            if clock::now() < ended_at.saturating_add(clock::to_micros(COMPLETION_TIME)) {
                let reason = "the server still writes the file of the call";
                return Err(Failure::Waiting(reason.into()));
            }
            let moved = tokio::fs::rename(&capture, &recorded).await;
            moved.map_err(|error| child::io_failure(&error))?;
        }
        // Again, because the recorder may have renamed it meanwhile.
        let missing = || Failure::Permanent("the file of the call is missing".into());
        size(&recorded).await?.ok_or_else(missing)
    }
}
