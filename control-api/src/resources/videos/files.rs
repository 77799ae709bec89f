//! The files of videos: in the data folder while they are made, then in the storage.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::state::video_queue::VideoQueue;
use crate::store::video::Row;
use crate::store::{self, Store};

/// Folder in the data folder, with a folder for each video.
const VIDEOS_FOLDER: &str = "videos";
/// Folder in the storage.
const STORAGE_FOLDER: &str = "videos";

/// A file of a video in the storage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StoredFile {
    Webm,
    Mp4,
    Poster,
    Captions,
}

impl StoredFile {
    const ALL: [Self; 4] = [Self::Webm, Self::Mp4, Self::Poster, Self::Captions];

    /// The video itself, of a format.
    pub(super) fn of_format(format: &str) -> Self {
        if format == Self::Mp4.extension() { Self::Mp4 } else { Self::Webm }
    }

    fn extension(self) -> &'static str {
        match self {
            Self::Webm => "webm",
            Self::Mp4 => "mp4",
            Self::Poster => "webp",
            Self::Captions => "vtt",
        }
    }

    pub(crate) fn content_type(self) -> &'static str {
        match self {
            Self::Webm => "video/webm",
            Self::Mp4 => "video/mp4",
            Self::Poster => "image/webp",
            Self::Captions => "text/vtt; charset=utf-8",
        }
    }

    /// Name under which a browser stores it.
    pub(crate) fn name(self, id: &str) -> String {
        format!("{id}.{}", self.extension())
    }

    /// Its name in the storage.
    pub(crate) fn key(self, id: &str) -> String {
        format!("{STORAGE_FOLDER}/{}", self.name(id))
    }

    /// The video and the file that a key names, if it has exactly that form.
    pub(crate) fn parse_key(key: &str) -> Option<(String, Self)> {
        let (id, extension) =
            key.strip_prefix(STORAGE_FOLDER)?.strip_prefix('/')?.split_once('.')?;
        let file = Self::ALL.into_iter().find(|file| file.extension() == extension)?;
        let id = store::normalize_id(id)?;
        (file.key(&id) == key).then_some((id, file))
    }

    /// The names in the storage of all files that the video `id` may have.
    pub(super) fn all_keys(id: &str) -> [String; 4] {
        Self::ALL.map(|file| file.key(id))
    }

    /// The files of a video.
    pub(crate) fn all_of(row: &Row) -> Vec<Self> {
        let captions = (row.has_captions == 1).then_some(Self::Captions);
        [Self::Poster].into_iter().chain(captions).chain([Self::of_format(&row.format)]).collect()
    }
}

/// The files of one video in the data folder.
pub(super) struct VideoFiles(PathBuf);

impl VideoFiles {
    /// The folder that contains them.
    pub(super) fn folder(&self) -> &Path {
        &self.0
    }

    /// The uploaded sound while it is received.
    pub(super) fn incoming(&self) -> PathBuf {
        self.0.join("audio.new")
    }

    /// The uploaded sound.
    pub(super) fn audio(&self) -> PathBuf {
        self.0.join("audio")
    }

    /// The sound of a hosted voice.
    pub(super) fn speech(&self) -> PathBuf {
        self.0.join("speech")
    }

    /// The pose set.
    pub(super) fn poses(&self) -> PathBuf {
        self.0.join("poses")
    }

    /// The video as it is rendered, before any conversion.
    pub(super) fn film(&self) -> PathBuf {
        self.0.join("film.webm")
    }

    /// The video while it is converted.
    pub(super) fn converted(&self) -> PathBuf {
        self.0.join("video.part")
    }

    /// A finished file.
    pub(super) fn finished(&self, file: StoredFile) -> PathBuf {
        match file {
            StoredFile::Poster => self.0.join("poster.webp"),
            StoredFile::Captions => self.0.join("captions.vtt"),
            video => self.0.join(format!("video.{}", video.extension())),
        }
    }

    /// Creates the folder, for the owner only.
    pub(super) async fn create(&self) -> io::Result<()> {
        let mut folder = tokio::fs::DirBuilder::new();
        folder.recursive(true).mode(0o700);
        folder.create(&self.0).await
    }

    /// Removes all of them.
    pub(super) async fn remove(&self) -> io::Result<()> {
        match tokio::fs::remove_dir_all(&self.0).await {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }
}

/// The folder of all videos in a data folder.
#[derive(Clone)]
pub(crate) struct VideoFolder(PathBuf);

impl VideoFolder {
    /// The folder in a data folder.
    pub(crate) fn of(data: &Path) -> Self {
        Self(data.join(VIDEOS_FOLDER))
    }

    pub(super) fn files(&self, id: &str) -> VideoFiles {
        VideoFiles(self.0.join(id))
    }

    /// Removes the folders that nothing needs: of deleted and of finished videos, and what a crash
    /// left. What cannot be removed is tried again at the next collection.
    pub(super) async fn collect(
        &self,
        store: &Store,
        server: &str,
        queue: &VideoQueue,
    ) -> store::Result<()> {
        // Without the folder there are no files.
        let Ok(mut entries) = tokio::fs::read_dir(&self.0).await else { return Ok(()) };
        while let Ok(Some(entry)) = entries.next_entry().await {
            let name = entry.file_name();
            let Some(id) = name.to_str().and_then(store::normalize_id) else { continue };
            // In this order: a video that was received meanwhile has a row.
            if queue.is_receiving(&id) || store.needs_video_files(server, &id).await? {
                continue;
            }
            if let Err(error) = self.files(&id).remove().await {
                tracing::error!(video = %id, %error, "cannot remove the files of a video");
            }
        }
        Ok(())
    }
}

/// The folder of a video whose request is being received. It is removed with this value, unless
/// the video is stored.
pub(super) struct IncomingVideo {
    pub(super) id: String,
    pub(super) folder: VideoFolder,
    queue: Arc<VideoQueue>,
    is_stored: bool,
}

impl IncomingVideo {
    pub(super) fn new(id: String, folder: VideoFolder, queue: Arc<VideoQueue>) -> Self {
        queue.begin_receiving(&id);
        Self { id, folder, queue, is_stored: false }
    }

    pub(super) fn files(&self) -> VideoFiles {
        self.folder.files(&self.id)
    }

    /// The video has a row, and its files stay.
    pub(super) fn finish(mut self) {
        self.is_stored = true;
    }
}

impl Drop for IncomingVideo {
    fn drop(&mut self) {
        if !self.is_stored {
            // Otherwise the next collection removes it.
            let _ = std::fs::remove_dir_all(&self.files().0);
        }
        self.queue.end_receiving(&self.id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_the_name_of_a_file_of_a_video_and_nothing_else() {
        let id = "0193a5b0-0000-7000-8000-000000000001";
        for file in StoredFile::ALL {
            assert_eq!(StoredFile::parse_key(&file.key(id)), Some((id.to_owned(), file)));
        }
        for key in [
            format!("videos/{id}.txt"),
            format!("videos/{id}"),
            format!("videos//{id}.webm"),
            format!("videosx/{id}.webm"),
            format!("{id}.webm"),
            format!("videos/{}.webm", id.to_uppercase()),
            "videos/../secrets.key".into(),
            String::new(),
        ] {
            assert_eq!(StoredFile::parse_key(&key), None, "{key}");
        }
    }
}
