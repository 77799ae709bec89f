//! Requests of previews that wait for the child process that renders them. Each workspace has its
//! own queue, and workspaces take turns. Each key has at most one request: a newer one replaces it.

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use tokio::sync::{Notify, oneshot};

use crate::error::ApiError;
use crate::state::api_key::KeyHash;

/// Maximum number of queued previews of a workspace: at about 1 s each, the wait stays acceptable.
const MAX_QUEUED_PREVIEWS: usize = 8;

/// A requested preview.
pub(crate) struct PreviewRequest {
    key: KeyHash,
    pub(crate) request_line: Bytes,
    pub(crate) reply: oneshot::Sender<Result<Bytes, ApiError>>,
}

/// The waiting requests of all workspaces.
#[derive(Default)]
struct PreviewQueue {
    /// By workspace, each in the order of arrival.
    workspaces: HashMap<String, VecDeque<PreviewRequest>>,
    /// The keys of `workspaces`, the next one first.
    round_robin: VecDeque<String>,
}

impl PreviewQueue {
    fn push(&mut self, workspace: &str, request: PreviewRequest) -> Result<(), ApiError> {
        if !self.workspaces.contains_key(workspace) {
            self.round_robin.push_back(workspace.to_owned());
        }
        let waiting = self.workspaces.entry(workspace.to_owned()).or_default();
        // Requests of clients that disconnected are removed.
        waiting.retain(|request| !request.reply.is_closed());
        if let Some(old) = waiting.iter_mut().find(|old| old.key == request.key) {
            let old = std::mem::replace(old, request);
            let _ = old.reply.send(Err(ApiError::Conflict("A newer preview was requested".into())));
            return Ok(());
        }
        if waiting.len() >= MAX_QUEUED_PREVIEWS {
            return Err(ApiError::NoCapacity("too many previews are requested at once".into()));
        }
        waiting.push_back(request);
        Ok(())
    }

    /// The next request whose client still waits.
    fn pop(&mut self) -> Option<PreviewRequest> {
        while let Some(workspace) = self.round_robin.pop_front() {
            let Some(waiting) = self.workspaces.get_mut(&workspace) else { continue };
            let next = std::iter::from_fn(|| waiting.pop_front())
                .find(|request| !request.reply.is_closed());
            if waiting.is_empty() {
                self.workspaces.remove(&workspace);
            } else {
                self.round_robin.push_back(workspace);
            }
            if next.is_some() {
                return next;
            }
        }
        None
    }
}

/// Queue of preview requests.
#[derive(Default)]
pub(crate) struct PreviewRenderer {
    queue: Mutex<PreviewQueue>,
    pub(crate) wake: Notify,
}

impl PreviewRenderer {
    fn lock_queue(&self) -> MutexGuard<'_, PreviewQueue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Renders the picture of a request. A newer request of the same key replaces this one while it
    /// waits; this one is then refused.
    pub(crate) async fn render(
        &self,
        workspace: &str,
        key: KeyHash,
        line: Bytes,
    ) -> Result<Bytes, ApiError> {
        let (reply, picture) = oneshot::channel();
        self.lock_queue().push(workspace, PreviewRequest { key, request_line: line, reply })?;
        self.wake.notify_one();
        let gone = |_| ApiError::NoCapacity("the server is shutting down".into());
        picture.await.map_err(gone)?
    }

    pub(crate) fn dequeue(&self) -> Option<PreviewRequest> {
        self.lock_queue().pop()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Answer = oneshot::Receiver<Result<Bytes, ApiError>>;

    fn request(key: u8, line: &'static str) -> (PreviewRequest, Answer) {
        let (reply, answer) = oneshot::channel();
        (
            PreviewRequest {
                key: [key; 32],
                request_line: Bytes::from_static(line.as_bytes()),
                reply,
            },
            answer,
        )
    }

    fn next_line(queue: &mut PreviewQueue) -> Option<Bytes> {
        queue.pop().map(|request| request.request_line)
    }

    #[test]
    fn a_newer_preview_replaces_the_waiting_one() {
        let mut queue = PreviewQueue::default();
        let (first, mut stale) = request(1, "first");
        let (second, _other) = request(2, "second");
        let (third, mut fresh) = request(1, "third");
        for order in [first, second, third] {
            queue.push("a", order).unwrap();
        }
        assert!(matches!(stale.try_recv(), Ok(Err(ApiError::Conflict(_)))));
        assert!(fresh.try_recv().is_err(), "it waits");
        assert_eq!(next_line(&mut queue).unwrap(), "third", "at the position of the first one");
        assert_eq!(next_line(&mut queue).unwrap(), "second");
        assert!(next_line(&mut queue).is_none());
    }

    #[test]
    fn the_preview_queue_is_bounded_and_drops_disconnected_clients() {
        let mut queue = PreviewQueue::default();
        let mut held = Vec::new();
        for key in 0..MAX_QUEUED_PREVIEWS as u8 {
            let (order, answer) = request(key, "x");
            queue.push("a", order).unwrap();
            held.push(answer);
        }
        let (late, _answer) = request(99, "late");
        assert!(matches!(queue.push("a", late), Err(ApiError::NoCapacity(_))));
        held.remove(0);
        let (late, _answer) = request(99, "late");
        queue.push("a", late).unwrap();
        held.clear();
        assert_eq!(next_line(&mut queue).unwrap(), "late");
        assert!(next_line(&mut queue).is_none());
        assert!(queue.workspaces.is_empty() && queue.round_robin.is_empty());
    }

    #[test]
    fn a_workspace_with_many_keys_leaves_room_for_the_others_and_takes_turns_with_them() {
        let mut queue = PreviewQueue::default();
        let mut held = Vec::new();
        for key in 0..MAX_QUEUED_PREVIEWS as u8 {
            let (order, answer) = request(key, "many");
            queue.push("a", order).unwrap();
            held.push(answer);
        }
        for (workspace, key, line) in [("b", 100, "b1"), ("b", 101, "b2"), ("c", 102, "c1")] {
            let (order, answer) = request(key, line);
            assert!(queue.push(workspace, order).is_ok(), "{line}");
            held.push(answer);
        }
        let order: Vec<Bytes> = std::iter::from_fn(|| next_line(&mut queue)).collect();
        assert_eq!(order[..6], ["many", "b1", "c1", "many", "b2", "many"]);
        assert_eq!(order.len(), MAX_QUEUED_PREVIEWS + 3);
        // Clients of a workspace that have all disconnected cost the others no turn.
        let (gone, _) = request(0, "gone");
        let (last, _answer) = request(1, "last");
        queue.push("a", gone).unwrap();
        queue.push("b", last).unwrap();
        assert_eq!(next_line(&mut queue).unwrap(), "last");
        assert!(queue.workspaces.is_empty() && queue.round_robin.is_empty());
    }
}
