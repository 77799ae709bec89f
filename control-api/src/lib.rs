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
//! Modules import only modules that precede them in this list:
//!
//! | module | contents |
//! |---|---|
//! | `clock`, `scope`, `secret_key` | time; scopes of API keys; the keys of a server |
//! | `store/` | the database, one file per table; encryption of secrets |
//! | `config`, `error` | configuration; every error response, with its exact bytes |
//! | `storage` | the storage of recordings and videos: a folder, or object storage |
//! | `state/` | what handlers share, and the handles through which they reach background tasks |
//! | `web/`, `operations/` | the pages; the table of operations |
//! | `http/` | connections, authentication, extraction and validation of requests |
//! | `meeting_services/` | the adapters of meeting-bot services |
//! | `webhooks/`, `events/`, `cluster/` | delivery; storage of events; servers that share a database |
//! | `resources/`, `join/` | the REST resources; what a client uses to join |
//! | `ops/` | health and metrics |
//! | `openapi/` | the description of the interface |
//! | `router`, `background`, `app` | all routes; the background tasks; opens and runs everything |
//! | `keys`, `workspaces`, `check_…`, `backup` | what commands need of a data folder |
//! | `starting` | a server whose database does not respond yet |
//!
//! One file or folder per resource. Each has its `routes()`, and `router.rs` combines them. A
//! handler reads its request in the order in which errors are reported (`http/extract.rs`),
//! queries the store and responds.

mod app;
mod background;
pub mod backup;
pub mod check_meetings;
pub mod check_store;
mod clock;
mod cluster;
mod config;
mod data_folder;
mod error;
mod events;
#[cfg(test)]
mod golden_tests;
mod http;
mod join;
pub mod keys;
mod livekit;
mod meeting_services;
pub mod openapi;
mod operations;
mod ops;
mod resources;
mod router;
mod scope;
mod secret_key;
mod starting;
mod state;
mod storage;
mod store;
pub mod web;
mod webhooks;
pub mod workspaces;

pub use app::{App, OpenError};
pub use config::{
    BrandColor, Branding, Config, IceServer, Limits, LiveKitConfig, Logo, MeetingsConfig, Network,
    Recordings, StockAvatar, StorageConfig, Timeouts, Videos, Viseme, Webhooks,
};
pub use data_folder::{DataFolderError, FIRST_KEY_FILE};
pub use http::serve::{HttpLimits, serve};
#[doc(hidden)]
pub use join::signaling::validate_trickle;
pub use livekit::worker::{Registration, WorkerHooks};
pub use scope::{ParseScopeError, Scope};
pub use secret_key::SecretKey;
pub use starting::{starting_router, wait_for_database};
pub use storage::check as check_storage;
pub use store::crash_points::{CrashHook, CrashPoint};
pub use store::{Error as StoreError, database_address};
