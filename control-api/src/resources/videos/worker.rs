//! Makes videos, one after the other. Workspaces take turns.
//!
//! ```text
//! claim --> hosted voice, sentence by sentence --> child: film.webm --> ffmpeg, if needed --> STORING
//!   ^         |  a failure, or a crash               |                    |
//!   +---------+--------------------------------------+--------------------+
//!   |  after five failures, or if the input cannot be used
//!   +--> FAILED
//! ```
//!
//! A video belongs to the server that claimed it, by that server's lease. A deleted one, or one that
//! another server has claimed, ends at once with its child process.

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use models::film::{Files, Picture, Speech, Task};
use models::registry::{Registry, is_builtin_tts};
use tokio::sync::watch;

use super::child::{self, Conversion};
use super::document::{Captions, Document, VideoFormat};
use super::files::{StoredFile, VideoFiles, VideoFolder};
use super::record::RENDERED;
use super::speech::Speaker;
use super::webhook::{Outcome, VideoWebhooks};
use crate::clock;
use crate::resources::recordings::child::{Failure, io_failure};
use crate::resources::recordings::worker::check_space;
use crate::resources::recordings::{pause, retry_delay};
use crate::state::supervise::BackgroundTask;
use crate::state::video_queue::VideoQueue;
use crate::store::fairness::VIDEO_JOBS;
use crate::store::vault::Vault;
use crate::store::video::{PROCESSING, Row};
use crate::store::video_job::{self as table, Rendered, Retry};
use crate::store::{self, Lock, Store, json_record, quota};

/// Failed attempts after which a video is given up.
const MAX_ATTEMPTS: i64 = 5;
/// Attempts that wait for space have the delay after this many failed ones.
const WAITING_DELAY: i64 = 2;
/// How often the progress is stored, and it is checked whether the video still belongs to this
/// server.
const PROGRESS_INTERVAL: Duration = Duration::from_secs(1);
/// Progress, per mille, when a hosted voice has spoken.
const SPOKEN: i64 = 400;
/// Progress when the video is rendered and is to be converted.
const CONVERTING: i64 = 700;
/// Bytes of a minute of video, generously, and characters of a minute of speech.
const BYTES_PER_MINUTE: u64 = 4 << 20;
const CHARS_PER_MINUTE: u64 = 900;
/// Minutes of an uploaded sound.
const AUDIO_MINUTES: u64 = 30;

const AVATAR_DELETED: &str = "The avatar was deleted.";
const NOT_DRAWN: &str = "The avatar cannot be drawn in this size.";
const NO_FFMPEG: &str = "ffmpeg is not installed on the server any more.";
const NO_SPACE_LEFT: &str = "The workspace has no space left for the video.";

/// The task that makes videos.
pub(crate) struct VideoTask {
    pub(crate) store: Store,
    /// The server that claims them.
    pub(crate) server_id: Arc<str>,
    /// Decrypts the keys of hosted voices.
    pub(crate) vault: Arc<Vault>,
    pub(crate) registry: Option<Arc<Registry>>,
    pub(crate) folder: VideoFolder,
    /// Program and arguments that render videos.
    pub(crate) command: Vec<OsString>,
    /// Program and arguments that convert them.
    pub(crate) convert_command: Vec<OsString>,
    pub(crate) ffmpeg: Option<PathBuf>,
    /// Free bytes of the disk below which nothing is written; 0 = no limit.
    pub(crate) min_free: u64,
    /// Folder of the models, and of further avatars.
    pub(crate) models: PathBuf,
    pub(crate) avatars: Option<PathBuf>,
    /// Delay before the first repetition.
    pub(crate) retry_delay: Duration,
    /// `limits.workspace_bytes`; 0 = no limit.
    pub(crate) workspace_bytes: u64,
    /// Whether the files that this server stores can be read through it.
    pub(crate) can_serve_files: Box<dyn Fn() -> bool + Send + Sync>,
    pub(crate) queue: Arc<VideoQueue>,
    pub(crate) webhooks: VideoWebhooks,
}

