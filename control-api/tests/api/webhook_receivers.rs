//! Webhook receivers as they occur: slow, dead, flapping, redirecting, at a private address.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use conversation::event::Event;
use serde_json::{Value, json};
use tokio::net::TcpListener;

use crate::harness::{
    ReceivedWebhook, TEST_TIMEOUT, TempFolder, TestServer, WebhookReceiver, joined_event, wait_for,
};

fn fast_retries(config: &mut control_api::Config) {
    config.webhooks.schedule = [0, 20, 40].map(Duration::from_millis).to_vec();
    config.webhooks.timeout = TEST_TIMEOUT;
}

fn utterance(text: impl ToString) -> Event {
    Event::UtteranceCommitted { text: text.to_string(), speaker: None }
}

/// A conversation with `n` events, of an agent whose receiver is at `url`.
async fn create_call_with_events(server: &TestServer, url: &str, n: u64) -> String {
    let id = server
        .create_running_call(
            json!({"callback_url": url, "callback_events": ["utterance_committed"]}),
        )
        .await;
    server.engine.record_events(&id, 1, (1..=n).map(|n| (n as f64, utterance(n))));
    id
}

/// The delivery log of a conversation as soon as it has `n` entries and each is in `state`.
async fn wait_for_delivery_log(server: &TestServer, id: &str, n: usize, state: &str) -> Vec<Value> {
    wait_for(state, async || {
        let log = server
            .get(&format!("/v1/ext/conversation/{id}/deliveries?perpage=100"))
            .await
            .expect_status(200);
        let log = log.as_array().unwrap().clone();
        (log.len() == n && log.iter().all(|one| one["state"] == state)).then_some(log)
    })
    .await
}

fn attempt_fields(one: &Value, what: &str) -> Vec<Value> {
    one["tries"].as_array().unwrap().iter().map(|t| t[what].clone()).collect()
}

#[tokio::test]
async fn a_slow_receiver_delays_only_its_own_events() {
    let folder = TempFolder::new();
    let hooks = WebhookReceiver::start().await;
    // An attempt at a receiver that hangs lasts longer than this test.
    let server = TestServer::start_with(&folder.0, |config| {
        fast_retries(config);
        config.webhooks.timeout = Duration::from_secs(3600);
    })
    .await;
    // Accepts connections and never responds.
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let agent_fields = json!({
        "callback_url": format!("http://{}/", silent.local_addr().unwrap()),
        "callback_events": ["utterance_committed"],
    });
    let agent = server.create_agent(agent_fields).await;
    // More conversations than attempts may run at once.
    let mut slow = String::new();
    for _ in 0..300 {
        (slow, _) = server.create_conversation(&agent).await;
        server.engine.record_events(
            &slow,
            0,
            [(0.0, joined_event()), (1.0, utterance(1)), (2.0, utterance(2))],
        );
    }
    wait_for("all of them to wait", async || {
        (server.webhook_count("pending").await == 600).then_some(())
    })
    .await;
    let quick = create_call_with_events(&server, &hooks.url, 20).await;
    wait_for_delivery_log(&server, &quick, 20, "done").await;
    assert_eq!(
        server.webhook_count("pending").await,
        600,
        "the other one was served while these hung"
    );
    server.stop().await;
    let server = TestServer::start_with(&folder.0, |config| {
        fast_retries(config);
        config.webhooks.timeout = Duration::from_millis(200);
    })
    .await;
    let dead = wait_for_delivery_log(&server, &slow, 2, "dead").await;
    assert_eq!(attempt_fields(&dead[0], "error"), vec![json!("timeout"); 3]);
    assert!(
        attempt_fields(&dead[0], "took_ms").iter().all(|t| t.as_u64().unwrap() >= 200),
        "{dead:?}"
    );
}

#[tokio::test]
async fn a_dead_receiver_s_events_are_dead_letters_that_say_why() {
    let folder = TempFolder::new();
    let server = TestServer::start_with(&folder.0, fast_retries).await;
    // Bound, so that no other process can take the address, but never listening.
    let refusing = tokio::net::TcpSocket::new_v4().unwrap();
    refusing.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let closed = refusing.local_addr().unwrap();
    let id = create_call_with_events(&server, &format!("http://{closed}/secret-path"), 1).await;
    let dead = wait_for_delivery_log(&server, &id, 1, "dead").await;
    let reason = dead[0]["reason"].as_str().unwrap();
    assert!(reason.contains("refused") && !reason.contains("secret-path"), "{reason}");
    assert_eq!(attempt_fields(&dead[0], "status"), vec![Value::Null; 3]);
}

