//! `/meet/{conversation_id}/audio?token=…`: the WebSocket over which a meeting service exchanges the
//! audio of a meeting, for services that open no page.
//!
//! The first audio, or the report that the agent is in the meeting, starts the call: nobody hears a
//! greeting before. A lost socket is a lost connection of the call, which waits for the next one.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::http::request::Parts;
use axum::response::Response;
use axum::routing::get;
use conversation::event::{Event, MeetingStatus};
use conversation::id::ConversationId;
use conversation::input::Command;
use engine_api::AudioLine;
use futures_util::{SinkExt as _, StreamExt as _};
use tokio::time::{Instant, MissedTickBehavior, interval, timeout};
use tokio_tungstenite::tungstenite::Message;

use crate::error::{ApiError, Resource};
use crate::http::extract::Path;
use crate::http::peer::Peer;
use crate::http::websocket::{WebSocket, WebSocketUpgrade};
use crate::join::offers::{self, find_joinable};
use crate::join::signaling::verify_token_for;
use crate::meeting_services::MediaMode;
use crate::meeting_services::audio::{self, AudioCodec, AudioEvent, Framer, Mixer};
use crate::resources::meetings::Accounts;
use crate::resources::meetings::settings::MeetingSettings;
use crate::state::AppState;
use crate::state::meetings::Meetings;
use crate::store;
use crate::store::conversation::Row;

/// The pace of the exchange with a call.
const BLOCK: Duration = Duration::from_millis(20);
/// How often the meeting's status is read before the call starts.
const STATUS_INTERVAL: Duration = Duration::from_secs(1);
/// How often the names of people are asked for, while one is not known.
const NAMES_INTERVAL: Duration = Duration::from_secs(10);
/// Time within which a message must leave. A socket that takes nothing is dead.
const SEND_TIMEOUT: Duration = Duration::from_secs(5);
/// A socket that sends nothing for this time is dead. Services send audio all the time, or ping.
const SILENCE_TIMEOUT: Duration = Duration::from_secs(45);
/// How often this server pings.
const PING_INTERVAL: Duration = Duration::from_secs(15);

pub(crate) fn routes() -> Router<Arc<AppState>> {
    Router::new().route("/meet/{conversation_id}/audio", get(open))
}

async fn open(
    State(state): State<Arc<AppState>>,
    Path(id): Path<String>,
    peer: Peer,
    parts: Parts,
    upgrade: Result<WebSocketUpgrade, ApiError>,
) -> Result<Response, ApiError> {
    let claims = verify_token_for(&state, &parts, &id)?;
    state.check_rate_limit(&state.rate_limits.offers, peer)?;
    let row = find_joinable(&state, &claims).await?.row;
    let not_found = || ApiError::NotFound(Resource::Route);
    let settings = MeetingSettings::of_row(&row)?.ok_or_else(not_found)?;
    if settings.media_mode() != MediaMode::Socket {
        return Err(not_found());
    }
    let meeting = state.store.meeting(&row.id).await?.ok_or_else(not_found)?;
    let codec = audio::codec(&meeting.provider).ok_or_else(not_found)?;
    if state.relay.other_holder(claims.sub).await?.is_some() {
        return Err(ApiError::NoCapacity("another server runs the call".into()));
    }
    let upgrade = upgrade?;
    Ok(upgrade.open(move |socket| async move {
        let id = claims.sub;
        let exchange = Exchange::new(state, row, id, codec);
        if let Err(reason) = exchange.run(socket).await {
            tracing::warn!(conversation = %id, reason, "the audio socket of a meeting has ended");
        }
    }))
}

/// The exchange between one socket and its call.
struct Exchange {
    state: Arc<AppState>,
    row: Row,
    id: ConversationId,
    codec: Box<dyn AudioCodec>,
    mixer: Mixer,
    framer: Framer,
    names: BTreeMap<String, String>,
    /// People without a name, who are not asked for all the time.
    unknown: HashSet<String>,
    names_read_at: Option<Instant>,
}

impl Exchange {
    fn new(state: Arc<AppState>, row: Row, id: ConversationId, codec: Box<dyn AudioCodec>) -> Self {
        Self {
            state,
            row,
            id,
            mixer: Mixer::new(codec.input_rate()),
            framer: Framer::new(codec.output_rate()),
            codec,
            names: BTreeMap::new(),
            unknown: HashSet::new(),
            names_read_at: None,
        }
    }

