//! The voices of providers, samples of them, tests of a chain, and the LLM servers of the machine.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, Uri};
use axum::response::{IntoResponse as _, Response};
use control_api::{Config, keys};
use models::llm::local_servers::LocalPort;
use models::registry::{self, Account, Accounts, Registry};
use models::scripted::Script;
use serde_json::{Value, json};
use tokio::net::TcpListener;

use crate::harness::{TempFolder, TestServer};

const SECRET: &str = "sk-the-secret-of-this-test";

/// A vendor's server: each response is the next one of the list, the last one again and again.
#[derive(Clone, Default)]
struct Vendor {
    responses: Arc<Mutex<Vec<(u16, String)>>>,
    /// Path and key of each request.
    requests: Arc<Mutex<Vec<(String, String)>>>,
}

impl Vendor {
    /// Starts it and returns its address.
    async fn start(&self) -> String {
        async fn respond(State(vendor): State<Vendor>, uri: Uri, headers: HeaderMap) -> Response {
            let key = headers.get("authorization").map_or("", |key| key.to_str().unwrap());
            vendor.requests.lock().unwrap().push((uri.path().to_owned(), key.to_owned()));
            let mut responses = vendor.responses.lock().unwrap();
            let next = if responses.len() > 1 { responses.remove(0) } else { responses[0].clone() };
            (StatusCode::from_u16(next.0).unwrap(), next.1).into_response()
        }
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let router = Router::new().fallback(respond).with_state(self.clone());
        tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        url
    }

    fn with(responses: &[(u16, Value)]) -> Self {
        let text = |(status, body): &(u16, Value)| (*status, body.to_string());
        let responses = responses.iter().map(text).collect();
        Self { responses: Arc::new(Mutex::new(responses)), ..Self::default() }
    }
}

/// Models with the operator's account of OpenAI at `url`, and scripted ones.
pub(crate) fn registry(url: Option<&str>) -> Arc<Registry> {
    let account = |url: &str| Account {
        url: Some(url.to_owned()),
        token: Some(SECRET.into()),
        ..Account::default()
    };
    let file: BTreeMap<String, Account> =
        url.map(|url| ("openai".to_owned(), account(url))).into_iter().collect();
    let script: Script = serde_json::from_value(json!({
        "utterances": [{"transcript": "Hello, can you hear me?", "reply": "Yes, I can."}],
    }))
    .unwrap();
    let config = registry::Config {
        allow_scripted: true,
        accounts: Accounts::new(file, |_| None).unwrap(),
        script,
        ..registry::Config::default()
    };
    let client = egress::Client::new(egress::Policy { allow_private: true }).unwrap();
    Arc::new(Registry::new(config, client, tokio::runtime::Handle::current()))
}

async fn start(folder: &TempFolder, url: Option<&str>) -> TestServer {
    let registry = registry(url);
    TestServer::start_with(&folder.0, |config| config.registry = Some(registry)).await
}

#[tokio::test]
async fn voices_are_searched_and_paged() {
    let folder = TempFolder::new();
    let server = start(&folder, None).await;
    let list = server.get("/v1/ext/provider/Built-in/voices?perpage=2&offset=1").await;
    assert_eq!(list.header("x-total-count"), "6");
    assert_eq!(list.expect_status(200).as_array().unwrap().len(), 2);
    let found = server.get("/v1/ext/provider/builtin/voices?search=SCOTT").await.expect_status(200);
    assert_eq!((found.as_array().unwrap().len(), &found[0]["voice_id"]), (1, &json!("awb")));
    let default = server.get("/v1/ext/provider/default/voices").await;
    assert_eq!(default.header("x-total-count"), "6", "the built-in voices");
    let none = server.get("/v1/ext/provider/builtin/voices?language=de").await;
    assert_eq!((none.header("x-total-count"), none.json()), ("0", json!([])));
    let unknown = json!({"message": "Provider not found"});
    for name in ["nobody", "anthropic", "pocketsphinx", "%FF"] {
        let path = format!("/v1/ext/provider/{name}/voices");
        server.get(&path).await.assert_is(404, unknown.clone());
    }
    let needs_key = server.get("/v1/ext/provider/cartesia/voices").await.expect_status(409);
    assert_eq!(needs_key["error"], "The text-to-speech provider \"cartesia\" needs an API key.");
    for (query, field) in
        [("language=%00", "language"), ("perpage=0", "perpage"), ("offset=-1", "offset")]
    {
        let path = format!("/v1/ext/provider/builtin/voices?{query}");
        let refused = server.get(&path).await.expect_status(400);
        assert_eq!(refused["details"][0]["field"], field);
    }
}

