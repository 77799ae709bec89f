//! Conversations: what is stored in addition to their events. The projection of an ended
//! conversation is stored too (`record`), as a cache for lists.
//!
//! ```text
//! (insert) -----> STARTED
//! STARTED ------- the user's connection is up: mark_joined ---> IN_PROGRESS
//! STARTED ------- join timeout, or ended by API: mark_ended --> ENDED
//! IN_PROGRESS --- the call ended: mark_ended -----------------> ENDED
//! ENDED --------- erase --------------------------------------> (removed)
//! ```

use super::ownership::{self, Holder};
use super::page::search_text;
use super::server::live_servers;
use super::{
    Page, Result, SqlBuilder, Store, Transaction, livekit_room, meeting, quota, recording,
};
use crate::clock::Micros;

/// Status as stored and as returned by the API.
pub(crate) const STARTED: &str = "STARTED";
/// The user's connection was established.
pub(crate) const IN_PROGRESS: &str = "IN_PROGRESS";
/// Final.
pub(crate) const ENDED: &str = "ENDED";

/// One conversation.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    pub(crate) id: String,
    pub(crate) workspace: String,
    /// The server that created it. After the join, the server that runs the call.
    pub(crate) server: String,
    pub(crate) agent: String,
    pub(crate) agent_name: String,
    /// The agent as it was configured at creation.
    pub(crate) agent_document: String,
    /// The agent's secrets, encrypted and bound to the agent's id.
    pub(crate) agent_secrets: String,
    pub(crate) avatar_id: String,
    /// Number of this conversation among those of its agent, from 0.
    pub(crate) conversation_number: i64,
    pub(crate) kind: Option<String>,
    pub(crate) user_id: Option<String>,
    pub(crate) user_name: Option<String>,
    /// JSON.
    pub(crate) context: Option<String>,
    /// Whether user, name and context come from a visitor (1) or not (0).
    pub(crate) from_visitor: i64,
    /// JSON.
    pub(crate) meta_data: Option<String>,
    /// How the agent takes part in an external meeting, as JSON; `None` = no meeting.
    pub(crate) meeting: Option<String>,
    pub(crate) status: String,
    pub(crate) end_reason: Option<String>,
    pub(crate) rating: Option<i64>,
    pub(crate) feedback: Option<String>,
    /// The projection of the events, as JSON, once ended.
    pub(crate) record: Option<String>,
    pub(crate) created_at: Micros,
    pub(crate) updated_at: Micros,
    /// Wall-clock time at which the conversation started.
    pub(crate) joined_at: Option<Micros>,
    pub(crate) ended_at: Option<Micros>,
}

from_row!(Row {
    id,
    workspace,
    server,
    agent,
    agent_name,
    agent_document,
    agent_secrets,
    avatar_id,
    conversation_number = "number",
    kind = "type",
    user_id,
    user_name,
    context,
    from_visitor = "visitor",
    meta_data,
    meeting,
    status,
    end_reason,
    rating,
    feedback,
    record,
    created_at,
    updated_at,
    joined_at,
    ended_at,
});

const COLUMNS: &str = "id, workspace, server, agent, agent_name, agent_document, agent_secrets, \
     avatar_id, number, type, user_id, user_name, context, visitor, meta_data, meeting, status, end_reason, \
     rating, feedback, record, created_at, updated_at, joined_at, ended_at";

/// Maximum number of characters of a name that `search` matches.
const MAX_SEARCHED_NAME_CHARS: usize = 200;
/// Minimum number of matches that are read before a count is needed. If fewer are found, their
/// number is already known.
const MIN_PEEKED_MATCHES: i64 = 500;

/// Values of a new conversation.
pub(crate) struct Draft<'a> {
    pub(crate) id: &'a str,
    pub(crate) workspace: &'a str,
    pub(crate) server: &'a str,
    pub(crate) agent: &'a str,
    pub(crate) agent_name: &'a str,
    pub(crate) agent_document: &'a str,
    pub(crate) agent_secrets: &'a str,
    pub(crate) avatar_id: &'a str,
    pub(crate) conversation_number: i64,
    pub(crate) kind: Option<&'a str>,
    pub(crate) user_id: Option<&'a str>,
    pub(crate) user_name: Option<&'a str>,
    pub(crate) context: Option<&'a str>,
    pub(crate) from_visitor: bool,
    pub(crate) meta_data: Option<&'a str>,
    /// JSON; `None` = no meeting.
    pub(crate) meeting: Option<&'a str>,
    pub(crate) at: Micros,
}

