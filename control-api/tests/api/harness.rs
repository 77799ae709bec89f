//! A server under test, a fake engine that is controlled by the test, and a receiver of webhooks.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode};
use control_api::{App, Config, HttpLimits, StockAvatar};
use conversation::event::{EndReason, Event, EventEnvelope};
use conversation::id::ConversationId;
use conversation::input::Command;
use conversation::output::CommandOutcome;
use conversation::time::Time;
use engine_api::metrics::{MetricFamily, MetricValue as Measured};
use engine_api::{
    AcceptedOffer, BoxFuture, CommandError, Engine, EventSink, HangUp, MissingModel, Offer,
    OfferError, PoseSetFile, SttChoice, TtsChoice,
};
use serde_json::{Value, json};
use sqlx::Connection as _;
use tokio::net::TcpListener;
use tokio::sync::{Notify, oneshot};
use tokio::task::JoinHandle;

/// Maximum time that any wait may take.
pub(crate) const TEST_TIMEOUT: Duration = Duration::from_secs(60);

/// Calls `check` every 10 ms until it returns a value.
pub(crate) async fn wait_for<T>(what: &str, mut check: impl AsyncFnMut() -> Option<T>) -> T {
    let found = async {
        let mut ticks = tokio::time::interval(Duration::from_millis(10));
        loop {
            ticks.tick().await;
            if let Some(found) = check().await {
                return found;
            }
        }
    };
    tokio::time::timeout(TEST_TIMEOUT, found)
        .await
        .unwrap_or_else(|_| panic!("timed out while waiting for {what}"))
}

/// The paused clock of the test's runtime: time passes only through [`Self::advance`]. Sockets and
/// other threads are not affected.
pub(crate) struct PausedClock {
    _blocker: std::sync::mpsc::Sender<()>,
    started_at: tokio::time::Instant,
}

impl PausedClock {
    pub(crate) fn pause() -> Self {
        let (_blocker, held) = std::sync::mpsc::channel::<()>();
        tokio::time::pause();
        // Tokio advances a paused clock to the next timer when the runtime is idle, unless a
        // blocking task runs. This task ends with the test, or after twice [`TEST_TIMEOUT`]: then
        // the clock advances, and a test that still waits fails by its own timeout.
        tokio::task::spawn_blocking(move || held.recv_timeout(2 * TEST_TIMEOUT).ok());
        Self { _blocker, started_at: tokio::time::Instant::now() }
    }

    /// Advances the clock by `time` at once.
    pub(crate) async fn advance(&self, time: Duration) {
        tokio::time::advance(time).await;
    }

    /// Time since the clock was paused.
    pub(crate) fn elapsed(&self) -> Duration {
        self.started_at.elapsed()
    }
}

/// Advances tokio's clock by `time` at once and resumes it: timers that are due within `time` fire.
pub(crate) async fn advance_clock(time: Duration) {
    tokio::time::pause();
    tokio::time::advance(time).await;
    tokio::time::resume();
}

/// A temporary folder, removed when it is dropped.
pub(crate) struct TempFolder(pub(crate) PathBuf);

impl TempFolder {
    pub(crate) fn new() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let name =
            format!("visavis-api-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }
}

impl TempFolder {
    /// URL of the PostgreSQL database of the servers in this folder; `None` = SQLite.
    pub(crate) async fn database_url(&self) -> Option<String> {
        database_url(&self.0).await
    }

    /// A direct connection to the store of the servers in this folder.
    pub(crate) async fn connect(&self) -> sqlx::AnyConnection {
        sqlx::any::install_default_drivers();
        let file = || format!("sqlite://{}", self.0.join("data/visavis.db").to_str().unwrap());
        let url = self.database_url().await.unwrap_or_else(file);
        sqlx::AnyConnection::connect(&url).await.unwrap()
    }