#[tokio::test]
async fn the_voices_of_a_vendor_are_fetched_once_for_each_account() {
    let folder = TempFolder::new();
    let vendor = Vendor::with(&[(200, json!({"voices": [{"id": "a", "name": "Anna"}, "b"]}))]);
    let url = vendor.start().await;
    let mut server = start(&folder, Some(&url)).await;
    let path = "/v1/ext/provider/openai/voices";
    let list = server.get(&format!("{path}?search=ann")).await.expect_status(200);
    let anna = json!([{
        "voice_id": "a", "name": "Anna", "language": null, "gender": null, "preview_url": null,
    }]);
    assert_eq!(list, anna);
    assert_eq!(server.get(path).await.header("x-total-count"), "2");
    assert_eq!(vendor.requests.lock().unwrap().len(), 1, "the second answer is cached");
    // A key of the workspace is another account.
    let body = json!({"token": "own", "url": url});
    server.send_json("PUT", "/v1/ext/credentials/openai", body).await.expect_status(200);
    server.get(path).await.expect_status(200);
    let requests = vendor.requests.lock().unwrap().clone();
    let keys: Vec<&str> = requests.iter().map(|request| &*request.1).collect();
    assert_eq!(keys, [&*format!("Bearer {SECRET}"), "Bearer own"]);
    server.key =
        keys::create(&folder.0.join("data"), folder.database_url().await.as_deref(), "other")
            .await
            .unwrap();
    server.get(path).await.expect_status(200);
    assert_eq!(vendor.requests.lock().unwrap().len(), 3, "another workspace");
}

#[tokio::test]
async fn a_vendor_that_fails_is_a_502_without_the_key_and_is_asked_again() {
    let folder = TempFolder::new();
    let refusal = json!({"error": {"message": format!("Incorrect API key provided: {SECRET}")}});
    let vendor = Vendor::with(&[(401, refusal), (200, json!("?")), (200, json!({"voices": []}))]);
    let server = start(&folder, Some(&vendor.start().await)).await;
    let path = "/v1/ext/provider/openai/voices";
    let refused = server.get(path).await;
    assert!(!refused.text.contains(SECRET), "{refused:?}");
    let refused = refused.expect_status(502);
    assert_eq!(refused["error"], "Provider failed");
    assert!(refused["reason"].as_str().unwrap().contains("key"), "{refused}");
    assert_eq!(server.get(path).await.expect_status(200), json!([]), "no list");
    let sample = json!({"text": "Hello.", "voice_id": "a"});
    let vendor = Vendor::with(&[(500, json!({"error": SECRET}))]);
    let url = vendor.start().await;
    let body = json!({"token": SECRET, "url": url});
    server.send_json("PUT", "/v1/ext/credentials/openai", body).await.expect_status(200);
    let failed = server.post("/v1/ext/provider/openai/sample", sample).await;
    assert!(failed.status == 502 && !failed.text.contains(SECRET), "{failed:?}");
}

