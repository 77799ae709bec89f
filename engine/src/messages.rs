//! Messages between threads. [`crate::channel`] declares the channels that carry them.

use std::sync::Arc;

use conversation::event::Snippet;
use conversation::id::ConversationId;
use conversation::input::{Command, GenerationId, SegmentId, ToolCallId};
use conversation::output::CommandOutcome;
use engine_api::{AcceptedOffer, CallConfig, CommandError, HangUp, OfferError, Tool};
use models::Sink;
use models::stt::SttStream;
use serde_json::Value;
use tokio::sync::oneshot;

use crate::context::{PendingOffer, PresenceGuard, Slot};
use crate::model_factory::Vad;
use crate::speak::tts;
use crate::transport::audio_line::LineServer;
use crate::transport::livekit::room_peer::{RoomPeer, RoomSignal};
use crate::transport::livekit::room_socket::RoomSocket;
use crate::transport::webrtc::Certificate;
use crate::transport::{ConnectionReply, loopback};

/// Identifies one call on one media thread. An id is never reused: stage events of a call that has
/// ended are dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CallId(pub u64);

/// A message to a media thread.
pub enum Message {
    /// The certificate and the weights of the VAD are loaded.
    Ready(Box<ThreadResources>),
    /// A client offers a connection.
    Offer(Box<OfferRequest>),
    /// The setup of a call whose client has connected, or a one-sentence reason for the log why
    /// there is no capacity.
    CallSetup(CallId, Result<Box<CallSetup>, String>),
    /// A pending offer is evicted for a newer one.
    EvictOffer {
        /// The conversation.
        conversation: ConversationId,
        /// The offer's number, see [`PendingOffer`].
        number: u64,
    },
    /// A loopback call starts.
    Loopback(Box<LoopbackCall>),
    /// A connection that carries samples is opened.
    Line(Box<LineRequest>),
    /// The agent is in a LiveKit room: starts or continues a call there.
    Room(Box<RoomRequest>),
    /// A signal of the LiveKit server for a connection.
    RoomSignal {
        /// The conversation.
        conversation: ConversationId,
        /// The id of the connection.
        connection: Arc<str>,
        /// The signal.
        signal: RoomSignal,
    },
    /// A command for a call.
    Command {
        /// The conversation.
        conversation: ConversationId,
        /// The command.
        command: Command,
        /// Receives the outcome; `None` = it is not needed.
        reply: Option<oneshot::Sender<Result<CommandOutcome, CommandError>>>,
    },
    /// A client closes one connection.
    HangUp {
        /// The conversation.
        conversation: ConversationId,
        /// The id of the connection.
        connection: String,
        /// Receives what was closed.
        reply: oneshot::Sender<HangUp>,
    },
    /// An event of a model or tool of a call.
    StageEvent(CallId, StageEvent),
    /// Stops every call.
    Stop {
        /// Whether each call may speak its exit message first.
        exit_message: bool,
    },
    /// Ends the thread.
    Quit,
}

/// What a media thread needs before it can take calls.
pub struct ThreadResources {
    /// The certificate for DTLS.
    pub certificate: Arc<Certificate>,
    /// The VAD, which computes the speech probability of windows.
    pub vad: Box<dyn Vad>,
}

/// An offer on its way to its media thread.
pub struct OfferRequest {
    /// The conversation.
    pub conversation: ConversationId,
    /// The SDP of the offer.
    pub sdp: String,
    /// Id of the existing connection that the client names.
    pub replaces: Option<String>,
    /// Whether the client asks for a new connection in place of the named one.
    pub restart: bool,
    /// The call to create, if this offer may start it.
    pub new_call: Option<NewCall>,
    /// The entry in the list of pending offers; the connection takes it.
    pub pending_offer: Option<PendingOffer>,
    /// Receives the answer.
    pub reply: oneshot::Sender<OfferReply>,
}

/// The result of an offer on its media thread.
pub enum OfferReply {
    /// Accepted, with the ICE user name fragment of the connection.
    Accepted(AcceptedOffer, String),
    /// Rejected.
    Rejected(OfferError),
    /// The call is not on this thread, and the offer carries no [`NewCall`] to start it.
    NotRunning,
}

/// A call that waits for its client to connect. It holds neither a slot nor models of this server.
pub struct NewCall {
    /// The call's id.
    pub id: CallId,
    /// Commands that arrived before the start.
    pub early_commands: Vec<Command>,
    /// Marks the call as present on the thread.
    pub presence: PresenceGuard,
    /// Prepares the models of the call.
    pub preparation: Box<dyn PrepareCall>,
}

/// Prepares the models of a [`NewCall`]. The methods never block. Dropping it closes the
/// connections that the call has not taken.
pub trait PrepareCall: Send {
    /// The client has passed an authenticated STUN check: opens the connections to vendors. Called
    /// at most once.
    fn open_connections(&mut self);
    /// The client has connected: requests a slot and models. The answer is [`Message::CallSetup`].
    fn request_setup(&mut self);
}

