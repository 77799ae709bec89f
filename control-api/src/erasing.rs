//! Erasing conversations: their rows in one transaction, then the files that hang on them, which may lie in another server's data folder.
//!
//! Which files must go is written in the transaction that erases the rows. So they go even where this server dies in between, or where the
//! one that has them sleeps: it looks at its start, with each renewal of its lease, and in `lifecycle` every half a minute.

use std::io;

use ::conversation::trace;

use crate::app::Shared;
use crate::store::{self, conversation, erased};

/// Erases an ended conversation with its events and its trace; false if somebody else did so before.
pub(crate) async fn erase(shared: &Shared, id: &str) -> store::Result<bool> {
    let mut tx = shared.store.write().await?;
    let erased = conversation::erase(&mut tx, id).await?;
    tx.commit().await?;
    // The record is gone, whatever becomes of the files.
    if erased && let Err(error) = sweep(shared).await {
        tracing::error!(conversation = id, %error, "the trace of an erased conversation is looked for again later");
    }
    Ok(erased)
}

/// Removes what erased conversations left in this server's data folder. What cannot be removed is tried again with the next look.
pub(crate) async fn sweep(shared: &Shared) -> store::Result<()> {
    let mut gone = Vec::new();
    for id in shared.store.erased(&shared.server).await? {
        // Without a name there is no file.
        if let Ok(named) = id.parse() {
            let file = shared.config.data.join(trace::TRACES_FOLDER).join(trace::file_name(named));
            if let Err(error) = tokio::fs::remove_file(&file).await
                && error.kind() != io::ErrorKind::NotFound
            {
                tracing::error!(conversation = %id, %error, "the trace of an erased conversation cannot be removed");
                continue;
            }
        }
        gone.push(id);
    }
    if gone.is_empty() {
        return Ok(());
    }
    let mut tx = shared.store.write().await?;
    erased::forget(&mut tx, &shared.server, &gone).await?;
    tx.commit().await
}