impl BackgroundTask for VideoTask {
    async fn run(&mut self, mut stop: watch::Receiver<bool>) {
        let queue = Arc::clone(&self.queue);
        loop {
            let work = async {
                let made = self.make_due().await;
                pause("videos", made, self.retry_delay, &queue.queued).await;
            };
            tokio::select! {
                // A video that the stop interrupts is claimed again after the next start; the child
                // is killed when its handle is dropped.
                () = work => {}
                _ = stop.wait_for(|stop| *stop) => return,
            }
        }
    }
}

impl VideoTask {
    /// Makes what is due. Returns whether more videos wait.
    async fn make_due(&self) -> store::Result<bool> {
        loop {
            self.folder.collect(&self.store, &self.server_id, &self.queue).await?;
            let Some(row) = self.claim().await? else { break };
            self.process(&row).await?;
        }
        self.store.has_unmade_videos().await
    }

    async fn claim(&self) -> store::Result<Option<Row>> {
        let now = clock::now();
        // Most checks find none and should not block writers.
        if !(self.can_serve_files)()
            || !self.store.has_claimable_video(&self.server_id, now).await?
        {
            return Ok(None);
        }
        let mut tx = self.store.begin_write(Lock::Jobs(VIDEO_JOBS)).await?;
        let row = table::claim(&mut tx, &self.server_id, now).await?;
        tx.commit().await?;
        Ok(row)
    }

    async fn process(&self, row: &Row) -> store::Result<()> {
        let document: Document = match json_record::parse_document(&row.document) {
            Ok(document) => document,
            Err(error) => {
                tracing::error!(video = %row.id, %error, "cannot read a stored video");
                let reason = "The stored request cannot be read.";
                return self.give_up(row, &Document::default(), reason).await;
            }
        };
        let progress = AtomicI64::new(row.progress);
        let result = tokio::select! {
            biased;
            result = self.make(row, &document, &progress) => result,
            () = self.lost(row, &progress) => return Ok(()),
        };
        match result {
            Ok(rendered) => self.finish(row, &document, &rendered).await,
            Err(failure) => self.fail(row, &document, failure).await,
        }
    }

    /// Stores the progress until the video does not belong to this server any more.
    async fn lost(&self, row: &Row, progress: &AtomicI64) {
        let mut stored = row.progress;
        loop {
            let notified = self.queue.deletions.notified();
            let now = progress.load(Ordering::Relaxed);
            let is_own = if now > stored {
                self.store_progress(row, now).await
            } else {
                self.store.is_making_video(&self.server_id, &row.id).await
            };
            match is_own {
                Ok(true) => stored = now,
                Ok(false) => return,
                // Reported when the result is stored.
                Err(_) => {}
            }
            // Another server, or the retention, deletes without a notification.
            let _ = tokio::time::timeout(PROGRESS_INTERVAL, notified).await;
        }
    }

    async fn store_progress(&self, row: &Row, progress: i64) -> store::Result<bool> {
        let mut tx = self.store.begin_write(Lock::Rows).await?;
        let (server, now) = (&self.server_id, clock::now());
        let is_own = table::update_progress(&mut tx, server, &row.id, progress, now).await?;
        tx.commit().await?;
        Ok(is_own)
    }