/// Everything that a call needs to start.
pub struct CallSetup {
    /// The call's id.
    pub id: CallId,
    /// The agent's settings.
    pub config: Arc<CallConfig>,
    /// The models of the call.
    pub models: CallModels,
    /// The poses of the avatar, if the call has one.
    pub poses: Option<Arc<crate::show::pose_cache::PoseCache>>,
    /// Why the call is not recorded although its agent wants that, in one sentence.
    pub recording_error: Option<String>,
    /// The call's slot on the thread.
    pub slot: Slot,
}

/// A call without a network.
pub struct LoopbackCall {
    /// The call setup.
    pub setup: Box<CallSetup>,
    /// Commands that arrived before the start.
    pub early_commands: Vec<Command>,
    /// The server's end of the loopback connection.
    pub server: loopback::LoopbackServer,
    /// Marks the call as present on the thread.
    pub presence: PresenceGuard,
}

/// A connection to a LiveKit room, on its way to its media thread.
pub struct RoomRequest {
    /// The conversation.
    pub conversation: ConversationId,
    /// The participant.
    pub peer: Box<RoomPeer>,
    /// Its socket.
    pub socket: RoomSocket,
    /// The call to start, if it does not run yet.
    pub new_call: Option<Box<ConnectedCall>>,
    /// Receives whether the call has taken the connection.
    pub reply: oneshot::Sender<ConnectionReply>,
}

/// A connection that carries samples, on its way to its media thread. The answer goes to the
/// client's end of it.
pub struct LineRequest {
    /// The conversation.
    pub conversation: ConversationId,
    /// The server's end.
    pub server: LineServer,
    /// The call to start, if it does not run yet.
    pub new_call: Option<Box<ConnectedCall>>,
}

/// A call that starts with a connection that is up, or is about to be.
pub struct ConnectedCall {
    /// The call setup.
    pub setup: Box<CallSetup>,
    /// Commands that arrived before the start.
    pub early_commands: Vec<Command>,
    /// Marks the call as present on the thread.
    pub presence: PresenceGuard,
}

/// The models of one call, resolved before it starts.
pub struct CallModels {
    /// The stream to the speech-to-text engine.
    pub stt: Box<dyn SttStream>,
    /// The model that predicts whether the user's turn is over, if the agent uses one.
    pub turn_model: Option<Arc<dyn models::turn::TurnModel>>,
    /// The language model.
    pub llm: Arc<dyn models::llm::Llm>,
    /// The language model used after a failure.
    pub llm_fallback: Option<Arc<dyn models::llm::Llm>>,
    /// The text-to-speech engine.
    pub tts: Arc<dyn models::tts::Tts>,
    /// The text-to-speech engine used after a failure.
    pub tts_fallback: Option<Arc<dyn models::tts::Tts>>,
    /// Warnings about the choice of models, for the operator or the API client.
    pub warnings: Vec<String>,
}

/// A triggered guardrail.
#[derive(Clone, Debug, PartialEq)]
pub struct GuardrailHit {
    /// Its index in the call's list of guardrails.
    pub index: usize,
    /// What the user said.
    pub user_text: String,
    /// The verdict of the moderation endpoint. `None` if the guardrail has a response of its own,
    /// and so was checked without the endpoint.
    pub verdict: Option<Value>,
}

/// The sink of a call's STT stream. After the last use of it, it sends [`StageEvent::SttClosed`].
#[must_use]
pub fn stt_sink(stage_events: Sink<StageEvent>) -> Sink<models::stt::Event> {
    struct Closing(Sink<StageEvent>);
    impl Drop for Closing {
        fn drop(&mut self) {
            self.0.send(StageEvent::SttClosed);
        }
    }
    let closing = Closing(stage_events);
    Sink::new(move |event| closing.0.send(StageEvent::Stt(event)))
}

/// An event of a model or tool, with the id of what it belongs to.
#[derive(Debug)]
pub enum StageEvent {
    /// An event of the call's STT stream.
    Stt(models::stt::Event),
    /// The STT stream sends nothing more.
    SttClosed,
    /// Number of the request to the turn model, and the probability (0 to 1) that the user's turn
    /// is over.
    TurnProbability(u64, f32),
    /// An event of a generation of the LLM.
    Llm(GenerationId, models::llm::Event),
    /// The results of the knowledge search that preceded a generation.
    Snippets(Vec<Snippet>),
    /// An event of the synthesis of a segment.
    Tts(SegmentId, tts::SynthesisEvent),
    /// The tools of a server, or a warning for the record.
    ToolList(Result<Vec<Tool>, String>),
    /// The result of a tool call.
    ToolResult(ToolCallId, Result<Value, String>),
    /// A guardrail triggered on the user's utterance. It carries the moderation endpoint's verdict
    /// if the guardrail has no response of its own.
    Guardrail(GuardrailHit),
}