    /// Executes a statement on the store of the servers in this folder, past the servers.
    pub(crate) async fn execute_sql(&self, sql: String) {
        let mut connection = self.connect().await;
        let done = sqlx::query(sqlx::AssertSqlSafe(sql)).execute(&mut connection).await.unwrap();
        assert!(done.rows_affected() > 0, "nothing was changed");
        connection.close().await.unwrap();
    }
}

/// Environment variable with the URL, without a database, of a PostgreSQL server on which the tests
/// may create databases. Without it the tests use SQLite.
const POSTGRES_URL_VAR: &str = "VISAVIS_TEST_POSTGRES";

/// URL of the database of a folder, created if absent; `None` = SQLite.
async fn database_url(folder: &Path) -> Option<String> {
    let server = std::env::var(POSTGRES_URL_VAR).ok().filter(|url| !url.is_empty())?;
    let name = folder.file_name().unwrap().to_str().unwrap().replace('-', "_");
    let mut connection = sqlx::PgConnection::connect(&format!("{server}/postgres")).await.unwrap();
    let known: i64 = sqlx::query_scalar("SELECT COUNT(*) FROM pg_database WHERE datname = $1")
        .bind(&name)
        .fetch_one(&mut connection)
        .await
        .unwrap();
    if known == 0 {
        let make = format!("CREATE DATABASE {name}");
        sqlx::query(sqlx::AssertSqlSafe(make)).execute(&mut connection).await.unwrap();
    }
    connection.close().await.unwrap();
    Some(format!("{server}/{name}"))
}

impl Drop for TempFolder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// An engine that is controlled by the test.
#[derive(Default)]
pub(crate) struct FakeEngine {
    event_sink: Mutex<Option<Arc<dyn EventSink>>>,
    pub(crate) offers: Mutex<Vec<Offer>>,
    /// Replacement pose sets, each with the id of its avatar.
    pub(crate) swapped_pose_sets: Mutex<Vec<(String, PoseSetFile)>>,
    pub(crate) commands: Mutex<Vec<(ConversationId, Command)>>,
    /// Results of the next commands; further commands are accepted.
    pub(crate) command_results: Mutex<VecDeque<Result<CommandOutcome, CommandError>>>,
    /// Errors of the next offers; further offers are accepted.
    pub(crate) offer_errors: Mutex<VecDeque<OfferError>>,
    /// Whether `connection-0` is the last offer of a call that has not started.
    pub(crate) hang_up_is_last: AtomicBool,
    pub(crate) loading: AtomicBool,
    /// Why there is no capacity for a new call.
    pub(crate) capacity_error: Mutex<Option<String>>,
    pub(crate) models_unavailable: AtomicBool,
    /// What has failed while calls are still accepted.
    pub(crate) degraded_reason: Mutex<Option<String>>,
    /// What `missing_models` returns.
    pub(crate) missing_models: Mutex<Vec<MissingModel>>,
    /// Why no call can be held before something is installed.
    pub(crate) call_obstacle: Mutex<Option<String>>,
    /// Why no call can be recorded.
    pub(crate) recording_error: Mutex<Option<String>>,
    /// Whether `End` ends the call as in the engine: its events are recorded before the response,
    /// and a second `End` finds no running call.
    pub(crate) ends_calls: AtomicBool,
}

impl FakeEngine {
    /// Records an event of a conversation, `seconds` after its start.
    pub(crate) fn record_event(&self, id: &str, seq: u64, seconds: f64, event: Event) {
        let envelope = EventEnvelope { seq, at: Time::from_seconds(seconds), event };
        self.event_sink.lock().unwrap().as_ref().unwrap().record(id.parse().unwrap(), envelope);
    }

    /// Records events of a conversation with consecutive sequence numbers from `first` on.
    pub(crate) fn record_events(
        &self,
        id: &str,
        first: u64,
        events: impl IntoIterator<Item = (f64, Event)>,
    ) {
        for (seq, (seconds, event)) in (first..).zip(events) {
            self.record_event(id, seq, seconds, event);
        }
    }

    /// Reports a panic in the code of this call.
    pub(crate) fn panic_call(&self, id: &str) {
        self.event_sink.lock().unwrap().as_ref().unwrap().call_panicked(id.parse().unwrap());
    }

