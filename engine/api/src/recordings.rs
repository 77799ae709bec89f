//! The files of recordings, which the engine writes and the control plane delivers.

use std::io;

use conversation::id::ConversationId;

/// Folder of the recordings in the data folder.
pub const RECORDINGS_FOLDER: &str = "recordings";

/// Name of the file of a call that runs.
#[must_use]
pub fn capture_name(id: ConversationId) -> String {
    format!("{id}.capture")
}

/// Name of the file of a call that has ended.
#[must_use]
pub fn recorded_name(id: ConversationId) -> String {
    format!("{id}.recorded")
}

/// Whether an error means that a file does not fit onto its disk.
#[must_use]
pub fn is_out_of_space(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

/// Says in plain words why a file of a recording cannot be read or written, as the end of a
/// sentence. The messages of the operating system are for the log.
#[must_use]
pub fn describe_disk_error(error: &io::Error) -> String {
    // A message of this program.
    if let Some(own) = error.get_ref() {
        return own.to_string();
    }
    match error.kind() {
        io::ErrorKind::StorageFull => "the disk is full",
        io::ErrorKind::QuotaExceeded => "the disk quota of the server is used up",
        io::ErrorKind::ReadOnlyFilesystem => "the disk is read-only",
        io::ErrorKind::PermissionDenied => "the server may not use its folder of recordings",
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => {
            "the folder or the file of the recording is missing"
        }
        io::ErrorKind::AlreadyExists => "there is a file in place of the folder of recordings",
        _ => "the disk reports an error",
    }
    .to_owned()
}