#[cfg(test)]
impl<'a> Draft<'a> {
    /// A conversation of the workspace `w`, created by `server`.
    pub(crate) fn of_test(id: &'a str, server: &'a str) -> Self {
        Self {
            id,
            workspace: "w",
            server,
            agent: "a",
            agent_name: "n",
            agent_document: "{}",
            agent_secrets: "",
            avatar_id: "",
            conversation_number: 0,
            kind: None,
            user_id: None,
            user_name: None,
            context: None,
            from_visitor: false,
            meta_data: None,
            meeting: None,
            at: 1,
        }
    }
}

/// Adds a conversation with status STARTED.
pub(crate) async fn insert(tx: &mut Transaction, draft: &Draft<'_>) -> Result<()> {
    sqlx::query(
        "INSERT INTO conversation (id, workspace, server, agent, agent_name, agent_document, \
         agent_secrets, avatar_id, number, type, search, user_id, user_name, context, visitor, \
         meta_data, meeting, status, created_at, updated_at) \
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, \
         'STARTED', $18, $18)",
    )
    .bind(draft.id)
    .bind(draft.workspace)
    .bind(draft.server)
    .bind(draft.agent)
    .bind(draft.agent_name)
    .bind(draft.agent_document)
    .bind(draft.agent_secrets)
    .bind(draft.avatar_id)
    .bind(draft.conversation_number)
    .bind(draft.kind)
    .bind(search_text(&[
        draft.id,
        searched_part(draft.user_name.unwrap_or_default()),
        searched_part(draft.agent_name),
    ]))
    .bind(draft.user_id)
    .bind(draft.user_name)
    .bind(draft.context)
    .bind(i64::from(draft.from_visitor))
    .bind(draft.meta_data)
    .bind(draft.meeting)
    .bind(draft.at)
    .execute(&mut **tx)
    .await?;
    sqlx::query(
        "UPDATE workspace SET conversations = conversations + 1, \
         made = CASE WHEN made_on = $2 THEN made + 1 ELSE 1 END, made_on = $2 WHERE id = $1",
    )
    .bind(draft.workspace)
    .bind(quota::day_number(draft.at))
    .execute(&mut **tx)
    .await?;
    Ok(())
}

/// The part of a name that is searched. It is part of an index, and an index row of PostgreSQL
/// holds at most 2700 bytes.
fn searched_part(name: &str) -> &str {
    name.char_indices().nth(MAX_SEARCHED_NAME_CHARS).map_or(name, |(end, _)| &name[..end])
}

/// One conversation of any workspace, as the transaction sees it. The caller has checked the
/// workspace.
pub(crate) async fn find_in_any_workspace(tx: &mut Transaction, id: &str) -> Result<Option<Row>> {
    let sql = sqlx::AssertSqlSafe(format!("SELECT {COLUMNS} FROM conversation WHERE id = $1"));
    Ok(sqlx::query_as(sql).bind(id).fetch_optional(&mut **tx).await?)
}

/// Records that the user's connection is up, on this server.
pub(crate) async fn mark_joined(
    tx: &mut Transaction,
    id: &str,
    holder: &Holder,
    joined: Micros,
    now: Micros,
) -> Result<()> {
    sqlx::query(
        "UPDATE conversation SET status = 'IN_PROGRESS', server = $1, epoch = $2, joined_at = $3, \
         updated_at = $4 WHERE id = $5 AND status = 'STARTED'",
    )
    .bind(&*holder.server)
    .bind(holder.epoch)
    .bind(joined)
    .bind(now)
    .bind(id)
    .execute(&mut **tx)
    .await?;
    sqlx::query("DELETE FROM command WHERE conversation = $1").bind(id).execute(&mut **tx).await?;
    Ok(())
}

