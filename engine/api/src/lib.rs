//! The interface between the two planes.
//!
//! The control plane holds an [`Engine`] and gives it an [`EventSink`] (the store), the
//! [`Knowledge`] and the [`ToolServers`] of each agent. The engine implements [`Engine`]. Neither
//! plane knows the other: both depend on this crate and on the pure `conversation`.
//!
//! Futures come from `core`, so this crate does not choose a runtime.

mod call_config;
mod engine;
mod event_sink;
mod knowledge;
pub mod metrics;
mod recordings;
mod rooms;
mod tools;

use core::future::Future;
use core::pin::Pin;

pub use call_config::{
    AvatarChoice, CallConfig, Guardrail, LlmChoice, PoseSetFile, Pronunciation, RecordingChoice,
    SttChoice, TtsChoice,
};
pub use engine::{
    AcceptedOffer, AudioLine, AudioOffer, Caller, CommandError, Engine, HangUp, MissingModel,
    Offer, OfferError,
};
pub use event_sink::EventSink;
pub use knowledge::Knowledge;
pub use recordings::{
    RECORDINGS_FOLDER, capture_name, describe_disk_error, is_out_of_space, recorded_name,
};
pub use rooms::{CallReservation, RoomAccess, RoomEnd, RoomOffer, RoomSession};
pub use tools::{RemoteTool, RemoteToolHandle, Tool, ToolBackend, ToolServers};

/// A boxed future.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;
