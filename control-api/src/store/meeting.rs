//! The bots that meeting services run for conversations.
//!
//! ```text
//! insert ---> joining --> waiting_room --> in_call --> left --> done
//!                 \            \              \---------\-----> error
//! any -- the conversation has ended, the service has no bot any more --> released
//! ```
//!
//! The status is that of the bot at its service; a bot that was released is not asked for any more.

use std::collections::{BTreeMap, HashMap};

use conversation::event::MeetingStatus;
use serde::{Deserialize, Serialize};

use super::server::live_servers;
use super::{Result, SqlBuilder, Store, Transaction};
use crate::clock::{self, Micros};

/// The account belongs to the operator (`[meetings]`).
pub(crate) const SERVER_ACCOUNT: &str = "server";
/// The account is a credential of the workspace.
pub(crate) const WORKSPACE_ACCOUNT: &str = "workspace";

/// One bot.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    pub(crate) conversation: String,
    pub(crate) workspace: String,
    pub(crate) provider: String,
    pub(crate) account: String,
    /// Empty until the service has answered.
    pub(crate) bot: String,
    pub(crate) url: String,
    status: String,
    pub(crate) detail: Option<String>,
    people: String,
    pub(crate) entered_at: Option<Micros>,
    pub(crate) alone_since: Option<Micros>,
    pub(crate) released: i64,
    pub(crate) created_at: Micros,
}

from_row!(Row {
    conversation,
    workspace,
    provider,
    account,
    bot,
    url,
    status,
    detail,
    people,
    entered_at,
    alone_since,
    released,
    created_at,
});

const COLUMNS: &str = "conversation, workspace, provider, account, bot, url, status, detail, \
     people, entered_at, alone_since, released, created_at";

impl Row {
    /// Where the bot is.
    pub(crate) fn status(&self) -> MeetingStatus {
        MeetingStatus::from_name(&self.status).unwrap_or(MeetingStatus::Error)
    }

    /// The other people, by their ids at the service.
    pub(crate) fn people(&self) -> People {
        serde_json::from_str(&self.people).unwrap_or_default()
    }

    /// A bot that was created at `created_at`, and entered the meeting at `entered_at`.
    #[cfg(test)]
    pub(crate) fn for_test(created_at: Micros, entered_at: Option<Micros>) -> Self {
        let status =
            if entered_at.is_some() { MeetingStatus::InCall } else { MeetingStatus::Joining };
        Self {
            conversation: "c".into(),
            workspace: "w".into(),
            provider: "attendee".into(),
            account: SERVER_ACCOUNT.into(),
            bot: "b".into(),
            url: String::new(),
            status: status.as_str().into(),
            detail: None,
            people: "{}".into(),
            entered_at,
            alone_since: None,
            released: 0,
            created_at,
        }
    }
}

/// The other people of a meeting, by their ids at the service.
pub(crate) type People = BTreeMap<String, Person>;

/// What is known of a person in a meeting.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Person {
    pub(crate) name: String,
    pub(crate) is_present: bool,
    /// When the person came or left, in µs: an older report changes nothing.
    pub(crate) at: Micros,
}

/// Values of a new bot.
pub(crate) struct Draft<'a> {
    pub(crate) conversation: &'a str,
    pub(crate) workspace: &'a str,
    pub(crate) agent: &'a str,
    pub(crate) server: &'a str,
    pub(crate) provider: &'a str,
    pub(crate) account: &'a str,
    pub(crate) platform: &'a str,
    pub(crate) code: &'a str,
    pub(crate) url: &'a str,
}

/// Adds a bot with status joining.
pub(crate) async fn insert(tx: &mut Transaction, draft: &Draft<'_>) -> Result<()> {
    sqlx::query(
        "INSERT INTO meeting (conversation, workspace, agent, server, provider, account, platform, \
         code, url, status, created_at, updated_at) \
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, 'joining', $10, $10)",
    )
    .bind(draft.conversation)
    .bind(draft.workspace)
    .bind(draft.agent)
    .bind(draft.server)
    .bind(draft.provider)
    .bind(draft.account)
    .bind(draft.platform)
    .bind(draft.code)
    .bind(draft.url)
    .bind(clock::now())
    .execute(&mut **tx)
    .await?;
    Ok(())
}

