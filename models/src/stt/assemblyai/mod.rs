//! AssemblyAI's streaming interface, version 3 (`/v3/ws`).
//!
//! Its own endpointing is as short as possible, and this server requests the end of a turn with
//! `ForceEndpoint`. The duration of the session is billed, so there is one per call.

mod codec;
mod settings;

use std::sync::Arc;

use tokio::runtime::Handle as Runtime;

pub use settings::{DEFAULT_MODEL, DEFAULT_URL, read_options};

use self::codec::AssemblyAiCodec;
use super::Stt;
use super::streaming::{Endpoint, Fallback, HostedConfig, socket_stt};
use crate::Error;

/// The STT of an AssemblyAI server, with connections through `client` and tasks on `runtime`.
/// `fallback` serves the rest of a call in which it fails. Sends nothing before a stream is opened.
///
/// # Errors
/// [`crate::ErrorKind::Rejected`] if the address is not a URL.
pub fn assemblyai(
    config: &HostedConfig,
    client: egress::Client,
    fallback: Fallback,
    runtime: Runtime,
) -> Result<Arc<dyn Stt>, Error> {
    let url = settings::session_url(config)?;
    // The bare key, without a scheme.
    let authorization = config.key().map(|key| ("authorization", key.to_owned()));
    let endpoint =
        Endpoint::with_header(settings::VENDOR, url, authorization, config.key(), client);
    let formats_twice = settings::Family::of(config.model(DEFAULT_MODEL)).formats_twice();
    let sends_hints = config.options.provider_turns;
    let make_codec = move || AssemblyAiCodec::new(formats_twice, sends_hints);
    Ok(socket_stt(endpoint, config.timeouts, make_codec, fallback, runtime))
}

#[cfg(test)]
mod tests;
