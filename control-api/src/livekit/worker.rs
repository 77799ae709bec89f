//! The worker: registers with the dispatch of LiveKit, says at once whether it takes a job, and runs
//! the jobs that it is assigned.
//!
//! ```text
//! connecting ──accepted──► registering ──worker id──► registered
//!      ▲                                                  │
//!      └──────────── socket lost: at most 2 s ────────────┘
//! ```
//!
//! Calls do not depend on the socket: they go on while it is lost. LiveKit drops a job if the answer
//! comes late, so nothing that waits comes before an answer.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use conversation::input::Command;
use egress::Request;
use egress::websocket::{HandshakeError, Message, WebSocket};
use engine_api::{CallReservation, RoomEnd};
use livekit_protocol as proto;
use prost::Message as _;
use proto::{JobStatus, WorkerStatus, server_message, worker_message};
use tokio::sync::mpsc;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep, timeout};

use super::job::{self, RoomJob};
use crate::resources::livekit::AGENT_PREFIX;
use crate::state::AppState;
use crate::state::livekit::LiveKit;
use crate::state::livekit::rooms::JobStep;

/// How often the load is reported.
const STATUS_INTERVAL: Duration = Duration::from_millis(2_500);
/// How often it is checked whether the status has changed.
const CHECK_INTERVAL: Duration = Duration::from_millis(100);
/// Pauses between attempts to register: the first, and the maximum.
const FIRST_PAUSE: Duration = Duration::from_millis(200);
const MAX_PAUSE: Duration = Duration::from_secs(2);
/// Time for the registration.
const REGISTER_TIMEOUT: Duration = Duration::from_secs(5);
/// Silence after which the socket counts as lost. The server answers pings.
const SILENCE_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a place is kept for a job that was accepted. LiveKit assigns it at once or, after 3 s,
/// never.
const ASSIGNMENT_TIMEOUT: Duration = Duration::from_secs(4);
/// LiveKit gives no job to a worker whose load is .7 or more. This server decides itself when it is
/// full, and reports at most this.
const MAX_REPORTED_LOAD: f64 = 0.69;

/// A registration with LiveKit.
#[derive(Clone, Copy, Debug)]
pub struct Registration<'a> {
    /// LiveKit's id of the worker.
    pub worker: &'a str,
    /// URL of the LiveKit server.
    pub url: &'a str,
    /// Name by which jobs are dispatched.
    pub agent_name: &'a str,
}