    async fn make(
        &self,
        row: &Row,
        document: &Document,
        progress: &AtomicI64,
    ) -> Result<Rendered, Failure> {
        let files = self.folder.files(&row.id);
        files.create().await.map_err(|error| io_failure(&error))?;
        check_space(files.folder(), expected_bytes(document), self.min_free)?;
        let picture = self.picture(row, document, &files).await?;
        let is_hosted = document
            .tts
            .as_ref()
            .is_some_and(|tts| !is_builtin_tts(tts.provider.as_deref().unwrap_or_default()));
        let set_progress = |from: i64, to: i64, share: f32| {
            let now = from + ((to - from) as f64 * f64::from(share)) as i64;
            progress.fetch_max(now, Ordering::Relaxed);
        };
        let speech = if is_hosted {
            let speaker = Speaker {
                store: &self.store,
                vault: &self.vault,
                registry: self.registry.as_ref(),
                workspace: &row.workspace,
            };
            let file = files.speech();
            speaker.speak(document, &file, |share| set_progress(0, SPOKEN, share)).await?;
            Speech::Spool { text: document.text.clone().unwrap_or_default(), file }
        } else {
            speech_in_child(document, &files)
        };
        let conversion = self.conversion(document, &files)?;
        let captions = files.finished(StoredFile::Captions);
        let task = Task {
            picture,
            speech,
            frame_rate: document.frame_rate,
            seed: document.seed(),
            files: Files {
                video: files.film(),
                poster: Some(files.finished(StoredFile::Poster)),
                captions: (document.captions != Captions::None).then(|| captions.clone()),
            },
            models: self.models.clone(),
            avatars: self.avatars.clone(),
        };
        let from = if is_hosted { SPOKEN } else { 0 };
        let to = if conversion.is_some() { CONVERTING } else { RENDERED };
        let summary =
            child::render(&self.command, &task, |share| set_progress(from, to, share)).await?;
        self.queue.rendered.add(summary.duration_ms, summary.cpu_us);
        let video = files.finished(StoredFile::of_format(&row.format));
        let written = match &conversion {
            Some(conversion) => {
                let out = files.converted();
                child::convert(&self.convert_command, &conversion.borrow(), &files.film(), &out)
                    .await?;
                out
            }
            None => files.film(),
        };
        let moved = tokio::fs::rename(written, &video).await;
        moved.map_err(|error| io_failure(&error))?;
        let metadata = tokio::fs::metadata(&video).await.map_err(|error| io_failure(&error))?;
        Ok(Rendered {
            bytes: i64::try_from(metadata.len()).unwrap_or(i64::MAX),
            duration_ms: i64::try_from(summary.duration_ms).unwrap_or(i64::MAX),
            has_captions: document.captions == Captions::Vtt,
            warnings: serde_json::to_string(&summary.warnings).unwrap_or_else(|_| "[]".into()),
        })
    }

    /// The avatar of a video. The poses of a custom one are written to their file.
    async fn picture(
        &self,
        row: &Row,
        document: &Document,
        files: &VideoFiles,
    ) -> Result<Picture, Failure> {
        let Some(id) = &row.picture else {
            return Ok(Picture::Stock { id: document.avatar_key_id.clone() });
        };
        let unreadable = |error: store::Error| {
            tracing::error!(video = %row.id, %error, "cannot read the avatar of a video");
            Failure::Waiting("the store cannot be read".into())
        };
        let poses = self.store.custom_avatar_poses(&row.workspace, id).await.map_err(unreadable)?;
        let Some((_, _, poses)) = poses else {
            let exists = self.store.has_picture(id).await.map_err(unreadable)?;
            return Err(Failure::Permanent(if exists { NOT_DRAWN } else { AVATAR_DELETED }.into()));
        };
        let poses = STANDARD.decode(poses).map_err(|error| {
            tracing::error!(video = %row.id, %error, "cannot read the poses of an avatar");
            Failure::Permanent(NOT_DRAWN.into())
        })?;
        let file = files.poses();
        let written = tokio::fs::write(&file, poses).await;
        written.map_err(|error| io_failure(&error))?;
        Ok(Picture::Set { file })
    }

    /// How the rendered video is converted; `None` if it stays as it is.
    fn conversion(
        &self,
        document: &Document,
        files: &VideoFiles,
    ) -> Result<Option<OwnedConversion>, Failure> {
        let is_burned = document.captions == Captions::Burned;
        if !is_burned && document.format == VideoFormat::Webm {
            return Ok(None);
        }
        let ffmpeg = self.ffmpeg.clone();
        let ffmpeg = ffmpeg.ok_or_else(|| Failure::Permanent(NO_FFMPEG.into()))?;
        let captions = is_burned.then(|| files.finished(StoredFile::Captions));
        Ok(Some(OwnedConversion { ffmpeg, captions, format: document.format }))
    }

