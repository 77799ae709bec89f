//! The embedding server. It belongs to the operator, so it may be at any address. If it does not
//! answer in time, the search uses words only.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::{IntoResponse as _, Redirect, Response};
use axum::routing::post;
use models::embeddings;
use serde_json::{Value, json};

use crate::harness::{TempFolder, TestServer, wait_for};
use crate::knowledge::{search_results, upload_to};

/// How the embedding server responds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum ServerMode {
    #[default]
    Answers,
    Hangs,
    Redirects,
}

/// An embedding server for which dogs and puppies have the same meaning.
#[derive(Default)]
struct FakeEmbeddingServer {
    request_count: AtomicUsize,
    keys: Mutex<Vec<String>>,
    mode: Mutex<ServerMode>,
    /// Number of requests that followed the redirect.
    redirected_count: AtomicUsize,
}

async fn embed(
    State(server): State<Arc<FakeEmbeddingServer>>,
    headers: HeaderMap,
    axum::Json(body): axum::Json<Value>,
) -> Response {
    server.request_count.fetch_add(1, Ordering::Relaxed);
    server.keys.lock().unwrap().push(headers["authorization"].to_str().unwrap().to_owned());
    let mode = *server.mode.lock().unwrap();
    match mode {
        ServerMode::Answers => {}
        ServerMode::Hangs => std::future::pending().await,
        ServerMode::Redirects => return Redirect::temporary("/elsewhere").into_response(),
    }
    let texts = body["input"].as_array().unwrap().iter();
    let about_dogs = |text: &Value| {
        text.as_str().unwrap().contains("dog") || text.as_str().unwrap().contains("puppy")
    };
    let data: Vec<Value> = texts
        .enumerate()
        .map(|(index, text)| {
            json!({
                "index": index,
                "embedding": if about_dogs(text) { [1.0, 0.1] } else { [0.1, 1.0] },
            })
        })
        .collect();
    axum::Json(json!({ "data": data })).into_response()
}

async fn start_embedding_server() -> (embeddings::Config, Arc<FakeEmbeddingServer>) {
    let server = Arc::new(FakeEmbeddingServer::default());
    let elsewhere = async |State(server): State<Arc<FakeEmbeddingServer>>| {
        server.redirected_count.fetch_add(1, Ordering::Relaxed);
    };
    let listener = tokio::net::TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let url = format!("http://{}/v1", listener.local_addr().unwrap());
    let router = Router::new()
        .route("/v1/embeddings", post(embed))
        .route("/elsewhere", post(elsewhere))
        .with_state(Arc::clone(&server));
    tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
    (embeddings::Config { url, model: "m".into(), token: Some("sesame".into()) }, server)
}

const PETS: &str = "Every puppy must be on a leash.";
const COATS: &str = "Umbrellas stay at the door.";
const QUESTION: &str = "May my dog come along?";

/// A server that uses this embedding server under a policy that refuses private addresses, and a
/// knowledge base of two documents.
async fn start_with_documents(
    folder: &TempFolder,
    embeddings_config: embeddings::Config,
) -> (TestServer, String) {
    let server = TestServer::start_with(&folder.0, |config| {
        config.allow_private_targets = Some(false);
        config.embeddings = Some(embeddings_config);
    })
    .await;
    let parts: [(&str, Option<&str>, &[u8]); 4] = [
        ("name", None, b"House"),
        ("description", None, b"d"),
        ("input", Some("pets.txt"), PETS.as_bytes()),
        ("input", Some("coats.txt"), COATS.as_bytes()),
    ];
    let created = upload_to(&server, "/v1/ext/kb", &parts).await.expect_status(200);
    (server, created["id"].as_str().unwrap().to_owned())
}

/// A question that shares no word with any document.
const RAIN_QUESTION: &str = "What if it rains?";

/// Waits until both documents have embeddings; after that the server sends no request of its own.
async fn wait_for_embeddings(server: &TestServer, base: &str) {
    for (question, answer) in [(QUESTION, PETS), (RAIN_QUESTION, COATS)] {
        wait_for("the embeddings of the documents", async || {
            (search_results(server, base, question).await.first().map(String::as_str)
                == Some(answer))
            .then_some(())
        })
        .await;
    }
}

#[tokio::test]
async fn the_operator_s_server_is_asked_also_at_a_private_address_and_finds_what_words_do_not() {
    let folder = TempFolder::new();
    let (to, oracle) = start_embedding_server().await;
    let (server, base) = start_with_documents(&folder, to).await;
    wait_for_embeddings(&server, &base).await;
    assert!(oracle.keys.lock().unwrap().iter().all(|key| key == "Bearer sesame"));
}

#[tokio::test]
async fn an_answer_that_is_late_is_not_waited_for_and_the_next_questions_do_not_ask() {
    let folder = TempFolder::new();
    let (to, oracle) = start_embedding_server().await;
    let (server, base) = start_with_documents(&folder, to).await;
    wait_for_embeddings(&server, &base).await;
    *oracle.mode.lock().unwrap() = ServerMode::Hangs;
    let asked = oracle.request_count.load(Ordering::Relaxed);
    // An embedding of a document may take up to a minute, that of a question far less.
    let within = Duration::from_secs(30);
    let found_in_time =
        tokio::time::timeout(within, search_results(&server, &base, "Where do umbrellas stay?"));
    assert_eq!(
        found_in_time.await.expect("no request waits for it"),
        [COATS],
        "the word search finds it"
    );
    assert_eq!(oracle.request_count.load(Ordering::Relaxed), asked + 1);
    assert_eq!(search_results(&server, &base, "Where do umbrellas stay?").await, [COATS]);
    assert!(search_results(&server, &base, QUESTION).await.is_empty(), "no word is in common");
    assert_eq!(
        oracle.request_count.load(Ordering::Relaxed),
        asked + 1,
        "it gets no request for ten seconds"
    );
}

#[tokio::test]
async fn a_server_that_points_elsewhere_is_not_followed_and_words_find_what_they_find() {
    let folder = TempFolder::new();
    let (to, oracle) = start_embedding_server().await;
    *oracle.mode.lock().unwrap() = ServerMode::Redirects;
    let (server, base) = start_with_documents(&folder, to).await;
    wait_for("a request to it", async || {
        (oracle.request_count.load(Ordering::Relaxed) > 0).then_some(())
    })
    .await;
    wait_for("the words", async || {
        (search_results(&server, &base, "Where do umbrellas stay?").await == [COATS]).then_some(())
    })
    .await;
    assert_eq!(oracle.redirected_count.load(Ordering::Relaxed), 0);
}
