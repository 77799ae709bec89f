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

use crate::kit::{Folder, Server, until};
use crate::knowledge::{found, upload_to};

/// How the embedding server responds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Mood {
    #[default]
    Answers,
    Hangs,
    Redirects,
}

/// An embedding server for which dogs and puppies have the same meaning.
#[derive(Default)]
struct Oracle {
    asked: AtomicUsize,
    keys: Mutex<Vec<String>>,
    mood: Mutex<Mood>,
    /// Number of requests that followed the redirect.
    elsewhere: AtomicUsize,
}

async fn embed(
    State(oracle): State<Arc<Oracle>>,
    headers: HeaderMap,
    axum::Json(body): axum::Json<Value>,
) -> Response {
    oracle.asked.fetch_add(1, Ordering::Relaxed);
    oracle.keys.lock().unwrap().push(headers["authorization"].to_str().unwrap().to_owned());
    let mood = *oracle.mood.lock().unwrap();
    match mood {
        Mood::Answers => {}
        Mood::Hangs => std::future::pending().await,
        Mood::Redirects => return Redirect::temporary("/elsewhere").into_response(),
    }
    let texts = body["input"].as_array().unwrap().iter();
    let about_dogs =
        |text: &Value| text.as_str().unwrap().contains("dog") || text.as_str().unwrap().contains("puppy");
    let data: Vec<Value> = texts
        .enumerate()
        .map(|(index, text)| json!({"index": index, "embedding": if about_dogs(text) { [1.0, 0.1] } else { [0.1, 1.0] }}))
        .collect();
    axum::Json(json!({ "data": data })).into_response()
}

async fn oracle() -> (embeddings::Config, Arc<Oracle>) {
    let oracle = Arc::new(Oracle::default());
    let elsewhere = async |State(oracle): State<Arc<Oracle>>| {
        oracle.elsewhere.fetch_add(1, Ordering::Relaxed);
    };
    let listener = tokio::net::TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let url = format!("http://{}/v1", listener.local_addr().unwrap());
    let router = Router::new()
        .route("/v1/embeddings", post(embed))
        .route("/elsewhere", post(elsewhere))
        .with_state(Arc::clone(&oracle));
    tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
    (embeddings::Config { url, model: "m".into(), token: Some("sesame".into()) }, oracle)
}

const PETS: &str = "Every puppy must be on a leash.";
const COATS: &str = "Umbrellas stay at the door.";
const QUESTION: &str = "May my dog come along?";

/// A server that uses this embedding server under a policy that refuses private addresses, and a
/// knowledge base of two documents.
async fn knowing(folder: &Folder, to: embeddings::Config) -> (Server, String) {
    let server = Server::start_with(&folder.0, |config| {
        config.allow_private_targets = Some(false);
        config.embeddings = Some(to);
    })
    .await;
    let parts: [(&str, Option<&str>, &[u8]); 4] = [
        ("name", None, b"House"),
        ("description", None, b"d"),
        ("input", Some("pets.txt"), PETS.as_bytes()),
        ("input", Some("coats.txt"), COATS.as_bytes()),
    ];
    let made = upload_to(&server, "/v1/ext/kb", &parts).await.expect(200);
    (server, made["id"].as_str().unwrap().to_owned())
}

/// A question that shares no word with any document.
const RAIN: &str = "What if it rains?";

/// Waits until both documents have embeddings; after that the server sends no request of its own.
async fn found_by_meaning(server: &Server, base: &str) {
    for (question, answer) in [(QUESTION, PETS), (RAIN, COATS)] {
        until("the documents' meaning", async || {
            (found(server, base, question).await.first().map(String::as_str) == Some(answer)).then_some(())
        })
        .await;
    }
}

#[tokio::test]
async fn the_operator_s_server_is_asked_also_at_a_private_address_and_finds_what_words_do_not() {
    let folder = Folder::new();
    let (to, oracle) = oracle().await;
    let (server, base) = knowing(&folder, to).await;
    found_by_meaning(&server, &base).await;
    assert!(oracle.keys.lock().unwrap().iter().all(|key| key == "Bearer sesame"));
}

#[tokio::test]
async fn an_answer_that_is_late_is_not_waited_for_and_the_next_questions_do_not_ask() {
    let folder = Folder::new();
    let (to, oracle) = oracle().await;
    let (server, base) = knowing(&folder, to).await;
    found_by_meaning(&server, &base).await;
    *oracle.mood.lock().unwrap() = Mood::Hangs;
    let asked = oracle.asked.load(Ordering::Relaxed);
    // An embedding of a document may take up to a minute, that of a question far less.
    let within = Duration::from_secs(30);
    let found_in_time = tokio::time::timeout(within, found(&server, &base, "Where do umbrellas stay?"));
    assert_eq!(found_in_time.await.expect("nobody waits for it"), [COATS], "words find it");
    assert_eq!(oracle.asked.load(Ordering::Relaxed), asked + 1);
    assert_eq!(found(&server, &base, "Where do umbrellas stay?").await, [COATS]);
    assert!(found(&server, &base, QUESTION).await.is_empty(), "no word is shared");
    assert_eq!(oracle.asked.load(Ordering::Relaxed), asked + 1, "it has ten seconds of rest");
}

#[tokio::test]
async fn a_server_that_points_elsewhere_is_not_followed_and_words_find_what_they_find() {
    let folder = Folder::new();
    let (to, oracle) = oracle().await;
    *oracle.mood.lock().unwrap() = Mood::Redirects;
    let (server, base) = knowing(&folder, to).await;
    until("it to be asked", async || (oracle.asked.load(Ordering::Relaxed) > 0).then_some(())).await;
    until("the words", async || {
        (found(&server, &base, "Where do umbrellas stay?").await == [COATS]).then_some(())
    })
    .await;
    assert_eq!(oracle.elsewhere.load(Ordering::Relaxed), 0);
}
