//! What goes from thread to thread, and what happens where it does not fit.

use std::sync::Arc;
use std::time::Duration;

use conversation::call_config::{CallConfig, ConversationId, Tool};
use conversation::engine::{AcceptedOffer, CommandError, OfferError};
use conversation::event::Snippet;
use conversation::input::{Command, GenerationId, SegmentId, ToolCallId};
use conversation::output::CommandOutcome;
use models::stt::Stream;
use serde_json::Value;
use tokio::sync::oneshot;

use crate::channel::{Channel, Overflow};
use crate::engine::{PendingOffer, PresenceGuard, Slot};
use crate::hear::vad::Vad;
use crate::speak::tts;
use crate::transport::loopback;
use crate::transport::webrtc::Certificate;

/// Items in a media thread's inbox. One call makes at most some fifty a second, while its agent speaks.
const INBOX_CAPACITY: usize = 8_192;

/// Offers, commands and hang-ups → media thread. The client is told (503), or asked again.
pub static REQUESTS: Channel =
    Channel { name: "requests → media", capacity: INBOX_CAPACITY, overflow: Overflow::Reject };
/// Words, decisions and samples from models and tools → media thread. Text is waited for: a model's thread stands still for a moment
/// rather than lose a word; a media thread that reads nothing for as long as this is broken, and then news are dropped and counted.
pub static STAGE_EVENTS: Channel = Channel {
    name: "news → media",
    capacity: INBOX_CAPACITY,
    overflow: Overflow::Wait(Duration::from_millis(200)),
};
/// ICE-TCP datagrams → media thread. As on a full socket: dropped and counted.
pub static TCP: Channel =
    Channel { name: "tcp → media", capacity: INBOX_CAPACITY, overflow: Overflow::Drop };
/// Inputs of traced calls → disk thread. Live calls come first: dropped and counted.
pub static TRACE: Channel = Channel { name: "media → disk", capacity: 16_384, overflow: Overflow::Drop };

/// All edges between threads. Beyond these: speech → STT and questions → turn model are bounded by the
/// adapters (they never block; a question that does not fit is not answered), facts → ledger by the store
/// (it never blocks and never loses one), text → data channel and packets → socket by the transport, which counts what it drops.
/// Within a media thread nothing queues but samples of a piece ([`crate::speak::playout`]), which the piece's own length bounds.
pub static CHANNELS: [&Channel; 4] = [&REQUESTS, &STAGE_EVENTS, &TCP, &TRACE];

/// One call on one media thread, never used again: news of a call that is over find nobody.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CallId(pub u64);

/// What a media thread is told.
pub enum Message {
    /// The certificate and the detector's weights are loaded.
    Ready(Box<ThreadResources>),
    /// A client offers a connection.
    Offer(Box<OfferRequest>),
    /// A call whose client has connected takes its place, or is told in one sentence for the log why there is none.
    CallSetup(CallId, Result<Box<CallSetup>, String>),
    /// An offer that has not connected makes room for a newer one.
    EvictOffer {
        /// Which call.
        conversation: ConversationId,
        /// Its number, see [`PendingOffer`].
        number: u64,
    },
    /// A call without a network begins.
    Loopback(Box<LoopbackCall>),
    /// A command for a call.
    Command {
        /// Which call.
        conversation: ConversationId,
        /// What is asked.
        command: Command,
        /// Where the answer goes; `None` = nobody waits.
        reply: Option<oneshot::Sender<Result<CommandOutcome, CommandError>>>,
    },
    /// A client closes one connection.
    HangUp {
        /// Which call.
        conversation: ConversationId,
        /// Which connection.
        connection: String,
        /// Whether there was one.
        reply: oneshot::Sender<bool>,
    },
    /// News for a call.
    StageEvent(CallId, StageEvent),
    /// A datagram that came by TCP.
    Tcp(Box<crate::transport::tcp::Datagram>),
    /// Every call is asked to stop.
    Stop {
        /// Whether each may speak its exit message first.
        exit_message: bool,
    },
    /// The thread ends.
    Quit,
}

