//! OpenAI's interface for transcriptions (`POST {base}/audio/transcriptions`), which many servers
//! offer.
//!
//! Each utterance is one request, sent when the speech has ended. There are no interim transcripts.

mod requests;
mod response;
mod settings;
mod upload;

use std::sync::Arc;

use tokio::runtime::Handle as Runtime;

pub use settings::{
    GROQ_DEFAULT_MODEL, GROQ_DEFAULT_URL, OPENAI_DEFAULT_MODEL, OPENAI_DEFAULT_URL, read_options,
};

use self::requests::Requests;
use self::settings::{COMPATIBLE, GROQ, OPENAI, Vendor};
use super::Stt;
use super::streaming::{Endpoint, Fallback, HostedConfig, hosted_stt};
use crate::Error;

/// The STT of OpenAI, with connections through `client` and tasks on `runtime`. `fallback` serves
/// the rest of a call in which it fails. Sends nothing before a stream is opened.
///
/// # Errors
/// [`crate::ErrorKind::Rejected`] if the address is not a URL.
pub fn openai(
    config: &HostedConfig,
    client: egress::Client,
    fallback: Fallback,
    runtime: Runtime,
) -> Result<Arc<dyn Stt>, Error> {
    transcriptions(&OPENAI, config, client, fallback, runtime)
}

/// The STT of Groq, see [`openai`].
///
/// # Errors
/// As [`openai`].
pub fn groq(
    config: &HostedConfig,
    client: egress::Client,
    fallback: Fallback,
    runtime: Runtime,
) -> Result<Arc<dyn Stt>, Error> {
    transcriptions(&GROQ, config, client, fallback, runtime)
}

/// The STT of another server with the same interface, see [`openai`]. The address is required. A
/// server without a model's name gets none.
///
/// # Errors
/// As [`openai`].
pub fn openai_compatible(
    config: &HostedConfig,
    client: egress::Client,
    fallback: Fallback,
    runtime: Runtime,
) -> Result<Arc<dyn Stt>, Error> {
    transcriptions(&COMPATIBLE, config, client, fallback, runtime)
}

fn transcriptions(
    vendor: &'static Vendor,
    config: &HostedConfig,
    client: egress::Client,
    fallback: Fallback,
    runtime: Runtime,
) -> Result<Arc<dyn Stt>, Error> {
    let [url, models_url] =
        [settings::PATH, "/models"].map(|path| settings::http_url(vendor, config, path));
    let authorization = config.key().map(|key| ("authorization", format!("Bearer {key}")));
    let endpoint = Endpoint::with_header(vendor.name, url?, authorization, config.key(), client);
    let fields: Arc<[_]> = settings::fields(vendor, config).into();
    let models_url: Arc<str> = models_url?.as_str().into();
    let make = move || Requests::new(Arc::clone(&fields), Arc::clone(&models_url));
    Ok(hosted_stt(endpoint, config.timeouts, make, fallback, runtime))
}

#[cfg(test)]
mod tests;
