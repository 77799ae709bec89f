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

pub use settings::{DEFAULT_MODEL, DEFAULT_URL, DeepgramConfig, is_flux, read_options};

use self::flux::FluxCodec;
use self::nova::NovaCodec;
use super::Stt;
use super::streaming::{Endpoint, Fallback, HostedConfig, HostedOptions, socket_stt};
use crate::Error;

/// The STT of a Deepgram server without options, see [`deepgram_with_options`].
///
/// # Errors
/// As [`deepgram_with_options`].
pub fn deepgram(
    config: &HostedConfig,
    client: egress::Client,
    fallback: impl Into<Fallback>,
    runtime: Runtime,
) -> Result<Arc<dyn Stt>, Error> {
    deepgram_with_options(config, &HostedOptions::default(), client, fallback, runtime)
}

/// The STT of a Deepgram server, with connections through `client` and tasks on `runtime`.
/// `fallback` serves the rest of a call in which it fails. Sends nothing before a stream is opened.
///
/// # Errors
/// [`crate::ErrorKind::Rejected`] if the address is not a URL.
pub fn deepgram_with_options(
    config: &HostedConfig,
    options: &HostedOptions,
    client: egress::Client,
    fallback: impl Into<Fallback>,
    runtime: Runtime,
) -> Result<Arc<dyn Stt>, Error> {
    let is_flux = is_flux(&config.model);
    let url = if is_flux { settings::flux_url } else { settings::nova_url }(config, options)?;
    let authorization = settings::authorization(config);
    let endpoint =
        Endpoint::with_header(settings::VENDOR, url, authorization, config.key(), client);
    if is_flux {
        let sends_hints = options.provider_turns;
        Ok(socket_stt(endpoint, move || FluxCodec::new(sends_hints), fallback.into(), runtime))
    } else {
        Ok(socket_stt(endpoint, NovaCodec::default, fallback.into(), runtime))
    }
}

#[cfg(test)]
mod tests;
