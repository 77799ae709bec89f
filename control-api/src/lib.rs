//! The control plane: agents, conversations and what hangs on them, by REST, in a store of its own; the two doors through which a
//! client's connection comes in; webhooks.
//!
//! It knows the engine only as an [`Engine`](conversation::engine::Engine) and gives it an
//! [`EventSink`](conversation::engine::EventSink):
//!
//! ```text
//! App::open ─ first_start ─ ledger() ──► engine ──► router(host) ─ serve(listener, router, stop)
//!                └─ run_background(stop), beside serving: keeps facts, delivers webhooks, ends what nobody joined
//! ```
//!
//! One file per resource; each has its `routes()`, and `router.rs` puts them together. A handler reads its request in the order in which
//! faults are told (`request.rs`), asks the store (`store/`, one file per table) and answers; every refusal is a variant of one enum
//! (`error.rs`), which has the exact bytes.

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
