//! Deepgram Nova over its streaming interface (`/v1/listen`).
//!
//! Its own endpointing is off: this server decides when speech has ended, and then requests the
//! final transcript with `Finalize`. The duration of the connection is billed, so there is one per
//! call, from the time that the client has connected until the call ends.

mod nova;
mod settings;

use std::sync::Arc;

use tokio::runtime::Handle as Runtime;

pub use settings::{DEFAULT_MODEL, DEFAULT_URL, DeepgramConfig, read_options};

use self::nova::NovaCodec;
use super::Stt;
use super::streaming::{Endpoint, HostedConfig, HostedOptions, socket_stt};
use crate::Error;

/// The STT of a Deepgram server without options, see [`deepgram_with_options`].
///
/// # Errors
/// As [`deepgram_with_options`].
pub fn deepgram(
    config: &HostedConfig,
    client: egress::Client,
    fallback: Option<Arc<dyn Stt>>,
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
    fallback: Option<Arc<dyn Stt>>,
    runtime: Runtime,
) -> Result<Arc<dyn Stt>, Error> {
    let url = settings::nova_url(config, options)?;
    let authorization = settings::authorization(config);
    let endpoint = Endpoint::new(settings::VENDOR, url, authorization, config, client);
    Ok(socket_stt(endpoint, NovaCodec::default, fallback, runtime))
}

#[cfg(test)]
mod tests;
