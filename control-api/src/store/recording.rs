//! Recordings of calls.
//!
//! ```text
//! insert, with the first packet of the call --> CAPTURED
//! CAPTURED -- mark_written: the delivered file is complete -----> FINISHED, or CONVERTING for MP4
//! CONVERTING -- mark_written -----------------------------------> FINISHED
//! FINISHED -- mark_stored: it is in the storage ----------------> STORED
//! CAPTURED, CONVERTING, FINISHED -- mark_failed ----------------------------> FAILED
//! any ------- begin_deletion, refuse, or an erased conversation -> DELETING
//! DELETING -- finish_deletion: no copy is left -----------------> DELETED, or no row if the
//!                                                                 conversation is erased
//! ```
//!
//! The files are in the data folder of the server that ran the call, so only that server delivers,
//! uploads and deletes them. The copy in the storage of a dead server is deleted by any server.

use conversation::event::Event;

use super::fairness::last_turn;
use super::server::live_servers;
use super::{Error, Result, Store, Transaction};
use crate::clock::Micros;

/// The file of the call is being written, or is complete.
pub(crate) const CAPTURED: &str = "CAPTURED";
/// The delivered file is in the server's data folder as WebM, and is to be converted.
pub(crate) const CONVERTING: &str = "CONVERTING";
/// The delivered file is in the server's data folder.
pub(crate) const FINISHED: &str = "FINISHED";
/// The delivered file is in the storage.
pub(crate) const STORED: &str = "STORED";
/// There is no delivered file, and no further attempt.
pub(crate) const FAILED: &str = "FAILED";
/// All copies are being removed.
pub(crate) const DELETING: &str = "DELETING";
/// No copy is left.
pub(crate) const DELETED: &str = "DELETED";

/// One recording.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    pub(crate) conversation: String,
    pub(crate) workspace: String,
    /// The server that has the files.
    pub(crate) server: String,
    pub(crate) status: String,
    /// Name in the storage; empty until it is there.
    pub(crate) storage_key: String,
    /// Format of the delivered file; empty until there is one.
    pub(crate) format: String,
    pub(crate) bytes: i64,
    pub(crate) duration_ms: i64,
    /// Attempts of the current step that failed.
    pub(crate) attempts: i64,
    /// Why it failed, or the last attempt did.
    pub(crate) error: Option<String>,
}

from_row!(Row {
    conversation,
    workspace,
    server,
    status,
    storage_key,
    format,
    bytes,
    duration_ms,
    attempts,
    error,
});

const COLUMNS: &str = "conversation, workspace, server, status, storage_key, format, bytes, duration_ms, attempts, \
     error";

impl Row {
    /// Whether it exists for clients.
    pub(crate) fn is_present(&self) -> bool {
        self.status != DELETING && self.status != DELETED
    }
}

/// Adds the recording of a conversation whose files `server` has, in status CAPTURED or DELETING.
/// Does nothing if there is one, or if the conversation does not exist.
pub(crate) async fn insert(
    tx: &mut Transaction,
    conversation: &str,
    server: &str,
    status: &str,
    now: Micros,
) -> Result<bool> {
    let done = sqlx::query(
        "INSERT INTO recording (conversation, workspace, server, status, created_at, updated_at) \
         SELECT id, workspace, $1, $2, $3, $3 FROM conversation WHERE id = $4 \
         ON CONFLICT (conversation) DO NOTHING",
    )
    .bind(server)
    .bind(status)
    .bind(now)
    .bind(conversation)
    .execute(&mut **tx)
    .await?;
    Ok(done.rows_affected() > 0)
}

/// A delivered file.
pub(crate) struct Delivered<'a> {
    pub(crate) format: &'a str,
    pub(crate) bytes: i64,
    pub(crate) duration_ms: i64,
}