/// Records that the conversation ended. `record` is the projection of its events.
pub(crate) async fn mark_ended(
    tx: &mut Transaction,
    id: &str,
    reason: &str,
    record: Option<&str>,
    ended: Micros,
    now: Micros,
) -> Result<()> {
    sqlx::query(
        "UPDATE conversation SET status = 'ENDED', end_reason = COALESCE(end_reason, $1), \
         record = $2, ended_at = COALESCE(ended_at, $3), updated_at = $4 WHERE id = $5",
    )
    .bind(reason)
    .bind(record)
    .bind(ended)
    .bind(now)
    .bind(id)
    .execute(&mut **tx)
    .await?;
    sqlx::query("DELETE FROM command WHERE conversation = $1").bind(id).execute(&mut **tx).await?;
    Ok(())
}

/// Stores the user's rating and feedback; false if there is no such conversation.
pub(crate) async fn save_feedback(
    tx: &mut Transaction,
    workspace: &str,
    id: &str,
    rating: i64,
    feedback: Option<&str>,
    now: Micros,
) -> Result<bool> {
    let done = sqlx::query(
        "UPDATE conversation SET rating = $1, feedback = $2, updated_at = $3 WHERE id = $4 \
         AND workspace = $5",
    )
    .bind(rating)
    .bind(feedback)
    .bind(now)
    .bind(id)
    .bind(workspace)
    .execute(&mut **tx)
    .await?;
    Ok(done.rows_affected() > 0)
}

/// Erases an ended conversation and everything that belongs to it. Pending deliveries stay until
/// they are settled. The server that ran the call finds it in `erased` and removes its files. False
/// if there is no such conversation (any more).
pub(crate) async fn erase(tx: &mut Transaction, id: &str) -> Result<bool> {
    ownership::lock(tx, &[id]).await?;
    sqlx::query(
        "INSERT INTO erased (server, conversation) SELECT server, id FROM conversation \
         WHERE id = $1 AND joined_at IS NOT NULL",
    )
    .bind(id)
    .execute(&mut **tx)
    .await?;
    recording::erase(tx, id).await?;
    meeting::erase(tx, id).await?;
    livekit_room::erase(tx, id).await?;
    sqlx::query("DELETE FROM event WHERE conversation = $1").bind(id).execute(&mut **tx).await?;
    sqlx::query("DELETE FROM failed_event WHERE conversation = $1")
        .bind(id)
        .execute(&mut **tx)
        .await?;
    sqlx::query("DELETE FROM command WHERE conversation = $1").bind(id).execute(&mut **tx).await?;
    sqlx::query(
        "DELETE FROM delivery_try WHERE delivery IN \
         (SELECT id FROM delivery WHERE conversation = $1 AND state <> 'pending')",
    )
    .bind(id)
    .execute(&mut **tx)
    .await?;
    sqlx::query("DELETE FROM delivery WHERE conversation = $1 AND state <> 'pending'")
        .bind(id)
        .execute(&mut **tx)
        .await?;
    sqlx::query("UPDATE delivery SET erased = 1 WHERE conversation = $1")
        .bind(id)
        .execute(&mut **tx)
        .await?;
    sqlx::query(
        "UPDATE workspace SET conversations = conversations - 1 \
         WHERE id = (SELECT workspace FROM conversation WHERE id = $1)",
    )
    .bind(id)
    .execute(&mut **tx)
    .await?;
    let done =
        sqlx::query("DELETE FROM conversation WHERE id = $1").bind(id).execute(&mut **tx).await?;
    Ok(done.rows_affected() > 0)
}

/// ` WHERE …` of a page. `search` also matches the status, which has three values.
fn push_filter(page: &Page, sql: &mut SqlBuilder, workspace: &str) {
    let part = page.search.as_deref().unwrap_or_default();
    let statuses: Vec<String> = [STARTED, IN_PROGRESS, ENDED]
        .into_iter()
        .filter(|status| !part.is_empty() && status.to_lowercase().contains(part))
        .map(str::to_owned)
        .collect();
    page.push_filter(sql, workspace, true, &statuses);
}

