//! A COMMIT that PostgreSQL executes but whose response is lost with the connection.

use std::io::Write as _;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use conversation::event::{EndReason, Event};
use conversation::input::Command;
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use crate::harness::{TempFolder, TestServer, WebhookReceiver, joined_event, wait_for};

/// A relay between the server and PostgreSQL.
#[derive(Default)]
struct Relay {
    /// The transaction that contains this text loses the response to its COMMIT. Reset to `None` by
    /// that.
    mark: Mutex<Option<String>>,
    lost_count: AtomicUsize,
}

impl Relay {
    /// Starts a relay to the database; returns it with the URL that leads through it.
    async fn start(database: &str) -> (Arc<Self>, String) {
        let mut url = url::Url::parse(database).unwrap();
        let target = (url.host_str().unwrap().to_owned(), url.port().unwrap());
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        url.set_port(Some(listener.local_addr().unwrap().port())).unwrap();
        let relay = Arc::new(Self::default());
        let own = Arc::clone(&relay);
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let server = TcpStream::connect((target.0.as_str(), target.1)).await.unwrap();
                let relay = Arc::clone(&own);
                tokio::spawn(async move { relay.forward(client, server).await });
            }
        });
        (relay, url.into())
    }

    fn lose_commit_of(&self, mark: &str) {
        *self.mark.lock().unwrap() = Some(mark.to_owned());
    }

    /// Whether these bytes of a connection end the transaction that loses its response.
    fn is_lost_commit(&self, transaction: &[u8]) -> bool {
        let holds = |text: &[u8]| transaction.windows(text.len()).any(|part| part == text);
        let mut mark = self.mark.lock().unwrap();
        let loses = mark.as_ref().is_some_and(|mark| holds(mark.as_bytes()) && holds(b"COMMIT\0"));
        if loses {
            *mark = None;
        }
        loses
    }

    /// Forwards the bytes of both ends until one of them closes, or until the response arrives that
    /// is to be lost.
    async fn forward(&self, mut client: TcpStream, mut server: TcpStream) {
        let (mut up, mut down) = (vec![0; 1 << 16], vec![0; 1 << 16]);
        let (mut transaction, mut loses) = (Vec::new(), false);
        loop {
            let passed = tokio::select! {
                read = client.read(&mut up) => match read {
                    Ok(length @ 1..) => {
                        transaction.extend_from_slice(&up[..length]);
                        loses |= self.is_lost_commit(&transaction);
                        if transaction.ends_with(b"COMMIT\0") {
                            transaction.clear();
                        }
                        server.write_all(&up[..length]).await
                    }
                    _ => return,
                },
                read = server.read(&mut down) => match read {
                    // The response has arrived, so the COMMIT was executed.
                    Ok(1..) if loses => {
                        self.lost_count.fetch_add(1, Ordering::Relaxed);
                        return;
                    }
                    Ok(length @ 1..) => client.write_all(&down[..length]).await,
                    _ => return,
                },
            };
            if passed.is_err() {
                return;
            }
        }
    }
}

/// Waits until `count` webhooks were received and their outcomes are stored. Without the stored
/// outcome, a short failure of the store would send them again.
async fn wait_for_deliveries(server: &TestServer, hooks: &WebhookReceiver, count: usize) {
    hooks.wait_for_first(count).await;
    wait_for("the outcomes", async || {
        (server.webhook_count("done").await == count as u64).then_some(())
    })
    .await;
}

fn utterance(n: u64) -> (f64, Event) {
    (n as f64, Event::UtteranceCommitted { text: format!("number {n}"), speaker: None })
}

#[tokio::test]
async fn events_of_a_commit_with_a_lost_response_are_stored_and_sent_once() {
    let folder = TempFolder::new();
    let Some(database) = folder.database_url().await else {
        // Written past the capture of the test harness, which hides the output of a test that
        // passes.
        std::io::stderr().write_all(b"needs PostgreSQL: not run\n").unwrap();
        return;
    };
    let (relay, url) = Relay::start(&database).await;
    let hooks = WebhookReceiver::start().await;
    let server = TestServer::start_with(&folder.0, |config| config.database_url = Some(url)).await;
    let agent_fields = json!({
        "callback_url": hooks.url,
        "callback_events": ["utterance_committed", "call_ended"],
    });
    let created = server.create_agent(agent_fields).await;
    let (id, _) = server.create_conversation(&created).await;
    server.engine.record_event(&id, 0, 0.0, joined_event());
    server.engine.record_events(&id, 1, [utterance(1)]);
    wait_for_deliveries(&server, &hooks, 1).await;

    relay.lose_commit_of("number 2");
    server.engine.record_events(&id, 2, [utterance(2), utterance(3)]);
    wait_for_deliveries(&server, &hooks, 3).await;
    assert_eq!(relay.lost_count.load(Ordering::Relaxed), 1);
    relay.lose_commit_of("number 5");
    let end = [
        utterance(5),
        (6.0, Event::CallEnded),
        (6.0, Event::Ended { reason: EndReason::UserLeft }),
    ];
    server.engine.record_events(&id, 4, [utterance(4)].into_iter().chain(end));
    wait_for_deliveries(&server, &hooks, 6).await;
    assert_eq!(relay.lost_count.load(Ordering::Relaxed), 2);
    let record = server.wait_for_status(&id, "ENDED").await;
    assert_eq!(record["end_reason"], "user_left");

    let received = hooks.received();
    let sequences: Vec<u64> = received.iter().map(|one| one.sequence()).collect();
    assert_eq!(sequences, (1..=6).collect::<Vec<_>>(), "each once, in order");
    let events = server.get(&format!("/v1/ext/conversation/{id}/events")).await.json();
    let texts =
        events.as_array().unwrap().iter().filter(|event| event["what"] == "utterance_committed");
    assert_eq!(texts.count(), 5, "{events}");
    assert!(!server.engine.received_commands().contains(&Command::End), "no event was rejected");
    let metrics = server.get("/metrics").await.text;
    assert!(metrics.contains("visavis_events_failed 0"), "{metrics}");
}