    pub(crate) fn received_commands(&self) -> Vec<Command> {
        self.commands.lock().unwrap().iter().map(|(_, command)| command.clone()).collect()
    }
}

impl Engine for FakeEngine {
    fn accept_offer(&self, offer: Offer) -> BoxFuture<'_, Result<AcceptedOffer, OfferError>> {
        let refused = self.offer_errors.lock().unwrap().pop_front();
        let mut offers = self.offers.lock().unwrap();
        let connection = format!("connection-{}", offers.len());
        offers.push(offer);
        Box::pin(async move {
            match refused {
                Some(refused) => Err(refused),
                None => Ok(AcceptedOffer { answer: "v=0 answer".into(), connection }),
            }
        })
    }

    fn send_command(
        &self,
        conversation: ConversationId,
        command: Command,
    ) -> BoxFuture<'_, Result<CommandOutcome, CommandError>> {
        let again = self.commands.lock().unwrap().contains(&(conversation, Command::End));
        self.commands.lock().unwrap().push((conversation, command.clone()));
        if command == Command::End && self.ends_calls.load(Ordering::Relaxed) {
            if again {
                return Box::pin(async { Err(CommandError::NotRunning) });
            }
            let events =
                [(2.0, Event::CallEnded), (2.0, Event::Ended { reason: EndReason::EndedByApi })];
            self.record_events(&conversation.to_string(), 1, events);
        }
        let answer = self
            .command_results
            .lock()
            .unwrap()
            .pop_front()
            .unwrap_or(Ok(CommandOutcome::Accepted));
        Box::pin(async move { answer })
    }

    fn hang_up(&self, _: ConversationId, connection: String) -> BoxFuture<'_, HangUp> {
        let is_last = self.hang_up_is_last.load(Ordering::Relaxed);
        Box::pin(async move {
            match &*connection {
                "connection-0" if is_last => HangUp::LastOffer,
                "connection-0" => HangUp::Closed,
                _ => HangUp::NotFound,
            }
        })
    }

    fn swap_pose_set(&self, avatar_key_id: &str, face: PoseSetFile) {
        self.swapped_pose_sets.lock().unwrap().push((avatar_key_id.into(), face));
    }

    fn active_calls(&self) -> usize {
        3
    }

    fn not_ready_reason(&self) -> Option<String> {
        self.loading.load(Ordering::Relaxed).then(|| "models load".into())
    }

    fn capacity_error(&self) -> Option<String> {
        self.capacity_error.lock().unwrap().clone()
    }

    fn models_unavailable(&self) -> Option<String> {
        self.models_unavailable
            .load(Ordering::Relaxed)
            .then(|| "all 2 STT decoders are in use".into())
    }

    fn degraded_reason(&self) -> Option<String> {
        self.degraded_reason.lock().unwrap().clone()
    }

    fn missing_models(&self) -> Vec<MissingModel> {
        self.missing_models.lock().unwrap().clone()
    }

    fn call_obstacle(&self, _: &SttChoice, _: &TtsChoice) -> Option<String> {
        self.call_obstacle.lock().unwrap().clone()
    }

    fn recording_error(&self) -> Option<String> {
        self.recording_error.lock().unwrap().clone()
    }

    fn metrics(&self) -> Vec<MetricFamily> {
        let took = Measured::Histogram { buckets: vec![(0.01, 4), (f64::INFINITY, 1)], sum: 0.5 };
        vec![
            MetricFamily::histogram("visavis_stage_seconds", "What the engine measures.")
                .with_label("thread", 0, took),
        ]
    }
}

/// Wall clock at the start of every conversation that a test plays, in µs since 1970:
/// 2023-11-14T22:13:20Z.
pub(crate) const CALL_STARTED_AT: u64 = 1_700_000_000_000_000;

pub(crate) fn joined_event() -> Event {
    Event::Joined { unix_micros: CALL_STARTED_AT }
}

/// An HTTP response.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) text: String,
}

impl Reply {
    #[track_caller]
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|_| panic!("no JSON: {self:?}"))
    }

    #[track_caller]
    pub(crate) fn expect_status(self, status: u16) -> Value {
        assert_eq!(self.status, status, "{self:?}");
        if self.text.is_empty() { Value::Null } else { self.json() }
    }

    #[track_caller]
    pub(crate) fn assert_is(self, status: u16, body: Value) {
        assert_eq!((self.status, self.json()), (status, body));
    }

    #[track_caller]
    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers.get(name).unwrap_or_else(|| panic!("no {name}: {self:?}")).to_str().unwrap()
    }
}

