//! OpenAI: the model decides the interface.

use std::sync::Arc;

use serde_json::{Map, Value};
use tokio::runtime::Handle as Runtime;

use super::openai_realtime::{self, is_realtime_model};
use super::{Fallback, HostedConfig, HostedOptions, Stt, transcriptions};
use crate::Error;

/// Reads the options of an agent for a model; also returns the names of those that are unknown or
/// have a value that the model does not allow.
#[must_use]
pub fn read_options<'a>(
    model: &str,
    values: &'a Map<String, Value>,
) -> (HostedOptions, Vec<&'a str>) {
    if is_realtime_model(model) {
        openai_realtime::read_options(model, values)
    } else {
        transcriptions::read_options(model, values)
    }
}

/// The STT of OpenAI: over the realtime interface, or with a request for each utterance if the
/// model has no other. See [`openai_realtime::openai_realtime`] and [`transcriptions::openai`].
///
/// # Errors
/// [`crate::ErrorKind::Rejected`] if the address is not a URL.
pub fn openai(
    config: &HostedConfig,
    client: egress::Client,
    fallback: Fallback,
    runtime: Runtime,
) -> Result<Arc<dyn Stt>, Error> {
    if is_realtime_model(&config.model) {
        openai_realtime::openai_realtime(config, client, fallback, runtime)
    } else {
        transcriptions::openai(config, client, fallback, runtime)
    }
}