/// Whether a bot of the agent is in the meeting, or on its way to it. The bot of an ended
/// conversation is there until its service says that it is not: its removal may have failed.
pub(crate) async fn is_present(
    tx: &mut Transaction,
    workspace: &str,
    agent: &str,
    platform: &str,
    code: &str,
) -> Result<bool> {
    let count: i64 = sqlx::query_scalar(
        "SELECT COUNT(*) FROM meeting \
         JOIN conversation ON conversation.id = meeting.conversation \
         WHERE meeting.workspace = $1 AND meeting.agent = $2 AND platform = $3 AND code = $4 \
         AND (conversation.status <> 'ENDED' \
              OR meeting.released = 0 AND meeting.status <> 'done')",
    )
    .bind(workspace)
    .bind(agent)
    .bind(platform)
    .bind(code)
    .fetch_one(&mut **tx)
    .await?;
    Ok(count > 0)
}

/// One bot, locked until the transaction ends.
pub(crate) async fn lock(tx: &mut Transaction, conversation: &str) -> Result<Option<Row>> {
    let suffix = if tx.shared { " FOR UPDATE" } else { "" };
    let sql = sqlx::AssertSqlSafe(format!(
        "SELECT {COLUMNS} FROM meeting WHERE conversation = $1{suffix}"
    ));
    Ok(sqlx::query_as(sql).bind(conversation).fetch_optional(&mut **tx).await?)
}

/// Stores the service's id of a bot, which must be released from now on.
pub(crate) async fn set_bot(tx: &mut Transaction, conversation: &str, bot: &str) -> Result<()> {
    sqlx::query(
        "UPDATE meeting SET bot = $1, released = 0, updated_at = $2 WHERE conversation = $3",
    )
    .bind(bot)
    .bind(clock::now())
    .bind(conversation)
    .execute(&mut **tx)
    .await?;
    Ok(())
}

/// Stores a new status. Entering the meeting is recorded with its time.
pub(crate) async fn set_status(
    tx: &mut Transaction,
    conversation: &str,
    status: MeetingStatus,
    detail: Option<&str>,
) -> Result<()> {
    let now = clock::now();
    let entered_at = (status == MeetingStatus::InCall).then_some(now);
    sqlx::query(
        "UPDATE meeting SET status = $1, detail = COALESCE(detail, $2), \
         entered_at = COALESCE(entered_at, $3), updated_at = $4 WHERE conversation = $5",
    )
    .bind(status.as_str())
    .bind(detail)
    .bind(entered_at)
    .bind(now)
    .bind(conversation)
    .execute(&mut **tx)
    .await?;
    Ok(())
}

/// Replaces the reason of an end by a more exact one.
pub(crate) async fn refine_detail(
    tx: &mut Transaction,
    conversation: &str,
    detail: &str,
) -> Result<()> {
    sqlx::query("UPDATE meeting SET detail = $1, updated_at = $2 WHERE conversation = $3")
        .bind(detail)
        .bind(clock::now())
        .bind(conversation)
        .execute(&mut **tx)
        .await?;
    Ok(())
}

/// Stores who else is in the meeting, and since when nobody is.
pub(crate) async fn set_people(
    tx: &mut Transaction,
    conversation: &str,
    people: &People,
    alone_since: Option<Micros>,
) -> Result<()> {
    let people = serde_json::to_string(people).unwrap_or_else(|_| "{}".to_owned());
    sqlx::query(
        "UPDATE meeting SET people = $1, alone_since = $2, updated_at = $3 WHERE conversation = $4",
    )
    .bind(people)
    .bind(alone_since)
    .bind(clock::now())
    .bind(conversation)
    .execute(&mut **tx)
    .await?;
    Ok(())
}

/// No bot was created, as far as is known. A webhook of one that was created nevertheless opens the
/// row again ([`set_bot`]). Does nothing if the bot has an id.
pub(crate) async fn release_uncreated(tx: &mut Transaction, conversation: &str) -> Result<()> {
    sqlx::query("UPDATE meeting SET released = 1 WHERE conversation = $1 AND bot = ''")
        .bind(conversation)
        .execute(&mut **tx)
        .await?;
    Ok(())
}