/// Number of all conversations that match a page.
async fn count_conversations(
    connection: &mut sqlx::AnyConnection,
    workspace: &str,
    page: &Page,
) -> Result<i64> {
    let all = Page { offset: page.offset, perpage: page.perpage, ..Page::default() };
    if *page == all {
        return Ok(sqlx::query_scalar("SELECT conversations FROM workspace WHERE id = $1")
            .bind(workspace)
            .fetch_optional(connection)
            .await?
            .unwrap_or(0));
    }
    let mut count = SqlBuilder::new("SELECT COUNT(*) FROM conversation");
    push_filter(page, &mut count, workspace);
    count.fetch_count(connection).await
}

impl Store {
    /// One conversation of a workspace.
    pub(crate) async fn conversation(&self, workspace: &str, id: &str) -> Result<Option<Row>> {
        Ok(self.conversation_in_any_workspace(id).await?.filter(|row| row.workspace == workspace))
    }

    /// One conversation of any workspace, for the holder of its token.
    pub(crate) async fn conversation_in_any_workspace(&self, id: &str) -> Result<Option<Row>> {
        let sql = sqlx::AssertSqlSafe(format!("SELECT {COLUMNS} FROM conversation WHERE id = $1"));
        Ok(sqlx::query_as(sql).bind(id).fetch_optional(self.reader_pool()).await?)
    }

    /// One page and the number of all matches. Rows are long, so the matching ids are read from an
    /// index first.
    pub(crate) async fn conversation_page(
        &self,
        workspace: &str,
        page: &Page,
    ) -> Result<(Vec<Row>, i64)> {
        let mut snapshot = self.begin_read().await?;
        let perpage = page.perpage.unwrap_or(i64::MAX);
        let peek = Page { perpage: Some(perpage.max(MIN_PEEKED_MATCHES)), ..page.clone() };
        let mut sql = SqlBuilder::new("SELECT id FROM conversation");
        push_filter(page, &mut sql, workspace);
        peek.push_window(&mut sql);
        let matches: Vec<(String,)> = sql.fetch_all(&mut *snapshot).await?;
        let found = matches.len() as i64;
        let total = if found < perpage.max(MIN_PEEKED_MATCHES) && (found > 0 || page.offset == 0) {
            page.offset + found
        } else {
            count_conversations(&mut snapshot, workspace, page).await?
        };
        let limit = usize::try_from(perpage).unwrap_or(usize::MAX);
        let ids: Vec<String> = matches.into_iter().take(limit).map(|(id,)| id).collect();
        if ids.is_empty() {
            return Ok((Vec::new(), total));
        }
        let mut sql = SqlBuilder::new(format!("SELECT {COLUMNS} FROM conversation WHERE id IN ("));
        sql.bind_all(&ids).push(") ORDER BY created_at DESC, id DESC");
        let rows = sql.fetch_all(&mut *snapshot).await?;
        snapshot.commit().await?;
        Ok((rows, total))
    }

    /// Conversations not joined, created at or before `before`, of this server or of one that is no
    /// longer alive. At most 1000, the oldest first.
    pub(crate) async fn unjoined_conversations(
        &self,
        before: Micros,
        server: &str,
    ) -> Result<Vec<String>> {
        Ok(sqlx::query_scalar(concat!(
            "SELECT id FROM conversation WHERE status = 'STARTED' AND created_at <= $1 \
             AND meeting IS NULL AND (server = $2 OR server NOT IN ",
            live_servers!(),
            ") ORDER BY created_at LIMIT 1000",
        ))
        .bind(before)
        .bind(server)
        .fetch_all(self.reader_pool())
        .await?)
    }

    /// When the oldest of them was created.
    pub(crate) async fn oldest_unjoined_at(&self, server: &str) -> Result<Option<Micros>> {
        Ok(sqlx::query_scalar(concat!(
            "SELECT MIN(created_at) FROM conversation WHERE status = 'STARTED' \
             AND meeting IS NULL AND (server = $1 OR server NOT IN ",
            live_servers!(),
            ")",
        ))
        .bind(server)
        .fetch_one(self.reader_pool())
        .await?)
    }