    async fn finish(
        &self,
        row: &Row,
        document: &Document,
        rendered: &Rendered,
    ) -> store::Result<()> {
        let mut tx = self.store.begin_write(Lock::Workspace(&row.workspace)).await?;
        if self.workspace_bytes > 0 {
            let stored = quota::stored_bytes(&mut tx, &row.workspace).await?;
            let total = stored.saturating_add(rendered.bytes);
            if u64::try_from(total).unwrap_or(0) > self.workspace_bytes {
                drop(tx);
                return self.give_up(row, document, NO_SPACE_LEFT).await;
            }
        }
        let (server, now) = (&self.server_id, clock::now());
        table::mark_rendered(&mut tx, server, &row.id, rendered, RENDERED, now).await?;
        tx.commit().await?;
        self.queue.storage_work.notify_one();
        Ok(())
    }

    async fn fail(&self, row: &Row, document: &Document, failure: Failure) -> store::Result<()> {
        let (reason, is_counted) = match failure {
            Failure::Permanent(sentence) => return self.give_up(row, document, &sentence).await,
            Failure::Temporary(reason) if row.attempts + 1 >= MAX_ATTEMPTS => {
                let sentence = format!("The video cannot be made: {reason}.");
                return self.give_up(row, document, &sentence).await;
            }
            Failure::Temporary(reason) => (reason, true),
            Failure::Waiting(reason) => (reason, false),
        };
        tracing::warn!(video = %row.id, %reason, "cannot make a video; retrying");
        let now = clock::now();
        let failed = if is_counted { row.attempts } else { WAITING_DELAY };
        let next = now + clock::to_micros(retry_delay(self.retry_delay, failed));
        let retry = Retry { status: PROCESSING, reason: &reason, is_counted, next };
        let mut tx = self.store.begin_write(Lock::Rows).await?;
        table::retry_at(&mut tx, row, &retry, now).await?;
        tx.commit().await
    }

    async fn give_up(&self, row: &Row, document: &Document, sentence: &str) -> store::Result<()> {
        tracing::warn!(video = %row.id, reason = %sentence, "cannot make a video");
        let now = clock::now();
        let mut tx = self.store.begin_write(Lock::Rows).await?;
        let mut delivery = None;
        if table::mark_failed(&mut tx, &self.server_id, &row.id, sentence, now).await? {
            let outcome = Outcome::Failed(sentence);
            delivery = self.webhooks.insert(&mut tx, row, document, &outcome, now).await?;
        }
        tx.commit().await?;
        self.webhooks.announce(delivery);
        Ok(())
    }
}

/// A [`Conversion`] with its paths.
struct OwnedConversion {
    ffmpeg: PathBuf,
    captions: Option<PathBuf>,
    format: VideoFormat,
}

impl OwnedConversion {
    fn borrow(&self) -> Conversion<'_> {
        let Self { ffmpeg, captions, format } = self;
        Conversion { ffmpeg, captions: captions.as_deref(), format: *format }
    }
}

/// What the child process speaks, or reads.
fn speech_in_child(document: &Document, files: &VideoFiles) -> Speech {
    let Some(text) = document.text.clone() else {
        return Speech::Audio { file: files.audio() };
    };
    let tts = document.tts.clone().unwrap_or_default();
    let pronunciation = tts.custom_pronunciation.into_iter();
    Speech::Voice {
        text,
        provider: tts.provider.unwrap_or_default(),
        voice: tts.voice_id.unwrap_or_default(),
        language: tts.language,
        pronunciation: pronunciation.map(|one| (one.word, one.pronunciation)).collect(),
    }
}

/// About how many bytes the files of a video need.
fn expected_bytes(document: &Document) -> u64 {
    let minutes = match &document.text {
        Some(text) => text.chars().count() as u64 / CHARS_PER_MINUTE + 1,
        None => AUDIO_MINUTES,
    };
    minutes * BYTES_PER_MINUTE
}
