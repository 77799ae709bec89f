//! Erasure of conversations: their rows in one transaction, then their files, which may be in
//! another server's data folder.
//!
//! The transaction that erases the rows also records which files must be removed. The files are
//! therefore removed even if this server dies in between, or if the server that has them is down.
//! Each server checks at its start, at each renewal of its lease, and at least every 30 s in
//! `recovery`.

use std::io;
use std::path::Path;

use ::conversation::trace;
use engine_api::{RECORDINGS_FOLDER, recorded_name};

use crate::store::{self, Lock, Store, conversation, erased};

/// Erases an ended conversation with its events and its trace; false if it was erased before.
pub(crate) async fn erase_conversation(
    store: &Store,
    server_id: &str,
    data: &Path,
    id: &str,
) -> store::Result<bool> {
    let mut tx = store.begin_write(Lock::Rows).await?;
    let erased = conversation::erase(&mut tx, id).await?;
    tx.commit().await?;
    // The record is erased, even if removing the files fails.
    if erased && let Err(error) = remove_erased_files(store, server_id, data).await {
        tracing::error!(
            conversation = id,
            %error,
            "cannot clean up the trace of an erased conversation; retrying later"
        );
    }
    Ok(erased)
}

/// Removes the files of erased conversations from this server's data folder. A file that cannot be
/// removed is tried again in the next run.
pub(crate) async fn remove_erased_files(
    store: &Store,
    server_id: &str,
    data: &Path,
) -> store::Result<()> {
    let mut removed = Vec::new();
    for id in store.erased_conversations(server_id).await? {
        // An id that is not valid has no file.
        if let Ok(named) = id.parse() {
            let file = data.join(trace::TRACES_FOLDER).join(trace::file_name(named));
            if let Err(error) = tokio::fs::remove_file(&file).await
                && error.kind() != io::ErrorKind::NotFound
            {
                tracing::error!(
                    conversation = %id,
                    %error,
                    "cannot remove the trace of an erased conversation"
                );
                continue;
            }
            // The table of recordings has the copy in the storage.
            let recording = data.join(RECORDINGS_FOLDER).join(recorded_name(named));
            if let Err(error) = tokio::fs::remove_file(&recording).await
                && error.kind() != io::ErrorKind::NotFound
            {
                tracing::error!(
                    conversation = %id,
                    %error,
                    "cannot remove the recording of an erased conversation"
                );
                continue;
            }
        }
        removed.push(id);
    }
    if removed.is_empty() {
        return Ok(());
    }
    let mut tx = store.begin_write(Lock::Rows).await?;
    erased::remove(&mut tx, server_id, &removed).await?;
    tx.commit().await
}
