//! The engine, as the control plane sees it.

use core::net::IpAddr;
use std::sync::Arc;

use conversation::id::ConversationId;
use conversation::input::Command;
use conversation::output::{CommandOutcome, Rejection};

use crate::BoxFuture;
use crate::call_config::{CallConfig, PoseSetFile, SttChoice, TtsChoice};
use crate::metrics::MetricFamily;
use crate::rooms::{CallReservation, RoomOffer, RoomSession};

/// The operations that the control plane needs from the engine.
pub trait Engine: Send + Sync + 'static {
    /// Accepts a client's SDP offer: starts the call, or moves it to a new connection.
    ///
    /// The call takes its slot and its models when the connection is up, and starts then (event
    /// `joined`). If there is no capacity at that time, the client gets a fatal `error`; the
    /// conversation can be joined again later. An offer that does not connect within
    /// `timeouts.offer`, or that newer offers displace, leaves no trace.
    ///
    /// The older connection of a call gets `peerLeft` and is closed once the new one is connected,
    /// not before.
    fn accept_offer(&self, offer: Offer) -> BoxFuture<'_, Result<AcceptedOffer, OfferError>>;

    /// Opens a connection that carries samples instead of WebRTC: starts the call, or moves it to
    /// this connection. For services that deliver the audio of a call over a socket.
    ///
    /// The same rules as for an offer apply, but the connection is up at once, and there is no
    /// video.
    fn open_audio(
        &self,
        offer: AudioOffer,
    ) -> BoxFuture<'_, Result<Box<dyn AudioLine>, OfferError>> {
        drop(offer);
        Box::pin(async { Err(OfferError::NotAcceptable("audio lines are not supported".into())) })
    }

    /// Joins a LiveKit room as an agent, and returns when the agent is in the room. The call starts
    /// when the first person is there, and ends with the room.
    ///
    /// The connection to the room is restored by itself for as long as the call lives.
    fn join_room(&self, offer: RoomOffer) -> BoxFuture<'_, Result<RoomSession, OfferError>> {
        drop(offer);
        Box::pin(async { Err(OfferError::NotAcceptable("rooms are not supported".into())) })
    }

    /// Sends a command to a running call.
    fn send_command(
        &self,
        conversation: ConversationId,
        command: Command,
    ) -> BoxFuture<'_, Result<CommandOutcome, CommandError>>;

    /// Closes one connection (WHIP DELETE). If it is the current one of the call, the user leaves.
    fn hang_up(&self, conversation: ConversationId, connection: String) -> BoxFuture<'_, HangUp>;

    /// Announces a more complete pose set of an avatar that is still being drawn. Running calls
    /// that came with a less complete set switch to it without a break. Takes a few milliseconds.
    fn swap_pose_set(&self, avatar_key_id: &str, face: PoseSetFile);

    /// Number of calls that are connected now.
    fn active_calls(&self) -> usize;

    /// Why no call can be accepted now (models are still loading), or `None`.
    fn not_ready_reason(&self) -> Option<String>;

    /// Why a new call would be rejected now although the engine is ready (overload); `None` while
    /// there is capacity. Running calls are not affected. May read small files.
    fn capacity_error(&self) -> Option<String>;

    /// The share of CPU time that `limits.load` is compared with, 0 to 1: that of the busiest media
    /// thread, or of the process.
    fn load_ratio(&self) -> f64 {
        0.0
    }

    /// Like [`CallEngine::capacity_error`], before a conversation is created. A rejection is
    /// counted.
    fn reject_new_call(&self) -> Option<String> {
        self.capacity_error()
    }

    /// Reserves a place for a call in a room that starts in a moment. `None` without capacity.
    fn reserve_call(&self) -> Option<CallReservation> {
        self.capacity_error().is_none().then(|| CallReservation::new(()))
    }

    /// Why a new call that needs the built-in STT and TTS would be rejected now, or `None`: all
    /// decoders are taken, for example, or have failed.
    fn models_unavailable(&self) -> Option<String>;

    /// The models that are not installed on this server. Empty while models are loading.
    fn missing_models(&self) -> Vec<MissingModel> {
        Vec::new()
    }

    /// Why no call with these models can be held before something is installed, in one sentence;
    /// `None` if one can be held, and while models are loading. A lack of capacity does not count.
    fn call_obstacle(&self, stt: &SttChoice, tts: &TtsChoice) -> Option<String> {
        let _ = (stt, tts);
        None
    }

    /// What has failed while calls are still accepted, in one sentence; `None` without a failure.
    fn degraded_reason(&self) -> Option<String>;

    /// Why no call can be recorded now, in one sentence; `None` if calls can be recorded. May ask
    /// the file system.
    fn recording_error(&self) -> Option<String> {
        None
    }

    /// The engine's own metrics. Never waits for a media thread.
    fn metrics(&self) -> Vec<MetricFamily>;
}

