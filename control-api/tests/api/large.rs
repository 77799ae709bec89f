//! A workspace with many conversations. Tests beside the statements of the store prove that its
//! lists are read by index.

#![allow(clippy::print_stdout, reason = "the figures are what one reads here")]

use std::time::{Duration, Instant};

use serde_json::json;
use sqlx::Connection as _;

use crate::harness::{TempFolder, TestServer};

/// Limits of the 95th percentile with 100,000 conversations on a quiet machine.
const LIST_P95_LIMIT: Duration = Duration::from_millis(20);
const SEARCH_P95_LIMIT: Duration = Duration::from_millis(100);

/// Copies the only conversation until there are `total`. Each copy is a second older than the
/// previous one and has a user of its own.
async fn copy_conversation(folder: &TempFolder, total: u64) {
    let postgres = folder.database_url().await.is_some();
    let mut connection = folder.connect().await;
    let record = json!({
        "transcript": [],
        "chat_history": {"messages": []},
        "snippets": {"items": []},
        "usage_json": "{}",
        "warnings": [],
        "turns": [],
    });
    let id = "'00000000-0000-4000-8000-' || (100000000000 + n.i)";
    let copy = format!(
        "INSERT INTO conversation (id, workspace, server, agent, agent_name, agent_document, \
         agent_secrets, avatar_id, number, type, search, user_name, status, end_reason, record, \
         created_at, updated_at, joined_at, ended_at) \
         WITH RECURSIVE n(i) AS (SELECT CAST(1 AS BIGINT) UNION ALL \
         SELECT i + 1 FROM n WHERE i < {total} - 1) \
         SELECT {id}, workspace, server, agent, agent_name, agent_document, agent_secrets, \
         avatar_id, n.i, CASE n.i % 4 WHEN 0 THEN 'demo' END, {id} || '\n' || 'user ' || n.i \
         || '\n' || LOWER(agent_name), 'User ' || n.i, 'ENDED', 'user_left', '{record}', \
         created_at - n.i * 1000000, updated_at, created_at - n.i * 1000000, created_at \
         FROM conversation, n"
    );
    sqlx::query(sqlx::AssertSqlSafe(copy)).execute(&mut connection).await.unwrap();
    let count = format!("UPDATE workspace SET conversations = {total}");
    sqlx::query(sqlx::AssertSqlSafe(count)).execute(&mut connection).await.unwrap();
    if postgres {
        // The server does the same by itself within a minute.
        sqlx::raw_sql("VACUUM ANALYZE conversation").execute(&mut connection).await.unwrap();
    }
    connection.close().await.unwrap();
}

/// A workspace with `count` conversations.
struct LargeWorkspace {
    server: TestServer,
    agent: String,
    /// The conversation that was copied.
    id: String,
    count: u64,
    /// Number of requests for each list. If it is not 0, the times are checked against the limit.
    repetitions: usize,
}

impl LargeWorkspace {
    async fn new(folder: &TempFolder, count: u64, repetitions: usize) -> Self {
        let server = TestServer::start(folder).await;
        let agent = server.create_agent(json!({"agent_name": "Receptionist"})).await;
        let (id, _) = server.create_conversation(&agent).await;
        copy_conversation(folder, count).await;
        Self { server, agent, id, count, repetitions }
    }

    /// Requests a list with `total` items in all and `page_len` on its page.
    async fn check_list(&self, query: &str, page_len: usize, total: u64, limit: Duration) {
        let mut times = Vec::new();
        for _ in 0..self.repetitions.max(1) {
            let started_at = Instant::now();
            let list = self.server.get(&format!("/v1/ext/conversation?{query}")).await;
            times.push(started_at.elapsed());
            assert_eq!(list.header("x-total-count"), total.to_string(), "{query}");
            assert_eq!(list.json().as_array().unwrap().len(), page_len, "{query}");
        }
        if self.repetitions > 0 {
            times.sort_unstable();
            let p95 = times[times.len() * 19 / 20 - 1];
            let (min, median) = (times[0], times[times.len() / 2]);
            println!("{query:?}: {total}: least {min:.1?}, middle {median:.1?}, p95 {p95:.1?}");
            assert!(p95 <= limit, "{query}: {times:?}");
        }
    }

    /// Indices of the copies whose user name contains `part`.
    fn copies_matching(&self, part: &str) -> impl Iterator<Item = u64> {
        (1..self.count).filter(move |n| format!("user {n}").contains(part))
    }

    async fn check_lists_and_searches(&self) {
        let Self { count, .. } = *self;
        self.check_list("", 10, count, LIST_P95_LIMIT).await;
        self.check_list("perpage=100&offset=1000", 100, count, 2 * LIST_P95_LIMIT).await;
        self.check_list(&format!("offset={}", count - 5), 5, count, SEARCH_P95_LIMIT).await;
        let last = count - 1;
        self.check_list(&format!("search=USER+{last}"), 1, 1, SEARCH_P95_LIMIT).await;
        let part = format!("user {}", last / 10);
        let found = self.copies_matching(&part).count();
        self.check_list(
            &format!("search={}", part.replace(' ', "+")),
            found.min(10),
            found as u64,
            SEARCH_P95_LIMIT,
        )
        .await;
        self.check_list("search=receptionist", 10, count, SEARCH_P95_LIMIT).await;
        self.check_list(&format!("search={}", self.id), 1, 1, SEARCH_P95_LIMIT).await;
        self.check_list("search=nobody", 0, 0, SEARCH_P95_LIMIT).await;
        self.check_list("search=started", 1, 1, SEARCH_P95_LIMIT).await;
        self.check_list("type=demo", 10, count / 4 - 1, SEARCH_P95_LIMIT).await;
        let demos = self.copies_matching("user 1").filter(|n| n % 4 == 0).count();
        self.check_list("type=demo&search=user+1", 10, demos as u64, SEARCH_P95_LIMIT).await;
        self.check_list("fromDate=2020-01-01&toDate=2021-01-01", 0, 0, LIST_P95_LIMIT).await;

        // The count is stored beside the rows and follows each creation and erasure.
        self.server.create_conversation(&self.agent).await;
        let erase = "/v1/ext/conversation/00000000-0000-4000-8000-100000000001";
        for _ in 0..2 {
            self.server.delete(erase).await;
        }
        self.server.delete(&erase.replace("0001", "0002")).await;
        let total =
            self.server.get("/v1/ext/conversation").await.header("x-total-count").to_owned();
        assert_eq!(total, (count - 1).to_string());
    }
}

#[tokio::test]
async fn many_conversations_are_listed_counted_and_searched() {
    let folder = TempFolder::new();
    LargeWorkspace::new(&folder, 4_000, 0).await.check_lists_and_searches().await;
}

#[tokio::test]
#[ignore = "long: store"]
async fn long_store_a_hundred_thousand_conversations_are_listed_and_searched_in_time() {
    let folder = TempFolder::new();
    LargeWorkspace::new(&folder, 100_000, 40).await.check_lists_and_searches().await;
}
