//! The time to write events to PostgreSQL while other servers do the same. Not in the library's
//! tests: it takes a minute of both cores, and its figures need an optimized program.

#![allow(clippy::print_stdout)] // the figures

use std::time::{Duration, Instant};

use conversation::event::{Event, EventEnvelope};
use conversation::time::Time;
use sqlx::{AssertSqlSafe, Connection as _, PgConnection};

use super::projection::{Author, test_event, write_events};
use crate::store::ownership::Holder;
use crate::store::{self, DatabaseLocation, Lock, Store};

const WRITERS: usize = 20;
/// Batches of each writer: one each 20 ms, as the event writer of a busy server sends them.
const INTERVAL: Duration = Duration::from_millis(20);
const BATCHES: u64 = 750;
/// What four calls that talk emit in that time.
const EVENTS: u64 = 11;
const CALLS: u64 = 4;
const MAX_P95: Duration = Duration::from_millis(100);

/// One server: its store, and the calls that it holds.
struct Server {
    store: Store,
    holder: Holder,
    calls: Vec<String>,
}

async fn start(url: &str, number: usize) -> Server {
    let store = Store::open(DatabaseLocation::Url(url)).await.unwrap();
    let holder = Holder { server: format!("server {number}").into(), epoch: 1 };
    let mut tx = store.begin_write(Lock::Rows).await.unwrap();
    let mut calls = Vec::new();
    for _ in 0..CALLS {
        let id = store::new_id();
        let draft = store::conversation::Draft::of_test(&id, &holder.server);
        store::conversation::insert(&mut tx, &draft).await.unwrap();
        store::conversation::mark_joined(&mut tx, &id, &holder, 2, 2).await.unwrap();
        calls.push(id);
    }
    tx.commit().await.unwrap();
    Server { store, holder, calls }
}

/// Writes all batches of a server. The time that each one took.
async fn write(server: Server, first: u64) -> Vec<Duration> {
    let mut ticks = tokio::time::interval(INTERVAL);
    let mut times = Vec::new();
    for batch in 0..BATCHES {
        ticks.tick().await;
        let begin = Instant::now();
        let events: Vec<_> = (0..EVENTS)
            .map(|number| {
                let seq = first + batch * EVENTS + number;
                let text = "A sentence of an ordinary length, as it is spoken.".to_owned();
                let event = Event::UtteranceCommitted { text, speaker: None };
                let envelope = EventEnvelope { seq, at: Time::from_seconds(seq as f64), event };
                test_event(&server.calls[(number % CALLS) as usize], envelope)
            })
            .collect();
        let mut tx = server.store.begin_event_write().await.unwrap();
        let written = write_events(&mut tx, &server.holder, Author::Call, &events).await.unwrap();
        tx.commit().await.unwrap();
        assert_eq!(written.fenced, 0);
        times.push(begin.elapsed());
    }
    server.store.close().await;
    times
}

/// The 95th percentile, and the batches per second, of `count` servers.
async fn measure(url: &str, count: usize, first: u64) -> (Duration, f64) {
    let mut servers = Vec::new();
    for number in 0..count {
        servers.push(start(url, number).await);
    }
    let begin = Instant::now();
    let tasks: Vec<_> =
        servers.into_iter().map(|server| tokio::spawn(write(server, first))).collect();
    let mut times = Vec::new();
    for task in tasks {
        times.extend(task.await.unwrap());
    }
    let rate = times.len() as f64 / begin.elapsed().as_secs_f64();
    times.sort_unstable();
    (times[times.len() * 95 / 100], rate)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "long: store"]
async fn long_store_twenty_servers_write_their_events_in_time() {
    let Ok(server) = std::env::var("VISAVIS_TEST_POSTGRES") else {
        println!("needs PostgreSQL: not run");
        return;
    };
    sqlx::any::install_default_drivers();
    let name = format!("visavis_load_{}", uuid::Uuid::new_v4().simple());
    let mut connection = PgConnection::connect(&format!("{server}/postgres")).await.unwrap();
    let create = AssertSqlSafe(format!("CREATE DATABASE {name}"));
    sqlx::query(create).execute(&mut connection).await.unwrap();
    connection.close().await.unwrap();
    let url = format!("{server}/{name}");
    let (p95, rate) = measure(&url, WRITERS, 0).await;
    println!("{WRITERS} servers: {rate:.0} batches/s, p95 {p95:?}");
    assert!(p95 <= MAX_P95, "{p95:?}");

    // One more process is frozen in a transaction, in which it has locked its calls and holds the
    // lock of a workspace.
    let frozen = start(&url, WRITERS).await;
    let mut tx = frozen.store.begin_write(Lock::Workspace("w")).await.unwrap();
    let calls: Vec<&str> = frozen.calls.iter().map(String::as_str).collect();
    store::ownership::lock(&mut tx, &calls).await.unwrap();
    let (p95, rate) = measure(&url, WRITERS, 0).await;
    println!("{WRITERS} servers beside a frozen one: {rate:.0} batches/s, p95 {p95:?}");
    assert!(p95 <= MAX_P95, "{p95:?}");
    // PostgreSQL has ended its session meanwhile.
    assert!(tx.commit().await.is_err());
}
