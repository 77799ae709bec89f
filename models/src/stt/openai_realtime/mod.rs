//! OpenAI's realtime interface for transcriptions (`/v1/realtime?intent=transcription`).
//!
//! Its turn detection is off: this server decides when speech has ended, and then commits the
//! audio. The audio is resampled to 24 kHz. Its duration is billed, or its tokens.

mod codec;
mod resampler;
mod settings;

use std::sync::Arc;

use tokio::runtime::Handle as Runtime;

pub use settings::{DEFAULT_MODEL, DEFAULT_URL, is_realtime_model, read_options};

use self::codec::RealtimeCodec;
use super::Stt;
use super::streaming::{Endpoint, Fallback, HostedConfig, socket_stt};
use crate::Error;

/// The STT of OpenAI's realtime interface, with connections through `client` and tasks on
/// `runtime`. `fallback` serves the rest of a call in which it fails. Sends nothing before a stream
/// is opened.
///
/// # Errors
/// [`crate::ErrorKind::Rejected`] if the address is not a URL.
pub fn openai_realtime(
    config: &HostedConfig,
    client: egress::Client,
    fallback: Fallback,
    runtime: Runtime,
) -> Result<Arc<dyn Stt>, Error> {
    let url = settings::realtime_url(config)?;
    let authorization = config.key().map(|key| ("authorization", format!("Bearer {key}")));
    let endpoint =
        Endpoint::with_header(settings::VENDOR, url, authorization, config.key(), client);
    let session = settings::session_update(config);
    let make_codec = move || RealtimeCodec::new(session.clone());
    Ok(socket_stt(endpoint, config.timeouts, make_codec, fallback, runtime))
}

#[cfg(test)]
mod tests;
