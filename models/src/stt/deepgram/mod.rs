//! Deepgram Nova over its streaming interface (`/v1/listen`).
//!
//! Its own endpointing is off: this server decides when speech has ended, and then requests the
//! final transcript with `Finalize`. The duration of the connection is billed, so there is one per
//! call, from the time that the client has connected until the call ends.

mod codec;
mod settings;

use std::sync::Arc;

use tokio::runtime::Handle as Runtime;

pub use settings::{DEFAULT_MODEL, DEFAULT_URL, DeepgramConfig};

use self::codec::DeepgramCodec;
use super::Stt;
use super::streaming::{Endpoint, HostedStt};
use crate::Error;

/// Name of the vendor in sentences.
const VENDOR: &str = "Deepgram";

/// The STT of a Deepgram server, with connections through `client` and tasks on `runtime`.
/// `fallback` serves the rest of a call in which it fails. Sends nothing before a stream is opened.
///
/// # Errors
/// [`crate::ErrorKind::Rejected`] if the address is not a URL.
pub fn deepgram(
    config: &DeepgramConfig,
    client: egress::Client,
    fallback: Option<Arc<dyn Stt>>,
    runtime: Runtime,
) -> Result<Arc<dyn Stt>, Error> {
    let endpoint = Endpoint {
        vendor: VENDOR,
        url: config.listen_url()?,
        authorization: config.authorization(),
        secrets: config.token.iter().cloned().collect(),
        client,
    };
    Ok(Arc::new(HostedStt::new(endpoint, DeepgramCodec::default, fallback, runtime)))
}

#[cfg(test)]
mod tests;
