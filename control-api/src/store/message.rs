//! Requests that one server sends to another through a shared PostgreSQL database.
//!
//! ```text
//! (insert) --> new -- the target takes it ----> taken -- it is executed --> done --> (read, removed)
//!               |
//!               +---- the sender gives up ----> expired
//! ```
//!
//! Only one of the two changes of `new` succeeds, so a request is either executed or its sender
//! knows that it never will be. A sender that ends, or loses the database, changes nothing: after
//! its deadline, a request is not taken either. Rows are announced with `NOTIFY`, whose payload is
//! limited to 8 kB.

use super::ownership::database_now;
use super::{Result, Store};
use crate::clock::Micros;

/// Before the id in the announcement of a request.
pub(crate) const REQUEST: &str = "request ";
/// Before the id in the announcement of a reply.
pub(crate) const REPLY: &str = "reply ";

/// The channel on which a server is notified.
pub(crate) fn channel(server: &str) -> String {
    format!("visavis_{server}")
}

impl Store {
    /// Adds a request that may be taken for `lifetime` µs, and notifies its target.
    pub(crate) async fn send_message(
        &self,
        id: &str,
        (sender, target): (&str, &str),
        request: &str,
        lifetime: Micros,
    ) -> Result<()> {
        sqlx::query(concat!(
            "WITH sent AS (INSERT INTO message \
             (id, sender, target, request, state, created_at, deadline) \
             VALUES ($1, $2, $3, $4, 'new', ",
            database_now!(),
            ", ",
            database_now!(),
            " + $5) RETURNING id) SELECT pg_notify($6, $7 || id) FROM sent",
        ))
        .bind(id)
        .bind(sender)
        .bind(target)
        .bind(request)
        .bind(lifetime)
        .bind(channel(target))
        .bind(REQUEST)
        .execute(self.reader_pool())
        .await?;
        Ok(())
    }

    /// Takes a request for execution: its sender and its content. `None` if it was taken or has
    /// expired.
    pub(crate) async fn take_message(
        &self,
        id: &str,
        target: &str,
    ) -> Result<Option<(String, String)>> {
        Ok(sqlx::query_as(concat!(
            "UPDATE message SET state = 'taken' WHERE id = $1 AND target = $2 AND state = 'new' \
             AND deadline >= ",
            database_now!(),
            " RETURNING sender, request",
        ))
        .bind(id)
        .bind(target)
        .fetch_optional(self.reader_pool())
        .await?)
    }

    /// Adds the reply to a request that was taken, and notifies its sender.
    pub(crate) async fn reply_to_message(&self, id: &str, sender: &str, reply: &str) -> Result<()> {
        sqlx::query(
            "WITH done AS (UPDATE message SET state = 'done', reply = $2 WHERE id = $1 \
             AND state = 'taken' RETURNING id) SELECT pg_notify($3, $4 || id) FROM done",
        )
        .bind(id)
        .bind(reply)
        .bind(channel(sender))
        .bind(REPLY)
        .execute(self.reader_pool())
        .await?;
        Ok(())
    }

    /// Removes a request that is done and returns its reply.
    pub(crate) async fn take_reply(&self, id: &str) -> Result<Option<String>> {
        let reply: Option<Option<String>> = sqlx::query_scalar(
            "DELETE FROM message WHERE id = $1 AND state = 'done' RETURNING reply",
        )
        .bind(id)
        .fetch_optional(self.reader_pool())
        .await?;
        Ok(reply.flatten())
    }

    /// Gives a request up. False if the target has taken it.
    pub(crate) async fn expire_message(&self, id: &str) -> Result<bool> {
        let done =
            sqlx::query("UPDATE message SET state = 'expired' WHERE id = $1 AND state = 'new'")
                .bind(id)
                .execute(self.reader_pool())
                .await?;
        Ok(done.rows_affected() > 0)
    }

    /// Requests for a server that it has not taken, the oldest first. Some may have expired.
    pub(crate) async fn waiting_messages(&self, target: &str) -> Result<Vec<String>> {
        Ok(sqlx::query_scalar(
            "SELECT id FROM message WHERE target = $1 AND state = 'new' ORDER BY created_at, id",
        )
        .bind(target)
        .fetch_all(self.reader_pool())
        .await?)
    }

    /// Removes requests that are older than `age` µs, whose senders no longer wait.
    pub(crate) async fn remove_old_messages(&self, age: Micros) -> Result<()> {
        sqlx::query(concat!("DELETE FROM message WHERE created_at < ", database_now!(), " - $1"))
            .bind(age)
            .execute(self.reader_pool())
            .await?;
        Ok(())
    }
}
