//! The one door between the planes. The control plane holds a [`Engine`] (the engine) and gives it a [`EventSink`] (the store);
//! neither knows the other. Futures come from `core`, so that no runtime is chosen here.

use core::future::Future;
use core::net::IpAddr;
use core::pin::Pin;
use std::sync::Arc;

use crate::call_config::{CallConfig, ConversationId, PoseSetFile, Tool};
use crate::event::{EventEnvelope, Snippet};
use crate::input::Command;
use crate::metrics::MetricFamily;
use crate::output::{CommandOutcome, Rejection};

/// A future on the heap.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// What the control plane asks of the engine.
pub trait Engine: Send + Sync + 'static {
    /// A client's SDP offer: begins the call, or takes it over with a new connection.
    ///
    /// The call takes its place and its models, and begins (fact `joined`), when the connection is up. If there is no room for it then, the
    /// client is told so by a fatal `error`, and the conversation may be tried again. An offer that does not connect within
    /// `timeouts.offer`, or that newer ones displace, leaves no trace. The older connection of a call gets `peerLeft` and is closed when the new one is connected, not before.
    fn accept_offer(&self, offer: Offer) -> BoxFuture<'_, Result<AcceptedOffer, OfferError>>;

    /// A command for a running call.
    fn send_command(
        &self,
        conversation: ConversationId,
        command: Command,
    ) -> BoxFuture<'_, Result<CommandOutcome, CommandError>>;

    /// Hangs up one connection (WHIP DELETE): the user's leaving, if it is the call's current one.
    ///
    /// False if there is no such connection.
    fn hang_up(&self, conversation: ConversationId, connection: String) -> BoxFuture<'_, bool>;

    /// There is a better set of a person that is still being drawn: running calls that came with a lesser one change over to it, without
    /// a break. Takes a few milliseconds.
    fn swap_pose_set(&self, avatar_key_id: &str, face: PoseSetFile);

    /// Calls held now: those that have connected.
    fn active_calls(&self) -> usize;

    /// Why no call can be taken right now (models still load), or `None`.
    fn not_ready_reason(&self) -> Option<String>;

    /// Why a new call would be refused right now although the engine is ready (overload); `None` while there is room. Running calls are
    /// not touched by it. Reads some small files now and then.
    fn capacity_error(&self) -> Option<String>;

    /// As [`Engine::capacity_error`], asked for a conversation that is to be made: a refusal is counted.
    fn reject_new_call(&self) -> Option<String> {
        self.capacity_error()
    }

    /// Why a new call that needs one of this server's own speech decoders would be refused right now, or `None`.
    fn stt_unavailable(&self) -> Option<String>;

    /// What has failed although calls are taken still, in one sentence; `None` while all is well.
    fn degraded_reason(&self) -> Option<String>;

    /// What it measures of itself. Never waits for a media thread.
    fn metrics(&self) -> Vec<MetricFamily>;
}

/// Who makes an offer, for the limits of offers that have not connected.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Caller {
    /// The client's network: an IPv4 address, or the /64 of an IPv6 address; `None` if it is exempt from limits.
    pub network: Option<IpAddr>,
    /// The agent that is called.
    pub agent: String,
}

/// A client's offer.
pub struct Offer {
    /// The call, as its agent is configured now. Ignored where the conversation is live already.
    pub config: Arc<CallConfig>,
    /// SDP.
    pub sdp: String,
    /// Connection that this offer renegotiates or replaces, if the client named one.
    pub replaces: Option<String>,
    /// Whether it asks for a new connection in place of `replaces` (otherwise `replaces` is renegotiated).
    pub restart: bool,
    /// Given before the call began, in order; they take effect at the join.
    pub commands: Vec<Command>,
    /// Who makes it.
    pub caller: Caller,
}

/// An offer was taken.
#[derive(Clone, Debug)]
pub struct AcceptedOffer {
    /// SDP, with all candidates.
    pub answer: String,
    /// Id of this connection, unguessable: `pc_id`, WHIP resource.
    pub connection: String,
}

/// An offer was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OfferError {
    /// 400.
    #[error("bad SDP: {0}")]
    BadSdp(String),
    /// 406.
    #[error("{0}")]
    NotAcceptable(String),
    /// 409.
    #[error("Conversation has ended")]
    Ended,
    /// 503: no decoder, no room, draining, or still loading.
    #[error("{0}")]
    NoCapacity(String),
}

/// A command could not be given.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CommandError {
    /// No such call runs here.
    #[error("not running here")]
    NotRunning,
    /// The call refused.
    #[error(transparent)]
    Rejected(#[from] Rejection),
}

/// Where facts go. Implemented by the control plane's store.
pub trait EventSink: Send + Sync + 'static {
    /// Keeps a fact. Never blocks; called in order of `seq` for one conversation, from its media thread.
    fn record(&self, conversation: ConversationId, fact: EventEnvelope);

    /// The call's code panicked, and no fact of it comes any more: its record ends with [`EndReason::Error`] behind its last fact. Never blocks.
    ///
    /// [`EndReason::Error`]: crate::event::EndReason::Error
    fn call_panicked(&self, conversation: ConversationId);
}

/// A tool that somebody else runs, within a session of its own. Implemented by the control plane.
pub trait RemoteTool: Send + Sync + 'static {
    /// Runs it with `arguments`, an object. What comes back is an object, or the reason in one sentence. Ends by itself within 20 s.
    fn call(&self, arguments: serde_json::Value) -> BoxFuture<'static, Result<serde_json::Value, String>>;

    /// Whether it can still be run. Never waits.
    fn is_open(&self) -> bool {
        true
    }
}

/// The servers of tools that an agent names. Implemented by the control plane.
pub trait ToolServers: Send + Sync + 'static {
    /// Asks all of them at once, each within a session that lasts as long as one of its tools is held, and tells of each as soon as it has
    /// answered: its tools, or a sentence for the record about why it brings none. Ends by itself within 10 s; dropped before, it ends the
    /// sessions that it has begun. A server whose session is closed later is told of by such a sentence, and its tools are open no more.
    fn list_tools(
        &self,
        tell: Box<dyn Fn(Result<Vec<Tool>, String>) + Send + Sync>,
    ) -> BoxFuture<'static, ()>;
}

/// What an agent knows. Implemented by the control plane, which holds the index.
pub trait Knowledge: Send + Sync + 'static {
    /// The best `limit` snippets for `query`, best first; empty if nothing fits. Computes for at most a few ms, and may wait a quarter of a
    /// second for the query's embedding.
    fn search<'a>(&'a self, query: &'a str, limit: usize) -> BoxFuture<'a, Vec<Snippet>>;
}