/// A file of a recording in the status of `row` is complete, and its status is `status` from now on.
/// False if the recording was deleted meanwhile.
pub(crate) async fn mark_written(
    tx: &mut Transaction,
    row: &Row,
    status: &str,
    file: &Delivered<'_>,
    now: Micros,
) -> Result<bool> {
    let done = sqlx::query(
        "UPDATE recording SET status = $1, format = $2, bytes = $3, duration_ms = $4, \
         error = NULL, attempts = 0, next_attempt_at = 0, updated_at = $5 \
         WHERE conversation = $6 AND status = $7",
    )
    .bind(status)
    .bind(file.format)
    .bind(file.bytes)
    .bind(file.duration_ms)
    .bind(now)
    .bind(&row.conversation)
    .bind(&row.status)
    .execute(&mut **tx)
    .await?;
    Ok(done.rows_affected() > 0)
}

/// The delivered file is in the storage; false if the recording was deleted meanwhile.
pub(crate) async fn mark_stored(
    tx: &mut Transaction,
    conversation: &str,
    key: &str,
    now: Micros,
) -> Result<bool> {
    let done = sqlx::query(
        "UPDATE recording SET status = 'STORED', storage_key = $1, error = NULL, attempts = 0, \
         next_attempt_at = 0, updated_at = $2 WHERE conversation = $3 AND status = 'FINISHED'",
    )
    .bind(key)
    .bind(now)
    .bind(conversation)
    .execute(&mut **tx)
    .await?;
    Ok(done.rows_affected() > 0)
}

/// The uploads of `server` that failed are due now.
pub(crate) async fn hasten_uploads(tx: &mut Transaction, server: &str) -> Result<()> {
    sqlx::query(
        "UPDATE recording SET next_attempt_at = 0 \
         WHERE status = 'FINISHED' AND server = $1 AND error IS NOT NULL",
    )
    .bind(server)
    .execute(&mut **tx)
    .await?;
    Ok(())
}

/// There is nothing to deliver; false if the recording was deleted meanwhile.
pub(crate) async fn mark_failed(
    tx: &mut Transaction,
    conversation: &str,
    error: &str,
    now: Micros,
) -> Result<bool> {
    let done = sqlx::query(
        "UPDATE recording SET status = 'FAILED', error = $1, attempts = attempts + 1, \
         updated_at = $2 WHERE conversation = $3 AND status IN ('CAPTURED', 'CONVERTING', 'FINISHED')",
    )
    .bind(error)
    .bind(now)
    .bind(conversation)
    .execute(&mut **tx)
    .await?;
    Ok(done.rows_affected() > 0)
}

/// The current step failed and is tried again at `next`.
pub(crate) async fn retry_at(
    tx: &mut Transaction,
    row: &Row,
    error: &str,
    next: Micros,
    now: Micros,
) -> Result<()> {
    sqlx::query(
        "UPDATE recording SET error = $1, attempts = attempts + 1, next_attempt_at = $2, \
         updated_at = $3 WHERE conversation = $4 AND status = $5",
    )
    .bind(error)
    .bind(next)
    .bind(now)
    .bind(&row.conversation)
    .bind(&row.status)
    .execute(&mut **tx)
    .await?;
    Ok(())
}

/// The current step waits for something that is no fault of the recording, and is tried again at
/// `next`. This does not count as a failed attempt.
pub(crate) async fn wait_until(
    tx: &mut Transaction,
    row: &Row,
    reason: &str,
    next: Micros,
    now: Micros,
) -> Result<()> {
    sqlx::query(
        "UPDATE recording SET error = $1, next_attempt_at = $2, updated_at = $3 \
         WHERE conversation = $4 AND status = $5",
    )
    .bind(reason)
    .bind(next)
    .bind(now)
    .bind(&row.conversation)
    .bind(&row.status)
    .execute(&mut **tx)
    .await?;
    Ok(())
}

/// All copies will be removed; false if there is nothing to delete.
pub(crate) async fn begin_deletion(
    tx: &mut Transaction,
    conversation: &str,
    now: Micros,
) -> Result<bool> {
    let done = sqlx::query(
        "UPDATE recording SET status = 'DELETING', attempts = 0, next_attempt_at = 0, \
         error = NULL, updated_at = $1 WHERE conversation = $2 \
         AND status NOT IN ('DELETING', 'DELETED')",
    )
    .bind(now)
    .bind(conversation)
    .execute(&mut **tx)
    .await?;
    Ok(done.rows_affected() > 0)
}

