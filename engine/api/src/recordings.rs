//! The files of recordings, which the engine writes and the control plane delivers.

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
