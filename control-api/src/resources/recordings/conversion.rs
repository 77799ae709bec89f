//! Converts delivered files to MP4, one after the other, each in a child process. A conversion takes
//! about as long as the call, and deliveries go on meanwhile.
//!
//! ```text
//! ID.webm --> child: ID.mp4.part --> ID.mp4 --> FINISHED
//!               |  ffmpeg fails
//!               +--------------------> ID.webm stays, with a warning --> FINISHED
//! ```

use conversation::id::ConversationId;
use tokio::sync::watch;

use super::child::{self, Failure};
use super::files::{self, MP4, WEBM};
use super::pause;
use super::worker::{Finished, Worker, remove_part};
use crate::clock;
use crate::state::supervise::BackgroundTask;
use crate::store;
use crate::store::fairness::CONVERSION_JOBS;
use crate::store::recording::{FINISHED, Row};

/// The task that converts recordings.
pub(crate) struct ConversionTask(pub(crate) Worker);

impl BackgroundTask for ConversionTask {
    async fn run(&mut self, mut stop: watch::Receiver<bool>) {
        let queue = std::sync::Arc::clone(&self.0.queue);
        loop {
            let work = async {
                let converted = self.convert_due().await;
                pause("conversions", converted, self.0.retry_delay, &queue.conversion_work).await;
            };
            tokio::select! {
                // A conversion that the stop interrupts begins anew after the next start; the child
                // is killed when its handle is dropped.
                () = work => {}
                _ = stop.wait_for(|stop| *stop) => return,
            }
        }
    }
}

impl ConversionTask {
    /// Converts what is due. Returns whether more recordings wait.
    async fn convert_due(&self) -> store::Result<bool> {
        let Self(worker) = self;
        let (store, server) = (worker.store(), &*worker.event_storage.server_id);
        while let Some(row) = store.due_conversion(server, clock::now()).await? {
            worker.run(CONVERSION_JOBS, &row, self.convert(&row)).await?;
        }
        store.has_recordings_to_convert(server).await
    }

    async fn convert(&self, row: &Row) -> Result<(ConversationId, Finished), Failure> {
        let Self(worker) = self;
        let id: ConversationId = row
            .conversation
            .parse()
            .map_err(|_| Failure::Permanent("its id is not valid".into()))?;
        let webm = worker.folder.delivered(id, WEBM);
        let size = match tokio::fs::metadata(&webm).await {
            Ok(metadata) => metadata.len(),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                return Err(Failure::Permanent("the delivered file is missing".into()));
            }
            Err(error) => return Err(child::io_failure(&error)),
        };
        let unchanged = |reason: &str| Finished {
            status: FINISHED,
            format: WEBM,
            file: webm.clone(),
            duration_ms: row.duration_ms,
            bytes: row.bytes,
            warnings: vec![not_mp4(reason)],
        };
        let Some(ffmpeg) = &worker.ffmpeg else { return Ok((id, unchanged(NO_FFMPEG))) };
        worker.check_space(size)?;
        let (part, file) = (worker.folder.partial(id, MP4), worker.folder.delivered(id, MP4));
        files::remove(&part).await.map_err(|error| child::io_failure(&error))?;
        match child::convert(&worker.command, ffmpeg, &webm, &part).await {
            Ok(()) => {}
            Err(failure @ Failure::Waiting(_)) => {
                remove_part(&part).await;
                return Err(failure);
            }
            Err(_) => {
                remove_part(&part).await;
                return Ok((id, unchanged("ffmpeg failed on the server")));
            }
        }
        let moved = async {
            tokio::fs::rename(&part, &file).await?;
            Ok(tokio::fs::metadata(&file).await?.len())
        };
        let bytes: u64 = moved.await.map_err(|error: std::io::Error| child::io_failure(&error))?;
        let bytes = i64::try_from(bytes).unwrap_or(i64::MAX);
        let warnings = Vec::new();
        let (status, format, duration_ms) = (FINISHED, MP4, row.duration_ms);
        Ok((id, Finished { status, format, file, duration_ms, bytes, warnings }))
    }
}

/// Why there is no MP4 without ffmpeg.
pub(crate) const NO_FFMPEG: &str = "ffmpeg is not installed on the server";

/// The warning of a recording that is WebM although the agent asks for MP4.
pub(super) fn not_mp4(reason: &str) -> String {
    format!("The recording is WebM, not MP4: {reason}.")
}