#[tokio::test]
async fn a_sample_is_a_wav_file_and_ten_of_them_are_admitted_per_minute() {
    let folder = TempFolder::new();
    let mut server = start(&folder, None).await;
    let path = "/v1/ext/provider/script/sample";
    for (body, field) in [
        (json!({}), "text"),
        (json!({"text": " "}), "text"),
        (json!({"text": "ä".repeat(201)}), "text"),
        (json!({"text": 5}), "text"),
        (json!({"text": "Hi.", "voice_id": 5}), "voice_id"),
        (json!({"text": "Hi.", "voice_id": "v".repeat(1_001)}), "voice_id"),
        (json!({"text": "Hi.\0"}), "text"),
        (json!({"text": "Hi.", "avatar_key_id": "nobody"}), "avatar_key_id"),
        (json!({"text": "Hi.", "avatar_key_id": 5}), "avatar_key_id"),
    ] {
        let refused = server.post(path, body).await.expect_status(400);
        assert_eq!(refused["details"][0]["field"], field);
    }
    let text = || json!({"text": "ä".repeat(200)});
    let unknown = server.post("/v1/ext/provider/nobody/sample", text()).await;
    unknown.assert_is(404, json!({"message": "Provider not found"}));
    server.post("/v1/ext/provider/elevenlabs/sample", text()).await.expect_status(409);
    // None of these counts. On a slow machine the limit refills meanwhile.
    let mut samples = 0;
    let refused = loop {
        let request = server.request("POST", path).header("x-api-key", &server.key);
        let request = request.header("content-type", "application/json");
        let reply = request.body(json!({"text": "Hi."}).to_string()).send().await.unwrap();
        if reply.status() != 200 {
            break reply;
        }
        assert_eq!(reply.headers()["content-type"], "audio/wav");
        let wav = reply.bytes().await.unwrap();
        assert!(wav.starts_with(b"RIFF") && wav.len() > 1_000, "{}", wav.len());
        samples += 1;
        assert!(samples < 100, "there is a limit");
    };
    assert!(samples >= 10, "{samples}");
    assert_eq!(
        (refused.status().as_u16(), &refused.headers()["ratelimit-limit"]),
        (429, &"10".parse().unwrap())
    );
    assert!(refused.headers().contains_key("retry-after"));
    let tested = server.post("/v1/ext/providers/test", json!({})).await;
    assert_eq!(tested.status, 429, "tests count too");
    server.key =
        keys::create(&folder.0.join("data"), folder.database_url().await.as_deref(), "other")
            .await
            .unwrap();
    assert_ne!(server.post(path, json!({"text": "Hi."})).await.status, 429);
}

#[tokio::test]
async fn a_test_tells_the_latency_or_the_error_of_each_step() {
    let folder = TempFolder::new();
    let server = start(&folder, None).await;
    let path = "/v1/ext/providers/test";
    let script = || json!({"provider": "script"});
    let body = json!({"stt": script(), "llm": script(), "tts": script()});
    let tested = server.post(path, body).await.expect_status(200);
    for (step, text) in [
        ("tts", Value::Null),
        ("stt", json!("Hello, can you hear me?")),
        ("llm", json!("Yes, I can.")),
    ] {
        let step = &tested[step];
        assert!(step["latency_ms"].is_u64() && step["error"].is_null(), "{tested}");
        assert_eq!((&step["provider"], &step["text"]), (&json!("script"), &text));
    }
    let keyless = json!({
        "stt": script(), "llm": {"provider": "anthropic"}, "tts": {"provider": "elevenlabs"},
    });
    let tested = server.post(path, keyless).await.expect_status(200);
    assert_eq!(tested["llm"]["error"], "The LLM provider \"anthropic\" needs an API key.");
    assert_eq!(
        tested["tts"]["error"],
        "The text-to-speech provider \"elevenlabs\" needs an API key."
    );
    assert_eq!(tested["stt"]["error"], "Not tested, because no voice spoke the test sentence.");
    assert!(tested["tts"]["latency_ms"].is_null());
    let builtin = server.post(path, json!({"llm": {"provider": "builtin"}})).await;
    let builtin = builtin.expect_status(200);
    assert!(builtin["llm"]["latency_ms"].is_u64(), "{builtin}");
    assert!(builtin["tts"]["error"].as_str().unwrap().contains("no built-in voice"), "{builtin}");
}

