//! Requests of previews that wait for the child process that renders them. Each key has at most
//! one: a newer one replaces it.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use tokio::sync::{Notify, oneshot};

use crate::error::ApiError;
use crate::state::api_key::Hash;

/// Maximum number of queued previews: at about 1 s each, the wait stays acceptable.
const WAITING: usize = 8;

/// A requested preview.
pub(crate) struct Order {
    key: Hash,
    pub(crate) line: Bytes,
    pub(crate) reply: oneshot::Sender<Result<Bytes, ApiError>>,
}

/// Queue of preview requests.
#[derive(Default)]
pub(crate) struct Painter {
    waiting: Mutex<VecDeque<Order>>,
    pub(crate) wake: Notify,
}

impl Painter {
    fn waiting(&self) -> MutexGuard<'_, VecDeque<Order>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Renders the picture of a request. A newer request of the same key replaces this one while it
    /// waits; this one is then refused.
    pub(crate) async fn draw(&self, key: Hash, line: Bytes) -> Result<Bytes, ApiError> {
        let (reply, picture) = oneshot::channel();
        self.place(Order { key, line, reply })?;
        self.wake.notify_one();
        let gone = |_| ApiError::NoCapacity("the server is shutting down".into());
        picture.await.map_err(gone)?
    }

    fn place(&self, order: Order) -> Result<(), ApiError> {
        let mut waiting = self.waiting();
        // Requests of clients that disconnected are removed.
        waiting.retain(|order| !order.reply.is_closed());
        if let Some(old) = waiting.iter_mut().find(|old| old.key == order.key) {
            let old = std::mem::replace(old, order);
            let _ = old.reply.send(Err(ApiError::Conflict("A newer preview was asked for".into())));
            return Ok(());
        }
        if waiting.len() >= WAITING {
            return Err(ApiError::NoCapacity("too many previews are wanted at once".into()));
        }
        waiting.push_back(order);
        Ok(())
    }

    pub(crate) fn next(&self) -> Option<Order> {
        let mut waiting = self.waiting();
        std::iter::from_fn(|| waiting.pop_front()).find(|order| !order.reply.is_closed())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn order(key: u8, line: &'static str) -> (Order, oneshot::Receiver<Result<Bytes, ApiError>>) {
        let (reply, answer) = oneshot::channel();
        (Order { key: [key; 32], line: Bytes::from_static(line.as_bytes()), reply }, answer)
    }

    #[test]
    fn a_newer_order_takes_the_place_of_the_one_that_waits() {
        let painter = Painter::default();
        let (first, mut stale) = order(1, "first");
        let (second, _other) = order(2, "second");
        let (third, mut fresh) = order(1, "third");
        for order in [first, second, third] {
            painter.place(order).unwrap();
        }
        assert!(matches!(stale.try_recv(), Ok(Err(ApiError::Conflict(_)))));
        assert!(fresh.try_recv().is_err(), "it waits");
        assert_eq!(painter.next().unwrap().line, "third", "in the first one's place");
        assert_eq!(painter.next().unwrap().line, "second");
        assert!(painter.next().is_none());
    }

    #[test]
    fn few_may_wait_and_who_hung_up_waits_no_more() {
        let painter = Painter::default();
        let mut held = Vec::new();
        for key in 0..WAITING as u8 {
            let (order, answer) = order(key, "x");
            painter.place(order).unwrap();
            held.push(answer);
        }
        let (late, _answer) = order(99, "late");
        assert!(matches!(painter.place(late), Err(ApiError::NoCapacity(_))));
        held.remove(0);
        let (late, _answer) = order(99, "late");
        painter.place(late).unwrap();
        held.clear();
        assert_eq!(painter.next().unwrap().line, "late");
        assert!(painter.next().is_none());
    }
}