    /// Serves the socket until it or the call ends.
    async fn run(mut self, mut socket: WebSocket) -> Result<(), String> {
        let mut line: Option<Box<dyn AudioLine>> = None;
        let mut blocks = interval(BLOCK);
        blocks.set_missed_tick_behavior(MissedTickBehavior::Burst);
        let (mut is_audible, mut heard_at) = (false, Instant::now());
        let (mut status_at, mut ping_at) = (Instant::now(), Instant::now() + PING_INTERVAL);
        let (mut heard, mut spoken) = (Vec::new(), Vec::new());
        loop {
            tokio::select! {
                message = socket.next() => {
                    let message = match message {
                        Some(Ok(Message::Close(_))) | None => return Ok(()),
                        Some(Ok(message)) => message,
                        Some(Err(error)) => return Err(error.to_string()),
                    };
                    heard_at = Instant::now();
                    for event in self.codec.decode(&message) {
                        match event {
                            AudioEvent::Samples { voice, samples } => {
                                is_audible = true;
                                self.mixer.push(&voice, &samples);
                            }
                            AudioEvent::Speaker { name, is_speaking } => {
                                self.report_speaker(name, is_speaking).await;
                            }
                        }
                    }
                }
                now = blocks.tick() => {
                    heard.clear();
                    spoken.clear();
                    let changes = self.mixer.mix(&mut heard);
                    if let Some(line) = &mut line {
                        if !line.exchange(&heard, &mut spoken) {
                            let _ = timeout(SEND_TIMEOUT, socket.close(None)).await;
                            return Ok(());
                        }
                        self.framer.push(&spoken);
                        while let Some(frame) = self.framer.pop(Instant::now()) {
                            send(&mut socket, self.codec.encode(&frame)).await?;
                        }
                        for (voice, is_speaking) in changes {
                            self.report_voice(&voice, is_speaking).await;
                        }
                    } else {
                        if now >= status_at {
                            status_at = now + STATUS_INTERVAL;
                            is_audible |= self.is_in_call().await;
                        }
                        if is_audible {
                            line = Some(self.join().await?);
                        }
                    }
                    if now >= ping_at {
                        ping_at = now + PING_INTERVAL;
                        send(&mut socket, Message::Ping(Vec::new().into())).await?;
                    }
                    if heard_at.elapsed() >= SILENCE_TIMEOUT {
                        return Err("nothing arrives".into());
                    }
                }
            }
        }
    }

    async fn is_in_call(&self) -> bool {
        let meeting = self.state.store.meeting(&self.row.id).await.ok().flatten();
        meeting.is_some_and(|meeting| meeting.status() == MeetingStatus::InCall)
    }

    /// Starts the call, or moves it to this socket.
    async fn join(&self) -> Result<Box<dyn AudioLine>, String> {
        let (state, id) = (&self.state, self.id);
        let lost_since = state.meetings.take_lost_socket(id);
        let rates = (self.codec.input_rate(), self.codec.output_rate());
        let line = offers::open_audio(state, &self.row, rates)
            .await
            .map_err(|error| format!("{error:?}"))?;
        if let Some(since) = lost_since {
            let seconds = since.elapsed().as_secs_f64();
            let text = format!("The audio of the meeting was interrupted for {seconds:.1} s.");
            self.send(Command::Emit { event: Box::new(Event::Warning { text }) }).await;
        }
        let meetings = Arc::clone(&state.meetings);
        Ok(Box::new(TrackedLine { line, id, meetings, is_over: false }))
    }

    async fn send(&self, command: Command) {
        if let Err(error) = self.state.call_commands().send(self.id, command).await {
            tracing::warn!(conversation = %self.id, ?error, "cannot reach the call of a meeting");
        }
    }

    async fn report_speaker(&self, name: String, is_speaking: bool) {
        if !name.trim().is_empty() {
            self.send(Command::Speaker { name, is_speaking, age_ms: 0 }).await;
        }
    }

    /// Reports the person whose voice it is, if the name is known.
    async fn report_voice(&mut self, voice: &str, is_speaking: bool) {
        if !self.names.contains_key(voice) && self.unknown.insert(voice.to_owned()) {
            self.read_names().await;
        }
        if let Some(name) = self.names.get(voice) {
            self.report_speaker(name.clone(), is_speaking).await;
        }
    }

    /// Reads the names of all people: those that webhooks have reported, and those that the service
    /// knows.
    async fn read_names(&mut self) {
        if self.names_read_at.is_some_and(|at| at.elapsed() < NAMES_INTERVAL) {
            return;
        }
        self.names_read_at = Some(Instant::now());
        self.unknown.clear();
        match self.find_names().await {
            Ok(names) => self.names.extend(names),
            Err(error) => {
                tracing::warn!(conversation = %self.id, %error, "cannot read who is in a meeting");
            }
        }
    }

    async fn find_names(&self) -> store::Result<BTreeMap<String, String>> {
        let Some(meeting) = self.state.store.meeting(&self.row.id).await? else {
            return Ok(BTreeMap::new());
        };
        let mut names = meeting.people();
        if let Some((provider, service)) = Accounts::of(&self.state).of_bot(&meeting).await? {
            match service.participants(&meeting.bot).await {
                Ok(found) => names.extend(found),
                Err(error) => {
                    self.state.meetings.count_failed_request(provider);
                    tracing::warn!(conversation = %self.id, %error, "cannot read who is in a meeting");
                }
            }
        }
        names.retain(|_, name| !name.trim().is_empty());
        Ok(names)
    }
}

async fn send(socket: &mut WebSocket, message: Message) -> Result<(), String> {
    match timeout(SEND_TIMEOUT, socket.send(message)).await {
        Ok(sent) => sent.map_err(|error| error.to_string()),
        Err(_) => Err("the service does not read".into()),
    }
}

/// A line that remembers when it was lost.
struct TrackedLine {
    line: Box<dyn AudioLine>,
    id: ConversationId,
    meetings: Arc<Meetings>,
    /// The call has ended.
    is_over: bool,
}

impl AudioLine for TrackedLine {
    fn exchange(&mut self, heard: &[i16], spoken: &mut Vec<i16>) -> bool {
        self.is_over = !self.line.exchange(heard, spoken);
        !self.is_over
    }
}

impl Drop for TrackedLine {
    fn drop(&mut self) {
        if !self.is_over {
            self.meetings.insert_lost_socket(self.id);
        }
    }
}