/// The service has no bot any more. The row of an erased conversation is removed.
pub(crate) async fn release(tx: &mut Transaction, conversation: &str) -> Result<()> {
    sqlx::query("UPDATE meeting SET released = 1, updated_at = $1 WHERE conversation = $2")
        .bind(clock::now())
        .bind(conversation)
        .execute(&mut **tx)
        .await?;
    sqlx::query(
        "DELETE FROM meeting WHERE conversation = $1 \
         AND NOT EXISTS (SELECT 1 FROM conversation WHERE id = $1)",
    )
    .bind(conversation)
    .execute(&mut **tx)
    .await?;
    Ok(())
}

/// Removes what is stored of the meeting of an erased conversation. The row of a bot that the
/// service still has stays until it is released, without its link.
pub(crate) async fn erase(tx: &mut Transaction, conversation: &str) -> Result<()> {
    sqlx::query("DELETE FROM meeting WHERE conversation = $1 AND released = 1")
        .bind(conversation)
        .execute(&mut **tx)
        .await?;
    sqlx::query("UPDATE meeting SET url = '', code = '', people = '{}' WHERE conversation = $1")
        .bind(conversation)
        .execute(&mut **tx)
        .await?;
    Ok(())
}

impl Store {
    /// The bot of a conversation.
    pub(crate) async fn meeting(&self, conversation: &str) -> Result<Option<Row>> {
        let sql =
            sqlx::AssertSqlSafe(format!("SELECT {COLUMNS} FROM meeting WHERE conversation = $1"));
        Ok(sqlx::query_as(sql).bind(conversation).fetch_optional(self.reader_pool()).await?)
    }

    /// The bots of these conversations.
    pub(crate) async fn meetings(&self, ids: &[&str]) -> Result<HashMap<String, Row>> {
        if ids.is_empty() {
            return Ok(HashMap::new());
        }
        let ids: Vec<String> = ids.iter().map(|id| (*id).to_owned()).collect();
        let mut sql =
            SqlBuilder::new(format!("SELECT {COLUMNS} FROM meeting WHERE conversation IN ("));
        sql.bind_all(&ids).push(")");
        let rows: Vec<Row> = sql.fetch_all(self.reader_pool()).await?;
        Ok(rows.into_iter().map(|row| (row.conversation.clone(), row)).collect())
    }

    /// The conversation of a bot at a service. `workspace`: whose account it is; `None` = the
    /// operator's. Services of two workspaces may use the same ids.
    pub(crate) async fn meeting_of_bot(
        &self,
        provider: &str,
        bot: &str,
        workspace: Option<&str>,
    ) -> Result<Option<Row>> {
        let mut sql = SqlBuilder::new(format!("SELECT {COLUMNS} FROM meeting WHERE provider = "));
        sql.bind(provider.to_owned()).push(" AND bot = ").bind(bot.to_owned());
        match workspace {
            Some(workspace) => {
                sql.push(" AND account = 'workspace' AND workspace = ").bind(workspace.to_owned());
            }
            None => {
                sql.push(" AND account = 'server'");
            }
        }
        let rows: Vec<Row> = sql.fetch_all(self.reader_pool()).await?;
        Ok(rows.into_iter().next())
    }

    /// Number of conversations of a workspace whose agents are on their way to a meeting.
    pub(crate) async fn meetings_to_join(&self, workspace: &str) -> Result<usize> {
        let count: i64 = sqlx::query_scalar(
            "SELECT COUNT(*) FROM conversation \
             WHERE workspace = $1 AND status = 'STARTED' AND meeting IS NOT NULL",
        )
        .bind(workspace)
        .fetch_one(self.reader_pool())
        .await?;
        Ok(usize::try_from(count).unwrap_or(0))
    }