pub(crate) struct TestServer {
    pub(crate) app: Arc<App>,
    pub(crate) engine: Arc<FakeEngine>,
    pub(crate) key: String,
    pub(crate) url: String,
    client: reqwest::Client,
    stop: Vec<oneshot::Sender<()>>,
    tasks: Vec<JoinHandle<()>>,
}

pub(crate) const TEST_API_KEY: &str = "vv_a-key-that-the-test-knows-beforehand";

pub(crate) fn stock_avatars() -> Vec<StockAvatar> {
    let avatar = |id: &str, name: &str| StockAvatar {
        avatar_key_id: id.into(),
        avatar_name: name.into(),
        gender: "female".into(),
        display_picture: "data:image/png;base64,AA==".into(),
        voice: "slt".into(),
    };
    // The last one is built in, so that it can be drawn.
    vec![avatar("ada", "Ada"), avatar("mia", "Mia"), avatar("nia", "Nia")]
}

impl TestServer {
    /// Starts a server on `folder` with a configuration changed by `change`.
    pub(crate) async fn start_with(folder: &Path, change: impl FnOnce(&mut Config)) -> Self {
        Self::start_with_limits(folder, HttpLimits::default(), change).await
    }

    /// The same, with limits for its connections.
    pub(crate) async fn start_with_limits(
        folder: &Path,
        limits: HttpLimits,
        change: impl FnOnce(&mut Config),
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let listen = listener.local_addr().unwrap();
        let mut config = Config {
            listen,
            data: folder.join("data"),
            api_key: Some(TEST_API_KEY.into()),
            ..Config::default()
        };
        config.extract_command =
            Some(vec![env!("CARGO_BIN_EXE_visavis-extract-under-test").into()]);
        config.bake_command = Some(vec![env!("CARGO_BIN_EXE_visavis-renderer-under-test").into()]);
        let renderer = env!("CARGO_BIN_EXE_visavis-renderer-under-test");
        config.photo_command = Some(vec![renderer.into(), "photo".into()]);
        config.recordings.command =
            Some(vec![env!("CARGO_BIN_EXE_visavis-deliver-under-test").into()]);
        config.recordings.retry_delay = Duration::from_millis(10);
        config.videos.command = Some(vec![env!("CARGO_BIN_EXE_visavis-film-under-test").into()]);
        config.database_url = database_url(folder).await;
        change(&mut config);
        let net =
            egress::Client::new(egress::Policy { allow_private: config.allows_private_targets() })
                .unwrap();
        let app = Arc::new(App::open(config, stock_avatars(), net).await.unwrap());
        let engine = Arc::new(FakeEngine::default());
        *engine.event_sink.lock().unwrap() = Some(app.event_sink());
        let router = app.router(Arc::clone(&engine) as Arc<dyn Engine>);
        let (stop_http, http) = oneshot::channel();
        let (stop_background, background) = oneshot::channel();
        let serving = tokio::spawn(async move {
            let stop = async { drop(http.await) };
            control_api::serve(listener, router, limits, Box::pin(stop)).await.unwrap();
        });
        let running = Arc::clone(&app);
        let running = tokio::spawn(async move {
            running.run_background(Box::pin(async { drop(background.await) })).await
        });
        Self {
            app,
            engine,
            key: TEST_API_KEY.into(),
            url: format!("http://{listen}"),
            // No connection is reused: the server closes idle ones when a test moves the clock, and
            // a request on such a connection would fail by chance.
            client: reqwest::Client::builder()
                .no_proxy()
                .pool_max_idle_per_host(0)
                .build()
                .unwrap(),
            stop: vec![stop_http, stop_background],
            tasks: vec![serving, running],
        }
    }

    pub(crate) async fn start(folder: &TempFolder) -> Self {
        Self::start_with(&folder.0, |_| {}).await
    }

