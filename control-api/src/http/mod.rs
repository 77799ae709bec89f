//! Requests and responses: the server of connections, authentication, extraction and validation of
//! what a request sends, quotas, and the headers of every response.

pub(crate) mod auth;
pub(crate) mod body;
pub(crate) mod connection_slots;
pub(crate) mod console_session;
pub(crate) mod cors;
pub(crate) mod extract;
pub(crate) mod key_usage_writer;
pub(crate) mod outage;
pub(crate) mod peer;
pub(crate) mod quota;
pub(crate) mod responses;
pub(crate) mod schema;
pub(crate) mod security_headers;
pub(crate) mod serve;
pub(crate) mod validate;
pub(crate) mod websocket;