/// What the worker tells the operator.
pub struct WorkerHooks {
    /// Called at each registration.
    pub on_registered: Box<dyn Fn(Registration<'_>) + Send + Sync>,
}

/// The places of jobs that were accepted and are not assigned, by id of the job.
type Reservations = HashMap<String, (CallReservation, Instant)>;

/// A message for the socket.
enum Outgoing {
    Job { id: String, status: JobStatus, error: String },
}

/// Runs the worker until the future is dropped.
///
/// # Errors
/// The server refuses the key or the secret: one sentence.
pub(crate) async fn run(
    state: Arc<AppState>,
    livekit: Arc<LiveKit>,
    hooks: WorkerHooks,
) -> Result<(), String> {
    let (mut pause, mut was_registered, mut is_reported) = (FIRST_PAUSE, false, false);
    loop {
        let outcome = serve_socket(&state, &livekit, &hooks).await;
        let was_up = livekit.dispatch.set_registered(false);
        was_registered |= was_up;
        let url = &livekit.config.url;
        match outcome {
            Err(Lost::Refused(why)) if !was_registered => {
                return Err(format!("LiveKit at {url} refuses the worker: {why}"));
            }
            Err(Lost::Refused(why) | Lost::Unreachable(why)) => {
                if was_up {
                    (pause, is_reported) = (FIRST_PAUSE, false);
                }
                // Once per outage.
                if !std::mem::replace(&mut is_reported, true) {
                    tracing::warn!(url, reason = why, "not registered with LiveKit; trying again");
                }
            }
            Ok(()) => return Ok(()),
        }
        sleep(pause.mul_f64(0.5 + 0.5 * rand::random::<f64>())).await;
        pause = (pause * 2).min(MAX_PAUSE);
    }
}

/// Why there is no registration.
enum Lost {
    /// Key or secret are wrong.
    Refused(String),
    Unreachable(String),
}

impl From<egress::Error> for Lost {
    fn from(error: egress::Error) -> Self {
        Self::Unreachable(error.to_string())
    }
}

/// Registers, and serves the socket until it is lost.
async fn serve_socket(
    state: &Arc<AppState>,
    livekit: &Arc<LiveKit>,
    hooks: &WorkerHooks,
) -> Result<(), Lost> {
    let mut socket = connect(state, livekit).await?;
    let registered = timeout(REGISTER_TIMEOUT, register(&mut socket, livekit)).await;
    let id = registered.unwrap_or_else(|_| Err(Lost::Unreachable("timeout".into())))?;
    livekit.dispatch.set_registered(true);
    tracing::info!(worker = id, agent_name = livekit.config.agent_name, "registered with LiveKit");
    let config = &livekit.config;
    (hooks.on_registered)(Registration {
        worker: &id,
        url: &config.url,
        agent_name: &config.agent_name,
    });
    let (sender, mut updates) = mpsc::unbounded_channel();
    let mut checks = interval(CHECK_INTERVAL);
    checks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let (mut reported, mut reservations) = (None, Reservations::new());
    let (mut reported_at, mut heard_at) = (Instant::now(), Instant::now());
    loop {
        tokio::select! {
            message = socket.receive() => {
                heard_at = Instant::now();
                let bytes = match message? {
                    Some(Message::Binary(bytes)) => bytes,
                    Some(Message::Text(_)) => continue,
                    Some(Message::Close { code, reason }) => {
                        return Err(Lost::Unreachable(format!("closed with {code} {reason}")));
                    }
                    None => return Err(Lost::Unreachable("closed".into())),
                };
                match proto::ServerMessage::decode(bytes).map(|message| message.message) {
                    Ok(Some(message)) => {
                        let answer =
                            handle(state, livekit, message, &sender, &mut reservations);
                        if let Some(answer) = answer {
                            send(&mut socket, answer).await?;
                        }
                    }
                    Ok(None) => {}
                    Err(error) => tracing::debug!(%error, "a message of LiveKit cannot be read"),
                }
            }
            Some(Outgoing::Job { id, status, error }) = updates.recv() => {
                let update = proto::UpdateJobStatus { job_id: id, status: status as i32, error };
                send(&mut socket, worker_message::Message::UpdateJob(update)).await?;
            }
            _ = checks.tick() => {
                reservations.retain(|_, (_, since)| since.elapsed() < ASSIGNMENT_TIMEOUT);
                let status = current_status(state, livekit);
                let is_due = reported_at.elapsed() >= STATUS_INTERVAL;
                if is_due || reported != status.status {
                    (reported, reported_at) = (status.status, Instant::now());
                    send(&mut socket, worker_message::Message::UpdateWorker(status)).await?;
                    let ping = proto::WorkerPing { timestamp: unix_millis() };
                    send(&mut socket, worker_message::Message::Ping(ping)).await?;
                }
                if heard_at.elapsed() > SILENCE_TIMEOUT {
                    return Err(Lost::Unreachable("the server does not answer".into()));
                }
            }
        }
    }
}

async fn connect(state: &AppState, livekit: &LiveKit) -> Result<WebSocket, Lost> {
    let token = livekit.tokens.worker().map_err(|error| Lost::Refused(error.to_string()))?;
    let url = format!("{}/agent", livekit.config.url.trim_end_matches('/'));
    let request = Request::websocket(&url)?.bearer(&token)?;
    state.http_client.trusted().connect(request).await.map_err(|error| match error {
        HandshakeError::Refused(refusal) if matches!(refusal.status, 401 | 403) => {
            Lost::Refused("the API key or the secret is wrong".into())
        }
        error => Lost::Unreachable(error.to_string()),
    })
}

async fn register(socket: &mut WebSocket, livekit: &LiveKit) -> Result<String, Lost> {
    let register = proto::RegisterWorkerRequest {
        r#type: proto::JobType::JtRoom as i32,
        agent_name: livekit.config.agent_name.clone(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        ..proto::RegisterWorkerRequest::default()
    };
    send(socket, worker_message::Message::Register(register)).await?;
    loop {
        match socket.receive().await? {
            Some(Message::Binary(bytes)) => {
                let message = proto::ServerMessage::decode(bytes).ok().and_then(|m| m.message);
                if let Some(server_message::Message::Register(response)) = message {
                    return Ok(response.worker_id);
                }
            }
            Some(Message::Text(_)) => {}
            Some(Message::Close { code, reason }) => {
                return Err(Lost::Unreachable(format!("closed with {code} {reason}")));
            }
            None => return Err(Lost::Unreachable("closed".into())),
        }
    }
}

async fn send(socket: &mut WebSocket, message: worker_message::Message) -> Result<(), Lost> {
    let message = proto::WorkerMessage { message: Some(message) };
    Ok(socket.send_binary(message.encode_to_vec()).await?)
}

/// Handles a message. Returns the answer that must leave at once. Never waits.
fn handle(
    state: &Arc<AppState>,
    livekit: &Arc<LiveKit>,
    message: server_message::Message,
    updates: &mpsc::UnboundedSender<Outgoing>,
    reservations: &mut Reservations,
) -> Option<worker_message::Message> {
    match message {
        server_message::Message::Availability(request) => {
            let answer = answer_availability(state, livekit, &request.job?, reservations);
            Some(worker_message::Message::Availability(answer))
        }
        server_message::Message::Assignment(assignment) => {
            let id = assignment.job.as_ref().map(|job| job.id.as_str()).unwrap_or_default();
            let reservation = reservations.remove(id).map(|(place, _)| place);
            start_job(state, livekit, assignment, reservation, updates.clone());
            None
        }
        server_message::Message::Termination(termination) => {
            let id = livekit.rooms.conversation_of(&termination.job_id)?;
            let state = Arc::clone(state);
            tokio::spawn(async move { state.send_command(id, Command::End).await });
            None
        }
        // After a GoAway, the server closes the socket.
        server_message::Message::Register(_)
        | server_message::Message::Pong(_)
        | server_message::Message::GoAway(_) => None,
    }
}

fn answer_availability(
    state: &AppState,
    livekit: &LiveKit,
    job: &proto::Job,
    reservations: &mut Reservations,
) -> proto::AvailabilityResponse {
    let room = room_name(job);
    let refused = refusal(state).is_some();
    let place = if refused { None } else { state.engine().reserve_call() };
    let is_available = place.is_some();
    if let Some(place) = place {
        reservations.insert(job.id.clone(), (place, Instant::now()));
    }
    let step = if is_available { JobStep::Accepted } else { JobStep::Refused };
    livekit.rooms.note_step(&room, step);
    proto::AvailabilityResponse {
        job_id: job.id.clone(),
        available: is_available,
        participant_identity: identity_of(&job.id),
        ..proto::AvailabilityResponse::default()
    }
}

/// Why no job is taken now, or `None`.
pub(super) fn refusal(state: &AppState) -> Option<String> {
    if state.is_draining() {
        return Some("the server is shutting down".into());
    }
    let engine = state.engine();
    engine
        .not_ready_reason()
        .or_else(|| engine.capacity_error())
        .or_else(|| engine.models_unavailable())
        .or_else(|| state.persistence_failure())
}

fn current_status(state: &AppState, livekit: &LiveKit) -> proto::UpdateWorkerStatus {
    let is_full = refusal(state).is_some();
    // A worker whose models are loading counts as one that is not there yet.
    if is_full && state.engine().not_ready_reason().is_none() {
        livekit.dispatch.note_full();
    }
    let status = if is_full { WorkerStatus::WsFull } else { WorkerStatus::WsAvailable };
    let load = state.engine().load_ratio();
    proto::UpdateWorkerStatus {
        status: Some(status as i32),
        load: if is_full { 1.0 } else { load.min(MAX_REPORTED_LOAD) as f32 },
        job_count: u32::try_from(livekit.rooms.count()).unwrap_or(u32::MAX),
        draining: state.is_draining(),
        ..proto::UpdateWorkerStatus::default()
    }
}

fn start_job(
    state: &Arc<AppState>,
    livekit: &Arc<LiveKit>,
    assignment: proto::JobAssignment,
    reservation: Option<CallReservation>,
    updates: mpsc::UnboundedSender<Outgoing>,
) {
    let Some(job) = assignment.job else { return };
    let room_job = RoomJob {
        room: room_name(&job),
        room_sid: job.room.as_ref().map(|room| room.sid.clone()).unwrap_or_default(),
        identity: identity_of(&job.id),
        metadata: job.metadata.clone(),
        job: Some(job.id.clone()),
        server_url: assignment.url.filter(|url| !url.is_empty()),
    };
    let (state, livekit) = (Arc::clone(state), Arc::clone(livekit));
    tokio::spawn(async move {
        let report = |status, error: String| {
            // A lost socket has no job any more. LiveKit does not use the status.
            let _ = updates.send(Outgoing::Job { id: job.id.clone(), status, error });
        };
        report(JobStatus::JsRunning, String::new());
        match job::serve(&state, &livekit, &room_job, reservation).await {
            Ok(Some(RoomEnd::Superseded) | None) => {
                tracing::info!(room = room_job.room, "the room has an agent already");
                report(JobStatus::JsSuccess, String::new());
            }
            Ok(Some(_)) => report(JobStatus::JsSuccess, String::new()),
            Err(error) => {
                livekit.rooms.count_failed_job();
                tracing::warn!(room = room_job.room, %error, "a job of LiveKit has failed");
                report(JobStatus::JsFailed, error.to_string());
            }
        }
    });
}

fn room_name(job: &proto::Job) -> String {
    job.room.as_ref().map(|room| room.name.clone()).unwrap_or_default()
}

/// The identity of the agent of a job.
pub(super) fn identity_of(job: &str) -> String {
    format!("{AGENT_PREFIX}{job}")
}

fn unix_millis() -> i64 {
    crate::clock::now() / 1_000
}