#[tokio::test]
async fn a_flapping_receiver_gets_everything_in_order() {
    let folder = TempFolder::new();
    let hooks = WebhookReceiver::start().await;
    hooks.respond_by_rule(|_, before| if before.len() % 2 == 0 { 503 } else { 204 });
    let server = TestServer::start_with(&folder.0, fast_retries).await;
    let id = create_call_with_events(&server, &hooks.url, 30).await;
    let done = wait_for_delivery_log(&server, &id, 30, "done").await;
    assert!(done.iter().all(|one| attempt_fields(one, "status") == [json!(503), json!(204)]));
    let sequences: Vec<u64> = hooks.received().iter().map(ReceivedWebhook::sequence).collect();
    assert_eq!(sequences, (1..=30).flat_map(|n| [n, n]).collect::<Vec<_>>());
}

#[tokio::test]
async fn a_redirect_is_a_failure_and_leads_nowhere() {
    let folder = TempFolder::new();
    let hooks = WebhookReceiver::start().await;
    hooks.respond_with([301, 307, 308]);
    let server = TestServer::start_with(&folder.0, fast_retries).await;
    let id = create_call_with_events(&server, &hooks.url, 1).await;
    let dead = wait_for_delivery_log(&server, &id, 1, "dead").await;
    assert_eq!(attempt_fields(&dead[0], "status"), [json!(301), json!(307), json!(308)]);
    assert_eq!(hooks.received().len(), 3, "the redirect target got no request");
}

#[tokio::test]
async fn a_private_address_by_number_or_name_is_a_dead_letter_at_once() {
    let folder = TempFolder::new();
    let hooks = WebhookReceiver::start().await;
    let server =
        TestServer::start_with(&folder.0, |config| config.allow_private_targets = Some(false))
            .await;
    let named = hooks.url.replace("127.0.0.1", "localhost");
    for url in [&hooks.url, &named, &hooks.url.replace("127.0.0.1", "[::ffff:127.0.0.1]")] {
        let id = create_call_with_events(&server, url, 1).await;
        let dead = wait_for_delivery_log(&server, &id, 1, "dead").await;
        assert_eq!(
            (&dead[0]["reason"], attempt_fields(&dead[0], "error").len()),
            (&json!("refused address"), 1)
        );
    }
    assert!(hooks.received().is_empty());
}

#[tokio::test]
async fn a_thousand_events_at_once_all_come_in_order() {
    check_all_come_in_order(1_000, None).await;
}

#[tokio::test]
#[ignore = "long: store"]
async fn long_store_ten_thousand_events_at_five_hundred_a_second_all_come_in_order() {
    check_all_come_in_order(10_000, Some(Duration::from_millis(2))).await;
}

