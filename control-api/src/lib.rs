//! The control plane: agents, conversations and their resources over REST, in a store of its own;
//! the signaling endpoints through which clients connect; webhooks.
//!
//! It knows the engine only as an [`Engine`](engine_api::Engine) and gives it an
//! [`EventSink`](engine_api::EventSink):
//!
//! ```text
//! App::open ─ bootstrap ─ event_sink() ─► engine ─► router(engine) ─ serve(listener, router, stop)
//!                └─ run_background(stop), while serving: stores events, delivers
//!                   webhooks, ends conversations that were not joined
//! ```
//!
//! One file per resource. Each has its `routes()`, and `router.rs` combines them. A handler reads
//! its request in the order in which errors are reported (`extract.rs`), queries the store
//! (`store/`, one file per table) and responds. Every error response is a variant of one enum
//! (`error.rs`), which defines its exact bytes.

mod about;
mod agent;
mod apikey;
mod app;
mod auth;
mod avatar;
mod call;
mod character;
mod clock;
mod config;
mod conversation;
mod cors;
mod custom_avatar;
mod delivery;
mod demo;
mod door;
mod embed;
mod erasing;
mod error;
mod fields;
mod guard;
mod guardrail;
mod headers;
mod health;
pub mod inspect;
mod kb;
mod kept;
mod key_use;
pub mod keys;
mod knowledge_cache;
mod lease;
mod ledger;
mod lifecycle;
mod limits;
mod mcp;
mod meeting;
mod metrics;
pub mod openapi;
mod peer;
mod places;
mod prompt;
mod provider;
mod quota;
mod request;
mod router;
mod scope;
mod serve;
mod session;
mod store;
mod supervise;
mod template;
mod token;
mod tool;
mod turns;
mod vault;
mod watch;
pub mod web;

pub use app::{App, OpenError};
pub use config::{Config, IceServer, Limits, StockAvatar, Timeouts, Viseme, Webhooks};
#[doc(hidden)]
pub use door::trickle;
pub use peer::Network;
pub use scope::{NoScope, Scope};
pub use serve::{Bounds, serve};
pub use store::Error as StoreError;
pub use watch::{Moment, Watch};