    /// Stops the server, so that the folder can be opened again.
    pub(crate) async fn stop(mut self) {
        // Idle connections would delay the stop.
        drop(std::mem::take(&mut self.client));
        // Requests in progress need the store, which closes after the background tasks have ended.
        for (stop, task) in
            std::mem::take(&mut self.stop).into_iter().zip(std::mem::take(&mut self.tasks))
        {
            drop(stop);
            task.await.unwrap();
        }
    }

    /// Stops abruptly: connections are not closed and calls stay open in the store.
    pub(crate) async fn kill(mut self) {
        for task in std::mem::take(&mut self.tasks) {
            task.abort();
            let _ = task.await;
        }
    }

    pub(crate) fn request(&self, method: &str, path: &str) -> reqwest::RequestBuilder {
        self.client
            .request(Method::from_bytes(method.as_bytes()).unwrap(), format!("{}{path}", self.url))
    }

    pub(crate) async fn send(&self, request: reqwest::RequestBuilder) -> Reply {
        let answer = request.send().await.unwrap();
        let (status, headers) = (answer.status().as_u16(), answer.headers().clone());
        Reply { status, headers, text: answer.text().await.unwrap() }
    }

    pub(crate) async fn get(&self, path: &str) -> Reply {
        self.send(self.request("GET", path).header("x-api-key", &self.key)).await
    }

    pub(crate) async fn delete(&self, path: &str) -> Reply {
        self.send(self.request("DELETE", path).header("x-api-key", &self.key)).await
    }

    pub(crate) async fn send_json(&self, method: &str, path: &str, body: Value) -> Reply {
        let request = self.request(method, path).header("x-api-key", &self.key);
        self.send(request.header("content-type", "application/json").body(body.to_string())).await
    }

    pub(crate) async fn post(&self, path: &str, body: Value) -> Reply {
        self.send_json("POST", path, body).await
    }

    /// Creates an agent with `extra` fields; returns its id.
    #[track_caller]
    pub(crate) fn create_agent(&self, extra: Value) -> impl Future<Output = String> + '_ {
        let body = agent_body(extra);
        async move {
            let made = self.post("/v1/ext/agent", body).await.expect_status(200);
            made["id"].as_str().unwrap().to_owned()
        }
    }

    /// Creates a conversation; returns its id and its token.
    pub(crate) async fn create_conversation(&self, agent: &str) -> (String, String) {
        let created =
            self.post("/v1/ext/conversation", json!({"agent_id": agent})).await.expect_status(201);
        (created["id"].as_str().unwrap().to_owned(), created["token"].as_str().unwrap().to_owned())
    }

    /// Creates an agent with `extra` fields and a conversation that the user has joined; returns
    /// the id of the conversation.
    pub(crate) async fn create_running_call(&self, extra: Value) -> String {
        let agent = self.create_agent(extra).await;
        let (id, _) = self.create_conversation(&agent).await;
        self.engine.record_event(&id, 0, 0.0, joined_event());
        self.wait_for_status(&id, "IN_PROGRESS").await;
        id
    }

    /// Number of webhooks in the store in this state.
    pub(crate) async fn webhook_count(&self, state: &str) -> u64 {
        let metrics = self.send(self.request("GET", "/metrics")).await.text;
        let mark = format!("visavis_webhooks{{state=\"{state}\"}} ");
        metrics.lines().find_map(|line| line.strip_prefix(&mark)).map_or(0, |n| n.parse().unwrap())
    }

    /// Waits until `/readyz` returns this response. If the store is late for a moment, the server
    /// is not ready for another reason, so a single request is not enough.
    pub(crate) async fn wait_for_readiness(&self, status: u16, body: Value) {
        wait_for("/readyz", async || {
            let reply = self.send(self.request("GET", "/readyz")).await;
            (reply.status == status && reply.json() == body).then_some(())
        })
        .await;
    }

    /// The record as soon as its status is `status`.
    pub(crate) async fn wait_for_status(&self, id: &str, status: &str) -> Value {
        wait_for(status, async || {
            let record = self.get(&format!("/v1/ext/conversation/{id}")).await.expect_status(200);
            (record["status"] == status).then_some(record)
        })
        .await
    }
}