    /// The records of the last three conversations of a user with an agent, newest first.
    /// Conversations that a visitor created under the user's id do not count.
    pub(crate) async fn earlier_records(
        &self,
        workspace: &str,
        agent: &str,
        user: &str,
    ) -> Result<Vec<String>> {
        Ok(sqlx::query_scalar(
            "SELECT record FROM conversation WHERE workspace = $1 AND agent = $2 AND user_id = $3 \
             AND SUBSTR(user_id, 1, 100) = SUBSTR($3, 1, 100) AND visitor = 0 AND status = 'ENDED' \
             AND record IS NOT NULL AND joined_at IS NOT NULL ORDER BY created_at DESC LIMIT 3",
        )
        .bind(workspace)
        .bind(agent)
        .bind(user)
        .fetch_all(self.reader_pool())
        .await?)
    }

    /// Number of conversations by status, for the metrics.
    pub(crate) async fn conversation_counts(&self) -> Result<Vec<(String, i64)>> {
        Ok(sqlx::query_as("SELECT status, COUNT(*) FROM conversation GROUP BY status")
            .fetch_all(self.reader_pool())
            .await?)
    }

    /// Conversations in progress on `server`, the oldest first.
    pub(crate) async fn running_conversations_on(&self, server: &str) -> Result<Vec<String>> {
        Ok(sqlx::query_scalar(
            "SELECT id FROM conversation WHERE status = 'IN_PROGRESS' AND server = $1 \
             ORDER BY created_at",
        )
        .bind(server)
        .fetch_all(self.reader_pool())
        .await?)
    }

    /// Conversations that ended before `before`; at most 1000.
    pub(crate) async fn conversations_ended_before(&self, before: Micros) -> Result<Vec<String>> {
        Ok(sqlx::query_scalar(
            "SELECT id FROM conversation WHERE status = 'ENDED' AND ended_at < $1 LIMIT 1000",
        )
        .bind(before)
        .fetch_all(self.reader_pool())
        .await?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::DatabaseLocation;

    /// A list and its count are read from one index alone, in its order. The cost of a list
    /// therefore depends on what it shows.
    #[tokio::test]
    async fn lists_are_read_from_an_index_alone_and_need_no_sorting() {
        let file = std::env::temp_dir().join(format!("visavis-plans-{}.db", std::process::id()));
        let store = Store::open(DatabaseLocation::File(&file)).await.unwrap();
        let text = |text: &str| Some(text.to_owned());
        let pages = [
            Page::default(),
            Page { search: text("user 77"), ..Page::default() },
            Page { search: text("started"), ..Page::default() },
            Page { kind: text("demo"), ..Page::default() },
            Page { kind: text("demo"), search: text("user 1"), ..Page::default() },
            Page { from: Some(1), to: Some(2), ..Page::default() },
        ];
        for page in pages {
            let page = Page { offset: 1_000, perpage: Some(100), ..page };
            for (what, windowed) in [("id", true), ("COUNT(*)", false)] {
                let mut sql =
                    SqlBuilder::new(format!("EXPLAIN QUERY PLAN SELECT {what} FROM conversation"));
                push_filter(&page, &mut sql, "w");
                if windowed {
                    page.push_window(&mut sql);
                }
                let steps: Vec<(i64, i64, i64, String)> =
                    sql.fetch_all(store.reader_pool()).await.unwrap();
                let steps: Vec<String> = steps.into_iter().map(|step| step.3).collect();
                let [step] = steps.as_slice() else { panic!("{page:?}: {steps:?}") };
                let index =
                    "SEARCH conversation USING COVERING INDEX conversation_page (workspace=?";
                assert!(step.starts_with(index), "{what} of {page:?}: {step}");
            }
        }
        let rows = "EXPLAIN QUERY PLAN SELECT record FROM conversation WHERE id IN ('a', 'b')";
        let steps: Vec<(i64, i64, i64, String)> =
            SqlBuilder::new(rows).fetch_all(store.reader_pool()).await.unwrap();
        assert!(steps[0].3.starts_with("SEARCH conversation USING INDEX"), "{steps:?}");
        drop(store);
        let _ = std::fs::remove_file(file);
    }
}