/// What a media thread needs before it can take calls.
pub struct ThreadResources {
    /// For DTLS.
    pub certificate: Arc<Certificate>,
    /// Who judges windows of sound.
    pub vad: Box<dyn Vad>,
}

/// An offer on its way to its media thread.
pub struct OfferRequest {
    /// Which conversation.
    pub conversation: ConversationId,
    /// SDP.
    pub sdp: String,
    /// Connection named by the client.
    pub replaces: Option<String>,
    /// Whether it asks for a new connection in place of that one.
    pub restart: bool,
    /// The call, where this offer may begin it.
    pub new_call: Option<NewCall>,
    /// Its entry among the offers that have not connected; the connection takes it.
    pub pending_offer: Option<PendingOffer>,
    /// Where the answer goes.
    pub reply: oneshot::Sender<OfferReply>,
}

/// What became of an offer on its media thread.
pub enum OfferReply {
    /// Taken, under this user name of ICE.
    Accepted(AcceptedOffer, String),
    /// Refused.
    Rejected(OfferError),
    /// The call is not here, and nothing was given to begin it with.
    NotRunning,
}

/// A call that waits for its client to connect. It holds neither a place nor models.
pub struct NewCall {
    /// Its key.
    pub id: CallId,
    /// Given before it began.
    pub early_commands: Vec<Command>,
    /// That it is here.
    pub presence: PresenceGuard,
    /// Asks for a place and models, without waiting: the answer is [`SpokenMessage::CallSetup`].
    pub request_setup: Box<dyn Fn() + Send>,
}

/// A call that begins.
pub struct CallSetup {
    /// Its key.
    pub id: CallId,
    /// The agent's settings.
    pub config: Arc<CallConfig>,
    /// What the call works with.
    pub models: CallModels,
    /// What it shows, if anything.
    pub poses: Option<Arc<crate::show::pose_cache::PoseCache>>,
    /// Its place on the thread.
    pub slot: Slot,
}

/// A call without a network.
pub struct LoopbackCall {
    /// The call.
    pub setup: Box<CallSetup>,
    /// Given before it began.
    pub early_commands: Vec<Command>,
    /// Its sound.
    pub server: loopback::LoopbackServer,
    /// That it is here.
    pub presence: PresenceGuard,
}

/// The models of one call, resolved before it begins.
pub struct CallModels {
    /// Its ear.
    pub stt: Box<dyn Stream>,
    /// Who says whether the user has finished, where the agent wants it.
    pub turn_model: Option<Arc<dyn models::turn::TurnModel>>,
    /// Its mind.
    pub llm: Arc<dyn models::llm::Llm>,
    /// Asked after a failure.
    pub llm_fallback: Option<Arc<dyn models::llm::Llm>>,
    /// Its voice.
    pub tts: Arc<dyn models::tts::Tts>,
    /// Asked after a failure.
    pub tts_fallback: Option<Arc<dyn models::tts::Tts>>,
    /// What the operator or the caller should know about the choice.
    pub warnings: Vec<String>,
}

/// A guardrail that fired.
#[derive(Clone, Debug, PartialEq)]
pub struct GuardrailHit {
    /// Its place in the call's list.
    pub index: usize,
    /// What the user said.
    pub user_text: String,
    /// A moderation endpoint's word.
    pub verdict: Option<Value>,
}

/// News of a model or tool, stamped with what they belong to.
#[derive(Debug)]
pub enum StageEvent {
    /// Of the call's STT stream.
    Stt(models::stt::Event),
    /// P(the user's turn is over), to the question of this number.
    TurnProbability(u64, f32),
    /// Of a question to the LLM.
    Llm(GenerationId, models::llm::Event),
    /// What the knowledge search found before the question was asked.
    Snippets(Vec<Snippet>),
    /// Of a piece of speech.
    Tts(SegmentId, tts::SynthesisEvent),
    /// A server's tools, or what the record should say of it.
    ToolList(Result<Vec<Tool>, String>),
    /// A tool's result.
    ToolResult(ToolCallId, Result<Value, String>),
    /// A guardrail fired for what the user said, with a moderation endpoint's word where it has none of its own.
    Guardrail(GuardrailHit),
}