/// Emits events of many conversations, one every `each` or all at once, to a receiver that fails
/// three of ten attempts.
#[allow(clippy::print_stdout, reason = "the figures are what one reads here")]
async fn check_all_come_in_order(events: u64, each: Option<Duration>) {
    const LANES: u64 = 100;
    let folder = TempFolder::new();
    let hooks = WebhookReceiver::start().await;
    let chance = AtomicU64::new(7);
    hooks.respond_by_rule(move |_, _| {
        let n =
            chance.load(Ordering::Relaxed).wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        chance.store(n, Ordering::Relaxed);
        if (n >> 33) % 10 < 3 { 500 } else { 204 }
    });
    let server = TestServer::start_with(&folder.0, |config| {
        config.webhooks.schedule =
            [0, 20, 40, 80, 160, 320, 640].map(Duration::from_millis).to_vec();
    })
    .await;
    let agent_fields =
        json!({"callback_url": hooks.url, "callback_events": ["utterance_committed"]});
    let agent = server.create_agent(agent_fields).await;
    let mut ids = Vec::new();
    for _ in 0..LANES {
        let (id, _) = server.create_conversation(&agent).await;
        server.engine.record_event(&id, 0, 0.0, joined_event());
        ids.push(id);
    }
    let started_at = Instant::now();
    let mut clock = each.map(tokio::time::interval);
    for n in 0..events {
        if let Some(clock) = &mut clock {
            clock.tick().await;
        }
        let (index, seq) = ((n % LANES) as usize, n / LANES + 1);
        server.engine.record_event(&ids[index], seq, seq as f64, utterance(seq));
    }
    let emit_time = started_at.elapsed();
    // A slow machine must not fail the test: it waits as long as there is progress.
    let mut settled = 0;
    while settled < events {
        let before = settled;
        settled = wait_for("more deliveries to finish", async || {
            let now = server.webhook_count("done").await + server.webhook_count("dead").await;
            (now > before).then_some(now)
        })
        .await;
    }
    let (done, dead) = (server.webhook_count("done").await, server.webhook_count("dead").await);
    println!(
        "{done} taken and {dead} dead letters after {:?}; told within {emit_time:?}",
        started_at.elapsed()
    );
    assert!(dead * 500 <= events, "seven attempts, each with a failure rate of 0.3: {dead}");
    let (mut first, mut seen) = (HashMap::<String, Vec<u64>>::new(), HashSet::new());
    for one in hooks.received() {
        if seen.insert(one.id().to_owned()) {
            let body: Value = serde_json::from_str(&one.body).unwrap();
            let index =
                first.entry(body["conversation_id"].as_str().unwrap().to_owned()).or_default();
            assert_eq!(body["event"]["payload"]["text"], one.sequence().to_string());
            index.push(one.sequence());
        }
    }
    assert_eq!((seen.len() as u64, first.len() as u64), (events, LANES), "none lost");
    for (id, sequences) in first {
        assert_eq!(sequences, (1..=events / LANES).collect::<Vec<_>>(), "first attempts of {id}");
    }
}

/// More events of one conversation than memory holds, a server that stops in between, and retry
/// delays that pass in the store.
#[tokio::test]
async fn deliveries_beyond_the_memory_window_are_read_and_sent_in_order() {
    const EVENTS: usize = 150;
    let folder = TempFolder::new();
    let hooks = WebhookReceiver::start().await;
    // Three of the events fail their first two attempts.
    hooks.respond_by_rule(|one, before| {
        let tries = before.iter().filter(|earlier| earlier.id() == one.id()).count();
        if one.sequence() % 50 == 25 && tries < 2 { 503 } else { 204 }
    });
    let change = |config: &mut control_api::Config| {
        // The first retry delay, jitter included, is longer than `hold` and `memory_horizon`
        // together, so it passes in the store.
        config.webhooks.schedule = [0, 5000, 300, 300].map(Duration::from_millis).to_vec();
        // Far longer than an attempt takes. After this time, the next event no longer waits for an
        // attempt in progress.
        config.webhooks.hold = Duration::from_secs(4);
        config.webhooks.memory_horizon = Duration::from_millis(100);
    };
    let server = TestServer::start_with(&folder.0, change).await;
    let id = create_call_with_events(&server, &hooks.url, EVENTS as u64).await;
    hooks.wait_for_first(40).await;
    server.stop().await;
    let server = TestServer::start_with(&folder.0, change).await;
    wait_for("all of them to be accepted", async || {
        (server.webhook_count("done").await == EVENTS as u64).then_some(())
    })
    .await;
    let mut seen = HashSet::new();
    let first: Vec<u64> = hooks
        .received()
        .iter()
        .filter(|one| seen.insert(one.id().to_owned()))
        .map(ReceivedWebhook::sequence)
        .collect();
    // Deliveries are sent one at a time. The attempt in progress when the server stopped may not
    // have arrived. The later deliveries did not wait for its retry.
    let late: Vec<u64> =
        first.windows(2).filter(|pair| pair[0] > pair[1]).map(|pair| pair[1]).collect();
    assert!(late.len() <= 1, "first attempts of {id}: {first:?}");
    let others =
        |list: &[u64]| list.iter().filter(|n| !late.contains(n)).copied().collect::<Vec<_>>();
    let all: Vec<u64> = (1..=EVENTS as u64).collect();
    assert_eq!((first.len(), others(&first)), (EVENTS, others(&all)), "first attempts of {id}");
}
