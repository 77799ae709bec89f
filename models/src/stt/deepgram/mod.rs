//! Deepgram's streaming interfaces: Nova (`/v1/listen`) and Flux (`/v2/listen`).
//!
//! The vendor's endpointing is off: this server decides when speech has ended, and then requests
//! the final transcript with `Finalize` or `ForceEndTurn`. The duration of the connection is billed,
//! so there is one per call, from the client's first authenticated STUN check to the end of the call.

mod flux;
mod nova;
mod settings;

use std::sync::Arc;

use tokio::runtime::Handle as Runtime;

pub use settings::{DEFAULT_MODEL, DEFAULT_URL, is_flux, read_options};

use self::flux::FluxCodec;
use self::nova::NovaCodec;
use super::Stt;
use super::streaming::{Endpoint, Fallback, HostedConfig, socket_stt};
use crate::Error;

/// The STT of a Deepgram server, with connections through `client` and tasks on `runtime`.
/// `fallback` serves the rest of a call in which it fails. Sends nothing before a stream is opened.
///
/// # Errors
/// [`crate::ErrorKind::Rejected`] if the address is not a URL.
pub fn deepgram(
    config: &HostedConfig,
    client: egress::Client,
    fallback: Fallback,
    runtime: Runtime,
) -> Result<Arc<dyn Stt>, Error> {
    let is_flux = is_flux(&config.model);
    let url = if is_flux { settings::flux_url } else { settings::nova_url }(config)?;
    let authorization = settings::authorization(config);
    let endpoint =
        Endpoint::with_header(settings::VENDOR, url, authorization, config.key(), client);
    if is_flux {
        let sends_hints = config.options.provider_turns;
        let make_codec = move || FluxCodec::new(sends_hints);
        Ok(socket_stt(endpoint, config.timeouts, make_codec, fallback, runtime))
    } else {
        Ok(socket_stt(endpoint, config.timeouts, NovaCodec::default, fallback, runtime))
    }
}

#[cfg(test)]
mod tests;
