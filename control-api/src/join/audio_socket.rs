//! `/meet/{conversation_id}/audio?token=…`: the WebSocket over which a meeting service exchanges the
//! audio of a meeting, for services that open no page.
//!
//! The report that the agent is in the meeting starts the call: nobody hears a greeting before. A
//! lost socket is a lost connection of the call, which waits for the next one. So is a socket on
//! which nothing arrives.

use std::collections::BTreeMap;
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
use conversation::visible_text::person_name;
use engine_api::AudioLine;
use futures_util::{SinkExt as _, StreamExt as _};
use tokio::time::{Instant, MissedTickBehavior, interval, timeout};
use tokio_tungstenite::tungstenite::Message;

use crate::error::{ApiError, Resource};
use crate::http::extract::Path;
use crate::http::peer::Peer;
use crate::http::websocket::{WebSocket, WebSocketUpgrade};
use crate::join::audio_names::Names;
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
/// Time within which a message must leave. A socket that takes nothing is dead.
const SEND_TIMEOUT: Duration = Duration::from_secs(5);
/// How often this server pings. Each WebSocket library answers by itself.
const PING_INTERVAL: Duration = Duration::from_millis(1_500);
/// While nothing arrives for this time, neither audio nor the answer to a ping, the socket counts as
/// lost.
const STALL_TIMEOUT: Duration = Duration::from_secs(4);
/// After this time without anything it is closed.
const SILENCE_TIMEOUT: Duration = Duration::from_secs(45);

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
    names: Names,
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
            names: Names::default(),
        }
    }

    /// Serves the socket until it or the call ends.
    async fn run(mut self, mut socket: WebSocket) -> Result<(), String> {
        let mut line: Option<TrackedLine> = None;
        let mut blocks = interval(BLOCK);
        blocks.set_missed_tick_behavior(MissedTickBehavior::Burst);
        let (mut heard_at, mut is_stalled) = (Instant::now(), false);
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
                    if std::mem::take(&mut is_stalled) {
                        line.iter_mut().for_each(|line| line.is_noted = false);
                        self.report_gap().await;
                    }
                    for event in self.codec.decode(&message) {
                        match event {
                            AudioEvent::Samples { voice, samples } => {
                                self.mixer.push(&voice, &samples);
                            }
                            AudioEvent::Speaker { name, is_speaking } => {
                                if let Some(name) = person_name(&name) {
                                    let age_ms = 0;
                                    self.send(Command::Speaker { name, is_speaking, age_ms }).await;
                                }
                            }
                        }
                    }
                }
                now = blocks.tick() => {
                    heard.clear();
                    spoken.clear();
                    for (voice, is_speaking) in self.mixer.mix(&mut heard) {
                        self.names.note(now, voice, is_speaking);
                    }
                    if let Some(line) = &mut line
                        && !is_stalled
                        && heard_at.elapsed() >= STALL_TIMEOUT
                    {
                        (is_stalled, line.is_noted) = (true, true);
                        self.state.meetings.insert_lost_socket(self.id, heard_at.into_std());
                    }
                    if is_stalled {
                        // The call waits, as it does for a lost connection.
                    } else if let Some(line) = &mut line {
                        if !line.exchange(&heard, &mut spoken) {
                            let _ = timeout(SEND_TIMEOUT, socket.close(None)).await;
                            return Ok(());
                        }
                        self.framer.push(&spoken);
                        while let Some(frame) = self.framer.pop(Instant::now()) {
                            send(&mut socket, self.codec.encode(&frame)).await?;
                        }
                        self.report_voices(now).await;
                    } else if now >= status_at {
                        status_at = now + STATUS_INTERVAL;
                        if self.is_in_call().await {
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
    async fn join(&self) -> Result<TrackedLine, String> {
        let (state, id) = (&self.state, self.id);
        let rates = (self.codec.input_rate(), self.codec.output_rate());
        let line = offers::open_audio(state, &self.row, rates)
            .await
            .map_err(|error| format!("{error:?}"))?;
        self.report_gap().await;
        let meetings = Arc::clone(&state.meetings);
        Ok(TrackedLine { line, id, meetings, is_over: false, is_noted: false })
    }

    async fn send(&self, command: Command) {
        if let Err(error) = self.state.call_commands().send(self.id, command).await {
            tracing::warn!(conversation = %self.id, ?error, "cannot reach the call of a meeting");
        }
    }

    /// Adds a warning about the time without a socket, if there was one.
    async fn report_gap(&self) {
        if let Some(since) = self.state.meetings.take_lost_socket(self.id) {
            let seconds = since.elapsed().as_secs_f64();
            let text = format!("The audio of the meeting was interrupted for {seconds:.1} s.");
            self.send(Command::Emit { event: Box::new(Event::Warning { text }) }).await;
        }
    }

    /// Reports the people whose voices started or stopped, as far as their names are known.
    async fn report_voices(&mut self, now: Instant) {
        self.names.receive().await;
        let (state, id) = (&self.state, &self.row.id);
        let ask = || {
            let (state, id) = (Arc::clone(state), id.clone());
            tokio::spawn(async move {
                find_names(&state, &id).await.unwrap_or_else(|error| {
                    tracing::warn!(conversation = %id, %error, "cannot read who is in a meeting");
                    BTreeMap::new()
                })
            })
        };
        for report in self.names.reports(now, ask) {
            self.send(report).await;
        }
    }
}

/// The names of all people: those that webhooks have reported, and those that the service knows.
async fn find_names(state: &AppState, id: &str) -> store::Result<BTreeMap<String, String>> {
    let Some(meeting) = state.store.meeting(id).await? else { return Ok(BTreeMap::new()) };
    let people = meeting.people().into_iter().map(|(voice, person)| (voice, person.name));
    let mut names: BTreeMap<String, String> = people.collect();
    if let Some((provider, service)) = Accounts::of(state).of_bot(&meeting).await? {
        match service.participants(&meeting.bot).await {
            Ok(found) => names.extend(found),
            Err(error) => {
                state.meetings.count_failed_request(provider, &error);
                tracing::warn!(conversation = id, %error, "cannot read who is in a meeting");
            }
        }
    }
    names.retain(|_, name| !name.is_empty());
    Ok(names)
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
    /// The call has ended, or goes on with another line.
    is_over: bool,
    /// The loss is known already.
    is_noted: bool,
}

impl TrackedLine {
    fn exchange(&mut self, heard: &[i16], spoken: &mut Vec<i16>) -> bool {
        self.is_over = !self.line.exchange(heard, spoken);
        !self.is_over
    }
}

impl Drop for TrackedLine {
    fn drop(&mut self) {
        if !self.is_over && !self.is_noted {
            self.meetings.insert_lost_socket(self.id, std::time::Instant::now());
        }
    }
}
