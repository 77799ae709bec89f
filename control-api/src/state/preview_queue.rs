//! Requests of previews that wait for the child process that renders them. Each key has at most
//! one: a newer one replaces it.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use tokio::sync::{Notify, oneshot};

use crate::error::ApiError;
use crate::state::api_key::KeyHash;

/// Maximum number of queued previews: at about 1 s each, the wait stays acceptable.
const MAX_QUEUED_PREVIEWS: usize = 8;

/// A requested preview.
pub(crate) struct PreviewRequest {
    key: KeyHash,
    pub(crate) request_line: Bytes,
    pub(crate) reply: oneshot::Sender<Result<Bytes, ApiError>>,
}

/// Queue of preview requests.
#[derive(Default)]
pub(crate) struct PreviewRenderer {
    queue: Mutex<VecDeque<PreviewRequest>>,
    pub(crate) wake: Notify,
}

impl PreviewRenderer {
    fn lock_queue(&self) -> MutexGuard<'_, VecDeque<PreviewRequest>> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Renders the picture of a request. A newer request of the same key replaces this one while it
    /// waits; this one is then refused.
    pub(crate) async fn render(&self, key: KeyHash, line: Bytes) -> Result<Bytes, ApiError> {
        let (reply, picture) = oneshot::channel();
        self.enqueue(PreviewRequest { key, request_line: line, reply })?;
        self.wake.notify_one();
        let gone = |_| ApiError::NoCapacity("the server is shutting down".into());
        picture.await.map_err(gone)?
    }

    fn enqueue(&self, request: PreviewRequest) -> Result<(), ApiError> {
        let mut waiting = self.lock_queue();
        // Requests of clients that disconnected are removed.
        waiting.retain(|request| !request.reply.is_closed());
        if let Some(old) = waiting.iter_mut().find(|old| old.key == request.key) {
            let old = std::mem::replace(old, request);
            let _ = old.reply.send(Err(ApiError::Conflict("A newer preview was asked for".into())));
            return Ok(());
        }
        if waiting.len() >= MAX_QUEUED_PREVIEWS {
            return Err(ApiError::NoCapacity("too many previews are wanted at once".into()));
        }
        waiting.push_back(request);
        Ok(())
    }

    pub(crate) fn dequeue(&self) -> Option<PreviewRequest> {
        let mut waiting = self.lock_queue();
        std::iter::from_fn(|| waiting.pop_front()).find(|order| !order.reply.is_closed())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(key: u8, line: &'static str) -> (PreviewRequest, oneshot::Receiver<Result<Bytes, ApiError>>) {
        let (reply, answer) = oneshot::channel();
        (PreviewRequest { key: [key; 32], request_line: Bytes::from_static(line.as_bytes()), reply }, answer)
    }

    #[test]
    fn a_newer_order_takes_the_place_of_the_one_that_waits() {
        let renderer = PreviewRenderer::default();
        let (first, mut stale) = request(1, "first");
        let (second, _other) = request(2, "second");
        let (third, mut fresh) = request(1, "third");
        for order in [first, second, third] {
            renderer.enqueue(order).unwrap();
        }
        assert!(matches!(stale.try_recv(), Ok(Err(ApiError::Conflict(_)))));
        assert!(fresh.try_recv().is_err(), "it waits");
        assert_eq!(renderer.dequeue().unwrap().request_line, "third", "in the first one's place");
        assert_eq!(renderer.dequeue().unwrap().request_line, "second");
        assert!(renderer.dequeue().is_none());
    }

    #[test]
    fn few_may_wait_and_who_hung_up_waits_no_more() {
        let renderer = PreviewRenderer::default();
        let mut held = Vec::new();
        for key in 0..MAX_QUEUED_PREVIEWS as u8 {
            let (order, answer) = request(key, "x");
            renderer.enqueue(order).unwrap();
            held.push(answer);
        }
        let (late, _answer) = request(99, "late");
        assert!(matches!(renderer.enqueue(late), Err(ApiError::NoCapacity(_))));
        held.remove(0);
        let (late, _answer) = request(99, "late");
        renderer.enqueue(late).unwrap();
        held.clear();
        assert_eq!(renderer.dequeue().unwrap().request_line, "late");
        assert!(renderer.dequeue().is_none());
    }
}