#[tokio::test]
async fn a_test_uses_an_agent_s_key_for_its_own_address_only() {
    let folder = TempFolder::new();
    let refusal = json!({"error": {"message": format!("Incorrect API key provided: {SECRET}")}});
    let vendor = Vendor::with(&[(401, refusal)]);
    let url = vendor.start().await;
    let server = start(&folder, None).await;
    let llm = json!({"provider": "custom", "model": "m", "url": url, "token": SECRET});
    let avatars = json!([{"avatar_key_id": "ada", "config": {"llm": llm}}]);
    let agent = server.create_agent(json!({"avatars": avatars})).await;
    for (count, status) in [(1_000, 200), (1_001, 400)] {
        let voice = "v".repeat(count);
        let tts =
            json!({"voice_id": voice, "fallback": [{"provider": "elevenlabs", "voice_id": voice}]});
        let avatars = json!([{"avatar_key_id": "ada", "config": {"tts": tts}}]);
        let body = crate::harness::agent_body(json!({"avatars": avatars}));
        let made = server.post("/v1/ext/agent", body).await.expect_status(status);
        let fields = made["details"].as_array().map_or(0, Vec::len);
        assert_eq!(fields, if status == 400 { 2 } else { 0 }, "{made}");
    }
    let test = |agent: Value, url: &str| {
        let llm = json!({"provider": "custom", "model": "m", "url": url, "token": "***"});
        server.post("/v1/ext/providers/test", json!({"agent_id": agent, "llm": llm}))
    };
    let tested = test(json!(agent), &url).await;
    assert!(!tested.text.contains(SECRET), "{tested:?}");
    let error = tested.expect_status(200)["llm"]["error"].as_str().unwrap().to_owned();
    assert!(error.contains("key"), "{error}");
    assert_eq!(vendor.requests.lock().unwrap()[0].1, format!("Bearer {SECRET}"));
    let count = vendor.requests.lock().unwrap().len();
    for (agent, url) in [(json!(agent), format!("{url}/other")), (Value::Null, url.clone())] {
        let refused = test(agent, &url).await.expect_status(400);
        assert_eq!(refused["details"][0]["field"], "llm.token");
    }
    let unknown = test(json!("00000000-0000-4000-8000-000000000000"), &url).await;
    unknown.assert_is(404, json!({"message": "Agent details not found"}));
    for body in [json!({"llm": 5}), json!({"tts": {"voice_id": 5}}), json!([])] {
        server.post("/v1/ext/providers/test", body).await.expect_status(400);
    }
    for (body, field) in [
        (json!({"llm": {"url": "ftp://x", "provider": "custom", "model": "m"}}), "llm.url"),
        (json!({"stt": {"token": "a\nb"}}), "stt.token"),
        (json!({"tts": {"fallback": [{"provider": "openai", "url": "x"}]}}), "tts.fallback[0].url"),
        (json!({"tts": {"voice_id": "v".repeat(1_001)}}), "tts.voice_id"),
        // A voice of this server.
        (json!({"tts": {"provider": "openai", "token": "k", "voice_id": "slt"}}), "tts.voice_id"),
    ] {
        let refused = server.post("/v1/ext/providers/test", body).await.expect_status(400);
        assert_eq!(refused["details"][0]["field"], field);
    }
    assert_eq!(vendor.requests.lock().unwrap().len(), count, "the key was sent nowhere");
}

/// Starts a server beside an LLM server of this machine.
async fn start_beside_llm(
    folder: &TempFolder,
    change: impl FnOnce(&mut Config),
) -> (TestServer, String) {
    let vendor = Vendor::with(&[(200, json!({"object": "list", "data": [{"id": "qwen3"}]}))]);
    let url = vendor.start().await;
    let port = url.rsplit(':').next().unwrap().parse().unwrap();
    let server = TestServer::start_with(&folder.0, |config| {
        let ports = [port, config.listen.port()];
        let port = |port| LocalPort { name: "Ollama", provider: "ollama", port };
        config.local_llm_ports = ports.map(port).to_vec();
        change(config);
    })
    .await;
    (server, format!("{url}/v1"))
}

#[tokio::test]
async fn llm_servers_of_the_machine_are_listed_for_the_operator_only() {
    let folder = TempFolder::new();
    let (mut server, url) = start_beside_llm(&folder, |_| {}).await;
    let path = "/v1/ext/providers/local";
    let found = json!([{"name": "Ollama", "provider": "ollama", "url": url, "models": ["qwen3"]}]);
    // A busy machine may need longer than the time for the probe.
    crate::harness::wait_for("the LLM server", async || {
        let list = server.get(path).await.expect_status(200);
        (list == found).then_some(())
    })
    .await;
    server.key =
        keys::create(&folder.0.join("data"), folder.database_url().await.as_deref(), "other")
            .await
            .unwrap();
    let none = server.get(path).await;
    assert_eq!((none.header("x-total-count"), none.json()), ("0", json!([])));
}

#[tokio::test]
async fn no_llm_server_is_looked_for_where_private_targets_are_not_allowed() {
    let folder = TempFolder::new();
    let (server, _) =
        start_beside_llm(&folder, |config| config.allow_private_targets = Some(false)).await;
    assert_eq!(server.get("/v1/ext/providers/local").await.expect_status(200), json!([]));
}