/// A model that is not installed on this server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MissingModel {
    /// Name: `Silero VAD`, `Moonshine`, `flite` …
    pub name: &'static str,
    /// Purpose: `vad`, `stt`, `tts`, `turn`, `llm`.
    pub kind: &'static str,
    /// Whether no call of an agent with the server's default providers can be held without it.
    pub needed: bool,
    /// Why, in one sentence that says what to install.
    pub reason: String,
}

/// The origin of an offer, for the limits on offers that have not connected.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Caller {
    /// The client's network: an IPv4 address, or the /64 prefix of an IPv6 address; `None` if the
    /// client is exempt from the limits.
    pub network: Option<IpAddr>,
    /// The agent that is called.
    pub agent: String,
}

/// A client's offer.
pub struct Offer {
    /// The call's configuration. Ignored if the conversation is already running.
    pub config: Arc<CallConfig>,
    /// The SDP offer.
    pub sdp: String,
    /// The connection that this offer renegotiates or replaces, if the client named one.
    pub replaces: Option<String>,
    /// Whether a new connection takes the place of `replaces`; otherwise `replaces` is
    /// renegotiated.
    pub restart: bool,
    /// Commands received before the call started, in order. They take effect at the join.
    pub commands: Vec<Command>,
    /// The origin of the offer.
    pub caller: Caller,
}

/// A request for a connection that carries samples.
pub struct AudioOffer {
    /// The call's configuration. Ignored if the conversation is already running.
    pub config: Arc<CallConfig>,
    /// Commands received before the call started, in order. They take effect at the join.
    pub commands: Vec<Command>,
    /// Sample rate of what the call hears, in Hz: 8,000 to 48,000.
    pub input_rate: u32,
    /// Sample rate of what the agent says, in Hz: 8,000 to 48,000.
    pub output_rate: u32,
}

/// The client's end of a connection that carries samples, mono. Dropping it acts like a connection
/// that was lost.
pub trait AudioLine: Send {
    /// Sends `heard` to the call, and appends to `spoken` what the agent has said since the last
    /// call of this method. Nothing is appended while the agent is silent. Never blocks. Returns
    /// false once the call has hung up.
    ///
    /// Call it every 20 ms, with 20 ms of audio, or with less if less has arrived.
    fn exchange(&mut self, heard: &[i16], spoken: &mut Vec<i16>) -> bool;
}

/// An accepted offer.
#[derive(Clone, Debug)]
pub struct AcceptedOffer {
    /// The SDP answer with all candidates.
    pub answer: String,
    /// The id of this connection (`pc_id`, WHIP resource). It cannot be guessed.
    pub connection: String,
}

/// What [`Engine::hang_up`] has closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HangUp {
    /// There is no such connection.
    NotFound,
    /// The connection. The call goes on or ends by itself.
    Closed,
    /// The last offer or connection of a call that has not started. The call is gone, without an
    /// event.
    LastOffer,
}

/// Why an offer is rejected.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OfferError {
    /// HTTP 400.
    #[error("bad SDP: {0}")]
    BadSdp(String),
    /// HTTP 406.
    #[error("{0}")]
    NotAcceptable(String),
    /// HTTP 409.
    #[error("Conversation has ended")]
    Ended,
    /// The LiveKit server cannot be reached, or refuses the agent.
    #[error("{0}")]
    RoomUnavailable(String),
    /// HTTP 503: no decoder, no capacity, draining, or still loading.
    #[error("{0}")]
    NoCapacity(String),
}

/// Why a command was not executed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CommandError {
    /// No such call runs on this engine.
    #[error("not running here")]
    NotRunning,
    /// The call rejected it.
    #[error(transparent)]
    Rejected(#[from] Rejection),
}
