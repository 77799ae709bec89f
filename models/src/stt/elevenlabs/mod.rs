//! ElevenLabs Scribe over its realtime interface (`/v1/speech-to-text/realtime`).
//!
//! Its voice activity detection is off: this server decides when speech has ended, and then commits
//! the audio. The duration of the audio is billed.

mod codec;
mod settings;

use std::sync::Arc;

use tokio::runtime::Handle as Runtime;

pub use settings::{DEFAULT_MODEL, DEFAULT_URL, read_options};

use self::codec::ScribeCodec;
use super::Stt;
use super::streaming::{Endpoint, Fallback, HostedConfig, socket_stt};
use crate::Error;

/// The STT of an ElevenLabs server, with connections through `client` and tasks on `runtime`.
/// `fallback` serves the rest of a call in which it fails. Sends nothing before a stream is opened.
///
/// # Errors
/// [`crate::ErrorKind::Rejected`] if the address is not a URL.
pub fn elevenlabs(
    config: &HostedConfig,
    client: egress::Client,
    fallback: Fallback,
    runtime: Runtime,
) -> Result<Arc<dyn Stt>, Error> {
    let url = settings::realtime_url(config)?;
    let authorization = config.key().map(|key| ("xi-api-key", key.to_owned()));
    let endpoint =
        Endpoint::with_header(settings::VENDOR, url, authorization, config.key(), client);
    Ok(socket_stt(endpoint, config.timeouts, ScribeCodec::default, fallback, runtime))
}

#[cfg(test)]
mod tests;
