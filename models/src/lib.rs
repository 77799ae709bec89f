//! What may be asked of a model, and the only place that knows a vendor.
//!
//! Every request is streaming: it returns at once with a [`Handle`] and its news arrive through a [`Sink`], called from whatever thread
//! makes them. A sink never blocks. Dropping the handle (or [`Handle::cancel`]) stops the work; news that were on their way may still arrive.
//! Adapters reconnect; the conversation decides about fallback.

pub mod check;
pub mod contain;
pub mod embeddings;
pub mod error;
pub mod face;
pub mod lips;
pub mod llm;
pub mod net;
pub mod paths;
pub mod registry;
pub mod script;
pub mod stt;
mod thread;
pub mod tts;
pub mod turn;
pub mod vad;

use std::sync::Arc;

pub use check::{Check, check};
pub use error::{Error, Kind};

/// Where an adapter puts its news. Cheap to clone, never blocks.
pub struct Sink<T>(Arc<dyn Fn(T) + Send + Sync>);

impl<T> Clone for Sink<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<T> Sink<T> {
    /// A sink that calls `push`, which must not block.
    pub fn new(push: impl Fn(T) + Send + Sync + 'static) -> Self {
        Self(Arc::new(push))
    }

    /// Delivers one piece of news.
    pub fn send(&self, news: T) {
        (self.0)(news);
    }
}

/// A request under way. Dropping it cancels the request.
#[must_use]
pub struct Handle(Option<Box<dyn FnOnce() + Send>>);

impl Handle {
    /// A handle whose cancelling calls `cancel` once.
    pub fn new(cancel: impl FnOnce() + Send + 'static) -> Self {
        Self(Some(Box::new(cancel)))
    }

    /// Nothing to cancel.
    pub fn done() -> Self {
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