    /// Whether a service has bots with the credential of a workspace.
    pub(crate) async fn has_open_bots(&self, workspace: &str, provider: &str) -> Result<bool> {
        let count: i64 = sqlx::query_scalar(
            "SELECT COUNT(*) FROM meeting WHERE workspace = $1 AND provider = $2 \
             AND account = 'workspace' AND released = 0",
        )
        .bind(workspace)
        .bind(provider)
        .fetch_one(self.reader_pool())
        .await?;
        Ok(count > 0)
    }

    /// Bots that a server watches and that are not released.
    pub(crate) async fn open_meetings(&self, server: &str) -> Result<Vec<String>> {
        Ok(sqlx::query_scalar(
            "SELECT conversation FROM meeting WHERE server = $1 AND released = 0",
        )
        .bind(server)
        .fetch_all(self.reader_pool())
        .await?)
    }

    /// Lets this server watch the bots of servers that are no longer alive.
    pub(crate) async fn adopt_meetings(&self, server: &str) -> Result<()> {
        let orphans: i64 = sqlx::query_scalar(concat!(
            "SELECT COUNT(*) FROM meeting WHERE released = 0 AND server NOT IN ",
            live_servers!(),
        ))
        .fetch_one(self.reader_pool())
        .await?;
        if orphans == 0 {
            return Ok(());
        }
        let mut tx = self.begin_write(super::Lock::Jobs("meeting")).await?;
        sqlx::query(concat!(
            "UPDATE meeting SET server = $1 WHERE released = 0 AND server NOT IN ",
            live_servers!(),
        ))
        .bind(server)
        .execute(&mut *tx)
        .await?;
        tx.commit().await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::conversation::{self, Draft as NewConversation};
    use crate::store::{DatabaseLocation, Lock};

    const ID: &str = "0193a5b0-0000-7000-8000-000000000001";

    async fn is_in_meeting(store: &Store) -> bool {
        let mut tx = store.begin_write(Lock::Rows).await.unwrap();
        is_present(&mut tx, "w", "a", "zoom", "1234567890").await.unwrap()
    }

    /// A store with a bot in a meeting.
    async fn open_with_bot(file: &std::path::Path) -> Store {
        let store = Store::open(DatabaseLocation::File(file)).await.unwrap();
        let mut tx = store.begin_write(Lock::Rows).await.unwrap();
        let new = NewConversation { meeting: Some("{}"), ..NewConversation::of_test(ID, "here") };
        conversation::insert(&mut tx, &new).await.unwrap();
        let draft = Draft {
            conversation: ID,
            workspace: "w",
            agent: "a",
            server: "here",
            provider: "attendee",
            account: SERVER_ACCOUNT,
            platform: "zoom",
            code: "1234567890",
            url: "",
        };
        insert(&mut tx, &draft).await.unwrap();
        set_bot(&mut tx, ID, "b").await.unwrap();
        set_status(&mut tx, ID, MeetingStatus::InCall, None).await.unwrap();
        tx.commit().await.unwrap();
        store
    }

    #[tokio::test]
    async fn the_bot_of_an_ended_conversation_is_present_until_its_service_has_it_no_more() {
        for is_done in [true, false] {
            let name = format!("visavis-meeting-{}-{is_done}.db", std::process::id());
            let file = std::env::temp_dir().join(name);
            let store = open_with_bot(&file).await;
            assert!(is_in_meeting(&store).await);
            let mut tx = store.begin_write(Lock::Rows).await.unwrap();
            sqlx::query("UPDATE conversation SET status = 'ENDED'")
                .execute(&mut *tx)
                .await
                .unwrap();
            set_status(&mut tx, ID, MeetingStatus::Left, None).await.unwrap();
            tx.commit().await.unwrap();
            assert!(is_in_meeting(&store).await, "nothing says that it was removed");
            let mut tx = store.begin_write(Lock::Rows).await.unwrap();
            if is_done {
                set_status(&mut tx, ID, MeetingStatus::Done, None).await.unwrap();
            } else {
                release(&mut tx, ID).await.unwrap();
            }
            tx.commit().await.unwrap();
            assert!(!is_in_meeting(&store).await, "done: {is_done}");
            drop(store);
            let _ = std::fs::remove_file(file);
        }
    }
}