/// The body of the smallest agent, with `extra` fields.
pub(crate) fn agent_body(extra: Value) -> Value {
    let mut body = json!({
        "agent_name": "Test agent",
        "agent_system_prompt": "Be kind.",
        "avatars": [{"avatar_key_id": "ada"}],
    });
    body.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
    body
}

/// A webhook as received.
#[derive(Clone, Debug)]
pub(crate) struct ReceivedWebhook {
    pub(crate) headers: HeaderMap,
    pub(crate) body: String,
}

impl ReceivedWebhook {
    pub(crate) fn name(&self) -> String {
        serde_json::from_str::<Value>(&self.body).unwrap()["event"]["name"]
            .as_str()
            .unwrap()
            .to_owned()
    }

    pub(crate) fn sequence(&self) -> u64 {
        self.headers["visavis-sequence"].to_str().unwrap().parse().unwrap()
    }

    pub(crate) fn id(&self) -> &str {
        self.headers["webhook-id"].to_str().unwrap()
    }
}

/// The status with which a webhook is answered, given the webhooks received before it.
type ResponseRule = Box<dyn Fn(&ReceivedWebhook, &[ReceivedWebhook]) -> u16 + Send>;

#[derive(Default)]
struct ReceiverState {
    received: Mutex<Vec<ReceivedWebhook>>,
    changed: Notify,
    /// Statuses of the next responses; further ones follow the rule.
    answers: Mutex<VecDeque<u16>>,
    /// `None`: 204.
    rule: Mutex<Option<ResponseRule>>,
}

/// Receives webhooks.
pub(crate) struct WebhookReceiver {
    pub(crate) url: String,
    state: Arc<ReceiverState>,
}

impl WebhookReceiver {
    pub(crate) async fn start() -> Self {
        let state = Arc::new(ReceiverState::default());
        let take = |State(state): State<Arc<ReceiverState>>, headers: HeaderMap, body: Bytes| async move {
            let body = String::from_utf8(body.to_vec()).unwrap();
            let webhook = ReceivedWebhook { headers, body };
            let mut received = state.received.lock().unwrap();
            let by_rule = || {
                state.rule.lock().unwrap().as_ref().map_or(204, |rule| rule(&webhook, &received))
            };
            let answer = state.answers.lock().unwrap().pop_front().unwrap_or_else(by_rule);
            received.push(webhook);
            drop(received);
            state.changed.notify_waiters();
            let mut headers = HeaderMap::new();
            if answer / 100 == 3 {
                headers.insert("location", HeaderValue::from_static("/elsewhere"));
            }
            (StatusCode::from_u16(answer).unwrap(), headers)
        };
        let router = Router::new().fallback(take).with_state(Arc::clone(&state));
        let listener = TcpListener::bind(SocketAddr::from(([127, 0, 0, 1], 0))).await.unwrap();
        let url = format!("http://{}/hook", listener.local_addr().unwrap());
        tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        Self { url, state }
    }

    /// Responds to the next webhooks with these statuses.
    pub(crate) fn respond_with(&self, statuses: impl IntoIterator<Item = u16>) {
        self.state.answers.lock().unwrap().extend(statuses);
    }

    /// From now on, `rule` determines the responses.
    pub(crate) fn respond_by_rule(
        &self,
        rule: impl Fn(&ReceivedWebhook, &[ReceivedWebhook]) -> u16 + Send + 'static,
    ) {
        *self.state.rule.lock().unwrap() = Some(Box::new(rule));
    }

    pub(crate) fn received(&self) -> Vec<ReceivedWebhook> {
        self.state.received.lock().unwrap().clone()
    }

    /// The webhooks received, as soon as there are at least `n`.
    pub(crate) async fn wait_for_first(&self, n: usize) -> Vec<ReceivedWebhook> {
        let wait = async {
            loop {
                let changed = self.state.changed.notified();
                let received = self.received();
                if received.len() >= n {
                    return received;
                }
                changed.await;
            }
        };
        tokio::time::timeout(TEST_TIMEOUT, wait)
            .await
            .unwrap_or_else(|_| panic!("{n} webhooks: {:#?}", self.received()))
    }
}