/// The user does not want the recording of a call on this server: it is deleted, and a file that
/// turns up later, too.
pub(crate) async fn refuse(
    tx: &mut Transaction,
    conversation: &str,
    server: &str,
    now: Micros,
) -> Result<()> {
    if !begin_deletion(tx, conversation, now).await? {
        insert(tx, conversation, server, DELETING, now).await?;
    }
    Ok(())
}

/// The conversation is being erased: its recording is deleted with it.
pub(super) async fn erase(tx: &mut Transaction, conversation: &str) -> Result<()> {
    begin_deletion(tx, conversation, crate::clock::now()).await?;
    sqlx::query("DELETE FROM recording WHERE conversation = $1 AND status = 'DELETED'")
        .bind(conversation)
        .execute(&mut **tx)
        .await?;
    Ok(())
}

/// No copy is left. `is_own`: the files of this server are removed too, and not only the copy in
/// the storage.
pub(crate) async fn finish_deletion(
    tx: &mut Transaction,
    conversation: &str,
    is_own: bool,
    now: Micros,
) -> Result<()> {
    let sql = if is_own {
        "UPDATE recording SET status = 'DELETED', storage_key = '', error = NULL, \
         updated_at = $1 WHERE conversation = $2 AND status = 'DELETING'"
    } else {
        "UPDATE recording SET storage_key = '', error = NULL, updated_at = $1 \
         WHERE conversation = $2 AND status = 'DELETING'"
    };
    sqlx::query(sql).bind(now).bind(conversation).execute(&mut **tx).await?;
    sqlx::query(
        "DELETE FROM recording WHERE conversation = $1 AND status = 'DELETED' \
         AND NOT EXISTS (SELECT 1 FROM conversation WHERE id = $1)",
    )
    .bind(conversation)
    .execute(&mut **tx)
    .await?;
    Ok(())
}

impl Store {
    /// The recording of a conversation.
    pub(crate) async fn recording(&self, conversation: &str) -> Result<Option<Row>> {
        let sql = format!("SELECT {COLUMNS} FROM recording WHERE conversation = $1");
        Ok(sqlx::query_as(sqlx::AssertSqlSafe(sql))
            .bind(conversation)
            .fetch_optional(self.reader_pool())
            .await?)
    }

    /// Whether the user refused the recording, according to the stored events.
    pub(crate) async fn is_recording_refused(&self, conversation: &str) -> Result<bool> {
        let refusal = serde_json::to_string(&Event::RecordingEnded { is_discarded: true })
            .map_err(|error| Error::CorruptRow("event", error.to_string()))?;
        let sql = "SELECT seq FROM event WHERE conversation = $1 AND json = $2 LIMIT 1";
        let found: Option<i64> = sqlx::query_scalar(sql)
            .bind(conversation)
            .bind(refusal)
            .fetch_optional(self.reader_pool())
            .await?;
        Ok(found.is_some())
    }

    /// The next recording of `server` to deliver. Its conversation ended before
    /// `ended_before`. Workspaces take turns.
    pub(crate) async fn due_capture(
        &self,
        server: &str,
        ended_before: Micros,
        now: Micros,
    ) -> Result<Option<Row>> {
        let sql = [
            "SELECT ",
            COLUMNS,
            concat!(
                " FROM recording WHERE status = 'CAPTURED' AND server = $1 \
                 AND next_attempt_at <= $2 AND EXISTS (SELECT 1 FROM conversation \
                 WHERE id = recording.conversation AND status = 'ENDED' AND ended_at <= $3) \
                 ORDER BY ",
                last_turn!("recording", "recording.workspace"),
                ", next_attempt_at, created_at LIMIT 1"
            ),
        ]
        .concat();
        Ok(sqlx::query_as(sqlx::AssertSqlSafe(sql))
            .bind(server)
            .bind(now)
            .bind(ended_before)
            .fetch_optional(self.reader_pool())
            .await?)
    }

