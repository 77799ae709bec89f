//! Loading at the start: the certificate and the models, and who waits for them.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use engine_api::{Engine as _, OfferError};
use models::panic_isolation::catch_panic;

use super::CallEngine;
use super::admission::RejectReason;
use crate::messages::{Message, ThreadResources};
use crate::thread;
use crate::transport::webrtc::Certificate;

/// Maximum time that an offer waits for the certificate and the models.
const READY_TIMEOUT: Duration = Duration::from_secs(10);

/// Whether the engine can take calls.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Readiness {
    Loading,
    Ready,
    /// Loading failed for good; the string names what is missing.
    Unavailable(String),
}

impl CallEngine {
    /// Waits until the certificate and the models are loaded.
    ///
    /// # Errors
    /// What is missing, in one sentence; the engine takes no calls.
    pub async fn wait_loaded(&self) -> Result<(), String> {
        let mut ready = self.ready.subscribe();
        // The sender is in `self`, so it is not closed.
        let _ = ready.wait_for(|readiness| *readiness != Readiness::Loading).await;
        self.not_ready_reason().map_or(Ok(()), Err)
    }

    /// Starts the thread that loads them.
    pub(super) fn spawn_loader(engine: &Arc<Self>) -> io::Result<()> {
        let loader = Arc::clone(engine);
        thread::spawn("warm-up", move || {
            let panicked =
                || Err("a panic occurred while the models were loading; see the log".to_owned());
            let readiness = match catch_panic(|| loader.load_resources()).unwrap_or_else(panicked) {
                Ok(()) => Readiness::Ready,
                Err(missing) => {
                    tracing::error!(reason = %missing, "the engine cannot accept calls");
                    Readiness::Unavailable(missing)
                }
            };
            loader.ready.send_replace(readiness);
        })
        .map(drop)
    }

    fn load_resources(&self) -> Result<(), String> {
        let certificate =
            Arc::new(Certificate::generate().ok_or("cannot generate a DTLS certificate")?);
        // Set once: this is its only place.
        let _ = self.certificate.set(Arc::clone(&certificate));
        self.models.load()?;
        for thread in &self.threads {
            let resources =
                ThreadResources { certificate: Arc::clone(&certificate), vad: self.models.vad()? };
            let sent = thread.inbox.requests.send(Message::Ready(Box::new(resources)));
            sent.map_err(|_| "a media thread has stopped".to_owned())?;
        }
        Ok(())
    }

    pub(super) async fn wait_until_ready(&self) -> Result<(), OfferError> {
        let mut ready = self.ready.subscribe();
        // The check below distinguishes readiness from a timeout.
        let _ =
            tokio::time::timeout(READY_TIMEOUT, ready.wait_for(|r| *r != Readiness::Loading)).await;
        self.not_ready_reason()
            .map_or(Ok(()), |missing| Err(self.rejections.reject(&RejectReason::NotReady(missing))))
    }
}
