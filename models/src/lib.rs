//! Interfaces of the models, and the adapters that implement them. Only this crate knows vendors.
//!
//! Every request is streaming. It returns at once with a [`Handle`], and its events arrive through
//! a [`Sink`], which is called from any thread. A sink may block its caller for a short time, see
//! [`Sink`]. Dropping the handle (or [`Handle::cancel`]) stops the work; events already in flight
//! may still arrive. Adapters reconnect; the conversation decides about fallback.

mod breaker;
mod chain;
pub mod check;
pub mod embeddings;
pub mod error;
pub mod face;
pub mod film;
mod hosted;
pub mod lips;
pub mod llm;
pub mod manifest;
mod onnx_runtime;
pub mod panic_isolation;
pub mod paths;
pub mod probe;
mod redaction;
pub mod registry;
pub mod scripted;
pub mod sentence_encoder;
mod simd;
pub mod stt;
mod thread;
pub mod thread_health;
pub mod tts;
pub mod turn;
pub mod vad;
mod vector_math;

use std::sync::Arc;

pub use check::{ModelStatus, check};
pub use error::{Error, ErrorKind};
pub use onnx_runtime::exit_process;

/// Where an adapter sends its events. Cheap to clone. May block the calling thread for a short
/// time: the engine's sink waits up to 200 ms while its channel is full, then drops the event.
pub struct Sink<T>(Arc<dyn Fn(T) + Send + Sync>);

impl<T> Clone for Sink<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<T> Sink<T> {
    /// A sink that calls `push` on the thread of the sender. `push` must not block for long: the
    /// model makes no progress meanwhile.
    pub fn new(push: impl Fn(T) + Send + Sync + 'static) -> Self {
        Self(Arc::new(push))
    }

    /// Delivers one event. May block, see [`Sink`].
    pub fn send(&self, event: T) {
        (self.0)(event);
    }
}

/// A running request. Dropping it cancels the request.
#[must_use]
pub struct Handle(Option<Box<dyn FnOnce() + Send>>);

impl Handle {
    /// A handle that calls `cancel` once: when it is cancelled or dropped.
    pub fn new(cancel: impl FnOnce() + Send + 'static) -> Self {
        Self(Some(Box::new(cancel)))
    }

    /// A handle of a request that cannot be cancelled.
    pub fn noop() -> Self {
        Self(None)
    }

    /// Stops the request.
    pub fn cancel(self) {}
}

impl Drop for Handle {
    fn drop(&mut self) {
        if let Some(cancel) = self.0.take() {
            cancel();
        }
    }
}