    /// The next recording of `server` to convert. Workspaces take turns.
    pub(crate) async fn due_conversion(&self, server: &str, now: Micros) -> Result<Option<Row>> {
        let sql = [
            "SELECT ",
            COLUMNS,
            concat!(
                " FROM recording WHERE status = 'CONVERTING' AND server = $1 \
                 AND next_attempt_at <= $2 ORDER BY ",
                last_turn!("conversion", "recording.workspace"),
                ", next_attempt_at, created_at LIMIT 1"
            ),
        ]
        .concat();
        self.first_due(sql, server, now).await
    }

    /// The next recording of `server` to upload.
    pub(crate) async fn due_upload(&self, server: &str, now: Micros) -> Result<Option<Row>> {
        let sql = format!(
            "SELECT {COLUMNS} FROM recording WHERE status = 'FINISHED' AND server = $1 \
             AND next_attempt_at <= $2 ORDER BY next_attempt_at, created_at LIMIT 1"
        );
        self.first_due(sql, server, now).await
    }

    /// The next recording to delete: of `server`, or stored by one that is no longer alive.
    pub(crate) async fn due_deletion(&self, server: &str, now: Micros) -> Result<Option<Row>> {
        let sql = [
            "SELECT ",
            COLUMNS,
            concat!(
                " FROM recording WHERE status = 'DELETING' AND (server = $1 \
                 OR (storage_key <> '' AND server NOT IN ",
                live_servers!(),
                ")) AND next_attempt_at <= $2 ORDER BY next_attempt_at LIMIT 1"
            ),
        ]
        .concat();
        self.first_due(sql, server, now).await
    }

    /// The first row of a query with the parameters `$1`, a server, and `$2`, the time.
    async fn first_due(&self, sql: String, server: &str, now: Micros) -> Result<Option<Row>> {
        Ok(sqlx::query_as(sqlx::AssertSqlSafe(sql))
            .bind(server)
            .bind(now)
            .fetch_optional(self.reader_pool())
            .await?)
    }

    /// Whether `server` has recordings that are not delivered.
    pub(crate) async fn has_recordings_to_deliver(&self, server: &str) -> Result<bool> {
        self.has_recordings(server, &[CAPTURED]).await
    }

    /// Whether `server` has recordings to convert.
    pub(crate) async fn has_recordings_to_convert(&self, server: &str) -> Result<bool> {
        self.has_recordings(server, &[CONVERTING]).await
    }

    /// Whether `server` has recordings to upload or to delete.
    pub(crate) async fn has_recordings_to_move(&self, server: &str) -> Result<bool> {
        self.has_recordings(server, &[FINISHED, DELETING]).await
    }

    async fn has_recordings(&self, server: &str, statuses: &[&str]) -> Result<bool> {
        for status in statuses {
            let sql =
                "SELECT conversation FROM recording WHERE status = $1 AND server = $2 LIMIT 1";
            let found: Option<String> = sqlx::query_scalar(sql)
                .bind(*status)
                .bind(server)
                .fetch_optional(self.reader_pool())
                .await?;
            if found.is_some() {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Why the last attempt of `server` to upload a recording failed, if one waits for the storage.
    pub(crate) async fn upload_error(&self, server: &str) -> Result<Option<String>> {
        let sql = "SELECT error FROM recording WHERE status = 'FINISHED' AND server = $1 \
                   AND error IS NOT NULL ORDER BY updated_at DESC LIMIT 1";
        Ok(sqlx::query_scalar(sql).bind(server).fetch_optional(self.reader_pool()).await?)
    }

    /// Number of recordings whose last attempt of the current step failed.
    pub(crate) async fn waiting_recordings(&self) -> Result<i64> {
        let sql = "SELECT COUNT(*) FROM recording \
                   WHERE status IN ('CAPTURED', 'CONVERTING', 'FINISHED') AND error IS NOT NULL";
        Ok(sqlx::query_scalar(sql).fetch_one(self.reader_pool()).await?)
    }

    /// Number of recordings by status, for the metrics.
    pub(crate) async fn recording_counts(&self) -> Result<Vec<(String, i64)>> {
        Ok(sqlx::query_as("SELECT status, COUNT(*) FROM recording GROUP BY status")
            .fetch_all(self.reader_pool())
            .await?)
    }
}
